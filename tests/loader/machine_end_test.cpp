// SPDX-License-Identifier: MIT
// Programs that end, fault and sleep as cells of a machine, on small stacks, several on a thread, with task switches.
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "compile.hpp"
#include "journal.hpp"
#include "kernel/programs.hpp"
#include "machines.hpp"

namespace aplib::loader::test {
namespace {

using testing_support::options_of;
using testing_support::Shape;

/// Whether the process ended by the signal, or with the status that sanitizers give instead.
bool has_failed(int status) { return status != 0; }

constexpr const char* needs_plain_waits =
    "needs a build without sanitizers: functions of theirs lie between the program and its waits";

class Sink : public OutputSink {
 public:
  void write(std::uint32_t, Stream, std::span<const char>) override {}
  void flush(std::uint32_t, Stream) override {}
  int input(std::uint32_t) override { return -1; }
  void ended(std::uint32_t cell, int status) override {
    const std::lock_guard lock(mutex);
    ends.emplace_back(cell, status);
  }
  void warn(const std::string& line) override {
    const std::lock_guard lock(mutex);
    warnings.push_back(line);
  }
  std::mutex mutex;
  std::vector<std::pair<std::uint32_t, int>> ends;
  std::vector<std::string> warnings;
};

struct CellsRan {
  Report report;
  std::vector<std::string> journals;
  std::vector<std::string> warnings;
};

class MachineEnd : public testing::TestWithParam<Shape> {
 protected:
  /// Runs the program on every cell of the shape. Argument 1 is the cell's journal, 2 its number, and 3 a word that all
  /// share.
  CellsRan run(const std::string& text) {
    const std::string prologue =
        journal_prologue +
        "#include <errno.h>\n#include <pthread.h>\n#include <sched.h>\n#include "
        "<setjmp.h>\n#include <signal.h>\n#include <unistd.h>\n"
        "static int cell; static volatile int* shared;\n"
        "static void begin(char** a) { start(a); cell = atoi(a[2]); shared = (int*)strtoull(a[3], NULL, 10); }\n"
        "__attribute__((noinline)) static void touch(char* at) { *(volatile char*)at = 1; }\n";
    const std::string file = shop_.compile(prologue + text, {"-shared", "-O1", "-D_GNU_SOURCE", "-Wno-unused"}, "p.so");
    std::vector<Journal> journals(GetParam().cells.nx * GetParam().cells.ny);
    Machine machine(options_of(GetParam()));
    Sink sink;
    ProgramRun what;
    what.file = file;
    what.arguments_of = [&](std::uint32_t cell) {
      return std::vector<std::string>{"program", journals[cell].address(), std::to_string(cell),
                                      std::to_string(reinterpret_cast<std::uintptr_t>(&shared_))};
    };
    CellsRan result;
    result.report = run_program(machine, what, sink);
    for (const Journal& journal : journals) result.journals.push_back(journal.text());
    result.warnings = sink.warnings;
    return result;
  }

  void reset() { shared_ = 0; }

