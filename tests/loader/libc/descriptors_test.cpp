// SPDX-License-Identifier: MIT
// Descriptors 0, 1 and 2 that a program has closed or redirected are its own for every call, as in a process.
#include <fstream>
#include <functional>
#include <string>
#include <vector>

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

TEST_F(Descriptors, FilesAndFoldersTakeAClosedOne) {
  const std::string file = shop.write("text", "first line\nsecond line\n");
  expect_private(std::string(descriptor_headers) + R"C(
    #include <dirent.h>
    #include <mntent.h>
    static int is_open(int number) { return fcntl(number, F_GETFD) >= 0; }
    void step(int n) {
      char text[40] = "";
      const char* const name = getenv("FILE_NAME");
      FILE* file = NULL;
      if (n == 0) {
        close(0);
        file = fopen(name, "r");
        say("%d %s", fileno(file), fgets(text, 40, file));
        say("%d ", (int)lseek(0, 0, SEEK_CUR));
        say("%ld ", ftell(file));
        say("%d ", fseek(file, 6, SEEK_SET));
        say("%s", fgets(text, 40, file));
        say("%d ", fclose(file));
        say("%d ", is_open(0));
        file = fopen(name, "re");
        say("%d ", fcntl(0, F_GETFD));
        say("%d ", fclose(file));
        file = tmpfile();
        say("%d ", fileno(file));
        fputs("abc", file);
        rewind(file);
        say("%s ", fgets(text, 40, file));
        say("%d ", fclose(file));
        say("%d ", is_open(0));
        file = popen("echo out", "r");
        say("%d ", fileno(file));
        say("%s", fgets(text, 40, file));
        say("%d ", pclose(file));
        say("%d ", is_open(0));
        file = setmntent(name, "r");
        say("%d ", fileno(file));
        say("%d ", endmntent(file));
        say("%d ", is_open(0));
        file = fopen(name, "r");
        close(0);
        say("%d ", fgetc(file) == EOF);
        ended(fclose(file), EBADF);
        file = fopen(name, "r");
        int saved = dup(0);
        close(0);
        ended(open("/nothing", O_RDONLY), ENOENT);
        say("%d ", dup(saved));
        say("%s", fgets(text, 40, file));
        say("%d ", fclose(file));
        say("%d ", is_open(0));
        close(saved);
      } else if (n == 1) {
        DIR* folder = opendir(getenv("FOLDER"));
        say("%d ", dirfd(folder));
        say("%d ", is_open(0));
        while (readdir(folder)) {}
        say("%d ", closedir(folder));
        say("%d ", is_open(0));
        say("%d ", open(getenv("FOLDER"), O_RDONLY));
        folder = fdopendir(0);
        say("%d ", dirfd(folder));
        say("%d ", readdir(folder) != NULL);
        say("%d ", closedir(folder));
        say("%d ", is_open(0));
        ended(fdopendir(0) == NULL ? -1 : 0, EBADF);
      } else if (n == 2) {
        say("%d ", open(name, O_RDWR));
        file = fdopen(0, "r+");
        say("%d %s", fileno(file), fgets(text, 40, file));
        say("%d ", freopen("/dev/null", "r", file) == file);
        say("%d ", fileno(file));
        say("%d ", fgetc(file) == EOF);
        say("%d ", fclose(file));
        say("%d ", is_open(0));
        ended(fdopen(0, "r") == NULL ? -1 : 0, EBADF);
      } else {
        say("%d ", fcntl(1, F_GETFD));
        say("%d ", dup2(1, 0));
        say("%d ", fcntl(0, F_GETFD));
        say("%d ", fcntl(0, F_SETFD, FD_CLOEXEC));
        say("%d ", fcntl(0, F_GETFD));
        say("%d ", dup2(0, 0));
        say("%d ", fcntl(0, F_GETFD));
        say("%d ", dup3(1, 0, O_CLOEXEC));
        say("%d ", fcntl(0, F_GETFD));
        say("%d ", system("test -e /proc/self/fd/0"));
        say("%d ", dup3(1, 0, 0));
        say("%d ", fcntl(0, F_GETFD));
        say("%d ", system("test -e /proc/self/fd/0"));
        ended(dup3(1, 0, O_APPEND), EINVAL);
        say("%d ", close_range(0, 0, CLOSE_RANGE_CLOEXEC));
        say("%d ", fcntl(0, F_GETFD));
        close(0);
        say("%d ", open(name, O_RDONLY | O_CLOEXEC));
        say("%d ", fcntl(0, F_GETFD));
        close(0);
        say("%d ", open(name, O_RDONLY));
        say("%d ", fcntl(0, F_GETFD));
        close(0);
        ended(fcntl(0, F_GETFD), EBADF);
      }
    })C",
                 4, {"FILE_NAME=" + file, "FOLDER=" + shop.folder(), "PATH=/usr/bin:/bin"});
}

