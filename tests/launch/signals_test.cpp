// SPDX-License-Identifier: MIT
// Signals that batch systems send to a launcher before the time is over: the programs get them, if all handle them.
#include <gtest/gtest.h>

#include <csignal>
#include <string>

#include "nodes.hpp"

namespace aplib::test {
namespace {

// Cells below the second argument have a handler, which takes note; the third says how they wait for it.
constexpr const char* handling = R"(
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static volatile sig_atomic_t came;
static void note(int signal) { came = signal; }
int main(int argc, char** argv) {
  const char* how = argv[3];
  if (atoi(argv[1]) < atoi(argv[2])) {
    struct sigaction action = {0};
    action.sa_handler = note;
    action.sa_flags = strcmp(how, "handles one") == 0 ? (int)SA_RESETHAND : 0;
    sigaction(SIGUSR1, &action, NULL);
    signal(SIGUSR2, note);
    signal(SIGTERM, note);
  }
  printf("cell %s begins\n", argv[1]);
  fflush(stdout);
  if (strcmp(how, "leaves") == 0 && atoi(argv[1]) == 1) return 0;
  while (!came) {
    if (strcmp(how, "computes") != 0) usleep(1000);
    if (strcmp(how, "sleeps") == 0) sleep(2);  // it may just have come
  }
  printf("cell %s: signal %d\n", argv[1], (int)came);
  fflush(stdout);
  while (strcmp(how, "goes on") == 0 || strcmp(how, "handles one") == 0) usleep(1000);
  return 0;
})";

class SignalsFromOutside : public ::testing::Test {
 protected:
  /// One process, and two.
  std::vector<Strings> ways() const { return {{"-n", "2"}, {"-f", local_cluster(folder_, 2, 1)}}; }
  Start start(Strings words, const std::string& handlers, const std::string& how) const {
    words.insert(words.begin(), APRUN_PROGRAM);
    for (const std::string& word : {std::string("--expand"), program_, std::string("{cid}"), handlers, how})
      words.push_back(word);
    return {.arguments = words};
  }
  static void await_begin(Process& process) {
    for (const char* text : {"cell 0 begins", "cell 1 begins"}) ASSERT_TRUE(process.wait_for(text));
  }
  /// Both cells say that they have got it, and the run ends well.
  static void expect_to_reach_all(const Start& start, int number) {
    Process process(start);
    await_begin(process);
    process.signal(number);
    const Ended ended = process.wait();
    EXPECT_EQ(ended.status, 0) << ended.error;
    EXPECT_EQ(ended.error, "");
    for (const char* cell : {"cell 0", "cell 1"})
      EXPECT_TRUE(contains(ended.out, cell + (": signal " + std::to_string(number)))) << ended.out;
  }