 private:
  Workshop shop_;
  std::atomic<int> shared_{0};
};

TEST_P(MachineEnd, ExitEndsOneCell) {
  const CellsRan ran = run(R"(
    static void handler(void) { say("handler"); }
    int main(int n, char** a) { begin(a); atexit(handler); if (cell == 1) exit(3); usleep(1000); say("on "); return 0; })");
  EXPECT_EQ(ran.report.exit_status, 3);
  EXPECT_EQ(ran.report.reason, "");
  EXPECT_EQ(ran.journals[0], "on handler");
  EXPECT_EQ(ran.journals[1], "handler");
}

TEST_P(MachineEnd, AThreadThatCallsExitEndsItsProgramWhateverMainDoes) {
  if (APLIB_TSAN || APLIB_ASAN) GTEST_SKIP() << needs_plain_waits;
  const std::string text = R"(
    #include <semaphore.h>
    #include <unistd.h>
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    static sem_t never;
    static volatile int waits;
    static volatile unsigned long counter;
    static void handler(void) { say("handler "); }
    static void quick(void) { say("quick "); }
    __attribute__((destructor)) static void destroyed(void) { say("destroyed"); }
    static void* work(void* unused) { while (!waits) usleep(100); usleep(1000); END; }
    int main(int n, char** a) {
      pthread_t id;
      int ends[2];
      char byte;
      begin(a);
      if (cell != 1) return 0;
      atexit(handler);
      at_quick_exit(quick);
      sem_init(&never, 0, 0);
      if (pipe(ends) != 0 || pthread_create(&id, NULL, work, NULL) != 0) return 1;
      pthread_mutex_lock(&mutex);
      waits = 1;
      for (;;) { MAIN; }
    })";
  const auto ended = [&](const std::string& end, const std::string& main) {
    const CellsRan ran = run("#define END " + end + "\n#define MAIN " + main + text);
    EXPECT_EQ(ran.report.exit_status, 5) << end << main;
    EXPECT_EQ(ran.report.reason, "") << end << main;
    EXPECT_EQ(ran.journals[0], "destroyed") << end << main;
    return ran.journals[1];
  };
  for (const char* main :
       {"pthread_join(id, NULL)", "++counter", "sleep(1000)", "if (read(ends[0], &byte, 1) == 1) break",
        "sem_wait(&never)", "pthread_cond_wait(&condition, &mutex)", "pthread_exit(NULL)"})
    EXPECT_EQ(ended("exit(5)", main), "handler destroyed") << main;
  EXPECT_EQ(ended("_exit(5)", "++counter"), "");
  EXPECT_EQ(ended("quick_exit(5)", "pthread_join(id, NULL)"), "quick ");
}

TEST_P(MachineEnd, MainTakesSignalsOfItsThreadsWhereItWaits) {
  if (APLIB_TSAN || APLIB_ASAN) GTEST_SKIP() << needs_plain_waits;
  const CellsRan ran = run(R"(
    #include <semaphore.h>
    static sem_t never, others;
    static pthread_t first;
    static volatile int waits;
    static void handler(int signal) { say("handler "); sem_post(&others); }
    static void* work(void* unused) {
      for (int i = 1; i <= 3; ++i) {
        while (waits != i) usleep(100);
        usleep(1000);
        pthread_kill(first, SIGUSR1);
      }
      return NULL;
    }
    int main(int n, char** a) {
      struct sigaction action = {.sa_handler = handler};
      pthread_t id;
      begin(a);
      first = pthread_self();
      sem_init(&never, 0, 0);
      sem_init(&others, 0, 0);
      sigaction(SIGUSR1, &action, NULL);
      if (pthread_create(&id, NULL, work, NULL) != 0) return 1;
      waits = 1;
      if (sem_wait(&never) == -1 && errno == EINTR) say("sem ");
      waits = 2;
      if (sleep(1000) > 900) say("sleep ");
      action.sa_flags = SA_RESTART;
      sigaction(SIGUSR1, &action, NULL);
      while (sem_trywait(&others) == 0) {}
      waits = 3;
      if (sem_wait(&others) == 0) say("others");
      return pthread_join(id, NULL);
    })");
  EXPECT_EQ(ran.report.exit_status, 0);
  for (const std::string& journal : ran.journals) EXPECT_EQ(journal, "handler sem handler sleep handler others");
}

TEST_P(MachineEnd, TheEndOfAChildIsASignalOfTheProgramThatMadeIt) {
  if (APLIB_TSAN || APLIB_ASAN) GTEST_SKIP() << needs_plain_waits;
  const CellsRan ran = run(R"(
    #include <spawn.h>
    #include <stdio.h>
    #include <sys/wait.h>
    extern char** environ;
    static volatile int seen, code, status, sender;
    static void handler(int signal, siginfo_t* info, void* context) {
      code = info->si_code;
      status = info->si_status;
      sender = info->si_pid;
      ++seen;
    }
    static pid_t start_child(char* command) {
      char* words[] = {"sh", "-c", command, NULL};
      pid_t child = 0;
      return posix_spawn(&child, "/bin/sh", NULL, NULL, words, environ) == 0 ? child : -1;
    }
    int main(int n, char** a) {
      struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
      sigset_t children, none;
      siginfo_t info;
      int number = 0;
      begin(a);
      sigemptyset(&none);
      sigemptyset(&children);
      sigaddset(&children, SIGCHLD);
      sigaction(SIGCHLD, &action, NULL);
      pid_t child = start_child("exit 7");
      if (waitpid(child, NULL, 0) != child) return 1;  // the handler has run
      if (seen != 1 || code != CLD_EXITED || status != 7 || sender != child) return 2;
      child = start_child("kill -9 $$");
      while (seen == 1) {}
      if (seen != 2 || code != CLD_KILLED || status != 9 || sender != child) return 3;
      if (waitpid(child, &number, 0) != child || !WIFSIGNALED(number) || seen != 2) return 4;
      sigprocmask(SIG_BLOCK, &children, NULL);
      child = start_child("exit 8");
      if (sigsuspend(&none) != -1 || errno != EINTR || seen != 3 || status != 8) return 5;
      if (waitid(P_PID, child, &info, WEXITED) != 0 || info.si_status != 8) return 6;
      if (system("exit 9") != 9 << 8 || seen != 3) return 7;
      if (sigtimedwait(&children, &info, NULL) != SIGCHLD || info.si_status != 9) return 8;
      child = start_child("true");
      if (sigwait(&children, &number) != 0 || number != SIGCHLD || wait(NULL) != child) return 9;
      sigprocmask(SIG_UNBLOCK, &children, NULL);
      if (pclose(popen("exit 3", "r")) != 3 << 8 || seen != 4 || status != 3) return 10;
      signal(SIGCHLD, SIG_IGN);
      if (start_child("true") < 0 || wait(NULL) != -1 || errno != ECHILD || seen != 4) return 11;
      signal(SIGCHLD, SIG_DFL);
      child = start_child("true");
      return wait(NULL) == child && seen == 4 ? 0 : 12;
    })");
  EXPECT_EQ(ran.report.exit_status, 0);
  for (const std::string& warning : ran.warnings) ADD_FAILURE() << warning;
}

TEST_P(MachineEnd, ASignalfdHasTheSignalsOfItsProgram) {
  if (APLIB_TSAN || APLIB_ASAN) GTEST_SKIP() << needs_plain_waits;
  const CellsRan ran = run(R"(
    #include <fcntl.h>
    #include <poll.h>
    #include <sys/signalfd.h>
    #include <sys/time.h>
    #include <sys/wait.h>
    static int file;
    static struct signalfd_siginfo some[4];
    static int next(int signal) { return read(file, some, sizeof some) == sizeof some[0] && some[0].ssi_signo == signal; }
    int main(int n, char** a) {
      const struct itimerval soon = {{0, 0}, {0, 2000}};
      const union sigval value = {.sival_int = 77};
      sigset_t all;
      struct pollfd one = {0, POLLIN, 0};
      begin(a);
      sigfillset(&all);
      sigprocmask(SIG_BLOCK, &all, NULL);
      raise(SIGUSR1);
      one.fd = file = signalfd(-1, &all, SFD_CLOEXEC);
      if (file < 0 || poll(&one, 1, -1) != 1 || !next(SIGUSR1) || some[0].ssi_pid != getpid()) return 1;
      if (poll(&one, 1, 0) != 0) return 2;
      kill(getpid(), SIGUSR2);
      kill(getpid(), SIGUSR2);
      if (!next(SIGUSR2) || poll(&one, 1, 0) != 0) return 3;
      sigqueue(getpid(), SIGRTMIN, value);
      sigqueue(getpid(), SIGRTMIN, value);
      if (read(file, some, sizeof some) != 2 * sizeof some[0] || some[1].ssi_int != 77) return 4;
      setitimer(ITIMER_REAL, &soon, NULL);
      if (!next(SIGALRM)) return 5;
      if (system("exit 6") != 6 << 8 || !next(SIGCHLD) || some[0].ssi_status != 6) return 6;
      sigdelset(&all, SIGUSR1);
      if (signalfd(file, &all, 0) != file || raise(SIGUSR1) != 0 || poll(&one, 1, 0) != 0) return 7;
      if (fcntl(file, F_SETFL, O_NONBLOCK) != 0 || read(file, some, sizeof some) != -1 || errno != EAGAIN) return 8;
      return signalfd(1, &all, 0) == -1 && errno == EINVAL ? 0 : 9;
    })");
  EXPECT_EQ(ran.report.exit_status, 0);
  for (const std::string& warning : ran.warnings) ADD_FAILURE() << warning;
}

constexpr const char* waiting_thread = R"(
    #include <fcntl.h>
    #include <poll.h>
    #include <semaphore.h>
    #include <stdlib.h>
    #include <sys/msg.h>
    #include <sys/socket.h>
    #include <sys/time.h>
    #include <time.h>
    static int ends[2], both[2], queue, signal_;
    static char byte[100];
    static sem_t never;
    static pthread_t first, last;
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    static const struct timespec far = {1000, 0};
    static sigset_t some;
    static char path[] = "/tmp/aplib-cancelled-XXXXXX";
    static volatile int begun, ended;
    static void handler(int signal) {}
    static void note(void* count) { __sync_fetch_and_add((int*)count, 1); }
    static void* wait_here(void* unused) {
      struct pollfd one = {ends[0], POLLIN, 0};
      pthread_mutex_lock(&mutex);
      pthread_cleanup_push((void (*)(void*))pthread_mutex_unlock, &mutex);
      pthread_cleanup_push(note, (int*)&ended);
      begun = 1;
      for (;;) { WAIT; }
      pthread_cleanup_pop(0);
      pthread_cleanup_pop(0);
      return NULL;
    }
    int main(int n, char** a) {
      const struct itimerval often = {{0, 2000}, {0, 2000}};
      const struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
      struct sockaddr_storage address;
      begin(a);
      first = pthread_self();
      sem_init(&never, 0, 0);
      queue = msgget(IPC_PRIVATE, 0600);
      sigaddset(&some, SIGUSR2);
      mktemp(path);
      if (pipe(ends) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, both) != 0 || mkfifo(path, 0600) != 0) return 1;
      sigaction(SIGALRM, &action, NULL);
      for (int round = 0; round < 3; ++round) {  // early, in the wait, and while a timer's signals come
        pthread_t id;
        void* result = NULL;
        if (round == 2) setitimer(ITIMER_REAL, &often, NULL);
        begun = 0;
        if (pthread_create(&id, NULL, wait_here, NULL) != 0) return 2;
        while (round > 0 && !begun) usleep(100);
        if (round > 0) usleep(5000);
        pthread_cancel(id);
        if (pthread_join(id, &result) != 0 || result != PTHREAD_CANCELED) return 3;
      }
      unlink(path);
      msgctl(queue, IPC_RMID, NULL);
      return ended == 3 && pthread_mutex_trylock(&mutex) == 0 ? 0 : 4;
    })";

