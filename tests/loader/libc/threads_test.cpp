// SPDX-License-Identifier: MIT
// Threads that programs make are flows of their instance: its thread_locals, its libc state, its end.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <thread>

#include "checks.hpp"
#include "compile.hpp"
#include "journal.hpp"
#include "task/switch.hpp"

namespace aplib::loader::test {
namespace {

#if APLIB_ASAN || APLIB_TSAN
constexpr bool sees_threads_of_libraries = false;
#else
constexpr bool sees_threads_of_libraries = true;
#endif

class Threads : public testing::Test {
 protected:
  std::shared_ptr<const Program> c(const std::string& text) {
    return Program::load(
        shop_.compile(journal_prologue + prologue + text, {"-shared", "-O1", "-D_GNU_SOURCE"}, "p.so"));
  }
  std::shared_ptr<const Program> cpp(const std::string& text) {
    return Program::load(
        shop_.compile_cpp(journal_prologue + prologue + text, {"-shared", "-O1", "-std=c++17"}, "p.so"));
  }

  Workshop shop_;

 private:
  static constexpr const char* prologue = "#include <pthread.h>\n#include <stdint.h>\n#include <unistd.h>\n";
};

TEST_F(Threads, HaveTheGlobalsOfTheirInstanceAndThreadLocalsOfTheirOwn) {
  const auto program = c(R"(
    static int global = 1;
    static __thread int local = 10;
    static void* work(void* add) { global += (int)(intptr_t)add; return (void*)(intptr_t)(++local); }
    int main(int n, char** a) {
      pthread_t id;
      void* result;
      local = 20;
      for (int i = 0; i < 3; ++i) {
        if (pthread_create(&id, NULL, work, (void*)(intptr_t)1) != 0 || pthread_join(id, &result) != 0) return 1;
        if ((intptr_t)result != 11) return 2;
      }
      return global == 4 && local == 20 ? 0 : 3;
    })");
  for (const std::uint32_t cell : {0U, 1U}) EXPECT_EQ(run_journal(program, cell).ran.outcome.status, 0);
}

TEST_F(Threads, DestroyTheirThreadLocalsHoweverTheyEnd) {
  const auto program = cpp(R"(
    struct Speaker { const char* name = "end "; ~Speaker() { say(name); } };
    thread_local Speaker speaker;
    struct Automatic { ~Automatic() { say("automatic "); } };
    static void* returns(void*) { speaker.name = "returned "; return nullptr; }
    static void* exits(void*) { Automatic automatic; speaker.name = "exited "; pthread_exit(nullptr); }
    static int never[2];
    static void* waits(void* ready) {
      Automatic automatic;
      char byte;
      speaker.name = "cancelled ";
      if (write(*static_cast<int*>(ready), "x", 1) != 1) return nullptr;
      return read(never[0], &byte, 1) == 1 ? nullptr : ready;
    }
    int main(int, char** a) {
      start(a);
      pthread_t id;
      for (int i = 0; i < 2; ++i) {
        pthread_create(&id, nullptr, i == 0 ? returns : exits, nullptr);
        pthread_join(id, nullptr);
      }
      int ends[2];
      char byte;
      if (pipe(ends) != 0 || pipe(never) != 0) return 1;
      pthread_create(&id, nullptr, waits, &ends[1]);
      if (read(ends[0], &byte, 1) != 1) return 2;
      pthread_cancel(id);
      void* result = nullptr;
      pthread_join(id, &result);
      return result == PTHREAD_CANCELED ? 0 : 3;
    })");
  const JournalRun run = run_journal(program);
  EXPECT_EQ(run.journal, "returned automatic exited automatic cancelled ");
  EXPECT_EQ(run.ran.outcome.status, 0);
}

TEST_F(Threads, AreCancelledInWaitsForConditionsAndDoNotJoinThemselves) {
  const auto program = c(R"(
    #include <errno.h>
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    static int waits;
    static void clean(void* nothing) { say("cleaned "); pthread_mutex_unlock(&mutex); }
    static void* work(void* nothing) {
      pthread_mutex_lock(&mutex);
      pthread_cleanup_push(clean, NULL);
      waits = 1;
      for (;;) pthread_cond_wait(&condition, &mutex);
      pthread_cleanup_pop(0);
      return NULL;
    }
    int main(int n, char** a) {
      pthread_t id;
      void* result;
      start(a);
      if (pthread_create(&id, NULL, work, NULL) != 0) return 1;
      for (int seen = 0; !seen; sched_yield()) {
        pthread_mutex_lock(&mutex);
        seen = waits;  // and the mutex is free: it waits
        pthread_mutex_unlock(&mutex);
      }
      if (pthread_cancel(id) != 0 || pthread_join(id, &result) != 0 || result != PTHREAD_CANCELED) return 2;
      return pthread_join(pthread_self(), NULL) == EDEADLK ? 0 : 3;
    })");
  for (const std::uint32_t cell : {0U, 1U}) {
    const JournalRun run = run_journal(program, cell);
    EXPECT_EQ(run.journal, "cleaned ");
    EXPECT_EQ(run.ran.outcome.status, 0);
  }
}

TEST_F(Threads, AreCancelledWhereTheyWriteAndNotWhileTheyLoad) {
  if (APLIB_TSAN || APLIB_ASAN)
    GTEST_SKIP() << "needs a build without sanitizers: functions of theirs take the place of libc's that write";
  const auto program = c(R"(
    #include <dlfcn.h>
    #include <err.h>
    #include <stdio.h>
    static int begun;
    static void* work(void* how) {
      __atomic_add_fetch(&begun, 1, __ATOMIC_SEQ_CST);
      for (;;) {
        switch ((int)(intptr_t)how) {
          case 0: if (write(1, "x", 1) != 1) return NULL; break;
          case 1: printf("x\n"); break;
          case 2: puts("x"); break;
          case 3: fputs("x", stderr); break;
          case 4: putchar('x'); break;
          case 5: fflush(stdout); break;
          case 6: perror("x"); break;
          case 7: warnx("x"); break;
          case 8: dlclose(dlopen("libutil.so.1", RTLD_NOW)); pthread_testcancel(); break;
        }
      }
    }
    int main(int n, char** a) {
      pthread_t ids[9];
      for (int how = 0; how < 9; ++how) {
        void* result;
        if (pthread_create(&ids[how], NULL, work, (void*)(intptr_t)how) != 0) return 10;
        while (__atomic_load_n(&begun, __ATOMIC_SEQ_CST) <= how) usleep(100);
        if (pthread_cancel(ids[how]) != 0 || pthread_join(ids[how], &result) != 0 || result != PTHREAD_CANCELED)
          return 20 + how;
        printf("the lock of stdout is free\n");  // left by the one before
      }
      return dlopen("libutil.so.1", RTLD_NOW) != NULL ? 0 : 30;
    })");
  for (const std::uint32_t cell : {0U, 1U}) EXPECT_EQ(run(program, {"program"}, cell).outcome.status, 0);
}

// What stops it runs on the thread's stack, and takes more than the least that a thread can be made with.
TEST_F(Threads, WithTheSmallestStackEndWithTheProgram) {
  if (APLIB_TSAN || APLIB_ASAN) GTEST_SKIP() << "needs a build without sanitizers: they need more stack";
  auto program = c(R"(
    #include <semaphore.h>
    static int begun;
    static sem_t never;
    static void* work(void* none) {
      __atomic_add_fetch(&begun, 1, __ATOMIC_SEQ_CST);
      for (;;) sem_wait(&never);
    }
    int main(int n, char** a) {
      pthread_attr_t attributes;
      pthread_t id;
      sem_init(&never, 0, 0);
      if (pthread_attr_init(&attributes) != 0 || pthread_attr_setstacksize(&attributes, 16384) != 0) return 1;
      if (pthread_create(&id, &attributes, work, NULL) != 0) return 2;
      while (__atomic_load_n(&begun, __ATOMIC_SEQ_CST) == 0) usleep(100);
      return 7;
    })");
  EXPECT_EQ(run(program).outcome.status, 7);
  while (program.use_count() != 1) std::this_thread::yield();  // the instance holds it, and goes
}

TEST_F(Threads, KeepTheirContextForDestructorsOfKeys) {
  const auto program = c(R"(
    static __thread int local = 3;
    static pthread_key_t key;
    static int rounds;
    static void at_end(void* value) {
      if (local != 4) say("lost ");
      if (++rounds < 2) pthread_setspecific(key, value);
      say(value);
    }
    static void* work(void* unused) { local = 4; pthread_setspecific(key, "key "); return NULL; }
    int main(int n, char** a) {
      pthread_t id;
      start(a);
      pthread_key_create(&key, at_end);
      pthread_create(&id, NULL, work, NULL);
      pthread_join(id, NULL);
      pthread_key_delete(key);
      return 0;
    })");
  EXPECT_EQ(run_journal(program).journal, "key key ");
}

TEST_F(Threads, KeysAreOfTheInstanceAndTheirDestructorsRunAtEndsOfThreads) {
  const auto program = c(R"(
    static pthread_key_t key, other;
    static void at_end(void* value) { say(value); }
    static void* work(void* unused) {
      if (pthread_getspecific(key) != NULL) say("foreign ");
      pthread_setspecific(key, "thread ");
      return NULL;
    }
    int main(int n, char** a) {
      pthread_t id;
      start(a);
      pthread_key_create(&key, at_end);
      if (key != 0) say("shared ");
      pthread_setspecific(key, "main ");
      pthread_create(&id, NULL, work, NULL);
      pthread_join(id, NULL);
      say(pthread_getspecific(key));
      pthread_key_delete(key);
      if (pthread_setspecific(key, "deleted") == 0 || pthread_getspecific(key) != NULL) say("deleted ");
      pthread_key_create(&other, at_end);
      if (other != key || pthread_getspecific(other) != NULL) say("stale ");
      pthread_setspecific(other, "last ");
      if (n > 2) pthread_exit(NULL);
      return 0;
    })");
  EXPECT_EQ(run_journal(program).journal, "thread main ") << "return of main() runs no destructor";
  RecordingHost host;
  Journal journal;
  std::vector<std::string> arguments = journal.arguments();
  arguments.emplace_back("more");
  run_instance(make_instance(program, host, 1, arguments), call_main);
  EXPECT_EQ(journal.text(), "thread main last ");
}

// As with a process: whatever they wait for or do, handlers run and files are written at once.
TEST_F(Threads, EndWithTheProgram) {
  if (APLIB_TSAN || APLIB_ASAN)
    GTEST_SKIP() << "needs a build without sanitizers: functions of theirs lie between the program and its waits";
  auto program = c(R"(
    #include <sched.h>
    #include <semaphore.h>
    #include <stdio.h>
    static int ends[2], begun;
    static sem_t never;
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    static volatile unsigned long counter;
    static FILE* in;
    static void handler(void) { say("handler "); }
    static void* work(void* how) {
      char line[10];
      __atomic_add_fetch(&begun, 1, __ATOMIC_SEQ_CST);
      for (;;) {
        switch ((int)(intptr_t)how) {
          case 0: if (read(ends[0], line, 1) == 1) say("?"); break;
          case 1: sem_wait(&never); break;
          case 2: pthread_mutex_lock(&mutex); pthread_cond_wait(&condition, &mutex); break;
          case 3: sleep(1000); break;
          case 4: ++counter; break;
          case 5: fgets(line, sizeof line, in); break;
          case 6: printf("x\n"); usleep(50); break;
          case 7: free(malloc(counter++ % 1000)); break;
          case 8: sched_yield(); break;
        }
      }
    }
    int main(int n, char** a) {
      pthread_t id;
      start(a);
      atexit(handler);
      sem_init(&never, 0, 0);
      if (pipe(ends) != 0) return 100;
      in = fdopen(ends[0], "r");
      FILE* file = fopen(a[2], "w");
      fputs("kept", file);
      for (int how = 0; how < 9; ++how) pthread_create(&id, NULL, work, (void*)(intptr_t)how);
      while (__atomic_load_n(&begun, __ATOMIC_SEQ_CST) < 9) usleep(100);
      say("main ");
      if (n > 3) exit(7);
      return 7;
    })");
  const std::string file = shop_.folder() + "/file";
  for (std::size_t arguments : {3U, 4U}) {
    RecordingHost host;
    Journal journal;
    std::vector<std::string> words = journal.arguments();
    words.push_back(file);
    words.resize(arguments, "exit");
    const loader::Outcome outcome = run_instance(make_instance(program, host, 0, words), call_main);
    EXPECT_EQ(outcome.status, 7);
    EXPECT_EQ(journal.text(), "main handler ");
    EXPECT_EQ(host.warnings, std::vector<std::string>{});
    std::ifstream text(file);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(text), {}), "kept");
    while (program.use_count() != 1) std::this_thread::yield();  // the instance holds it, and goes
  }
}