TEST_F(Descriptors, FurtherCallsReachWhatARedirectedOneLeadsTo) {
  const std::string file = shop.write("further", "0123456789");
  expect_private(std::string(descriptor_headers) + R"C(
    #include <aio.h>
    #include <dirent.h>
    #include <execinfo.h>
    #include <sys/uio.h>
    static void await(struct aiocb* one) {
      const struct aiocb* list[1] = {one};
      while (aio_error(one) == EINPROGRESS) aio_suspend(list, 1, NULL);
      say("%d ", aio_error(one));
      say("%d ", (int)aio_return(one));
      say("%d ", one->aio_fildes);
    }
    void step(int n) {
      char text[4000] = "";
      struct stat status, other;
      eventfd_t value = 0;
      int two[2];
      const char* const name = getenv("FILE_NAME");
      const char* const folder = getenv("FOLDER");
      const int saved[2] = {fcntl(1, F_DUPFD, 10), fcntl(2, F_DUPFD, 10)};
      if (n == 0) {
        close(0);
        say("%d ", eventfd(3, 0));
        say("%d ", eventfd_read(0, &value));
        say("%d ", (int)value);
        say("%d ", eventfd_write(0, 4));
        say("%d ", eventfd_read(0, &value));
        say("%d ", (int)value);
        close(0);
        ended(eventfd_read(0, &value), EBADF);
      } else if (n == 1) {
        close(0);
        say("%d ", open(name, O_RDWR | O_TRUNC));
        say("%d ", (int)pwrite(0, "0123456789", 10, 0));
        struct aiocb one = {.aio_fildes = 0, .aio_buf = text, .aio_nbytes = 4, .aio_offset = 2};
        struct aiocb next = {.aio_fildes = 0, .aio_buf = "XY", .aio_nbytes = 2, .aio_offset = 8};
        struct aiocb third = {.aio_fildes = 0, .aio_buf = text + 8, .aio_nbytes = 2, .aio_lio_opcode = LIO_READ};
        struct aiocb* list[2] = {&third, NULL};
        say("%d ", aio_read(&one));
        await(&one);
        say("%s ", text);
        say("%d ", aio_write(&next));
        await(&next);
        say("%d ", aio_fsync(O_SYNC, &next));
        await(&next);
        say("%d ", lio_listio(LIO_WAIT, list, 2, NULL));
        await(&third);
        say("%s ", text + 8);
        say("%d ", aio_cancel(0, NULL));
        struct iovec piece = {text, 3};
        say("%d ", (int)preadv2(0, &piece, 1, 7, 0));
        say("%.3s ", text);
        piece.iov_base = "zz";
        piece.iov_len = 2;
        say("%d ", (int)pwritev2(0, &piece, 1, 0, 0));
        off_t from = 0, to = 20;
        say("%d ", (int)copy_file_range(0, &from, 0, &to, 5, 0));
        memset(text, 0, sizeof text);
        say("%d ", (int)pread(0, text, 5, 20));
        say("%s ", text);
        say("%d ", posix_fadvise(0, 0, 0, POSIX_FADV_RANDOM));
        pipe(two);
        piece.iov_base = "spliced";
        piece.iov_len = 7;
        dup2(two[1], 2);
        say("%d ", (int)vmsplice(2, &piece, 1, 0));
        dup2(two[0], 0);
        int more[2];
        pipe(more);
        say("%d ", (int)tee(0, more[1], 3, 0));
        memset(text, 0, sizeof text);
        say("%d ", (int)read(more[0], text, 9));
        say("%s ", text);
        say("%d ", dprintf(2, "%d", 12));
        say("%d ", (int)read(0, text, 20));
        say("%s ", text);
        for (int i = 0; i < 2; ++i) { close(two[i]); close(more[i]); }
      } else if (n == 2) {
        close(0);
        say("%d ", open(folder, O_RDONLY | O_DIRECTORY));
        say("%d ", faccessat(0, "further", R_OK, 0));
        say("%d ", fstatat(0, "further", &status, 0));
        say("%d ", mkdirat(0, "a", 0700));
        say("%d ", symlinkat("further", 0, "a/link"));
        say("%d ", renameat(0, "a/link", 0, "link"));
        say("%d ", (int)readlinkat(0, "link", text, 20));
        say("%d ", linkat(0, "further", 0, "a/hard", 0));
        say("%d ", renameat2(0, "a/hard", 0, "a/soft", 0));
        say("%d ", fchmodat(0, "a/soft", 0600, 0));
        say("%d ", utimensat(0, "a/soft", NULL, 0));
        say("%d ", mkfifoat(0, "a/fifo", 0600));
        say("%d ", unlinkat(0, "a/fifo", 0));
        struct dirent** list = NULL;
        const int listed = scandirat(0, "a", &list, NULL, alphasort);
        say("%d ", listed);
        for (int i = 0; i < listed; ++i) free(list[i]);
        if (listed >= 0) free(list);
        say("%d ", getdents64(0, text, sizeof text) > 0);
        say("%d ", unlinkat(0, "a/soft", 0));
        say("%d ", unlinkat(0, "link", 0));
        say("%d ", unlinkat(0, "a", AT_REMOVEDIR));
        const int opened = openat(0, "further", O_RDONLY);
        say("%d ", opened > 2);
        say("%d ", fstatat(opened, "", &other, AT_EMPTY_PATH) == 0 && other.st_ino == status.st_ino);
        close(opened);
        close(0);
        ended(openat(0, "further", O_RDONLY), EBADF);
        ended(mkdirat(0, "b", 0700), EBADF);
        ended(open("/dev/stdin", O_RDONLY), ENOENT);
        say("%d ", fopen("/dev/fd/0", "r") == NULL);
      } else {
        close(0);
        say("%d ", open(name, O_RDONLY));
        say("%d ", (int)read(0, text, 5));
        const int again = open("/dev/stdin", O_RDONLY);
        say("%d ", again > 2);
        say("%d ", (int)read(again, text, 3));
        say("%s ", text);
        close(again);
        FILE* const file = fopen("/proc/self/fd/0", "r");
        say("%s ", fgets(text, 4, file));
        fclose(file);
        pipe(two);
        dup2(two[1], 2);
        void* const here = (void*)step;
        backtrace_symbols_fd(&here, 1, 2);
        dup2(saved[1], 2);
        close(two[1]);
        say("%d ", read(two[0], text, sizeof text) > 0);
        close(two[0]);
      }
      dup2(saved[0], 1);
      dup2(saved[1], 2);
      close(saved[0]);
      close(saved[1]);
    })C",
                 4, {"FILE_NAME=" + file, "FOLDER=" + shop.folder()});
}

