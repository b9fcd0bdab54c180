// SPDX-License-Identifier: MIT
// Calls of the system that wait for somebody let the other cells of their thread run: here the somebody is one of them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <mqueue.h>
#include <pthread.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <string>
#include <thread>

#include "compile.hpp"
#include "running.hpp"

namespace aplib::loader::test {
namespace {

/// Does something whenever the other cells of its thread are to run.
class SharedHost : public RecordingHost {
 public:
  explicit SharedHost(std::function<void()> others) : others_(std::move(others)) {}
  bool shares_thread() noexcept override { return true; }
  void sleep(std::chrono::nanoseconds) override { run_others(); }
  void yield() override { run_others(); }

 private:
  void run_others() {
    ++yields;
    others_();
  }
  std::function<void()> others_;
};

class Blocking : public testing::Test {
 protected:
  /// Runs main(path), which returns 0. `others`: what the other cells do, each time they come to run.
  int run_beside(const std::string& body, const std::function<void()>& others, Workshop::Flags flags = {}) {
    flags.insert(flags.end(), {"-shared", "-D_GNU_SOURCE", "-w"});
    const std::string before =
        "#include <errno.h>\n#include <fcntl.h>\n#include <linux/futex.h>\n#include <mqueue.h>\n#include <poll.h>\n"
        "#include <pthread.h>\n"
        "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <sys/epoll.h>\n#include <sys/mman.h>\n"
        "#include <sys/socket.h>\n#include <sys/stat.h>\n#include <sys/syscall.h>\n#include <sys/uio.h>\n"
        "#include <sys/un.h>\n#include <time.h>\n#include <unistd.h>\n"
        "int word; int ends[2]; char text[100000];\n"
        "#define CHECK(what) if (!(what)) { perror(#what); return __LINE__; }\n"
        "int main(int count, char** words) {\n";
    const auto program = Program::load(shop_.compile(before + body + "return 0; }", flags, name()));
    return run_beside(program, others);
  }
  int run_beside(const std::shared_ptr<const Program>& program, const std::function<void()>& others) {
    SharedHost host(others);
    const auto outcome = run_instance(make_instance(program, host, 0, {"program", path_}), [this](Instance& instance) {
      word_ = instance.program().find("word") ? function_of<int>(instance, "word") : nullptr;
      ends_ = instance.program().find("ends") ? function_of<int>(instance, "ends") : nullptr;
      return call_main(instance);
    });
    EXPECT_GT(host.yields, 0);
    EXPECT_EQ(host.err, "");
    return outcome.status;
  }
  std::string name() { return std::to_string(number_++) + ".so"; }