// TBB's last thread of a pool detaches the others. None of a process's threads sees another one gone when it ends.
TEST_F(Threads, LeaveAnEndedProgramTogether) {
  if (APLIB_TSAN || APLIB_ASAN)
    GTEST_SKIP() << "needs a build without sanitizers: functions of theirs lie between the program and its waits";
  auto program = c(R"(
    #include <errno.h>
    #include <sched.h>
    #include <semaphore.h>
    enum { waiters = 8, lookers = 4 };
    static sem_t never;
    static pthread_t ids[waiters];
    static int begun;
    static void* wait_for_ever(void* none) {
      __atomic_add_fetch(&begun, 1, __ATOMIC_SEQ_CST);
      for (;;) sem_wait(&never);
    }
    static void* look(void* none) {  // mostly where it cannot be stopped
      __atomic_add_fetch(&begun, 1, __ATOMIC_SEQ_CST);
      for (int i = 0;; ++i) {
        sched_yield();
        if (pthread_tryjoin_np(ids[i % waiters], 0) != EBUSY) say("gone ");
      }
    }
    int main(int n, char** a) {
      pthread_t id;
      start(a);
      sem_init(&never, 0, 0);
      for (int i = 0; i < waiters; ++i) pthread_create(&ids[i], NULL, wait_for_ever, NULL);
      for (int i = 0; i < lookers; ++i) pthread_create(&id, NULL, look, NULL);
      while (__atomic_load_n(&begun, __ATOMIC_SEQ_CST) < waiters + lookers) usleep(100);
      return 7;
    })");
  for (int run = 0; run < 20; ++run) {
    const JournalRun ended = run_journal(program);
    EXPECT_EQ(ended.ran.outcome.status, 7);
    ASSERT_EQ(ended.journal, "");
  }
}

