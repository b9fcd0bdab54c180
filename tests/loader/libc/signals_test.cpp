// SPDX-License-Identifier: MIT
// Handlers of signals that a program sends itself, and of faults of its own instructions, belong to its instance.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <mqueue.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>

#include "compile.hpp"
#include "journal.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/signals.hpp"

namespace aplib::loader::test {
namespace {

class Signals : public testing::Test {
 protected:
  std::shared_ptr<const Program> c(const std::string& text) {
    const std::string prologue =
        journal_prologue + "#include <signal.h>\n#include <setjmp.h>\n#include <errno.h>\n#include <unistd.h>\n";
    return Program::load(shop_.compile(prologue + text, {"-shared", "-O1", "-D_GNU_SOURCE"}, "p.so"));
  }

 private:
  Workshop shop_;
};

/// As the machine does: asks the loader, on a separate stack.
class FaultHandlers {
 public:
  FaultHandlers() {
    stack_t stack{};
    stack.ss_sp = stack_.data();
    stack.ss_size = stack_.size();
    sigaltstack(&stack, &old_stack_);
    struct sigaction action {};
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    action.sa_sigaction = [](int signal, siginfo_t* info, void* context) {
      if (libc::deliver_fault(signal, *info, context, nullptr)) return;
      std::signal(signal, SIG_DFL);
    };
    for (std::size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &action, &old_[i]);
  }
  ~FaultHandlers() {
    for (std::size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &old_[i], nullptr);
    sigaltstack(&old_stack_, nullptr);
  }

 private:
  static constexpr std::array signals{SIGSEGV, SIGFPE, SIGBUS, SIGILL, SIGABRT};
  std::array<char, 65536> stack_{};
  stack_t old_stack_{};
  std::array<struct sigaction, signals.size()> old_{};
};

TEST_F(Signals, RaiseCallsTheInstancesHandler) {
  const auto program = c(R"(
    static void handler(int signal) { say(signal == SIGUSR1 ? "one " : "two "); }
    int main(int n, char** a) {
      start(a);
      if (signal(SIGUSR1, handler) != SIG_DFL || signal(SIGINT, handler) != SIG_DFL) return 1;
      raise(SIGUSR1);
      raise(SIGINT);
      kill(getpid(), SIGUSR1);
      return signal(SIGUSR1, SIG_IGN) == handler && raise(SIGUSR1) == 0 ? 0 : 2;
    })");
  struct sigaction before {};
  sigaction(SIGINT, nullptr, &before);
  for (const std::uint32_t cell : {0U, 1U}) {
    const JournalRun run = run_journal(program, cell);
    EXPECT_EQ(run.journal, "one two one ");
    EXPECT_EQ(run.ran.outcome.status, 0);
  }
  struct sigaction after {};
  sigaction(SIGINT, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler) << "the process's own handler is left alone";
}

TEST_F(Signals, SigactionKeepsWhatItWasGiven) {
  const auto program = c(R"(
    static void handler(int signal, siginfo_t* info, void* context) {
      say(info->si_signo == signal && info->si_pid == getpid() && context != NULL ? "info " : "?");
    }
    int main(int n, char** a) {
      struct sigaction action = {0}, old;
      start(a);
      action.sa_sigaction = handler;
      action.sa_flags = SA_SIGINFO | SA_RESETHAND;
      sigaddset(&action.sa_mask, SIGUSR2);
      if (sigaction(SIGUSR1, &action, NULL) != 0) return 1;
      if (sigaction(SIGUSR1, NULL, &old) != 0 || old.sa_sigaction != handler) return 2;
      if ((old.sa_flags & SA_SIGINFO) == 0 || sigismember(&old.sa_mask, SIGUSR2) != 1) return 3;
      raise(SIGUSR1);
      sigaction(SIGUSR1, NULL, &old);
      if (old.sa_handler != SIG_DFL) return 4;
      if (sigaction(SIGKILL, &action, NULL) != -1 || errno != EINVAL) return 5;
      if (sigaction(1000, NULL, &old) != -1 || errno != EINVAL) return 6;
      if (sigaction(SIGUSR1, &action, &action) != 0 || action.sa_handler != SIG_DFL) return 7;
      if (sigaction(SIGUSR1, NULL, &old) != 0 || old.sa_sigaction != handler) return 8;
      return 0;
    })");
  const JournalRun run = run_journal(program);
  EXPECT_EQ(run.ran.outcome.status, 0);
  EXPECT_EQ(run.journal, "info ");
}

TEST_F(Signals, ASignalWithoutHandlerEndsTheMachineInWords) {
  const JournalRun run = run_journal(c("int main(int n, char** a) { start(a); raise(SIGTERM); say(\"on\"); }"));
  EXPECT_EQ(run.ran.failed_status, 128 + SIGTERM);
  EXPECT_NE(run.ran.failure.find("SIGTERM"), std::string::npos) << run.ran.failure;
  EXPECT_EQ(run.journal, "");
  EXPECT_EQ(run_journal(c("int main(int n, char** a) { return raise(SIGCHLD); }")).ran.failed_status, 0);
}

TEST_F(Signals, RealTimeOnesQueueWithTheirValues) {
  const auto program = c(R"(
    static char text[100];
    static void handler(int signal, siginfo_t* info, void* context) {
      char one[3] = {'a' + signal - SIGRTMIN, '0' + info->si_value.sival_int, 0};
      strncat(text, info->si_code == SI_QUEUE && info->si_pid == getpid() ? one : "?", 2);
    }
    static void once(int signal) { strncat(text, "u", 2); }
    int main(int n, char** a) {
      struct sigaction action = {0};
      sigset_t set;
      start(a);
      action.sa_sigaction = handler;
      action.sa_flags = SA_SIGINFO;
      sigaction(SIGRTMIN, &action, NULL);
      sigaction(SIGRTMIN + 1, &action, NULL);
      signal(SIGUSR1, once);
      sigfillset(&set);
      sigprocmask(SIG_BLOCK, &set, NULL);
      for (int i = 1; i < 4; ++i) {
        sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = i});
        sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i});
        kill(getpid(), SIGUSR1);
      }
      sigprocmask(SIG_UNBLOCK, &set, NULL);
      say(text);
      return 0;
    })");
  const JournalRun run = run_journal(program);
  EXPECT_EQ(run.ran.outcome.status, 0);
  EXPECT_EQ(run.journal, "ua1a2a3b1b2b3");
}