TEST_F(Descriptors, RarerCallsTakeAClosedOneToo) {
  const std::string file = shop.write("text", "0123456789");
  expect_private(std::string(descriptor_headers) + R"C(
    #include <mqueue.h>
    #include <signal.h>
    #include <netdb.h>
    #include <sys/syscall.h>
    int pidfd_open(pid_t, unsigned);
    int pidfd_getfd(int, int, unsigned);
    void step(int n) {
      char text[9000] = "";
      struct { struct file_handle handle; char room[128]; } one = {{128}};
      int mount = -1;
      unsigned priority = 0;
      struct mq_attr attributes = {.mq_maxmsg = 2, .mq_msgsize = 100};
      const char* const name = getenv("FILE_NAME");
      const int saved = dup(0);
      close(0);
      if (n == 0) {
        char queue[40];
        snprintf(queue, sizeof queue, "/aplib-test-%d", getpid());
        say("%d ", mq_open(queue, O_CREAT | O_RDWR | O_EXCL, 0600, &attributes));
        say("%d ", mq_unlink(queue));
        say("%d ", mq_getattr(0, &attributes));
        say("%ld ", attributes.mq_msgsize);
        say("%d ", mq_send(0, "sent", 4, 7));
        attributes.mq_flags = O_NONBLOCK;
        say("%d ", mq_setattr(0, &attributes, NULL));
        say("%d ", (int)mq_receive(0, text, 100, &priority));
        say("%s %u ", text, priority);
        ended(mq_receive(0, text, 100, &priority), EAGAIN);
        struct sigevent none = {.sigev_notify = SIGEV_NONE};
        say("%d ", mq_notify(0, &none));
        say("%d ", mq_notify(0, NULL));
        say("%d ", mq_close(0));
        ended(mq_close(0), EBADF);
        ended(mq_send(0, "x", 1, 0), EBADF);
      } else if (n == 1) {
        say("%d ", creat("/dev/null", 0600));
        say("%d ", fcntl(0, F_GETFL) & O_ACCMODE);
        close(0);
        const int parent = getppid();
        say("%d ", pidfd_open(parent, 0));
        const int other = dup(0);
        close(0);
        say("%d ", pidfd_getfd(other, 99, 0) < 0);
        close(other);
        int port = 1023;
        const int made = rresvport(&port);
        say("%d ", made <= 0);
        close(0);
        say("%d ", (int)open(name, O_RDONLY));
        say("%d ", name_to_handle_at(0, "", &one.handle, &mount, AT_EMPTY_PATH));
        const int folder = open("/", O_RDONLY | O_DIRECTORY);
        close(0);
        const int again = open_by_handle_at(folder, &one.handle, O_RDONLY);
        say("%d ", again <= 0);
        close(0);
        close(folder);
      }
      dup2(saved, 0);
      close(saved);
    })C",
                 2, {"FILE_NAME=" + file});
}