// Main has cancelled them, and does not wait; or they were in a destructor, which holds what the next one waits for.
TEST_F(Threads, OfAnEndedProgramAreNeitherCancelledNorDestroyFurther) {
  if (APLIB_TSAN || APLIB_ASAN)
    GTEST_SKIP() << "needs a build without sanitizers: functions of theirs lie between the program and its waits";
  auto program = c(R"(
    #include <semaphore.h>
    static sem_t never;
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_key_t keys[2];
    static int begun;
    static volatile unsigned long counter;
    static void begin(void) { __atomic_add_fetch(&begun, 1, __ATOMIC_SEQ_CST); }
    static void* compute(void* none) { begin(); for (;;) ++counter; }
    static void destroy(void* value) {
      pthread_mutex_lock(&mutex);
      begin();
      for (;;) sem_wait(&never);
    }
    static void* end(void* none) {
      for (int i = 0; i < 2; ++i) pthread_setspecific(keys[i], keys);
      return none;
    }
    int main(int n, char** a) {
      pthread_t ids[4];
      start(a);
      sem_init(&never, 0, 0);
      for (int i = 0; i < 2; ++i) pthread_key_create(&keys[i], destroy);
      for (int i = 0; i < 4; ++i) pthread_create(&ids[i], NULL, i < 3 ? compute : end, NULL);
      while (__atomic_load_n(&begun, __ATOMIC_SEQ_CST) < 4) usleep(100);
      for (int i = 0; i < 3; ++i) pthread_cancel(ids[i]);
      return 7;
    })");
  for (int run = 0; run < 5; ++run) {
    EXPECT_EQ(run_journal(program).ran.outcome.status, 7);
    while (program.use_count() != 1) std::this_thread::yield();  // the instance holds it, and goes
  }
}