TEST_F(Signals, ABlockedSignalWaits) {
  const auto program = c(R"(
    static void handler(int signal) { say("handler "); }
    int main(int n, char** a) {
      sigset_t set, old;
      start(a);
      signal(SIGUSR1, handler);
      sigemptyset(&set);
      sigaddset(&set, SIGUSR1);
      if (sigprocmask(SIG_BLOCK, &set, &old) != 0 || sigismember(&old, SIGUSR1) != 0) return 1;
      raise(SIGUSR1);
      say("blocked ");
      if (sigpending(&old) != 0 || sigismember(&old, SIGUSR1) != 1) return 2;
      sigprocmask(SIG_UNBLOCK, &set, &old);
      if (sigismember(&old, SIGUSR1) != 1) return 3;
      say("free ");
      sigprocmask(SIG_BLOCK, &set, NULL);
      raise(SIGUSR1);
      int found = 0;
      if (sigwait(&set, &found) != 0 || found != SIGUSR1) return 4;
      struct timespec nothing = {0, 1000};
      if (sigtimedwait(&set, NULL, &nothing) != -1 || errno != EAGAIN) return 5;
      raise(SIGUSR1);
      sigemptyset(&set);
      if (sigsuspend(&set) != -1 || errno != EINTR) return 6;
      say("end");
      return 0;
    })");
  for (const std::uint32_t cell : {0U, 1U}) {
    const JournalRun run = run_journal(program, cell);
    EXPECT_EQ(run.ran.outcome.status, 0);
    EXPECT_EQ(run.journal, "blocked handler free handler end");
  }
}

TEST_F(Signals, AStackForHandlersIsToldBack) {
  const auto program = c(R"(
    int main(int n, char** a) {
      static char room[65536];
      stack_t stack = {room, 0, sizeof room}, none = {0, SS_DISABLE, 0}, small = {room, 0, 1}, old;
      start(a);
      if (sigaltstack(0, &old) != 0 || old.ss_flags != SS_DISABLE) return 1;
      if (sigaltstack(&stack, 0) != 0 || sigaltstack(&small, 0) != -1 || errno != ENOMEM) return 2;
      if (sigaltstack(0, &old) != 0 || old.ss_sp != room || old.ss_size != sizeof room || old.ss_flags != 0) return 3;
      if (sigaltstack(&none, &old) != 0 || old.ss_sp != room) return 4;
      return sigaltstack(0, &old) == 0 && old.ss_flags == SS_DISABLE ? 0 : 5;
    })");
  EXPECT_EQ(run_journal(program).ran.outcome.status, 0);
}