  Workshop shop_;
  const std::string path_ = "/tmp/aplib-blocking-" + std::to_string(::getpid());
  int* word_ = nullptr;  // of the program
  int* ends_ = nullptr;
  int number_ = 0;
};

TEST_F(Blocking, OpeningAFifoToReadWaitsForAWriter) {
  const std::string bodies[] = {
      "int file = open(words[1], O_RDONLY); CHECK(file >= 0); CHECK((fcntl(file, F_GETFL) & O_NONBLOCK) == 0);"
      "CHECK(read(file, text, 9) == 1);",
      "int file = openat(AT_FDCWD, words[1], O_RDONLY | O_CLOEXEC); CHECK(read(file, text, 9) == 1);",
      "FILE* file = fopen(words[1], \"r\"); CHECK(file); CHECK(fgetc(file) == 'x');",
      "FILE* file = freopen(words[1], \"r\", stdin); CHECK(file); CHECK(getchar() == 'x');",
  };
  for (const std::string& body : bodies) {
    int writer = -1;
    const auto others = [&] {
      if (writer < 0) {
        writer = ::open(path_.c_str(), O_WRONLY | O_NONBLOCK);
      } else if (::write(writer, "x", 1) != 1) {
        std::abort();
      }
    };
    const std::string whole = "unlink(words[1]); CHECK(mkfifo(words[1], 0600) == 0);" + body + "unlink(words[1]);";
    EXPECT_EQ(run_beside(whole, others), 0) << body;
    ::close(writer);
  }
}

TEST_F(Blocking, OpeningAFifoToWriteWaitsForAReader) {
  for (const std::string body : {"int file = open(words[1], O_WRONLY); CHECK(write(file, \"x\", 1) == 1);",
                                 "FILE* file = fopen(words[1], \"w\"); CHECK(file); CHECK(putc('x', file) == 'x');"
                                 "CHECK(fflush(file) == 0);"}) {
    int reader = -1;
    const auto others = [&] {
      if (reader < 0) reader = ::open(path_.c_str(), O_RDONLY | O_NONBLOCK);
    };
    const std::string whole = "unlink(words[1]); CHECK(mkfifo(words[1], 0600) == 0);" + body + "unlink(words[1]);";
    EXPECT_EQ(run_beside(whole, others), 0) << body;
    char byte = 0;
    EXPECT_EQ(::read(reader, &byte, 1), 1);
    ::close(reader);
  }
}

TEST_F(Blocking, ConnectingWaitsForAPlaceInTheQueue) {
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{AF_UNIX, {}};
  path_.copy(address.sun_path, sizeof address.sun_path - 1);
  ::unlink(path_.c_str());
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener, 0), 0);
  EXPECT_EQ(run_beside("struct sockaddr_un a = {AF_UNIX}; memcpy(a.sun_path, words[1], strlen(words[1]) + 1);"
                       "for (int i = 0; i < 4; ++i) { int s = socket(AF_UNIX, SOCK_STREAM, 0);"
                       "CHECK(connect(s, (struct sockaddr*)&a, sizeof a) == 0);"
                       "CHECK((fcntl(s, F_GETFL) & O_NONBLOCK) == 0); }"
                       "unlink(words[1]); int s = socket(AF_UNIX, SOCK_STREAM, 0);"
                       "CHECK(connect(s, (struct sockaddr*)&a, sizeof a) == -1 && errno == ENOENT);",
                       [&] { ::close(::accept(listener, nullptr, nullptr)); }),
            0);
  ::close(listener);
}

TEST_F(Blocking, QueuesOfMessagesAreWaitedFor) {
  const std::string queue = "/aplib-blocking-" + std::to_string(::getpid());
  mq_attr one{};
  one.mq_maxmsg = 1;
  one.mq_msgsize = 8;
  const mqd_t other = ::mq_open(queue.c_str(), O_RDWR | O_CREAT | O_NONBLOCK, 0600, &one);
  if (other == -1) GTEST_SKIP() << "needs mqueue";
  const std::string opened = "int q = mq_open(\"" + queue +
                             "\", O_RDWR); CHECK(q >= 0); struct timespec t;"
                             "clock_gettime(CLOCK_REALTIME, &t); t.tv_sec += 3600; unsigned p;";
  EXPECT_EQ(run_beside(opened + "CHECK(mq_receive(q, text, 8, &p) == 3 && p == 7);"
                                "CHECK(mq_timedreceive(q, text, 8, &p, &t) == 3 && p == 7);"
                                "t.tv_sec -= 7200; CHECK(mq_timedreceive(q, text, 8, &p, &t) >= -1);"
                                "mq_close(q);",
                       [&] { ::mq_send(other, "abc", 3, 7); }),
            0);
  char text[8];
  ::mq_receive(other, text, sizeof text, nullptr);
  EXPECT_EQ(run_beside(opened + "for (int i = 0; i < 3; ++i) { CHECK(mq_send(q, \"abc\", 3, 1) == 0);"
                                "CHECK(mq_timedsend(q, \"abc\", 3, 1, &t) == 0); } mq_close(q);",
                       [&] { ::mq_receive(other, text, sizeof text, nullptr); }),
            0);
  ::mq_close(other);
  ::mq_unlink(queue.c_str());
}

TEST_F(Blocking, AFutexIsWaitedFor) {
  EXPECT_EQ(
      run_beside("while (word == 0) CHECK(syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL) == 0 || errno == EAGAIN);"
                 "CHECK(syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL) == -1 && errno == EAGAIN);"
                 "struct timespec t = {0, 1000};"
                 "CHECK(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 1, &t) == -1 && errno == ETIMEDOUT);"
                 "clock_gettime(CLOCK_MONOTONIC, &t); t.tv_nsec = (t.tv_nsec + 1000) % 1000000000;"
                 "long r; while ((r = syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, 1, &t, 0, -1)) == 0);"
                 "CHECK(r == -1 && errno == ETIMEDOUT);",
                 [&] { *word_ = 1; }),
      0);
}