TEST_F(Threads, OfAHandlerAreJoinedByIt) {
  const auto program = cpp(R"(
    #include <condition_variable>
    #include <mutex>
    #include <thread>
    struct Pool {
      std::mutex mutex;
      std::condition_variable changed;
      bool over = false;
      std::thread thread{[this] {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return over; });
        say("thread ");
      }};
      ~Pool() {
        { const std::lock_guard lock(mutex); over = true; }
        changed.notify_all();
        thread.join();
        say("joined");
      }
    };
    int main(int, char** a) { start(a); static Pool pool; say("main "); return 3; })");
  const JournalRun run = run_journal(program);
  EXPECT_EQ(run.ran.outcome.status, 3);
  EXPECT_EQ(run.journal, "main thread joined");
}

TEST_F(Threads, GoOnWhereMainEndsByPthreadExit) {
  auto program = c(R"(
    static int ends[2];
    static void handler(void) { say("handler "); }
    static void* work(void* unused) { char byte; if (read(ends[0], &byte, 1) == 1) say("thread "); return NULL; }
    int main(int n, char** a) {
      pthread_t id;
      start(a);
      atexit(handler);
      if (pipe(ends) != 0) return 100;
      pthread_create(&id, NULL, work, NULL);
      pthread_detach(id);
      say("main ");
      if (write(ends[1], "x", 1) == 1) pthread_exit(NULL);
    })");
  EXPECT_EQ(run_journal(program).journal, "main thread handler ");
}