TEST_F(Signals, OfTheProcessGoesToAThreadThatDoesNotBlockIt) {
  const auto program = c(R"(
    #include <pthread.h>
    static volatile int ready, caught_there;
    static pthread_t other;
    static void handler(int signal) { caught_there = pthread_equal(pthread_self(), other); }
    static void* wait_for_it(void* computes) {
      sigset_t set;
      sigemptyset(&set);
      sigaddset(&set, SIGUSR1);
      pthread_sigmask(SIG_UNBLOCK, &set, 0);
      other = pthread_self();
      ready = 1;
      while (!caught_there) if (!computes) usleep(1000);
      return 0;
    }
    int main(int n, char** a) {
      sigset_t set;
      pthread_t thread;
      start(a);
      sigemptyset(&set);
      sigaddset(&set, SIGUSR1);
      signal(SIGUSR1, handler);
      pthread_sigmask(SIG_BLOCK, &set, 0);
      for (int i = 0; i < 2; ++i) {
        ready = caught_there = 0;
        if (pthread_create(&thread, 0, wait_for_it, (void*)(long)i) != 0) return 1;
        while (!ready) usleep(100);
        kill(getpid(), SIGUSR1);
        pthread_join(thread, 0);
      }
      return caught_there ? 0 : 2;
    })");
  EXPECT_EQ(run_journal(program).ran.outcome.status, 0);
}

TEST_F(Signals, OlderWordsWork) {
  const auto program = c(R"(
    static void handler(int signal) { say("handler "); }
    int main(int n, char** a) {
      start(a);
      if (sigset(SIGUSR1, handler) != SIG_DFL) return 1;
      sighold(SIGUSR1);
      raise(SIGUSR1);
      say("held ");
      sigrelse(SIGUSR1);
      if (sigset(SIGUSR1, SIG_HOLD) != handler || sigset(SIGUSR1, handler) != SIG_HOLD) return 2;
      sigignore(SIGUSR1);
      raise(SIGUSR1);
      if (siginterrupt(SIGUSR1, 1) != 0) return 3;
      sysv_signal(SIGUSR2, handler);
      raise(SIGUSR2);
      if (signal(SIGUSR2, SIG_IGN) != SIG_DFL) return 4;
      return 0;
    })");
  const JournalRun run = run_journal(program);
  EXPECT_EQ(run.ran.outcome.status, 0);
  EXPECT_EQ(run.journal, "held handler handler ");
}

TEST_F(Signals, AHandlerMayBeLeftByLongjmpAgainAndAgain) {
  const auto program = c(R"(
    static jmp_buf place;
    static void handler(int signal) { longjmp(place, 1); }
    int main(int n, char** a) {
      start(a);
      signal(SIGUSR1, handler);
      for (int i = 0; i < 3; ++i) {
        if (setjmp(place) == 0) raise(SIGUSR1);
        say("back ");
      }
      return 0;
    })");
  EXPECT_EQ(run_journal(program).journal, "back back back ");
}

TEST_F(Signals, TimersAreTheProgramsOwn) {
  const auto program = c(R"(
    #include <string.h>
    #include <sys/time.h>
    #include <time.h>
    int main(int n, char** a) {
      struct itimerval value = {{7, 0}, {100, 0}}, found;
      struct sigevent event;
      timer_t timer;
      if (alarm(1000) != 0) return 1;
      if (setitimer(ITIMER_REAL, &value, &found) != 0 || found.it_value.tv_sec < 900) return 2;
      if (getitimer(ITIMER_REAL, &found) != 0 || found.it_interval.tv_sec != 7 || found.it_value.tv_sec > 100) return 3;
      if (alarm(0) == 0 || alarm(0) != 0) return 4;
      return timer_create(CLOCK_MONOTONIC, NULL, &timer) == 0 && timer_delete(timer) == 0 ? 0 : 6;
    })");
  const JournalRun run = run_journal(program);
  EXPECT_EQ(run.ran.outcome.status, 0);
  EXPECT_TRUE(run.ran.warnings.empty());
}

