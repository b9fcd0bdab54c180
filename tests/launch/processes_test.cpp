// SPDX-License-Identifier: MIT
// Ordinary processes as the cells of a machine: programs of MPI that no cell can load.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/os/descriptor.hpp"
#include "guard.hpp"
#include "nodes.hpp"

namespace aplib::test {
namespace {

constexpr int lost_status = 72;

class RanksAsProcesses : public ::testing::Test {
 protected:
  static Ended aprun(const Strings& arguments, Start start = {.arguments = {}}) {
    start.arguments = {APRUN_PROGRAM};
    start.arguments.insert(start.arguments.end(), arguments.begin(), arguments.end());
    return run(start);
  }
  static Ended on_two(const std::string& how) { return aprun({"--processes", "-n", "2", PROCESS_PROGRAM, how}); }

  std::string script(const std::string& name, const std::string& text) const {
    std::string path = folder_.write(name, text);
    EXPECT_EQ(::chmod(path.c_str(), S_IRWXU), 0);
    return path;
  }

  Folder folder_;
};

/// The process that the node has started for its cell.
pid_t kept_by(pid_t node) {
  std::vector<pid_t> children = children_of(node);
  std::erase(children, testing_support::guard_of(node));
  return children.at(0);
}

TEST_F(RanksAsProcesses, AreTheRanksOfOneWorld) {
  for (const std::string count : {"2", "4"}) {
    const Ended ended = aprun({"--processes", "-n", count, PROCESS_PROGRAM});
    EXPECT_EQ(ended.status, 0);
    EXPECT_EQ(ended.error, "");
    std::vector<std::string> lines;
    for (int rank = 0; rank < std::stoi(count); ++rank)
      lines.push_back("rank " + std::to_string(rank) + " of " + count + ", program 0");
    EXPECT_EQ(sorted_lines(ended.out), lines);
  }
}

TEST_F(RanksAsProcesses, HaveStatusesOfTheirOwn) {
  const Ended ended = on_two("status");
  EXPECT_EQ(ended.status, 3);
  EXPECT_EQ(ended.error, "aprun: cell 0: status 0; cell 1: status 3\n");
  const Ended high = aprun({"--processes", "-n", "2", PROCESS_PROGRAM, "status", "150"});
  EXPECT_EQ(high.status, 150);
  EXPECT_EQ(high.error, "aprun: cell 0: status 0; cell 1: status 150\n") << "no signal";
}

TEST_F(RanksAsProcesses, RunOperationsOnALargeStack) {
  const Ended ended = on_two("reduce");
  EXPECT_EQ(ended.status, 0) << ended.error;
}

TEST_F(RanksAsProcesses, NeedNotCallMpi) {
  const Ended ended = aprun({"--processes", "--tag-output", "-n", "2", PROCESS_PROGRAM, "alone", "6"},
                            {.arguments = {}, .input = "a line\n"});
  EXPECT_EQ(ended.status, 6);
  EXPECT_EQ(sorted_lines(ended.out),
            (std::vector<std::string>{std::string("[0] ") + PROCESS_PROGRAM + " read a line",
                                      std::string("[1] ") + PROCESS_PROGRAM + " read -othing"}));
}

TEST_F(RanksAsProcesses, AreOfFilesThatAreProgramsOnly) {
  const std::string library = folder_.compile("library.so", "int f(void) { return 0; }");
  const std::string object = folder_.compile("object.o", "int f(void) { return 0; }", "-c");
  const std::string cut = script("cut", folder_.read("library.so").substr(0, 4096));
  for (const auto& [file, why] : {std::pair{library, "is a shared library"},
                                  {object, "is an object file (.o), not yet linked"},
                                  {cut, "is cut off: its parts need more than its 4096 bytes"},
                                  {script("empty", ""), "is empty"}}) {
    const Ended ended = aprun({"--processes", "-n", "2", file});
    EXPECT_EQ(ended.status, 2) << file;
    EXPECT_EQ(ended.error, "aprun: " + file + " " + why + ", which no process can run\n");
  }
  const Ended plain = aprun({"--processes", "-n", "2", folder_.write("plain", "#!/bin/sh\n")});
  EXPECT_TRUE(contains(plain.error, "plain: Permission denied")) << plain.error;
}

TEST_F(RanksAsProcesses, MayFork) {
  // A child lacks the threads that hold what it has, so AddressSanitizer would take that for leaks.
  const char* const options = std::getenv("ASAN_OPTIONS");
  ::setenv("ASAN_OPTIONS", (options != nullptr ? std::string(options) + ":" : "").append("detect_leaks=0").c_str(), 1);
  const Ended ended = on_two("fork");
  EXPECT_EQ(ended.status, 0) << ended.error;
}

TEST_F(RanksAsProcesses, ThatAreKilledEndTheRun) {
  const Ended ended = on_two("killed");
  EXPECT_EQ(ended.status, 128 + SIGKILL);
  EXPECT_TRUE(contains(ended.error, "aprun: localhost-2 (cell 1) is lost: its process ")) << ended.error;
  EXPECT_TRUE(contains(ended.error, " was killed by signal 9 (Killed); the machine stops\n")) << ended.error;
  EXPECT_FALSE(contains(ended.error, "SIGTERM")) << ended.error;  // which ends those that do not end by themselves
}

TEST_F(RanksAsProcesses, ThatLeaveWithoutMpiFinalizeEndTheRun) {
  const Ended ended = on_two("leaves");
  EXPECT_EQ(ended.status, lost_status);
  EXPECT_TRUE(contains(ended.error, "ended with status 0, without MPI_Finalize; the machine stops")) << ended.error;
}

TEST_F(RanksAsProcesses, AreNotWaitedForWhenTheyHaveExited) {
  const Ended ended = on_two("exits");
  EXPECT_NE(ended.status, 0);
  EXPECT_TRUE(contains(ended.error, "MPI_Recv: rank 1 has ended, and left no such message")) << ended.error;
}

TEST_F(RanksAsProcesses, OfSeveralHostsAreOneWorldOverEachModule) {
  Strings modules{"\"tcp\"", "\"shm\""};
#ifdef TEST_RDMA  // ThreadSanitizer does not see the synchronisation in libfabric's own code
  modules.emplace_back("\"rdma\"\nprovider = \"tcp\"");
#endif
  for (const std::string& module : modules) {
    const std::string file = folder_.write(
        "cluster.toml",
        "[machine]\ngrid = \"4x1\"\nlaunch = \"local\"\n[[host]]\nname = \"a\"\ncells = 2\n[[host]]\nname = \"b\"\n"
        "cells = 2\n[comm]\nmodule = " +
            module + "\n");
    const Ended good = aprun({"-f", file, "--processes", PROCESS_PROGRAM});
    EXPECT_EQ(good.status, 0) << module;
    EXPECT_EQ(good.error, "") << module;
    EXPECT_EQ(sorted_lines(good.out).size(), 4U) << good.out;
    const Ended killed = aprun({"-f", file, "--processes", PROCESS_PROGRAM, "killed"});
    EXPECT_EQ(killed.status, 128 + SIGKILL) << module;
    EXPECT_TRUE(contains(killed.error, "aprun: a-2 (cell 1) is lost: its process ")) << killed.error;
    const Ended aborted = aprun({"-f", file, "--processes", PROCESS_PROGRAM, "abort"});
    EXPECT_EQ(aborted.status, 5) << module;
    EXPECT_TRUE(contains(aborted.error, "a-2: cell 1 task 0: MPI_Abort: rank 1 of MPI_COMM_WORLD")) << aborted.error;
  }
}

TEST_F(RanksAsProcesses, EndTheMachineByMpiAbort) {
  const Ended ended = on_two("abort");
  EXPECT_EQ(ended.status, 5);
  EXPECT_TRUE(contains(ended.error, "MPI_Abort: rank 1 of MPI_COMM_WORLD ends the machine with code 5")) << ended.error;
  EXPECT_FALSE(contains(ended.error, "SIGTERM")) << ended.error;  // which ends those that do not end by themselves
}

TEST_F(RanksAsProcesses, ThatWaitForEachOtherAreADeadlock) {
  const Ended ended = on_two("deadlock");
  EXPECT_EQ(ended.status, 70);
  EXPECT_TRUE(contains(ended.error, "rank 0 of MPI_COMM_WORLD, tag 1")) << ended.error;
}

TEST_F(RanksAsProcesses, ThatNeverCallMpiAreMissed) {
  const std::string program =
      script("program", std::string("#!/bin/sh\n[ $1 = 1 ] || exec ") + PROCESS_PROGRAM + "\nexit 0\n");
  const Ended ended = aprun({"--expand", "-n", "2", program, "{cid}"});
  EXPECT_EQ(ended.status, lost_status);
  EXPECT_TRUE(contains(ended.error, program + " is a script: each of its cells is a process (--processes)"))
      << ended.error;
  EXPECT_TRUE(contains(ended.error,
                       "localhost-2 (cell 1) is lost: its process has ended with status 0 and never called "
                       "MPI_Init, where cell 0 waits; the machine stops"))
      << ended.error;
}

TEST_F(RanksAsProcesses, OneJoinsForEachCell) {
  const std::string program =
      script("program", std::string("#!/bin/sh\n") + PROCESS_PROGRAM + " && " + PROCESS_PROGRAM);
  const Ended ended = aprun({"-n", "2", program});
  EXPECT_NE(ended.status, 0);
  EXPECT_TRUE(contains(ended.out, "rank 1 of 2")) << ended.out;
  EXPECT_TRUE(contains(ended.error, "was cell 1 already, and no other process can be")) << ended.error;
}

TEST_F(RanksAsProcesses, AreChosenWhereNoCellCanLoadTheProgram) {
  const Ended ended = aprun({"-n", "2", FIXED_PROGRAM});
  EXPECT_EQ(ended.status, 0);
  EXPECT_TRUE(contains(ended.error, "is linked for one fixed address")) << ended.error;
  EXPECT_EQ(sorted_lines(ended.out), (std::vector<std::string>{"rank 0 of 2, program 0", "rank 1 of 2, program 0"}));
}

// A program that executes others, before the one that calls MPI.
TEST_F(RanksAsProcesses, AreChosenWhereTheProgramStartsOthers) {
  const std::string inner = std::string("A=2 ") + PROCESS_PROGRAM;
  for (const Strings& command : {Strings{"env", "A=1", PROCESS_PROGRAM}, Strings{"nice", "-n", "1", PROCESS_PROGRAM},
                                 Strings{"timeout", "100", PROCESS_PROGRAM}, Strings{"bash", "-c", inner}}) {
    Strings words{"-n", "2"};
    words.insert(words.end(), command.begin(), command.end());
    const Ended ended = aprun(words);
    EXPECT_EQ(ended.status, 0) << command.front();
    EXPECT_EQ(ended.error,
              "aprun: " + command.front() + " starts other programs: each of its cells is a process (--processes)\n");
    EXPECT_EQ(sorted_lines(ended.out), (std::vector<std::string>{"rank 0 of 2, program 0", "rank 1 of 2, program 0"}));
  }
  const Ended own = aprun({"-n", "2", "bash", "--norc", "-c", "echo a"});
  EXPECT_EQ(own.error, "") << "it starts nothing that calls MPI";
}

TEST_F(RanksAsProcesses, EndThoughTheyWriteWithoutEnd) {
  const std::string endless =
      script("endless", "#!/bin/sh\ntrap '' TERM PIPE\nsleep 1000 &\nwhile :; do echo x; done\n");
  Process process({.arguments = {APRUN_PROGRAM, "-n", "1", endless}});
  ASSERT_TRUE(process.wait_for("x\n"));
  const pid_t node = nodes_of(process.pid(), 1).at(0);
  const pid_t kept = kept_by(node);
  const std::vector<pid_t> left = children_of(kept);
  process.signal(SIGINT);
  EXPECT_EQ(process.wait().status, 128 + SIGINT);
  wait_gone(kept);
  for (const pid_t each : left) wait_gone(each);
}

TEST_F(RanksAsProcesses, ThatAreStoppedAreToldOf) {
  Process process({.arguments = {"/bin/sh", "-c", "exec \"$0\" --processes -n 2 \"$1\" waits 2>&1", APRUN_PROGRAM,
                                 PROCESS_PROGRAM}});
  ASSERT_TRUE(process.wait_for("rank 0 waits") && process.wait_for("rank 1 waits"));
  const pid_t kept = kept_by(nodes_of(process.pid(), 2).at(1));
  ASSERT_EQ(::kill(kept, SIGSTOP), 0);
  ASSERT_TRUE(process.wait_for("aprun: cell 1: process " + std::to_string(kept) + " is stopped by a signal"));
  ASSERT_EQ(::kill(kept, SIGCONT), 0);
  process.signal(SIGINT);
  EXPECT_EQ(process.wait().status, 128 + SIGINT);
}

// The kernel protects the program's own file, but none of its libraries.
TEST_F(RanksAsProcesses, ThatFaultTellOfAFileThatWasWrittenTo) {
  const std::string library = folder_.compile("napping.so", R"(
    #include <time.h>
    int usleep(unsigned microseconds) {
      const struct timespec time = {0, microseconds * 1000L};
      nanosleep(&time, NULL);
      return 0;
    })");
  Process process({.arguments = {APRUN_PROGRAM, "--processes", "-n", "2", "/usr/bin/env", "LD_PRELOAD=" + library,
                                 PROCESS_PROGRAM, "waits"}});
  ASSERT_TRUE(process.wait_for("rank 0 waits") && process.wait_for("rank 1 waits"));
  ASSERT_EQ(::truncate(library.c_str(), 0), 0);
  const Ended ended = process.wait();
  EXPECT_EQ(ended.status, 128 + SIGBUS);
  EXPECT_TRUE(contains(ended.error, "; " + library + " was written to while it ran: start again")) << ended.error;
}

TEST_F(RanksAsProcesses, ThatAreStoppedDoNotHoldUpASignal) {
  Process process({.arguments = {APRUN_PROGRAM, "--processes", "-n", "2", PROCESS_PROGRAM, "waits"}});
  ASSERT_TRUE(process.wait_for("rank 0 waits") && process.wait_for("rank 1 waits"));
  ASSERT_EQ(::kill(kept_by(nodes_of(process.pid(), 2).at(1)), SIGSTOP), 0);
  const auto begin = std::chrono::steady_clock::now();
  process.signal(SIGUSR1);  // rank 0 has no handler
  EXPECT_EQ(process.wait().status, 128 + SIGUSR1);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(9)) << "it waited for the stopped one";
}

TEST_F(RanksAsProcesses, MayWaitForSignals) {
  for (const std::string how : {"awaits before", "awaits within"}) {
    Process process(
        {.arguments = {APRUN_PROGRAM, "--processes", "--expand", "-n", "2", PROCESS_PROGRAM, how, "rank {cid}"}});
    ASSERT_TRUE(process.wait_for("rank 0 waits") && process.wait_for("rank 1 waits"));
    process.signal(SIGUSR1);
    const Ended ended = process.wait();
    EXPECT_EQ(ended.status, 0) << how << ": " << ended.error;
    EXPECT_EQ(std::ranges::count(sorted_lines(ended.out), "noted"), 2) << how;
  }
}

// The news of the two ends come by other ways.
TEST_F(RanksAsProcesses, ThatFailFirstGiveTheStatus) {
  for (int run = 0; run < 10; ++run) {
    const Ended ended = aprun({"--processes", "-n", "3", PROCESS_PROGRAM, "order"});
    EXPECT_EQ(ended.status, 3);
    EXPECT_TRUE(contains(ended.error, "cell 2 failed first, with status 3")) << ended.error;
  }
}

TEST_F(RanksAsProcesses, EndWithTheLauncher) {
  for (const int signal : {SIGINT, SIGKILL}) {
    Process process({.arguments = {APRUN_PROGRAM, "--processes", "-n", "2", PROCESS_PROGRAM, "waits"}});
    ASSERT_TRUE(process.wait_for("rank 0 waits") && process.wait_for("rank 1 waits"));
    const auto nodes = nodes_of(process.pid(), 2);
    std::vector<pid_t> kept;
    for (const pid_t node : nodes) kept.push_back(kept_by(node));
    process.signal(signal);
    EXPECT_EQ(process.wait().status, 128 + signal);
    for (const pid_t node : nodes) wait_gone(node);
    for (const pid_t each : kept) wait_gone(each);
  }
}

// Each has the FIFO open while it lives. Some have groups of their own.
TEST_F(RanksAsProcesses, LeaveNothingThatTheyHaveStartedWhenANodeOrTheLauncherIsKilled) {
  const std::string fifo = folder_ / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), S_IRUSR | S_IWUSR), 0);
  const std::string program = script("program", "#!/bin/bash\nset -m\nexec 9> '" + fifo +
                                                    "'\n(sleep 300) &\ntimeout 300 sleep 300 &\n"
                                                    "set +m\n(trap '' TERM; sleep 300) &\necho ready\nwait\n");
  for (const int signal : {SIGTERM, SIGKILL, SIGABRT, SIGQUIT}) {
    for (const bool is_of_node : {false, true}) {
      const os::UniqueFd reader(::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
      Process process({.arguments = {"/bin/sh", "-c", "ulimit -c 0; exec \"$0\" --processes --tag-output -n 2 \"$1\"",
                                     APRUN_PROGRAM, program}});
      ASSERT_TRUE(process.wait_for("[0] ready") && process.wait_for("[1] ready"));
      if (is_of_node) {
        ASSERT_EQ(::kill(nodes_of(process.pid(), 2).at(1), signal), 0);
      } else {
        process.signal(signal);
      }
      EXPECT_NE(process.wait().status, 0);
      pollfd left{reader.get(), POLLIN, 0};
      constexpr int patience_ms = 60000;
      ASSERT_EQ(::poll(&left, 1, patience_ms), 1) << "signal " << signal << (is_of_node ? " to a node" : " to aprun");
    }
  }
}