TEST_F(Blocking, AFutureIsWaitedFor) {
  const auto program = Program::load(
      shop_.compile_cpp("#include <future>\n#include <thread>\nextern \"C\" int word; int word = 0;\n"
                        "int main() { std::promise<int> made; auto future = made.get_future(); std::thread other([&] { "
                        "while (__atomic_load_n(&word, __ATOMIC_ACQUIRE) == 0) std::this_thread::yield();"
                        "made.set_value(7); }); const int got = future.get(); other.join(); return got - 7; }",
                        {"-shared", "-std=c++17", "-pthread"}, name()));
  EXPECT_EQ(run_beside(program, [&] { __atomic_store_n(word_, 1, __ATOMIC_RELEASE); }), 0);
}

TEST_F(Blocking, PiecesOfAPipeAreWaitedFor) {
  EXPECT_EQ(run_beside("CHECK(pipe(ends) == 0); struct iovec two[] = {{text, 1}, {text + 1, 9}};"
                       "CHECK(readv(ends[0], two, 2) == 3 && memcmp(text, \"abc\", 3) == 0);",
                       [&] { ASSERT_EQ(::write(ends_[1], "abc", 3), 3); }),
            0);
  EXPECT_EQ(run_beside("CHECK(pipe(ends) == 0); struct iovec two[] = {{text, 1}, {text, 99999}};"
                       "CHECK(writev(ends[1], two, 2) == 100000);",
                       [&] {
                         char drained[4096];
                         ASSERT_GT(::read(ends_[0], drained, sizeof drained), 0);
                       }),
            0);
  EXPECT_EQ(run_beside("int to[2]; CHECK(pipe(ends) == 0 && pipe(to) == 0);"
                       "CHECK(splice(ends[0], NULL, to[1], NULL, 9, 0) == 3 && read(to[0], text, 9) == 3);",
                       [&] { ASSERT_EQ(::write(ends_[1], "abc", 3), 3); }),
            0);
}

TEST_F(Blocking, WideCharactersOfAFileAreWaitedFor) {
  EXPECT_EQ(run_beside("CHECK(pipe(ends) == 0); FILE* f = fdopen(ends[1], \"w\"); static wchar_t much[100001];"
                       "wmemset(much, L'x', 100000); CHECK(fputws(much, f) >= 0);"
                       "for (int i = 0; i < 100000; ++i) CHECK(fputwc(L'y', f) == L'y');"
                       "CHECK(fwprintf(f, L\"%ls\", much) == 100000); CHECK(fclose(f) == 0);",
                       [&] {
                         char drained[4096];
                         ASSERT_GT(::read(ends_[0], drained, sizeof drained), 0);
                       },
                       {"-include", "wchar.h"}),
            0);
}

TEST_F(Blocking, ARedirectedOutputIsWaitedFor) {
  EXPECT_EQ(
      run_beside("CHECK(pipe(ends) == 0 && dup2(ends[1], 1) == 1); struct iovec two[] = {{text, 1}, {text, 99999}};"
                 "CHECK(write(1, text, 100000) == 100000 && writev(1, two, 2) == 100000);"
                 "CHECK(dprintf(1, \"%100000d\", 1) == 100000);",
                 [&] {
                   char drained[4096];
                   ASSERT_GT(::read(ends_[0], drained, sizeof drained), 0);
                 }),
      0);
}

TEST_F(Blocking, PacketsStayWhole) {
  const auto others = [&] {
    char drained[100000];
    ::recv(ends_[0], drained, sizeof drained, MSG_DONTWAIT);
  };
  // So many that the queue is full at the end.
  EXPECT_EQ(
      run_beside("CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);"
                 "CHECK(write(ends[1], text, 20000) == 20000 && read(ends[0], text, 100000) == 20000);"
                 "struct iovec two[] = {{text, 9000}, {text, 9000}}; struct msghdr m = {.msg_iov = two, .msg_iovlen "
                 "= 2}; CHECK(writev(ends[1], two, 2) == 18000 && read(ends[0], text, 100000) == 18000);"
                 "CHECK(sendmsg(ends[1], &m, 0) == 18000 && read(ends[0], text, 100000) == 18000);"
                 "for (int i = 0; i < 300; ++i) CHECK(write(ends[1], text, 20000) == 20000);",
                 others),
      0);
}