TEST_F(Signals, TimersCallFunctionsOnThreadsOfTheProgram) {
  const auto program = c(R"(
    #include <pthread.h>
    #include <semaphore.h>
    #include <string.h>
    #include <time.h>
    static sem_t called;
    static __thread int mine = 5;
    static int sum;
    static pthread_t main_thread;
    static void function(union sigval value) {
      if (mine != 5 || pthread_equal(pthread_self(), main_thread)) sum = 1000;
      ++mine;
      __atomic_add_fetch(&sum, value.sival_int, __ATOMIC_SEQ_CST);
      sem_post(&called);
      if (value.sival_int == 3) pthread_exit(NULL);
    }
    int main(int n, char** a) {
      struct sigevent event;
      struct itimerspec often = {{0, 1000000}, {0, 1}}, never = {{0, 0}, {0, 0}};
      timer_t timers[3];
      main_thread = pthread_self();
      sem_init(&called, 0, 0);
      for (int i = 0; i < 3; ++i) {
        memset(&event, 0, sizeof event);
        event.sigev_notify = SIGEV_THREAD;
        event.sigev_notify_function = function;
        event.sigev_value.sival_int = i == 0 ? 3 : 4;
        if (timer_create(CLOCK_MONOTONIC, &event, &timers[i]) != 0) return 1;
      }
      if (timer_settime(timers[0], 0, &often, NULL) != 0) return 2;
      for (int i = 0; i < 3; ++i) sem_wait(&called);
      if (timer_settime(timers[0], 0, &never, NULL) != 0 || timer_delete(timers[0]) != 0) return 3;
      if (sum < 9 || sum % 3 != 0) return 4;
      timer_settime(timers[1], 0, &often, NULL);  // the program ends before and while it calls
      timer_settime(timers[2], 0, &often, NULL);
      return 0;
    })");
  for (int round = 0; round < 5; ++round) {
    const JournalRun run = run_journal(program);
    EXPECT_EQ(run.ran.outcome.status, 0);
    EXPECT_TRUE(run.ran.warnings.empty());
  }
}

TEST_F(Signals, WhoWaitsForOneIsToldItsValue) {
  const auto program = c(R"(
    static volatile int told;
    static void handler(int signal, siginfo_t* info, void* context) { told = info->si_value.sival_int; }
    int main(int n, char** a) {
      union sigval value = {.sival_int = 9};
      struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
      sigset_t set;
      siginfo_t info;
      sigemptyset(&set);
      sigaddset(&set, SIGUSR1);
      sigaction(SIGUSR1, &action, NULL);
      sigprocmask(SIG_BLOCK, &set, NULL);
      if (sigqueue(getpid(), SIGUSR1, value) != 0 || sigwaitinfo(&set, &info) != SIGUSR1) return 1;
      if (info.si_code != SI_QUEUE || info.si_value.sival_int != 9) return 2;
      if (raise(SIGUSR1) != 0 || sigwaitinfo(&set, &info) != SIGUSR1 || info.si_code == SI_QUEUE) return 3;
      if (sigqueue(getpid(), SIGUSR1, value) != 0 || told != 0) return 4;
      sigprocmask(SIG_UNBLOCK, &set, NULL);
      return told == 9 ? 0 : 5;
    })");
  EXPECT_EQ(run_journal(program).ran.outcome.status, 0);
}