TEST_P(MachineEnd, ACancelledThreadLeavesWhateverItWaitsIn) {
  if (APLIB_TSAN || APLIB_ASAN) GTEST_SKIP() << needs_plain_waits;
  for (const char* wait :
       {"pause()", "sigwait(&some, &signal_)", "sigsuspend(&some)", "sigtimedwait(&some, NULL, &far)",
        "read(ends[0], byte, 1)", "poll(&one, 1, -1)", "sleep(1000)", "nanosleep(&far, NULL)", "sem_wait(&never)",
        "pthread_cond_wait(&condition, &mutex)", "pthread_join(first, NULL)", "recv(both[0], byte, 1, 0)",
        "msgrcv(queue, byte, 8, 0, 0)", "open(path, O_RDONLY)", "pthread_testcancel()"}) {
    const CellsRan ran = run("#include <sys/stat.h>\n#define WAIT " + std::string(wait) + waiting_thread);
    EXPECT_EQ(ran.report.exit_status, 0) << wait;
    for (const std::string& warning : ran.warnings) ADD_FAILURE() << wait << ": " << warning;
  }
}

TEST_P(MachineEnd, ATimersHandlerEndsOnlyWhatSignalsEnd) {
  if (APLIB_TSAN || APLIB_ASAN) GTEST_SKIP() << needs_plain_waits;
  const std::string text = R"(
    #include <poll.h>
    #include <semaphore.h>
    #include <sys/file.h>
    #include <sys/socket.h>
    #include <sys/time.h>
    static volatile int ticks;
    static int ends[2], both[2], file;
    static char byte;
    static sem_t never;
    static void handler(int signal) {
      if (++ticks != 5) return;  // what was waited for comes now
      sem_post(&never);
      write(ends[1], "x", 1);
      write(both[1], "x", 1);
    }
    int main(int n, char** a) {
      const struct itimerval often = {{0, 2000}, {0, 2000}};
      struct sigaction action = {.sa_handler = handler, .sa_flags = FLAGS};
      struct pollfd one = {ends[0], POLLIN, 0};
      begin(a);
      sem_init(&never, 0, 0);
      if (pipe(ends) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, both) != 0) return 1;
      one.fd = ends[0];
      sigaction(SIGALRM, &action, NULL);
      setitimer(ITIMER_REAL, &often, NULL);
      errno = 0;
      const long result = WAIT;
      say(result == -1 && errno == EINTR ? "interrupted" : "went on");
      return 0;
    })";
  const auto waited = [&](const std::string& flags, const std::string& wait) {
    const CellsRan ran = run("#define FLAGS " + flags + "\n#define WAIT " + wait + text);
    EXPECT_EQ(ran.report.exit_status, 0) << wait;
    return ran.journals[0];
  };
  for (const char* wait : {"read(ends[0], &byte, 1)", "recv(both[0], &byte, 1, 0)", "sem_wait(&never)"}) {
    EXPECT_EQ(waited("0", wait), "interrupted") << wait;
    EXPECT_EQ(waited("SA_RESTART", wait), "went on") << wait;
  }
  for (const char* wait : {"poll(&one, 1, -1)", "usleep(900000000)", "pause()"})
    EXPECT_EQ(waited("SA_RESTART", wait), "interrupted") << wait;
}

