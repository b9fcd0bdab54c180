// SPDX-License-Identifier: MIT
// Descriptors 0, 1 and 2 that a program has closed or redirected are its own for every call, as in a process.
#include <fstream>
#include <functional>
#include <string>

#include "side_by_side.hpp"

namespace aplib::loader::test {
namespace {

using Descriptors = SideBySide;

constexpr const char* descriptor_headers = R"C(
    #include <fcntl.h>
    #include <poll.h>
    #include <sys/epoll.h>
    #include <sys/eventfd.h>
    #include <sys/inotify.h>
    #include <sys/mman.h>
    #include <sys/select.h>
    #include <sys/sendfile.h>
    #include <sys/signalfd.h>
    #include <sys/socket.h>
    #include <sys/stat.h>
    #include <sys/timerfd.h>
    #include <sys/un.h>
    )C";

TEST_F(Descriptors, AClosedOneIsTheNextOfEveryCall) {
  expect_private(std::string(descriptor_headers) + R"C(
    static void lowest(int made) { say("%d ", made); say("%d ", fcntl(0, F_GETFD) < 0); }
    void step(int n) {
      int two[2] = {-1, -1}, far;
      sigset_t none;
      sigemptyset(&none);
      if (n == 0) {
        #define LOWEST(call) close(0); lowest(call);
        LOWEST(socket(AF_UNIX, SOCK_STREAM, 0)) LOWEST(eventfd(0, 0)) LOWEST(timerfd_create(CLOCK_MONOTONIC, 0))
        LOWEST(epoll_create1(0)) LOWEST(memfd_create("x", 0)) LOWEST(inotify_init1(0)) LOWEST(signalfd(-1, &none, 0))
        LOWEST(fcntl(2, F_DUPFD, 0)) LOWEST(fcntl(2, F_DUPFD_CLOEXEC, 0)) LOWEST(fcntl(0, F_GETFL) < 0)
        say("%d ", (far = fcntl(2, F_DUPFD, 1)) > 2);
        close(far);
        say("%d ", pipe(two));
        say("%d %d ", two[0], two[1] > 2);
        close(two[1]);
      } else if (n < 4) {
        char byte = 'x';
        close(0);
        close(2);
        say("%d ", n == 1 ? pipe2(two, 0) : n == 2 ? socketpair(AF_UNIX, SOCK_STREAM, 0, two) : pipe(two));
        say("%d %d ", two[0], two[1]);
        say("%d ", (int)write(two[1], &byte, 1));
        byte = 'y';
        say("%d ", (int)read(two[0], &byte, 1));
        say("%c\n", byte);
      } else {
        struct sockaddr_un address = {AF_UNIX, ""};
        socklen_t bytes = sizeof(sa_family_t) + 10;
        snprintf(address.sun_path + 1, 20, "ap%06d-", getpid() % 1000000);
        close(0);
        say("%d ", socket(AF_UNIX, SOCK_STREAM, 0));
        say("%d ", (int)bind(0, (struct sockaddr*)&address, bytes));
        say("%d ", (int)listen(0, 1));
        close(2);
        say("%d ", socket(AF_UNIX, SOCK_STREAM, 0));
        say("%d ", (int)connect(2, (struct sockaddr*)&address, bytes));
        int listener = dup(0);
        close(0);
        say("%d ", accept(listener, NULL, NULL));
        say("%d ", (int)send(2, "abc", 3, 0));
        char text[4] = "";
        say("%d ", (int)recv(0, text, 3, 0));
        say("%s", text);
        close(listener);
      }
    })C",
                 5);
}