TEST_F(Signals, AQueueOfMessagesTellsItsProgram) {
  const auto program = c(R"(
    #include <fcntl.h>
    #include <mqueue.h>
    #include <semaphore.h>
    #include <stdio.h>
    #include <string.h>
    static sem_t called;
    static void function(union sigval value) { if (value.sival_int == 7) sem_post(&called); }
    int main(int n, char** a) {
      char name[50], text[8];
      struct mq_attr attributes = {0, 1, 8, 0};
      struct sigevent event;
      sigset_t set;
      siginfo_t info;
      snprintf(name, sizeof name, "/aplib-notify-%d", getpid());
      mqd_t queue = mq_open(name, O_RDWR | O_CREAT, 0600, &attributes);
      if (queue == -1) return 77;
      mq_unlink(name);
      sigemptyset(&set);
      sigaddset(&set, SIGUSR1);
      sigprocmask(SIG_BLOCK, &set, NULL);
      memset(&event, 0, sizeof event);
      event.sigev_value.sival_int = 7;
      event.sigev_signo = SIGUSR1;
      for (int i = 0; i < 2; ++i) {
        event.sigev_notify = SIGEV_SIGNAL;
        if (mq_notify(queue, &event) != 0) return 1;
        if (mq_notify(queue, &event) != -1 || errno != EBUSY) return 2;
        if (mq_send(queue, "x", 1, 0) != 0 || sigwaitinfo(&set, &info) != SIGUSR1) return 3;
        if (info.si_code != SI_MESGQ || info.si_value.sival_int != 7) return 4;
        mq_receive(queue, text, 8, NULL);
        event.sigev_notify = SIGEV_THREAD;
        event.sigev_notify_function = function;
        if (mq_notify(queue, &event) != 0 || mq_send(queue, "x", 1, 0) != 0 || sem_wait(&called) != 0) return 5;
        mq_receive(queue, text, 8, NULL);
      }
      if (mq_notify(queue, &event) != 0 || mq_notify(queue, NULL) != 0) return 6;
      mq_close(queue);
      return 0;
    })");
  const JournalRun run = run_journal(program);
  if (run.ran.outcome.status == 77) GTEST_SKIP() << "needs mqueue";
  EXPECT_EQ(run.ran.outcome.status, 0);
}