// What these calls exist for: a signal that waits, or comes, ends them.
TEST_P(MachineEnd, AMaskForTheTimeOfAWaitLetsSignalsEndIt) {
  if (APLIB_TSAN || APLIB_ASAN) GTEST_SKIP() << needs_plain_waits;
  const std::string text = R"(
    #include <poll.h>
    #include <pthread.h>
    #include <sys/epoll.h>
    #include <sys/select.h>
    static volatile int handled;
    static void handler(int signal) { ++handled; }
    static void* send(void* none) { usleep(2000); kill(getpid(), SIGUSR1); return none; }
    int main(int n, char** a) {
      int ends[2];
      pthread_t sender;
      sigset_t blocked, none;
      struct epoll_event event = {EPOLLIN};
      const struct timespec limit = {100, 0};
      begin(a);
      sigemptyset(&none);
      sigemptyset(&blocked);
      sigaddset(&blocked, SIGUSR1);
      sigprocmask(SIG_BLOCK, &blocked, NULL);
      signal(SIGUSR1, handler);
      if (pipe(ends) != 0) return 1;
      const int epoll = epoll_create1(0);
      epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event);
      for (int how = 0; how < 8; ++how) {
        struct pollfd one = {ends[0], POLLIN, 0};
        fd_set set;
        FD_ZERO(&set);
        FD_SET(ends[0], &set);
        if (how < 4) raise(SIGUSR1); else pthread_create(&sender, NULL, send, NULL);
        errno = 0;
        const int result = how % 4 == 0   ? ppoll(&one, 1, &limit, &none)
                           : how % 4 == 1 ? pselect(ends[0] + 1, &set, NULL, NULL, &limit, &none)
                           : how % 4 == 2 ? epoll_pwait(epoll, &event, 1, 100000, &none)
                                          : epoll_pwait2(epoll, &event, 1, &limit, &none);
        if (result != -1 || errno != EINTR || handled != how + 1) return 2 + how;
        if (how >= 4) pthread_join(sender, NULL);
      }
      return 0;
    })";
  EXPECT_EQ(run(text).report.exit_status, 0);
}