TEST_F(Descriptors, AMessageCarriesWhatTheProgramMeans) {
  const std::string file = shop.write("text", "0123456789");
  expect_private(std::string(descriptor_headers) + R"C(
    union control { struct cmsghdr header; char bytes[256]; };
    static int pass(int by, const int* passed, int count, int many) {
      union control control = {0};
      struct iovec piece = {"m", 1};
      struct mmsghdr message = {{.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.bytes,
                                 .msg_controllen = CMSG_SPACE(count * sizeof(int))}};
      control.header = (struct cmsghdr){CMSG_LEN(count * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
      memcpy(CMSG_DATA(&control.header), passed, count * sizeof(int));
      const int sent = many ? sendmmsg(by, &message, 1, 0) : (int)sendmsg(by, &message.msg_hdr, 0);
      say("%d ", memcmp(CMSG_DATA(&control.header), passed, count * sizeof(int)));
      return sent;
    }
    static int take(int by, int* taken, int many) {
      union control control = {0};
      char byte = 0;
      struct iovec piece = {&byte, 1};
      struct mmsghdr message = {{.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.bytes,
                                 .msg_controllen = sizeof control}};
      if ((many ? recvmmsg(by, &message, 1, 0, NULL) : (int)recvmsg(by, &message.msg_hdr, 0)) != 1) return -1;
      const int count = (control.header.cmsg_len - CMSG_LEN(0)) / sizeof(int);
      memcpy(taken, CMSG_DATA(&control.header), count * sizeof(int));
      say("%d ", count);
      return count;
    }
    void step(int n) {
      int two[2], taken[4] = {-1, -1, -1, -1};
      const int many = n % 2;
      char text[20] = "";
      const int saved[3] = {fcntl(0, F_DUPFD, 10), fcntl(1, F_DUPFD, 10), fcntl(2, F_DUPFD, 10)};
      socketpair(AF_UNIX, SOCK_STREAM, 0, two);
      if (n < 2) {  // what 0 has been redirected to is sent
        close(0);
        open(getenv("FILE_NAME"), O_RDONLY);
        const int passed[2] = {0, two[0]};
        say("%d ", pass(two[0], passed, 2, many));
        say("%d ", take(two[1], taken, many));
        say("%d %d ", taken[0] > 2, taken[1] > 2);
        say("%d ", (int)read(taken[0], text, 4));
        say("%s %d ", text, (int)lseek(0, 0, SEEK_CUR));
        close(taken[1]);
        close(0);
        ended(pass(two[0], passed, 1, many), EBADF);
        say("%d ", pass(two[0], taken, 1, many));
        close(2);
        say("%d ", take(two[1], taken + 1, many));
        say("%d ", taken[1]);
        say("%d ", (int)read(0, text, 4));
        say("%s ", text);
        close(0);
        const int both[2] = {taken[0], taken[0]};
        say("%d ", pass(two[0], both, 2, many));
        say("%d ", take(two[1], taken + 1, many));
        say("%d %d ", taken[1], taken[2]);
        close(taken[0]);
      } else {  // by a redirected one
        dup2(two[0], 0);
        dup2(two[1], 2);
        say("%d ", pass(0, two, 1, many));
        say("%d ", take(2, taken, many));
        say("%d ", taken[0] > 2);
        close(taken[0]);
      }
      for (int i = 0; i < 3; ++i) { dup2(saved[i], i); close(saved[i]); }
      close(two[0]);
      close(two[1]);
    })C",
                 4, {"FILE_NAME=" + file});
}

TEST_F(Descriptors, WhatFailsToBeginLeavesTheProgramsNumber) {
  const std::string file = shop.write("text", "0123456789");
  expect_private(std::string(descriptor_headers) + R"C(
    #include <aio.h>
    void step(int n) {
      char text[20] = "";
      struct aiocb bad = {.aio_fildes = 0, .aio_buf = text, .aio_nbytes = 4, .aio_reqprio = -1};
      struct aiocb good = {.aio_fildes = 0, .aio_buf = text, .aio_nbytes = 4, .aio_lio_opcode = LIO_READ};
      struct aiocb worse = {.aio_fildes = 0, .aio_buf = text, .aio_nbytes = 4, .aio_lio_opcode = LIO_READ,
                            .aio_reqprio = -1};
      struct aiocb nothing = {.aio_fildes = 0, .aio_lio_opcode = LIO_NOP};
      struct aiocb* list[] = {&good, NULL, &worse, &nothing};
      const int saved = dup(0);
      close(0);
      open(getenv("FILE_NAME"), O_RDONLY);
      ended(aio_read(&bad), EINVAL);
      say("%d ", bad.aio_fildes);
      ended(aio_write(&bad), EINVAL);
      say("%d ", bad.aio_fildes);
      ended(aio_fsync(12345, &bad), EINVAL);
      say("%d ", bad.aio_fildes);
      ended(lio_listio(LIO_WAIT, list, 4, NULL), EIO);
      say("%d %d %d ", good.aio_fildes, worse.aio_fildes, nothing.aio_fildes);
      say("%d %d ", aio_error(&good), (int)aio_return(&good));
      say("%s %d %d ", text, aio_cancel(0, &good) == AIO_ALLDONE, good.aio_fildes);
      say("%d %d ", aio_error(&worse), (int)aio_return(&worse));
      ended(aio_cancel(1, &good), EINVAL);
      dup2(saved, 0);
      close(saved);
    })C",
                 1, {"FILE_NAME=" + file});
}