TEST_F(Descriptors, CallsReachWhatARedirectedOneLeadsTo) {
  const std::string file = shop.write("sent", "0123456789");
  expect_private(std::string(descriptor_headers) + R"C(
    void step(int n) {
      int two[2], type = 0, value = 0;
      socklen_t bytes = sizeof type;
      char text[40] = "";
      struct sockaddr_un address;
      struct iovec piece = {text, 10};
      struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
      struct mmsghdr messages[1] = {{message}};
      fd_set in, out;
      struct timeval none = {0, 0}, some = {5, 0};
      struct timespec time = {5, 0};
      struct pollfd polled[2] = {{0, POLLIN}, {2, POLLOUT}};
      struct epoll_event event = {EPOLLIN};
      const int saved = dup(1);
      socketpair(AF_UNIX, SOCK_DGRAM, 0, two);
      dup2(two[0], 0);
      dup2(two[1], 2);
      close(two[0]);
      close(two[1]);
      say("%d %d ", getsockopt(0, SOL_SOCKET, SO_TYPE, &type, &bytes), type == SOCK_DGRAM);
      bytes = sizeof address;
      say("%d ", getsockname(0, (struct sockaddr*)&address, &bytes));
      bytes = sizeof address;
      say("%d ", getpeername(2, (struct sockaddr*)&address, &bytes));
      value = 1;
      say("%d ", setsockopt(2, SOL_SOCKET, SO_PASSCRED, &value, sizeof value));
      value = 0;
      setsockopt(2, SOL_SOCKET, SO_PASSCRED, &value, sizeof value);
      #define TWO(first, second) value = first; say("%d %d ", value, (int)second);
      #define LOOK(call) FD_ZERO(&in); FD_ZERO(&out); FD_SET(0, &in); FD_SET(2, &out); \
        value = call; say("%d %d %d, ", value, !!FD_ISSET(0, &in), !!FD_ISSET(2, &out));
      LOOK(select(3, &in, &out, NULL, &none))
      LOOK(select(3, &in, &out, NULL, &some))
      LOOK(select(3, &in, NULL, NULL, &none))
      TWO(send(2, "one", 3, 0), recv(0, text, 40, 0))
      TWO(sendto(2, "four", 4, 0, NULL, 0), recvfrom(0, text, 40, 0, NULL, NULL))
      TWO(sendmsg(2, &message, 0), recvmsg(0, &message, 0))
      TWO(sendmmsg(2, messages, 1, 0), recvmmsg(0, messages, 1, 0, NULL))
      write(2, "x", 1);
      LOOK(select(3, &in, &out, NULL, &none))
      LOOK(select(3, &in, &out, NULL, NULL))
      LOOK(pselect(3, &in, &out, NULL, &time, NULL))
      LOOK(pselect(3, &in, &out, NULL, NULL, NULL))
      TWO(poll(polled, 2, 0), polled[0].revents)
      int epoll = epoll_create1(0);
      dup2(epoll, 1);
      close(epoll);
      TWO(epoll_ctl(1, EPOLL_CTL_ADD, 0, &event), epoll_wait(1, &event, 1, 0))
      say("%d ", recv(0, text, 40, 0) == 1);
      int from = open(getenv("FILE_NAME"), O_RDONLY);
      TWO(sendfile(2, from, NULL, 5), recv(0, text, 40, 0))
      pipe(two);
      dup2(two[0], 0);
      TWO(splice(from, NULL, two[1], NULL, 3, 0), splice(0, NULL, 2, NULL, 3, 0))
      say("%d ", shutdown(2, SHUT_RDWR));
      close(0);
      close(2);
      TWO(poll(polled, 2, 0), polled[0].revents)
      #define CLOSED(call) errno = 0; value = call; say("%d ", value == -1 && errno == EBADF);
      FD_SET(0, &in);
      CLOSED(select(1, &in, NULL, NULL, &none)) CLOSED(fcntl(0, F_GETFD)) CLOSED(send(2, "x", 1, 0))
      CLOSED(sendfile(2, from, NULL, 5)) CLOSED(fsync(0)) CLOSED(ftruncate(2, 0)) CLOSED(listen(0, 1))
      close(from);
      close(two[0]);
      close(two[1]);
      dup2(saved, 1);
      dup2(saved, 2);
      close(saved);
    })C",
                 1, {"FILE_NAME=" + file});
}

}  // namespace
}  // namespace aplib::loader::test