TEST_F(Threads, MainThatCancelsItselfGoesOnWhileThatIsDisabled) {
  const auto program = c(R"(
    int main(int n, char** a) {
      start(a);
      pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
      pthread_cancel(pthread_self());
      say("on ");
      pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
      pthread_testcancel();
      say("further ");
      return 1;
    })");
  EXPECT_EQ(run_journal(program).journal, "on ");
}

TEST_F(Threads, TakeSignalsThatAreSentToThem) {
  if (APLIB_TSAN) GTEST_SKIP() << "needs a build without ThreadSanitizer: it keeps signals to itself";
  const auto program = c(R"(
    #include <errno.h>
    #include <semaphore.h>
    #include <signal.h>
    #include <sys/syscall.h>
    #include <time.h>
    static sem_t never, ready;
    static volatile int computes = 1, over;
    static pthread_t main_thread;
    static pid_t number;
    static __thread int own;
    static char text[100];
    static void note(const char* what) { strncat(text, what, 20); }
    static void handler(int signal) { note(own == 1 ? "there " : "elsewhere "); computes = 0; }
    static void leaves(int signal) { note("left "); pthread_exit((void*)5); }
    static void counts(int signal, siginfo_t* info, void* context) { text[strlen(text)] = '0' + info->si_value.sival_int; }
    static void* work(void* how) {
      own = 1;
      number = syscall(SYS_gettid);
      sem_post(&ready);
      switch ((int)(intptr_t)how) {
        case 0: while (computes) {} break;
        case 1: if (sem_wait(&never) == -1 && errno == EINTR) note("interrupted "); break;
        case 2: if (sleep(1000) > 900) note("woken "); break;
        case 3: for (;;) sem_wait(&never);
        case 4: {
          sigset_t set;
          siginfo_t info;
          sigemptyset(&set);
          sigaddset(&set, SIGRTMIN + 1);
          pthread_sigmask(SIG_BLOCK, &set, NULL);
          sem_post(&ready);
          for (int i = 0; i < 3; ++i) {
            if (sigwaitinfo(&set, &info) == SIGRTMIN + 1) text[strlen(text)] = '0' + info.si_value.sival_int;
          }
          break;
        }
      }
      return NULL;
    }
    static void* begin(int how, pthread_t* id) { pthread_create(id, NULL, work, (void*)(intptr_t)how); sem_wait(&ready); return NULL; }
    int main(int n, char** a) {
      pthread_t id;
      void* result = NULL;
      struct sigaction action = {0};
      start(a);
      sem_init(&never, 0, 0);
      sem_init(&ready, 0, 0);
      action.sa_handler = handler;
      sigaction(SIGUSR1, &action, NULL);
      for (int how = 0; how < 3; ++how) {
        begin(how, &id);
        if (how == 1 ? tgkill(getpid(), number, SIGUSR1) != 0 : pthread_kill(id, SIGUSR1) != 0) return 1;
        pthread_join(id, NULL);
      }
      signal(SIGUSR2, leaves);
      begin(3, &id);
      if (pthread_kill(id, 0) != 0 || pthread_kill(id, 1000) != EINVAL || pthread_kill(id, SIGUSR2) != 0) return 2;
      pthread_join(id, &result);
      begin(4, &id);
      sem_wait(&ready);
      for (int i = 1; i < 4; ++i) pthread_sigqueue(id, SIGRTMIN + 1, (union sigval){.sival_int = i});
      pthread_join(id, NULL);
      say(text);
      return result == (void*)5 ? 0 : 3;
    })");
  const JournalRun run = run_journal(program);
  EXPECT_EQ(run.ran.outcome.status, 0);
  EXPECT_EQ(run.journal, "there there interrupted there woken left 123");
}

TEST_F(Threads, OfCWork) {
  if (APLIB_TSAN) GTEST_SKIP() << "needs a build without ThreadSanitizer: it does not know thrd_join";
  const auto program = c(R"(
    #include <threads.h>
    static _Thread_local int local = 5;
    static int work(void* add) { return ++local + *(int*)add; }
    static int leaves(void* unused) { thrd_exit(-7); }
    int main(int n, char** a) {
      thrd_t id;
      int result = 0, add = 100;
      if (thrd_create(&id, work, &add) != thrd_success || thrd_join(id, &result) != thrd_success || result != 106) return 1;
      if (thrd_create(&id, leaves, NULL) != thrd_success || thrd_join(id, &result) != thrd_success || result != -7) return 2;
      return 0;
    })");
  EXPECT_EQ(run_journal(program).ran.outcome.status, 0);
}