/// Libc would send it to the process.
TEST_F(Descriptors, AListThatEndsWithASignalIsRefused) {
  const Side side = by_turns(R"C(
    #include <aio.h>
    #include <signal.h>
    void step(int n) {
      char byte = 0;
      struct aiocb one = {.aio_fildes = 0, .aio_buf = &byte, .aio_nbytes = 1, .aio_lio_opcode = LIO_READ};
      struct aiocb* list[] = {&one};
      struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
      one.aio_sigevent.sigev_notify = SIGEV_NONE;
      ended(lio_listio(LIO_NOWAIT, list, 1, &event), ENOSYS);
      one.aio_sigevent = event;
      ended(lio_listio(LIO_WAIT, list, 1, NULL), ENOSYS);
      say("%d", one.aio_fildes);
    })C",
                             1, {Side{}})[0];
  EXPECT_EQ(side.said, "-1 1 -1 1 0");
  ASSERT_EQ(side.warnings.size(), 2U);
  EXPECT_NE(side.warnings[0].find("--processes"), std::string::npos) << side.warnings[0];
}

TEST_F(Descriptors, NamesOfThemAreTheProgramsForEveryCall) {
  const std::string file = shop.write("text", "0123456789");
  expect_private(std::string(descriptor_headers) + R"C(
    #include <limits.h>
    #include <sys/statfs.h>
    #include <sys/statvfs.h>
    void step(int n) {
      const char* const name = getenv("FILE_NAME");
      char own[60];
      snprintf(own, sizeof own, "/proc/%d/fd/0", getpid());
      const char* const names[] = {"/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "/proc/thread-self/fd/0", own};
      struct stat status, other;
      struct statx extended;
      struct statfs system;
      struct statvfs volume;
      char text[PATH_MAX] = "";
      const int saved = dup(0);
      close(0);
      if (n == 0) say("%d ", open(name, O_RDWR) + lseek(0, 4, SEEK_SET));
      stat(name, &other);
      for (int i = 0; i < 5; ++i) {
        const char* const path = names[i];
        say("\n%d ", n);
        #define CALL(call) errno = 0; say("%d ", call); say("%d ", errno);
        memset(&status, 0, sizeof status);
        CALL(stat(path, &status))
        say("%d ", status.st_ino == other.st_ino);
        memset(&status, 0, sizeof status);
        CALL(fstatat(AT_FDCWD, path, &status, 0))
        say("%d ", status.st_ino == other.st_ino);
        CALL(statx(AT_FDCWD, path, 0, STATX_INO, &extended))
        say("%d ", n == 0 && extended.stx_ino == other.st_ino);
        CALL(access(path, R_OK)) CALL(eaccess(path, F_OK)) CALL(faccessat(AT_FDCWD, path, R_OK, 0))
        CALL(statfs(path, &system)) CALL(statvfs(path, &volume)) CALL((int)pathconf(path, _PC_NAME_MAX))
        CALL(chmod(path, 0600)) CALL(chown(path, -1, -1)) CALL(truncate(path, 10))
        CALL(realpath(path, text) != NULL)
        say("%d ", n == 0 && strcmp(text, name) == 0);
        memset(text, 0, sizeof text);
        CALL((int)readlink(path, text, sizeof text) > 0)
        say("%d ", i != 1 && i != 0 ? strcmp(text, name) == 0 : -1);
        memset(text, 0, sizeof text);
        const int again = open(path, O_RDONLY);
        say("%d %d %s ", again > 2, again > 2 ? (int)read(again, text, 3) : -1, text);
        if (again >= 0) close(again);
      }
      memset(text, 0, sizeof text);
      say("\n%d %s ", (int)readlink("/dev/stdin", text, sizeof text), text);
      say("%d ", lstat("/dev/stdin", &status));
      say("%d ", S_ISLNK(status.st_mode));
      say("%d ", fstatat(AT_FDCWD, "/dev/stdin", &status, AT_SYMLINK_NOFOLLOW));
      say("%d ", S_ISLNK(status.st_mode));
      ended(stat("", &status), ENOENT);
      ended(readlink("", text, 10), ENOENT);
      ended(stat("/dev/fd/", &status), ENOENT);
      ended(access("/dev/fd/77", F_OK), ENOENT);
      dup2(saved, 0);
      close(saved);
    })C",
                 2, {"FILE_NAME=" + file});
}