TEST_F(Blocking, LongMessagesOfStreamsArriveWhole) {
  EXPECT_EQ(run_beside("CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0); static char much[3000000];"
                       "struct iovec two[] = {{much, 1000000}, {much + 1000000, 2000000}};"
                       "struct msghdr m = {.msg_iov = two, .msg_iovlen = 2};"
                       "CHECK(sendmsg(ends[1], &m, 0) == 3000000); CHECK(writev(ends[1], two, 2) == 3000000);"
                       "struct mmsghdr mm[2] = {{m}, {m}}; CHECK(sendmmsg(ends[1], mm, 2, 0) == 2);"
                       "CHECK(mm[0].msg_len == 3000000 && mm[1].msg_len == 3000000);",
                       [&] {
                         char drained[100000];
                         while (::recv(ends_[0], drained, sizeof drained, MSG_DONTWAIT) > 0) {
                         }
                       }),
            0);
}

TEST_F(Blocking, WhatComesIsWaitedFor) {
  for (const std::string body :
       {"struct iovec v = {text, 9}; struct mmsghdr m[2] = {{{.msg_iov = &v, .msg_iovlen = 1}}};"
        "CHECK(recvmmsg(ends[0], m, 2, MSG_WAITFORONE, NULL) == 1 && m[0].msg_len == 3);",
        "struct iovec v[2] = {{text, 9}, {text + 9, 9}}; struct mmsghdr m[2] = {{{.msg_iov = v, .msg_iovlen = 1}}, "
        "{{.msg_iov = v + 1, .msg_iovlen = 1}}}; CHECK(recvmmsg(ends[0], m, 2, 0, NULL) == 2);",
        "int e = epoll_create1(0); struct epoll_event v = {EPOLLIN}; epoll_ctl(e, EPOLL_CTL_ADD, ends[0], &v);"
        "CHECK(epoll_pwait2(e, &v, 1, NULL, NULL) == 1);",
        "struct pollfd one[1] = {{ends[0], POLLIN}}; CHECK(poll(one, count - 1, -1) == 1);",
        "struct pollfd one[1] = {{ends[0], POLLIN}}; CHECK(ppoll(one, count - 1, NULL, NULL) == 1);",
        "char room[50]; CHECK(recv(ends[0], room, count + 20, 0) == 3);",
        "char room[50]; CHECK(recvfrom(ends[0], room, count + 20, 0, NULL, NULL) == 3);",
        "char room[50]; CHECK(read(ends[0], room, count + 20) == 3);"}) {
    for (const char* fortified : {"-O0", "-D_FORTIFY_SOURCE=2"}) {
      EXPECT_EQ(run_beside("CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);" + body,
                           [&] { ASSERT_EQ(::send(ends_[1], "abc", 3, 0), 3); }, {"-O1", fortified}),
                0)
          << body << fortified;
    }
  }
}