// Linux shares the cores among sessions before it shares them among processes, where autogroup is on.
TEST_F(RanksAsProcesses, AreOfTheSessionOfTheLauncher) {
  const Ended ended = aprun({"--processes", "-n", "3", "/bin/sh", "-c", "cut -d ' ' -f 6 /proc/self/stat"});
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(sorted_lines(ended.out), std::vector<std::string>(3, std::to_string(::getsid(0))));
}

// One that asked the terminal would be stopped, or take what is typed for rank 0.
TEST_F(RanksAsProcesses, HaveNoTerminal) {
  const std::string asks = "(exec 3</dev/tty) 2>/dev/null && echo a terminal || echo none";
  const std::string command = std::string(APRUN_PROGRAM) + " --processes -n 1 /bin/sh -c '" + asks + "'";
  const Ended here = run({.arguments = {"/usr/bin/script", "-qec", "/bin/sh -c '" + asks + "'", "/dev/null"}});
  if (here.status != 0) GTEST_SKIP() << "script(1) makes no terminal here: " << here.error;
  EXPECT_EQ(here.out, "a terminal\r\n");
  const Ended ended = run({.arguments = {"/usr/bin/script", "-qec", command, "/dev/null"}});
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.out, "none\r\n");
}

}  // namespace
}  // namespace aplib::test