TEST_P(MachineEnd, ATimerEndsTheWaitForAChildUnlessItRestarts) {
  const std::string text = R"(
    #include <spawn.h>
    #include <sys/time.h>
    #include <sys/wait.h>
    extern char** environ;
    static volatile int ticks;
    static pid_t child;
    static void handler(int signal) { if (++ticks == 5) kill(child, SIGKILL); }
    int main(int n, char** a) {
      char* words[] = {"sleep", "1000", NULL};
      const struct itimerval often = {{0, 2000}, {0, 2000}};
      struct sigaction action = {.sa_handler = handler, .sa_flags = FLAGS};
      siginfo_t info;
      int status;
      begin(a);
      if (posix_spawnp(&child, "sleep", NULL, NULL, words, environ) != 0) return 1;
      sigaction(SIGALRM, &action, NULL);
      setitimer(ITIMER_REAL, &often, NULL);
      errno = 0;
      const int result = WAIT;
      say(result == -1 && errno == EINTR ? "interrupted" : "went on");
      kill(child, SIGKILL);
      while (waitpid(child, &status, 0) == -1 && errno == EINTR) {}
      return 0;
    })";
  for (const char* wait : {"waitpid(child, &status, 0)", "wait(&status)", "waitid(P_PID, child, &info, WEXITED)"}) {
    for (const char* flags : {"0", "SA_RESTART"}) {
      const CellsRan ran = run(std::string("#define FLAGS ") + flags + "\n#define WAIT " + wait + text);
      EXPECT_EQ(ran.report.exit_status, 0) << wait;
      EXPECT_EQ(ran.journals[0], flags[0] == '0' ? "interrupted" : "went on") << wait;
    }
  }
}