// Nobody is left to let it go, and the thread that held it carries others now.
TEST_F(Blocking, AMutexOfACellThatHasEndedIsItsNextOwners) {
  const std::string open =
      "int file = open(words[1], O_RDWR | O_CREAT, 0600); CHECK(ftruncate(file, 4096) == 0);"
      "pthread_mutex_t* mutex = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);"
      "usleep(1);";
  const std::string lock =
      "pthread_mutexattr_t a; pthread_mutexattr_init(&a); pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);"
      "static pthread_mutex_t own; CHECK(pthread_mutex_init(&own, &a) == 0); CHECK(pthread_mutex_lock(&own) == 0);"
      "pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED); CHECK(pthread_mutex_init(mutex, &a) == 0);"
      "CHECK(pthread_mutex_lock(mutex) == 0);";
  const std::string take =
      "CHECK(pthread_mutex_lock(mutex) == EOWNERDEAD); CHECK(pthread_mutex_consistent(mutex) == 0);"
      "CHECK(pthread_mutex_unlock(mutex) == 0); CHECK(pthread_mutex_lock(mutex) == 0);";
  EXPECT_EQ(run_beside(open + lock, [] {}), 0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(run_beside(open + take, [] {}), 0);
  ::unlink(path_.c_str());
}

// What the system does at a process's end, for cells that share one.
TEST_F(Blocking, ASemaphoreThatAnEndedCellHasTakenIsGivenBack) {
  const int set = ::semget(IPC_PRIVATE, 2, IPC_CREAT | 0600);
  ASSERT_GE(set, 0);
  const auto value = [set](int number) { return ::semctl(set, number, GETVAL); };
  ::semctl(set, 0, SETVAL, 5);
  const auto end_with = [&](const std::string& operations) {
    EXPECT_EQ(run_beside("extern int semop(int, void*, unsigned long); extern int semctl(int, int, int, ...);"
                         "struct { unsigned short number; short change, flags; } op; const int set = " +
                             std::to_string(set) + "; usleep(1);" + operations,
                         [] {}),
              0);
  };
  const auto operate = [](int number, int change, const char* flags) {
    return "op.number = " + std::to_string(number) + "; op.change = " + std::to_string(change) +
           "; op.flags = " + flags + "; CHECK(semop(set, &op, 1) == 0);";
  };
  end_with(operate(0, -2, "0x1000") + operate(0, -1, "0x1000") + operate(1, 3, "0x1000"));
  EXPECT_EQ(value(0), 5);
  EXPECT_EQ(value(1), 0);
  end_with(operate(0, -2, "0x1000") + operate(0, 2, "0x1000") + operate(0, -1, "0"));
  EXPECT_EQ(value(0), 4);
  end_with(operate(0, -2, "0x1000") + "CHECK(semctl(set, 0, 16, 9) == 0);");  // SETVAL: nothing is left to undo
  EXPECT_EQ(value(0), 9);
  end_with(operate(0, 4, "0x1000") + operate(0, -12, "0"));  // it goes as far as it can
  EXPECT_EQ(value(0), 0);
  ::semctl(set, 0, IPC_RMID);
}

TEST_F(Blocking, ASignalThatTheMaskOfASleepLetsThroughEndsIt) {
  for (const std::string sleep : {"pselect(0, 0, 0, 0, &time, &none)", "ppoll(0, 0, &time, &none)"}) {
    EXPECT_EQ(
        run_beside(
            "extern int kill(int, int); extern void* signal(int, void*); extern int sigprocmask(int, void*, void*);"
            "struct timespec time = {100, 0}; static sigset_t none, set; *(unsigned long*)&set = 1 << 9;"
            "signal(10, abs);"
            "sigprocmask(0, &set, 0); kill(getpid(), 10); usleep(1);"
            "CHECK(" +
                sleep + " == -1 && errno == EINTR);",
            [] {}),
        0)
        << sleep;
  }
}

// The runtime interrupts threads for reasons of its own. The kernel then fails a look with EINTR, though it has no
// time.
TEST_F(Blocking, ALookIsEndedByNoSignalThatIsForOthers) {
  struct sigaction nothing {};
  struct sigaction before {};
  nothing.sa_handler = [](int) {};
  nothing.sa_flags = SA_RESTART;
  ASSERT_EQ(::sigaction(SIGURG, &nothing, &before), 0);
  std::atomic<bool> over{false};
  std::thread sender([&over, to = ::pthread_self()] {
    while (!over) ::pthread_kill(to, SIGURG);
  });
  EXPECT_EQ(run_beside("struct pollfd one = {0, POLLIN}; fd_set set; struct timeval none = {0, 0}; usleep(1);"
                       "CHECK(pipe(ends) == 0); one.fd = ends[0];"
                       "for (int i = 0; i < 20000; ++i) {"
                       "  CHECK(poll(&one, 1, 0) == 0); CHECK(ppoll(&one, 1, &(struct timespec){0, 0}, 0) == 0);"
                       "  FD_ZERO(&set); FD_SET(ends[0], &set); CHECK(select(ends[0] + 1, &set, 0, 0, &none) == 0); }",
                       [] {}),
            0);
  over = true;
  sender.join();
  ::sigaction(SIGURG, &before, nullptr);
}

}  // namespace
}  // namespace aplib::loader::test