TEST_F(Descriptors, AProgramIsItsOwnFileForEveryCall) {
  const Side side = by_turns(R"C(
    #include <sys/stat.h>
    void step(int n) {
      struct stat status, other;
      char text[4096] = "";
      say("%d ", stat("/proc/self/exe", &status));
      say("%d ", (int)readlink("/proc/self/exe", text, sizeof text) > 0);
      say("%d ", stat(text, &other));
      say("%d %d", status.st_ino == other.st_ino, access("/proc/self/exe", R_OK));
    })C",
                             1, {Side{}})[0];
  EXPECT_EQ(side.said, "0 1 0 1 0");
}

TEST_F(Descriptors, ChildrenGetWhatTheActionsMakeOfThem) {
  const std::string file = shop.write("text", "0123456789");
  expect_private(std::string(descriptor_headers) + R"C(
    #include <spawn.h>
    #include <sys/wait.h>
    extern char** environ;
    static int spawn(const posix_spawn_file_actions_t* actions, const char* command, int by_path) {
      char* words[] = {"sh", "-c", (char*)command, NULL};
      pid_t child = -1;
      int status = -1;
      const int error = by_path ? posix_spawnp(&child, "sh", actions, NULL, words, environ)
                                : posix_spawn(&child, "/bin/sh", actions, NULL, words, environ);
      if (error != 0) return -error;
      waitpid(child, &status, 0);
      return WEXITSTATUS(status);
    }
    void step(int n) {
      const char* const name = getenv("FILE_NAME");
      char text[40] = "";
      int two[2];
      posix_spawn_file_actions_t actions;
      const int saved = fcntl(0, F_DUPFD, 10);
      pipe2(two, O_CLOEXEC);
      posix_spawn_file_actions_init(&actions);
      if (n < 2) {  // exec would close it, but the actions name it before
        close(0);
        open(name, O_RDONLY | O_CLOEXEC);
        posix_spawn_file_actions_adddup2(&actions, 0, 0);
        posix_spawn_file_actions_adddup2(&actions, two[1], 1);
        say("%d ", spawn(&actions, "read -r word; echo $word", n));
      } else if (n == 2) {  // it is closed
        close(0);
        posix_spawn_file_actions_adddup2(&actions, 0, 60);
        say("%d ", spawn(&actions, "true", 0) == -EBADF);
        write(two[1], ".", 1);
      } else if (n == 3) {  // an action opens it
        close(0);
        posix_spawn_file_actions_addopen(&actions, 0, name, O_RDONLY, 0);
        posix_spawn_file_actions_adddup2(&actions, two[1], 1);
        posix_spawn_file_actions_addclose(&actions, 2);
        say("%d ", spawn(&actions, "test -e /proc/self/fd/2 && echo two; cat", 1));
      } else if (n > 4) {  // exec closes it, unless the actions make it anew
        close(0);
        open(name, O_RDONLY | O_CLOEXEC);
        if (n == 6) posix_spawn_file_actions_addopen(&actions, 0, name, O_RDONLY, 0);
        if (n == 7) posix_spawn_file_actions_adddup2(&actions, saved, 0);
        if (n == 8) posix_spawn_file_actions_adddup2(&actions, 0, 60);
        if (n == 9) posix_spawn_file_actions_addclose(&actions, 0);
        posix_spawn_file_actions_adddup2(&actions, two[1], 1);
        say("%d ", spawn(&actions, "for i in 0 60; do test -e /proc/self/fd/$i && echo $i; done", n % 2));
      } else {  // it is redirected, and the actions do not name it
        close(0);
        open(name, O_RDONLY);
        posix_spawn_file_actions_adddup2(&actions, two[1], 1);
        say("%d ", spawn(&actions, "cat", 0));
      }
      close(two[1]);
      say("%d ", (int)read(two[0], text, sizeof text));
      say("%s\n", text);
      posix_spawn_file_actions_destroy(&actions);
      close(two[0]);
      dup2(saved, 0);
      close(saved);
    })C",
                 10, {"FILE_NAME=" + file, "PATH=/usr/bin:/bin"});
}