// A count of rounds rather than a time says that others have run: there were millions before they did.
TEST_P(MachineEnd, ALoopOfSystemCallsLetsOthersRun) {
  if (APLIB_TSAN || APLIB_ASAN)
    GTEST_SKIP() << "needs a build without sanitizers: they deliver signals in their own way";
  const std::string text = R"(
    #include <fcntl.h>
    #include <math.h>
    #include <sys/file.h>
    #include <sys/stat.h>
    int main(int n, char** a) {
      const int rounds_max = 2000000;
      int ends[2], rounds = 0;
      struct stat status;
      char byte;
      begin(a);
      if (cell != 0) {
        usleep(1000);
        __sync_fetch_and_add((int*)shared, 1);
        return 0;
      }
      if (pipe2(ends, O_NONBLOCK) != 0) return 1;
      while (*shared < OTHERS && ++rounds < rounds_max) { CALL; }
      return rounds < rounds_max ? 0 : 2;
    })";
  const unsigned others = GetParam().cells.nx * GetParam().cells.ny - 1;
  for (const char* call : {"stat(\"/nowhere\", &status)", "open(\"/nowhere\", O_RDONLY)", "read(ends[0], &byte, 1)",
                           "lockf(ends[0], F_TEST, 0)"}) {
    reset();
    const CellsRan ran = run("#define OTHERS " + std::to_string(others) + "\n#define CALL " + call + text);
    EXPECT_EQ(ran.report.exit_status, 0) << call;
  }
}

constexpr const char* refused_writes = R"(
    #include <stdio.h>
    #include <sys/socket.h>
    static sigjmp_buf back;
    static void handler(int signal) { say("handler "); }
    static void detailed(int signal, siginfo_t* info, void* context) { say(info->si_pid == getpid() ? "own " : "? "); }
    static void leaver(int signal) { siglongjmp(back, 1); }
    static int unread(int kind) {
      int ends[2];
      if ((kind == 0 ? pipe(ends) : socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) != 0) exit(9);
      close(ends[0]);
      return ends[1];
    }
    static void write_once(int to) { if (write(to, "x", 1) == -1 && errno == EPIPE) say("EPIPE "); }
    static void* on_thread(void* to) { write_once(*(int*)to); return NULL; }
    )";

TEST_P(MachineEnd, ARefusedWriteIsTheSignalOfTheCellThatWrote) {
  const CellsRan ran = run(std::string(refused_writes) + R"(
    int main(int n, char** a) {
      struct sigaction action = {.sa_sigaction = detailed, .sa_flags = SA_SIGINFO};
      sigset_t pipes;
      pthread_t id;
      int to;
      FILE* file;
      begin(a);
      sigemptyset(&pipes);
      sigaddset(&pipes, SIGPIPE);
      for (int kind = 0; kind < 2; ++kind) {
        to = unread(kind);
        signal(SIGPIPE, SIG_IGN);
        write_once(to);
        signal(SIGPIPE, handler);
        write_once(to);
        sigaction(SIGPIPE, &action, NULL);
        write_once(to);
        sigprocmask(SIG_BLOCK, &pipes, NULL);
        write_once(to);
        say("blocked ");
        sigprocmask(SIG_UNBLOCK, &pipes, NULL);
        signal(SIGPIPE, leaver);
        if (sigsetjmp(back, 1) == 0) write_once(to); else say("left ");
        close(to);
      }
      signal(SIGPIPE, handler);
      to = unread(0);
      if (pthread_create(&id, NULL, on_thread, &to) != 0 || pthread_join(id, NULL) != 0) return 1;
      file = fdopen(to, "w");
      if (fputs("text", file) >= 0 && fflush(file) == EOF) say("flush ");
      if (fflush(file) == 0 && fputs("text", file) >= 0 && fclose(file) == EOF) say("close");
      return 0;
    })");
  EXPECT_EQ(ran.report.exit_status, 0);
  const std::string each = "EPIPE handler EPIPE own EPIPE EPIPE blocked own left ";
  for (const std::string& journal : ran.journals)
    EXPECT_EQ(journal, each + each + "handler EPIPE handler flush handler close");
}

TEST_P(MachineEnd, ARefusedWriteIsIgnoredWhereTheProcessWasStartedSo) {
  struct sigaction before {};
  struct sigaction ignored {};
  ignored.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignored, &before);
  const CellsRan ran = run(std::string(refused_writes) + R"(
    int main(int n, char** a) {
      begin(a);
      write_once(unread(0));
      signal(SIGPIPE, handler);
      write_once(unread(0));
      return 0;
    })");
  sigaction(SIGPIPE, &before, nullptr);
  EXPECT_EQ(ran.report.exit_status, 0);
  for (const std::string& journal : ran.journals) EXPECT_EQ(journal, "EPIPE handler EPIPE ");
}