TEST_F(Threads, OfTheStandardLibraryAreSeenToo) {
  if (!sees_threads_of_libraries)
    GTEST_SKIP() << "needs a build without sanitizers: they keep pthread_create of shared libraries to themselves";
  const auto program = cpp(R"(
    #include <thread>
    #include <future>
    struct Speaker { const char* name = "?"; ~Speaker() { say(name); } };
    thread_local Speaker speaker;
    thread_local int local = 2;
    int main(int, char** a) {
      start(a);
      local = 50;
      int seen = 0;
      std::thread([&seen] { seen = local++; speaker.name = "thread "; }).join();
      const int other = std::async(std::launch::async, [] { speaker.name = "async "; return local; }).get();
      return seen == 2 && other == 2 && local == 50 ? 0 : 1;
    })");
  for (const std::uint32_t cell : {0U, 1U}) {
    const JournalRun run = run_journal(program, cell);
    EXPECT_EQ(run.ran.outcome.status, 0);
    EXPECT_EQ(run.journal, "thread async ");
  }
}

TEST_F(Threads, AnUncaughtExceptionEndsTheProgramByItsTerminateHandler) {
  if (testing_support::sanitized) GTEST_SKIP() << "needs a build without sanitizers: nobody frees the exception";
  const auto program = cpp(R"(
    #include <cstdlib>
    #include <exception>
    #include <stdexcept>
    static void* work(void*) { throw std::runtime_error("broken"); }
    int main(int, char** a) {
      start(a);
      std::set_terminate([] { say("last words"); std::abort(); });
      pthread_t id;
      pthread_create(&id, nullptr, work, nullptr);
      pthread_join(id, nullptr);
      return 0;
    })");
  const JournalRun run = run_journal(program);
  EXPECT_EQ(run.ran.failed_status, 134);
  EXPECT_EQ(run.journal, "last words");
}

TEST_F(Threads, StartWithTheSignalsBlockedThatTheirMakerBlocks) {
  const auto program = c(R"(
    #include <signal.h>
    static void handler(int signal) { say("handler "); }
    static void* work(void* set) {
      raise(SIGUSR1);
      say("blocked ");
      pthread_sigmask(SIG_UNBLOCK, set, NULL);
      return NULL;
    }
    int main(int n, char** a) {
      pthread_t id;
      sigset_t set;
      start(a);
      signal(SIGUSR1, handler);
      sigemptyset(&set);
      sigaddset(&set, SIGUSR1);
      pthread_sigmask(SIG_BLOCK, &set, NULL);
      pthread_create(&id, NULL, work, &set);
      pthread_join(id, NULL);
      pthread_sigmask(SIG_BLOCK, NULL, &set);
      return sigismember(&set, SIGUSR1) == 1 ? 0 : 1;
    })");
  const JournalRun run = run_journal(program);
  EXPECT_EQ(run.journal, "blocked handler ");
  EXPECT_EQ(run.ran.outcome.status, 0);
}

TEST_F(Threads, OfTwoInstancesDoNotMix) {
  const auto program = c(R"(
    static long sum;
    static __thread long mine;
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static void* work(void* add) {
      for (int i = 0; i < 1000; ++i) mine += (intptr_t)add;
      pthread_mutex_lock(&mutex);
      sum += mine;
      pthread_mutex_unlock(&mutex);
      return NULL;
    }
    int main(int n, char** a) {
      pthread_t id[4];
      for (int i = 0; i < 4; ++i) pthread_create(&id[i], NULL, work, (void*)(intptr_t)n);
      for (int i = 0; i < 4; ++i) pthread_join(id[i], NULL);
      return sum == 4000 * n ? 0 : 1;
    })");
  std::vector<std::thread> cells;
  std::array<int, 4> statuses{-1, -1, -1, -1};
  for (std::uint32_t cell = 0; cell < statuses.size(); ++cell) {
    cells.emplace_back([&, cell] {
      statuses[cell] = run(program, std::vector<std::string>(cell + 1, "argument"), cell).outcome.status;
    });
  }
  for (std::thread& cell : cells) cell.join();
  EXPECT_EQ(statuses, (std::array<int, 4>{}));
}

}  // namespace
}  // namespace aplib::loader::test