TEST_F(Descriptors, APipeToAChildTakesAClosedOne) {
  expect_private(std::string(descriptor_headers) + R"C(
    #include <sys/resource.h>
    #include <sys/wait.h>
    void step(int n) {
      char text[40] = "";
      const int saved[3] = {fcntl(0, F_DUPFD, 10), fcntl(1, F_DUPFD, 10), fcntl(2, F_DUPFD, 10)};
      close(0);
      if (n != 0) close(1);
      FILE* const file = popen(n == 0 ? "echo first" : "read -r word; test \"$word\" = second", n == 0 ? "r" : "w");
      say("%d ", fileno(file));
      say("%d ", fcntl(0, F_GETFD));
      if (n == 0) say("%s", fgets(text, sizeof text, file));
      if (n != 0) fputs("second\n", file);
      say("%d ", pclose(file));
      say("%d ", fcntl(0, F_GETFD));
      struct rlimit limit, low;
      getrlimit(RLIMIT_NOFILE, &limit);
      low = limit;
      low.rlim_cur = 3;
      open("/dev/null", O_RDONLY);
      if (n != 0) open("/dev/null", O_RDONLY);
      setrlimit(RLIMIT_NOFILE, &low);
      ended(popen("true", "r") == NULL ? -1 : 0, EMFILE);
      setrlimit(RLIMIT_NOFILE, &limit);
      ended(waitpid(-1, NULL, WNOHANG), ECHILD);  // nothing was begun
      for (int i = 0; i < 3; ++i) { dup2(saved[i], i); close(saved[i]); }
    })C",
                 2, {"PATH=/usr/bin:/bin"});
}