TEST_P(MachineEnd, ARefusedWriteThatNothingHandlesNamesTheCell) {
  const CellsRan ran = run(std::string(refused_writes) + R"(
    int main(int n, char** a) { begin(a); if (cell == 1) write_once(unread(0)); for (;;) usleep(1000); })");
  EXPECT_EQ(ran.report.exit_status, 128 + SIGPIPE);
  EXPECT_EQ(ran.report.reason.find("cell 1 task 0: the program wrote to a pipe or socket that has no reader"), 0U)
      << ran.report.reason;
}

TEST_P(MachineEnd, AbortEndsTheMachineAndNamesTheCell) {
  const CellsRan ran = run(R"(
    int main(int n, char** a) { begin(a); if (cell == 1) abort(); for (;;) sched_yield(); })");
  EXPECT_EQ(ran.report.exit_status, 134);
  EXPECT_EQ(ran.report.reason.find("cell 1 task 0: the program called abort()"), 0U) << ran.report.reason;
}

/// Cells that wait at their end. Cell 1 ends the machine when cell 0, whose journal tells, waits.
constexpr const char* waits_at_its_end = R"(
    static int how;
    static void wait_here(void) { say("waits "); if (cell == 0) *shared = 1; sleep(1000); say("went on "); }
    static void handler(void) { if (how == 1) wait_here(); }
    static void early(void) { say("early "); }
    __attribute__((destructor)) static void destroyed(void) { if (how == 2) wait_here(); }
    static int run(int n, char** a, int way) {
      begin(a);
      if (cell == 1) { while (*shared == 0) usleep(100); raise(SIGTERM); }
      how = way;
      atexit(early);
      atexit(handler);
      return 0;
    }
)";

TEST_P(MachineEnd, CellsThatWaitInExitHandlersStopWithTheMachine) {
  for (const char* end : {"run(n, a, 1); return 0;", "run(n, a, 1); exit(0);", "run(n, a, 2); return 0;"}) {
    const CellsRan ran = run(std::string(waits_at_its_end) + "int main(int n, char** a) { " + end + " }");
    EXPECT_EQ(ran.report.exit_status, 128 + SIGTERM) << end;
    EXPECT_EQ(ran.report.reason.find("cell 1 task 0: "), 0U) << end << ran.report.reason;
    EXPECT_EQ(ran.journals[0].find("went on"), std::string::npos) << end << ran.journals[0];
    EXPECT_NE(ran.journals[0].find("waits"), std::string::npos) << end << ran.journals[0];
    reset();
  }
}

TEST_P(MachineEnd, CellsStopBelowFramesThatCannotBeUnwound) {
  const CellsRan ran = run(R"(
    __attribute__((optimize("no-asynchronous-unwind-tables,no-unwind-tables,no-exceptions"), noinline))
    static int compare(const void* x, const void* y) { if (cell == 0) *shared = 1; sleep(1000); return x < y; }
    int main(int n, char** a) {
      int two[2] = {1, 2};
      begin(a);
      if (cell == 1) { while (*shared == 0) usleep(100); raise(SIGTERM); }
      qsort(two, 2, sizeof two[0], compare);
      return 0;
    })");
  EXPECT_EQ(ran.report.exit_status, 128 + SIGTERM);
  EXPECT_EQ(ran.report.reason.find("cell 1 task 0: "), 0U) << ran.report.reason;
}

TEST_P(MachineEnd, AnExitHandlerThatEndsAtOnceIsTheLast) {
  const CellsRan ran = run(R"(
    static void first(void) { say("first "); }
    static void last(void) { say("last "); _exit(7); }
    int main(int n, char** a) { begin(a); atexit(first); atexit(last); return 0; })");
  EXPECT_EQ(ran.report.exit_status, 7);
  for (const std::string& journal : ran.journals) EXPECT_EQ(journal, "last ");
}

TEST_P(MachineEnd, SleepersStopWithTheMachine) {
  const CellsRan ran = run(R"(
    int main(int n, char** a) { begin(a); if (cell == 1) { usleep(100); raise(SIGTERM); } for (;;) sleep(1000); })");
  EXPECT_EQ(ran.report.exit_status, 128 + SIGTERM);
  EXPECT_EQ(ran.report.reason.find("cell 1 task 0: "), 0U) << ran.report.reason;
}