  Folder folder_;
  std::string program_ = folder_.compile("handling", handling);
};

TEST_F(SignalsFromOutside, ReachTheProgramsThatAllHandleThem) {
  for (const Strings& way : ways()) {
    for (const int number : {SIGUSR1, SIGUSR2, SIGTERM}) {
      for (const char* how : {"waits", "sleeps", "computes"}) {
        SCOPED_TRACE(way[0] + " " + how + " " + std::to_string(number));
        expect_to_reach_all(start(way, "2", how), number);
      }
    }
  }
}

// As programs do that have a thread for signals, or a loop of events.
TEST_F(SignalsFromOutside, ReachWhoWaitsForThem) {
  const std::string program = folder_.compile("waiting", R"C(
    #include <poll.h>
    #include <pthread.h>
    #include <signal.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/signalfd.h>
    #include <time.h>
    #include <unistd.h>
    static sigset_t set;
    static const char* cell;
    static void* wait_for_it(void* how) {
      const struct timespec none = {0};
      const int reads = strcmp(how, "signalfd") == 0;
      const int file = reads ? signalfd(-1, &set, SFD_CLOEXEC) : -1;
      int signal = reads ? 0 : sigtimedwait(&set, NULL, &none);
      printf("cell %s begins\n", cell);
      fflush(stdout);
      if (reads) {
        struct pollfd one = {file, POLLIN, 0};
        struct signalfd_siginfo info;
        while (poll(&one, 1, -1) != 1) {}
        if (read(file, &info, sizeof info) == sizeof info) signal = (int)info.ssi_signo;
      } else if (strcmp(how, "sigpending") == 0) {
        sigset_t came;
        do { usleep(1000); sigpending(&came); } while (!sigismember(&came, SIGUSR1) && !sigismember(&came, SIGTERM));
        sigwait(&set, &signal);
      } else {
        sigwait(&set, &signal);
      }
      printf("cell %s: signal %d\n", cell, signal);
      return NULL;
    }
    int main(int argc, char** argv) {
      pthread_t thread;
      cell = argv[1];
      sigemptyset(&set);
      sigaddset(&set, SIGUSR1);
      sigaddset(&set, SIGTERM);
      pthread_sigmask(SIG_BLOCK, &set, NULL);
      if (strcmp(argv[2], "main") == 0) return wait_for_it("") != NULL;
      pthread_create(&thread, NULL, wait_for_it, argv[2]);
      return pthread_join(thread, NULL);
    })C");
  for (const Strings& way : ways()) {
    for (const int number : {SIGUSR1, SIGTERM}) {
      for (const char* how : {"main", "thread", "signalfd", "sigpending"}) {
        SCOPED_TRACE(way[0] + " " + how + " " + std::to_string(number));
        Strings words = way;
        words.insert(words.begin(), APRUN_PROGRAM);
        for (const char* word : {"--expand", program.c_str(), "{cid}", how}) words.emplace_back(word);
        expect_to_reach_all({.arguments = words}, number);
      }
    }
  }
}

TEST_F(SignalsFromOutside, EndTheRunWhereOneDoesNot) {
  for (const Strings& way : ways()) {
    for (const int number : {SIGUSR1, SIGTERM}) {
      Process process(start(way, "1", "waits"));
      await_begin(process);
      process.signal(number);
      const Ended ended = process.wait();
      EXPECT_EQ(ended.status, 128 + number);
      EXPECT_FALSE(contains(ended.out, "cell 1: signal")) << ended.out;
      EXPECT_TRUE(contains(ended.error, "stopping the machine")) << ended.error;
      EXPECT_EQ(contains(ended.error, "not every rank has a handler for it"), number == SIGUSR1) << ended.error;
    }
  }
}

// A child knows the process that carries the cells as its parent.
TEST_F(SignalsFromOutside, OfAChildAreForTheCellThatHasMadeIt) {
  const std::string program = folder_.compile("telling", R"C(
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    static volatile sig_atomic_t told, ends;
    static void note(int signal) { signal == SIGUSR1 ? ++told : (ends = 1); }
    int main(int argc, char** argv) {
      signal(SIGUSR1, note);
      signal(SIGUSR2, note);
      if (strcmp(argv[1], "1") == 0) {
        system("kill -USR1 $PPID");
        while (!told) usleep(1000);
        system("kill -USR1 $PPID; exit 0");
        while (told < 2) usleep(1000);
      }
      printf("cell %s waits\n", argv[1]);
      fflush(stdout);
      while (!ends) usleep(1000);
      printf("cell %s was told %d times\n", argv[1], (int)told);
      return 0;
    })C");
  for (Strings way : {Strings{"-n", "3"}, Strings{"-f", local_cluster(folder_, 1, 3)}}) {
    way.insert(way.begin(), APRUN_PROGRAM);
    for (const char* word : {"--expand", program.c_str(), "{cid}"}) way.emplace_back(word);
    Process process({.arguments = way});
    for (const char* text : {"cell 0 waits", "cell 1 waits", "cell 2 waits"}) ASSERT_TRUE(process.wait_for(text));
    process.signal(SIGUSR2);
    const Ended ended = process.wait();
    EXPECT_EQ(ended.status, 0) << ended.error;
    for (const char* text : {"cell 0 was told 0 times", "cell 1 was told 2 times", "cell 2 was told 0 times"})
      EXPECT_TRUE(contains(ended.out, text)) << ended.out;
  }
}

TEST_F(SignalsFromOutside, AreNotForRanksThatHaveEnded) {
  for (const Strings& way : ways()) {
    Process process(start(way, "2", "leaves"));
    await_begin(process);
    process.signal(SIGUSR1);
    const Ended ended = process.wait();
    EXPECT_EQ(ended.status, 0) << ended.error;
    EXPECT_TRUE(contains(ended.out, "cell 0: signal")) << ended.out;
  }
}

TEST_F(SignalsFromOutside, AHandlerForOneIsForOne) {
  for (const Strings& way : ways()) {
    Process process(start(way, "2", "handles one"));
    await_begin(process);
    process.signal(SIGUSR1);
    for (const char* text : {"cell 0: signal", "cell 1: signal"}) ASSERT_TRUE(process.wait_for(text));
    process.signal(SIGUSR1);
    const Ended ended = process.wait();
    EXPECT_EQ(ended.status, 128 + SIGUSR1);
    EXPECT_TRUE(contains(ended.error, "not every rank has a handler for it")) << ended.error;
  }
}

TEST_F(SignalsFromOutside, ASecondTermStopsWhatGoesOn) {
  for (const Strings& way : ways()) {
    Process process(start(way, "2", "goes on"));
    await_begin(process);
    process.signal(SIGTERM);
    for (const char* text : {"cell 0: signal", "cell 1: signal"}) ASSERT_TRUE(process.wait_for(text));
    process.signal(SIGTERM);
    const Ended ended = process.wait();
    EXPECT_EQ(ended.status, 128 + SIGTERM);
  }
}

TEST_F(SignalsFromOutside, ReachProcesses) {
  Process process({.arguments = {APRUN_PROGRAM, "--processes", "-n", "2", "--expand", "/bin/sh", "-c",
                                 "trap 'echo cell {cid}: trapped; exit 0' USR1; echo cell {cid} begins; while :; do "
                                 "sleep 0.01; done"}});
  await_begin(process);
  process.signal(SIGUSR1);
  const Ended ended = process.wait();
  EXPECT_EQ(ended.status, 0) << ended.error;
  for (const char* line : {"cell 0: trapped", "cell 1: trapped"}) EXPECT_TRUE(contains(ended.out, line)) << ended.out;
}

}  // namespace
}  // namespace aplib::test