TEST_F(Signals, AQueueOfMessagesEndsASleep) {
  const std::string name = "/aplib-sleep-" + std::to_string(::getpid());
  mq_attr attributes{};
  attributes.mq_maxmsg = 1;
  attributes.mq_msgsize = 8;
  const mqd_t queue = ::mq_open(name.c_str(), O_RDWR | O_CREAT | O_NONBLOCK, 0600, &attributes);
  if (queue == -1) GTEST_SKIP() << "needs mqueue";
  const auto program = c(R"(
    #include <fcntl.h>
    #include <mqueue.h>
    #include <string.h>
    static mqd_t queue;
    static struct sigevent event;
    static volatile int told;
    static int await_next(void) {  // who comes to an empty queue is told of
      char text[8];
      const int error = mq_notify(queue, &event);
      while (mq_receive(queue, text, 8, NULL) > 0) {}
      return error;
    }
    static void handler(int signal) {
      told = 1;
      await_next();
    }
    int main(int n, char** a) {
      signal(SIGHUP, handler);
      queue = mq_open(")" +
                         name + R"(", O_RDWR | O_NONBLOCK);
      event.sigev_notify = SIGEV_SIGNAL;
      event.sigev_signo = SIGHUP;
      if (await_next() != 0) return 1;
      while (!told) sleep(600);  // the next message ends it where the first came before
      return mq_close(queue);
    })");
  std::atomic<bool> over = false;
  std::thread sender([&] {
    for (; !over; ::usleep(10'000)) ::mq_send(queue, "x", 1, 0);
  });
  EXPECT_EQ(run_journal(program).ran.outcome.status, 0);
  over = true;
  sender.join();
  ::mq_close(queue);
  ::mq_unlink(name.c_str());
}

constexpr const char* catcher = R"(
    static sigjmp_buf place;
    static int number;
    static void handler(int signal) { number = signal; siglongjmp(place, 1); }
    __attribute__((noinline)) static int divide(int x, int y) { int q; __asm__ volatile("cltd; idivl %2" : "=a"(q) : "0"(x), "r"(y) : "edx", "cc"); return q; }
    __attribute__((noinline)) static void touch(char* at) { *(volatile char*)at = 1; }
)";

TEST_F(Signals, AProgramCatchesItsOwnFaultsRepeatedly) {
  const FaultHandlers machine;
  const auto program = c(std::string(catcher) + R"(
    int main(int n, char** a) {
      start(a);
      signal(SIGSEGV, handler);
      signal(SIGFPE, handler);
      for (int i = 0; i < 2; ++i) {
        if (sigsetjmp(place, 1) == 0) touch((char*)16); else say(number == SIGSEGV ? "segv " : "? ");
        if (sigsetjmp(place, 0) == 0) number = divide(1, 0); else say(number == SIGFPE ? "fpe " : "? ");
      }
      return 0;
    })");
  for (const std::uint32_t cell : {0U, 1U}) {
    const JournalRun run = run_journal(program, cell);
    EXPECT_EQ(run.journal, "segv fpe segv fpe ");
    EXPECT_EQ(run.ran.outcome.status, 0);
  }
}

TEST_F(Signals, AFaultHandlerMayRepairAndReturn) {
  const FaultHandlers machine;
  const auto program = c(R"(
    #include <sys/mman.h>
    #include <math.h>
    static char* page;
    static void handler(int signal, siginfo_t* info, void* context) {
      char frame[3000];
      memset(frame, 1, sizeof frame);
      __asm__ volatile("" : : "r"(frame) : "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7");
      __asm__ volatile("xorps %%xmm3, %%xmm3; xorps %%xmm4, %%xmm4; fninit" : : : "xmm3", "xmm4");
      say((char*)info->si_addr == page + 5 ? "at " : "? ");
      mprotect(page, 4096, PROT_READ | PROT_WRITE);
    }
    int main(int n, char** a) {
      start(a);
      page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      struct sigaction action = {0};
      action.sa_sigaction = handler;
      action.sa_flags = SA_SIGINFO | SA_ONSTACK;
      sigaction(SIGSEGV, &action, NULL);
      for (int i = 0; i < 2; ++i) {
        double kept = n * 1.5, after;
        long word = 0x1122334455667788, same;
        __asm__ volatile("movsd %3, %%xmm3; movsd %%xmm3, %%xmm4; mov %4, %%r11; movb $7, (%2); movsd %%xmm4, %0; mov %%r11, %1"
                         : "=m"(after), "=r"(same) : "r"(page + 5), "m"(kept), "r"(word) : "xmm3", "xmm4", "r11", "memory");
        if (after != kept || same != word || page[5] != 7) return 1;
        mprotect(page, 4096, PROT_NONE);
      }
      say("end");
      return 0;
    })");
  for (const std::uint32_t cell : {0U, 1U}) {
    const JournalRun run = run_journal(program, cell);
    EXPECT_EQ(run.journal, "at at end");
    EXPECT_EQ(run.ran.outcome.status, 0);
  }
}

TEST_F(Signals, ExitLeavesAFaultHandler) {
  const FaultHandlers machine;
  const auto program = c(std::string(catcher) + R"(
    static void ends(int signal) { say("handler"); exit(12); }
    int main(int n, char** a) { start(a); signal(SIGSEGV, ends); touch((char*)16); return 0; })");
  for (const std::uint32_t cell : {0U, 1U, 2U}) {
    const JournalRun run = run_journal(program, cell);
    EXPECT_EQ(run.journal, "handler");
    EXPECT_EQ(run.ran.outcome.status, 12);
  }
}

TEST_F(Signals, AFaultWithoutHandlerIsNotDelivered) {
  const auto program = c(std::string(catcher) + "int main(int n, char** a) { touch((char*)16); return 0; }");
  EXPECT_EXIT(
      {
        const FaultHandlers machine;
        run_journal(program);
      },
      [](int status) { return status != 0; }, "");
}

// A shared library's own thread may call what the program's names are bound to. Then the call affects the process, as
// all of libc does.
TEST(SignalsOfTheProcess, ChangeWhenNoInstanceCalls) {
  using Handler = void (*)(int);
  const auto bound = [](const char* name) { return libc::find_binding(name)->function; };
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGUSR2, nullptr, &before), 0);
  struct sigaction now {};
  for (const char* name : {"signal", "sysv_signal"}) {
    std::signal(SIGUSR2, SIG_DFL);
    const auto set = reinterpret_cast<Handler (*)(int, Handler)>(reinterpret_cast<std::uintptr_t>(bound(name)));
    EXPECT_EQ(set(SIGUSR2, SIG_IGN), SIG_DFL) << name;
    sigaction(SIGUSR2, nullptr, &now);
    EXPECT_EQ(now.sa_handler, SIG_IGN) << name;
  }
  const auto interrupts = reinterpret_cast<int (*)(int, int)>(reinterpret_cast<std::uintptr_t>(bound("siginterrupt")));
  EXPECT_EQ(interrupts(SIGUSR2, 0), 0);
  sigaction(SIGUSR2, nullptr, &now);
  EXPECT_NE(now.sa_flags & SA_RESTART, 0);
  EXPECT_EQ(interrupts(SIGUSR2, 1), 0);
  sigaction(SIGUSR2, nullptr, &now);
  EXPECT_EQ(now.sa_flags & SA_RESTART, 0);
  sigaction(SIGUSR2, &before, nullptr);
}

}  // namespace
}  // namespace aplib::loader::test