TEST_F(Descriptors, AllFilesAreClosedAtOnce) {
  const std::string file = shop.write("text", "0123456789");
  expect_private(std::string(descriptor_headers) + R"C(
    void step(int n) {
      const char* const name = getenv("FILE_NAME");
      const int saved[3] = {fcntl(0, F_DUPFD, 10), fcntl(1, F_DUPFD, 10), fcntl(2, F_DUPFD, 10)};
      close(0);
      FILE* const low = fopen(name, "r+");
      FILE* const high = fopen(name, "r+");
      const int number = fileno(high);
      say("%d %d ", fileno(low), number > 2);
      fputs("ab", low);
      fseek(high, 5, SEEK_SET);
      fputs("cd", high);
      say("%d ", fcloseall());
      say("%d ", fcntl(0, F_GETFD));
      say("%d ", fcntl(number, F_GETFD));
      say("%d ", fcntl(1, F_GETFD));
      say("%d ", open(name, O_RDONLY) > 2);
      char text[20] = "";
      say("%d ", (int)read(0, text, 10));
      say("%s ", text);
      for (int i = 0; i < 3; ++i) { dup2(saved[i], i); close(saved[i]); }
    })C",
                 1, {"FILE_NAME=" + file});
}

/// Both read /dev/null where the machine reads a pipe that nobody writes.
TEST_F(Descriptors, ACellWithoutInputHasAnEmptyFile) {
  std::vector<Side> sides = by_turns(std::string(descriptor_headers) + R"C(
    void step(int n) {
      char byte = 0;
      struct pollfd one = {0, POLLIN};
      struct stat status, null;
      fstat(0, &status);
      stat("/dev/null", &null);
      say("%d ", status.st_rdev == null.st_rdev);
      say("%d ", poll(&one, 1, 0));
      say("%d ", one.revents);
      const int copy = dup(0);
      say("%d ", copy > 2);
      say("%d ", (int)read(copy, &byte, 1));
      const int again = open("/dev/stdin", O_RDONLY);
      say("%d ", again > 2);
      say("%d ", (int)read(again, &byte, 1));
      say("%d ", dup2(copy, 0));
      say("%d ", (int)read(0, &byte, 1));
      close(copy);
      close(again);
    })C",
                                     1, {Side{}, Side{}});
  for (const Side& side : sides) EXPECT_EQ(side.said, "1 1 1 1 0 1 0 0 0 ");
}

}  // namespace
}  // namespace aplib::loader::test