TEST_P(MachineEnd, ASleepingCellLetsOthersRun) {
  const CellsRan ran = run(R"(
    int main(int n, char** a) {
      begin(a);
      if (cell == 0) { while (*shared != 1) usleep(10); *shared = 2; }
      if (cell == 1) { *shared = 1; while (*shared != 2) sched_yield(); }
      return 0;
    })");
  EXPECT_EQ(ran.report.exit_status, 0) << ran.report.reason;
}

TEST_P(MachineEnd, CellsCatchTheirFaultsAndSwitchInTheHandler) {
  const CellsRan ran = run(R"(
    static sigjmp_buf place;
    static volatile int depth;
    static void handler(int signal) {
      char frame[2000];
      memset(frame, cell, sizeof frame);
      __asm__ volatile("" : : "r"(frame) : "memory");
      ++depth;
      usleep(200);  // the next cell faults meanwhile
      for (int i = 0; i < 2000; ++i) if (frame[i] != cell) say("spoiled ");
      --depth;
      siglongjmp(place, signal);
    }
    int main(int n, char** a) {
      begin(a);
      signal(SIGSEGV, handler);
      for (int i = 0; i < 3; ++i) {
        const int caught = sigsetjmp(place, i % 2);
        if (caught == 0) touch((char*)16 + cell);
        say(caught == SIGSEGV && depth == 0 ? "caught " : "? ");
      }
      return 0;
    })");
  EXPECT_EQ(ran.report.exit_status, 0) << ran.report.reason;
  for (const std::string& journal : ran.journals) EXPECT_EQ(journal, "caught caught caught ");
}

TEST_P(MachineEnd, AFaultHandlerThatSwitchedMayReturn) {
  const CellsRan ran = run(R"(
    #include <sys/mman.h>
    static char* page;
    static void handler(int signal, siginfo_t* info, void* context) {
      usleep(100);
      say(info->si_addr == page ? "at " : "? ");
      mprotect(page, 4096, PROT_READ | PROT_WRITE);
    }
    int main(int n, char** a) {
      begin(a);
      page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      struct sigaction action = {0};
      action.sa_sigaction = handler;
      action.sa_flags = SA_SIGINFO;
      sigaction(SIGSEGV, &action, NULL);
      touch(page);
      return page[0] == 1 ? 0 : 4;
    })");
  EXPECT_EQ(ran.report.exit_status, 0) << ran.report.reason;
  for (const std::string& journal : ran.journals) EXPECT_EQ(journal, "at ");
}

TEST_P(MachineEnd, ThreadsOfProgramsCatchTheirFaultsToo) {
  const CellsRan ran = run(R"(
    static __thread sigjmp_buf place;
    static void handler(int signal) { siglongjmp(place, 1); }
    static void* work(void* unused) {
      for (int i = 0; i < 2; ++i) {
        if (sigsetjmp(place, 1) == 0) touch((char*)16); else say("caught ");
      }
      return NULL;
    }
    int main(int n, char** a) {
      pthread_t id;
      begin(a);
      signal(SIGSEGV, handler);
      pthread_create(&id, NULL, work, NULL);
      pthread_join(id, NULL);
      return 0;
    })");
  EXPECT_EQ(ran.report.exit_status, 0) << ran.report.reason;
  for (const std::string& journal : ran.journals) EXPECT_EQ(journal, "caught caught ");
}

TEST_P(MachineEnd, AFaultInAFaultHandlerEndsTheMachine) {
  EXPECT_EXIT(run(R"(
    static void handler(int signal) { signal = 0; touch((char*)32); }
    int main(int n, char** a) { begin(a); if (cell != 1) { sleep(100); } signal(SIGSEGV, handler); touch((char*)16); return 0; })"),
              has_failed, "cell 1 task 0: SIGSEGV");
}

TEST_P(MachineEnd, AFaultWithoutHandlerNamesTheCell) {
  EXPECT_EXIT(run("int main(int n, char** a) { begin(a); if (cell == 1) touch((char*)16); sleep(100); return 0; }"),
              has_failed, "cell 1 task 0: SIGSEGV");
}

INSTANTIATE_TEST_SUITE_P(Shapes, MachineEnd,
                         testing::Values(Shape{{2, 1}, 1}, Shape{{4, 1}, 2}, Shape{{3, 1}, Options::threads_per_cell}),
                         testing_support::shape_name);

}  // namespace
}  // namespace aplib::loader::test
