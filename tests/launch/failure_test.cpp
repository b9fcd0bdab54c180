// SPDX-License-Identifier: MIT
// How machines of several processes end when something goes wrong: with one message that says what, and nothing left
// behind.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "guard.hpp"
#include "nodes.hpp"
#include "task/switch.hpp"

namespace aplib::test {
namespace {

constexpr const char* waiting = R"(
#include <aplib/cellos.h>
#include <stdio.h>
int main(void) {
  printf("cell %d waits\n", getcid()); fflush(stdout);
  if (getcid() == 0) getchar();
  l_arecv(0, 0, 1);
  return 0;
})";

constexpr const char* spinning = R"(
#include <aplib/cellos.h>
#include <stdio.h>
int main(void) {
  printf("cell %d spins\n", getcid()); fflush(stdout);
  for (volatile long i = 0;; ++i) {}
})";

/// Runs a program that does not end by itself, on hosts a and b with a cell each.
class Failure : public ::testing::Test {
 protected:
  Process start(const char* source, const Strings& options = {}) {
    Strings arguments{APRUN_PROGRAM, "-f", local_cluster(folder_, 2, 1)};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.push_back(folder_.compile("program", source));
    return Process({.arguments = arguments, .keep_input_open = true});
  }
  /// The nodes, as soon as both cells have begun. If one does not, throws, which fails the test.
  static std::vector<pid_t> nodes_that_run(Process& process) {
    if (!process.wait_for("cell 0 ") || !process.wait_for("cell 1 ")) throw std::runtime_error("a cell did not begin");
    return nodes_of(process.pid(), 2);
  }
  /// Also checks that every node ends.
  static Ended end_of(Process& process, const std::vector<pid_t>& nodes) {
    Ended ended = process.wait();
    for (const pid_t node : nodes) wait_gone(node);
    return ended;
  }

  /// How it ends when a node gets a signal while both cells run.
  Ended end_after(int signal, std::size_t node, const char* source, const Strings& options = {}) {
    Process process = start(source, options);
    const auto nodes = nodes_that_run(process);
    ::kill(nodes[node], signal);
    return end_of(process, nodes);
  }

  Folder folder_;
};

constexpr int peer_lost = 72;

TEST_F(Failure, AKilledProcessEndsTheRun) {
  const Ended ended = end_after(SIGKILL, 1, waiting);
  EXPECT_EQ(ended.status, peer_lost);
  EXPECT_EQ(ended.error, "aprun: b (cell 1) is lost: its process was killed by signal 9 (Killed); the machine stops\n");
}

TEST_F(Failure, TasksThatDoNotListenAreCutOff) {
  const Ended ended = end_after(SIGKILL, 0, spinning);
  EXPECT_EQ(ended.status, peer_lost);
  EXPECT_TRUE(contains(ended.error, "a (cell 0) is lost: its process was killed by signal 9")) << ended.error;
}

TEST_F(Failure, AStoppedProcessIsLostAfterALimit) {
  const Ended ended = end_after(SIGSTOP, 1, waiting, {"--peer-timeout", "3s"});
  EXPECT_EQ(ended.status, peer_lost);
  EXPECT_EQ(ended.error,
            "aprun: b (cell 1) is lost: nothing was heard of it for 3 s (peer-timeout); the machine stops\n");
}

TEST_F(Failure, AKilledLauncherTakesItsNodesAlong) {
  for (const char* source : {waiting, spinning}) {
    Process process = start(source);
    const auto nodes = nodes_that_run(process);
    process.signal(SIGKILL);
    static_cast<void>(end_of(process, nodes));
  }
}

class Signals : public Failure, public ::testing::WithParamInterface<int> {};

TEST_P(Signals, EndTheWholeMachine) {
  Process process = start(waiting);
  const auto nodes = nodes_that_run(process);
  process.signal(GetParam());
  const Ended ended = end_of(process, nodes);
  EXPECT_EQ(ended.status, 128 + GetParam());
  EXPECT_TRUE(contains(ended.error, "stopping the machine; once more ends the program at once")) << ended.error;
}

INSTANTIATE_TEST_SUITE_P(All, Signals, ::testing::Values(SIGINT, SIGTERM, SIGHUP));

/// A host that shuts down sends its processes SIGTERM.
class NodesToldToEnd : public Failure, public ::testing::WithParamInterface<const char*> {
 protected:
  /// Two cells that wait, or compute without calls. The nodes of `hosts` get SIGTERM.
  void expect_end(const char* source, const Strings& hosts) {
    Process process({.arguments = {APRUN_PROGRAM, "-f",
                                   local_cluster(folder_, 2, 1, "", fmt::format("module = \"{}\"", GetParam())),
                                   folder_.compile("program", source)},
                     .keep_input_open = true});
    const auto nodes = nodes_that_run(process);
    for (const std::string& host : hosts) ::kill(nodes[host == "a" ? 0 : 1], SIGTERM);
    const Ended ended = end_of(process, nodes);
    EXPECT_EQ(ended.status, 128 + SIGTERM);
    const auto message = [](const std::string& host) {
      return fmt::format("aprun: {} is lost: it was told to end by signal 15 (SIGTERM); the machine stops\n",
                         host == "a" ? "a (cell 0)" : "b (cell 1)");
    };
    EXPECT_TRUE(std::ranges::any_of(hosts, [&](const std::string& host) { return ended.error == message(host); }))
        << ended.error;
  }
};

TEST_P(NodesToldToEnd, OneEndsTheRunAndSaysSo) {
  expect_end(waiting, {"a"});
  expect_end(waiting, {"b"});
}
TEST_P(NodesToldToEnd, AllEndTheRunAndOneSaysSo) { expect_end(waiting, {"a", "b"}); }
TEST_P(NodesToldToEnd, TasksThatDoNotListenAreCutOff) { expect_end(spinning, {"b"}); }

INSTANTIATE_TEST_SUITE_P(Modules, NodesToldToEnd, ::testing::Values("tcp", "shm"));

TEST_F(Failure, ANodeWhoseStarterHasGoneIsLost) {
  // The command that starts b keeps its standard input open until the test has opened and closed the pipe.
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string file = folder_.write(
      "starter.toml", fmt::format("[machine]\ngrid = \"2x1\"\nlaunch = \"local\"\n[[host]]\nname = \"a\"\ncells = 1\n"
                                  "[[host]]\nname = \"b\"\ncells = 1\nlaunch = \"command\"\n"
                                  "command = \"(head -n 1; cat {}) | {{cmd}}\"\n",
                                  pipe));
  Process process(
      {.arguments = {APRUN_PROGRAM, "-f", file, folder_.compile("program", waiting)}, .keep_input_open = true});
  ASSERT_TRUE(process.wait_for("cell 0 waits") && process.wait_for("cell 1 waits"));
  const int end = ::open(pipe.c_str(), O_WRONLY);
  ASSERT_GE(end, 0);
  ::close(end);
  const Ended ended = process.wait();
  EXPECT_EQ(ended.status, peer_lost);
  EXPECT_EQ(ended.error,
            "aprun: b (cell 1) is lost: its standard input has ended, as when what has started it is killed or cut "
            "off; the machine stops\n");
}

TEST_F(Failure, NoiseOfAStartCommandIsCounted) {
  const std::string file = folder_.write("noise.toml",
                                         "[machine]\ngrid = \"1x1\"\n[[host]]\nname = \"a\"\ncells = 1\n"
                                         "launch = \"command\"\n"
                                         "command = \"yes noise | head -n 1000 >&2; exec {cmd}\"\n");
  const Ended ended = aprun_cluster(file, {folder_.compile("nothing", "int main(void) { return 0; }")});
  EXPECT_EQ(ended.status, 0) << ended.error;
  // Of those that are read before the process calls 100 are shown, and 200 of all. It may call before all are read.
  const std::size_t shown = sorted_lines(ended.error).size() - 1;
  EXPECT_TRUE(100 <= shown && shown <= 200) << ended.error;
  EXPECT_TRUE(
      contains(ended.error, fmt::format("\naprun: a: {} more lines of its process are not shown\n", 1000 - shown)))
      << ended.error;
}

/// What a launcher that ends at once leaves where apctl looks.
class SuddenEnd : public Failure {
 protected:
  void expect_nothing_is_left() const {
    while (!std::filesystem::is_empty(runtime_ / "aplib")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  /// `arguments` behind aprun's own, in a shell, into a pipe that is closed after a line.
  void run_into_closed_pipe(const std::string& arguments) const {
    const Ended ended =
        run({.arguments = {"/bin/bash", "-c",
                           std::string(APRUN_PROGRAM) + arguments + " | head -1; echo status ${PIPESTATUS[0]}"},
             .environment = {{"XDG_RUNTIME_DIR", runtime_.path()}}});
    EXPECT_EQ(ended.out, "y\nstatus 141\n") << ended.error;
    expect_nothing_is_left();
  }

  const Folder runtime_;
};

TEST_F(SuddenEnd, AClosedPipeLeavesNoJobsFile) {
  const std::string program = folder_.compile("program", R"(
#include <stdio.h>
int main(void) { for (;;) puts("y"); })");
  run_into_closed_pipe(" -n 2 '" + program + "'");
  run_into_closed_pipe(" -f '" + local_cluster(folder_, 2, 1) + "' '" + program + "'");
}

TEST_F(SuddenEnd, ASecondSignalLeavesNoJobsFile) {
  Process process({.arguments = {APRUN_PROGRAM, "-n", "1", folder_.compile("program", spinning)},
                   .environment = {{"XDG_RUNTIME_DIR", runtime_.path()}}});
  ASSERT_TRUE(process.wait_for("cell 0 spins"));
  ASSERT_FALSE(std::filesystem::is_empty(runtime_ / "aplib"));
  process.signal(SIGINT);
  process.signal(SIGTERM);
  EXPECT_GE(process.wait().status, 128 + SIGINT);
  expect_nothing_is_left();
}

TEST_F(SuddenEnd, TheGuardClearsTheFileOfAKilledLauncher) {
  Process process(
      {.arguments = {APRUN_PROGRAM, "-f", local_cluster(folder_, 2, 1), folder_.compile("program", waiting)},
       .keep_input_open = true,
       .environment = {{"XDG_RUNTIME_DIR", runtime_.path()}}});
  const auto nodes = nodes_that_run(process);
  ASSERT_FALSE(std::filesystem::is_empty(runtime_ / "aplib"));
  process.signal(SIGKILL);
  static_cast<void>(end_of(process, nodes));
  expect_nothing_is_left();
}

TEST_F(SuddenEnd, WhatAKilledLauncherLeavesWithoutItsGuardGoesWithTheNextLook) {
  const std::map<std::string, std::string> environment{{"XDG_RUNTIME_DIR", runtime_.path()}};
  Process process(
      {.arguments = {APRUN_PROGRAM, "-f", local_cluster(folder_, 2, 1), folder_.compile("program", waiting)},
       .keep_input_open = true,
       .environment = environment});
  const auto nodes = nodes_that_run(process);
  ::kill(testing_support::guard_of(process.pid()), SIGKILL);
  process.signal(SIGKILL);
  static_cast<void>(end_of(process, nodes));
  EXPECT_FALSE(std::filesystem::is_empty(runtime_ / "aplib")) << "nobody was left to clear it";
  const Ended next = run({.arguments = {APRUN_PROGRAM, folder_.compile("nothing", "int main(void) { return 0; }")},
                          .environment = environment});
  EXPECT_EQ(next.status, 0) << next.error;
  expect_nothing_is_left();
}

TEST_F(Failure, AStoppedLauncherBlamesNoNode) {
  Process process = start(waiting, {"--peer-timeout", "3s"});
  const auto nodes = nodes_that_run(process);
  process.signal(SIGSTOP);
  for (const pid_t node : nodes) wait_gone(node);
  process.signal(SIGCONT);
  const Ended ended = end_of(process, nodes);
  EXPECT_EQ(ended.status, peer_lost);
  EXPECT_TRUE(contains(ended.error, "is lost: aprun itself stood still for ")) << ended.error;
  EXPECT_EQ(sorted_lines(ended.error).size(), 1U) << ended.error;
}

TEST_F(Failure, ProcessesForWhichThereAreNotEnoughOpenFilesAreNotStarted) {
  const Ended ended =
      run({.arguments = {"/bin/sh", "-c",
                         "ulimit -n 100; exec " + std::string(APRUN_PROGRAM) + " -f '" + local_cluster(folder_, 20, 1) +
                             "' '" + folder_.compile("nothing", "int main(void) { return 0; }") + "'"}});
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(
      ended.error,
      "aprun: 20 processes need 116 open files of aprun, and the limit is 100: raise it (ulimit -n), or use fewer "
      "processes\n");
}

TEST_F(Failure, ALimitOnTheSizeOfFilesIsToldWithItsOption) {
  const std::string words =
      " -f '" + local_cluster(folder_, 2, 1) + "' '" + folder_.compile("nothing", "int main(void) { return 0; }") + "'";
  const auto end_of = [&](const std::string& options) {
    return run({.arguments = {"/bin/sh", "-c", "ulimit -f 100; exec " + std::string(APRUN_PROGRAM) + options + words}});
  };
  const Ended refused = end_of(" --module shm");
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(contains(refused.error, "File too large; raise the limit on the size of files (ulimit -f)"))
      << refused.error;
  EXPECT_EQ(end_of("").status, 0) << "other modules need no such memory";
}

TEST_F(Failure, ANodeWithoutARouteToTheLauncherSaysSoAtOnce) {
  // In a network of its own nothing is up, not even loopback.
  const auto begun = std::chrono::steady_clock::now();
  const Ended ended = run({.arguments = {"unshare", "-n", APRUN_PROGRAM, "--node", "127.0.0.1:9", "--process", "0"},
                           .input = std::string(64, '0') + "\n",
                           .keep_input_open = true});
  if (contains(ended.error, "unshare: ")) GTEST_SKIP() << "needs namespaces: a network of its own";
  EXPECT_EQ(ended.status, 1);
  EXPECT_TRUE(contains(ended.error, "127.0.0.1:9: Network is unreachable; this host has no way there")) << ended.error;
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20)) << "as where there is a route";
}

TEST_F(Failure, ClosedOrFullStandardStreamsAreNoTrouble) {
  const std::string fails = folder_.compile("fails", "int main(void) { return 3; }");
  const std::string command = std::string(APRUN_PROGRAM) + " -f '" + local_cluster(folder_, 2, 1) + "' '" + fails + "'";
  for (const char* streams : {" <&- >&- 2>&-", " >&-", " 2>/dev/full"}) {
    static_cast<void>(
        run({.arguments = {"/bin/sh", "-c", command + streams + "; echo $? >'" + (folder_ / "status") + "'"}}));
    EXPECT_EQ(folder_.read("status"), "3\n") << streams;
  }
}

TEST_F(Failure, TheTimeLimitEndsTheWholeMachine) {
  Process process = start(spinning, {"--timeout", "0.5"});
  const Ended ended = process.wait();
  EXPECT_EQ(ended.status, 124);
  EXPECT_EQ(ended.error, "aprun: the time is over: 0.5 s (--timeout)\n");
}

TEST_F(Failure, ACrashTellsThatItsProgramWasWrittenTo) {
  if (APLIB_ASAN || APLIB_TSAN)
    GTEST_SKIP() << "needs a build without sanitizers: they report a bad access in their own way";
  for (const Strings& way : {Strings{"-n", "2"}, Strings{"-f", local_cluster(folder_, 2, 1)}}) {
    const std::string program = folder_.compile("program", R"(
      #include <stdio.h>
      #include <unistd.h>
      int main(int argc, char** argv) {
        printf("cell %s begins\n", argv[1]);
        fflush(stdout);
        for (;;) usleep(1000);
      })");
    Process process({.arguments = {APRUN_PROGRAM, way[0], way[1], "--expand", program, "{cid}"}});
    ASSERT_TRUE(process.wait_for("cell 0 begins") && process.wait_for("cell 1 begins"));
    ASSERT_EQ(::truncate(program.c_str(), 0), 0);
    const Ended ended = process.wait();
    EXPECT_EQ(ended.status, 128 + SIGBUS) << ended.error;
    EXPECT_TRUE(contains(ended.error, "aplib: " + program + " was written to while it ran: start again"))
        << ended.error;
  }
}

TEST_F(Failure, ACrashSaysWhereAndGivesItsStatus) {
  if (APLIB_ASAN || APLIB_TSAN)
    GTEST_SKIP() << "needs a build without sanitizers: they report a bad access in their own way";
  Process process = start(R"(
#include <aplib/cellos.h>
int main(void) {
  if (getcid() == 1) *(volatile int*)8 = 1;
  l_arecv(1, 0, 1);
  return 0;
})");
  const Ended ended = process.wait();
  EXPECT_EQ(ended.status, 128 + SIGSEGV);
  EXPECT_TRUE(contains(ended.error, "aprun: b: aplib: cell 1 task 0: SIGSEGV, bad memory access")) << ended.error;
  EXPECT_TRUE(contains(ended.error, "aprun: b (cell 1) is lost: its process was killed by signal 11")) << ended.error;
}

TEST_F(Failure, OfTwoCrashesAtOnceOneIsTold) {
  if (APLIB_ASAN || APLIB_TSAN)
    GTEST_SKIP() << "needs a build without sanitizers: they report a bad access in their own way";
  const std::string program = folder_.compile("program", R"(
#include <aplib/cellos.h>
int main(void) {
  cellos_sync(0, 0);
  *(volatile int*)8 = 1;
  return 0;
})");
  for (const char* module : {"shm", "tcp", "shm", "tcp"}) {
    const Ended ended =
        aprun_cluster(local_cluster(folder_, 2, 1, "", fmt::format("module = \"{}\"", module)), {program});
    EXPECT_EQ(ended.status, 128 + SIGSEGV);
    EXPECT_EQ(sorted_lines(ended.error).size(), 2U) << ended.error;
    const bool first = contains(ended.error, "aprun: a: aplib: cell 0 task 0: SIGSEGV");
    EXPECT_TRUE(first || contains(ended.error, "aprun: b: aplib: cell 1 task 0: SIGSEGV")) << ended.error;
    EXPECT_TRUE(contains(ended.error, first ? "aprun: a (cell 0) is lost: its process was killed by signal 11"
                                            : "aprun: b (cell 1) is lost: its process was killed by signal 11"))
        << ended.error;
  }
}

TEST_F(Failure, AnErrorOfAProgramIsSaidOnceWithItsHost) {
  Process process = start(R"(
#include <aplib/cellos.h>
int main(void) {
  int wrong = 0;
  if (getcid() == 1) l_asend(99, 0, 1, &wrong, sizeof wrong);
  l_arecv(1, 0, 1);
  return 0;
})");
  const Ended ended = process.wait();
  EXPECT_NE(ended.status, 0);
  EXPECT_TRUE(contains(ended.error, "b: cell 1 task 0: l_asend: there is no cell 99")) << ended.error;
  EXPECT_EQ(sorted_lines(ended.error).size(), 1U) << ended.error;
}

class CellsThatFail : public Failure, public ::testing::WithParamInterface<const char*> {};

TEST_P(CellsThatFail, PassTheirStatusToThoseThatWaitForThem) {
  const Ended ended = aprun_cluster(local_cluster(folder_, 2, 1, "", fmt::format("module = \"{}\"", GetParam())),
                                    {folder_.compile("program", R"(
#include <aplib/cellos.h>
#include <stdlib.h>
int main(void) {
  if (getcid() == 1) exit(3);
  l_arecv(1, 0, 1);
  return 0;
})")});
  EXPECT_EQ(ended.status, 3);
  EXPECT_TRUE(contains(ended.error, "aprun: a: cell 0 task 0: l_arecv: cell 1 has ended with status 3")) << ended.error;
  EXPECT_EQ(sorted_lines(ended.error).size(), 1U) << ended.error;
}

INSTANTIATE_TEST_SUITE_P(Modules, CellsThatFail, ::testing::Values("tcp", "shm"));

TEST_F(Failure, ADeadlockOverProcessesIsReported) {
  Process process = start(R"(
#include <aplib/cellos.h>
int main(void) { l_arecv(1 - getcid(), 0, 1); return 0; })");
  const Ended ended = process.wait();
  EXPECT_EQ(ended.status, 70);
  EXPECT_TRUE(contains(ended.error, "aprun: deadlock")) << ended.error;
  EXPECT_TRUE(contains(ended.error, "cell 0 task 0") && contains(ended.error, "cell 1 task 0")) << ended.error;
}

TEST_F(Failure, WhatCannotStartIsSaidBeforeAnythingRuns) {
  const std::string program = folder_.compile("program", waiting);
  const Ended missing = aprun_cluster(local_cluster(folder_, 2, 1), {folder_ / "nothing"});
  EXPECT_EQ(missing.status, 2);
  EXPECT_EQ(missing.error, "aprun: there is no program " + (folder_ / "nothing") + "\n");
  const Ended ports = aprun_cluster(local_cluster(folder_, 3, 1, "", "ports = \"47115-47116\""), {program});
  EXPECT_EQ(ports.status, 2);
  EXPECT_EQ(ports.out, "");
  EXPECT_TRUE(contains(ports.error, "47115")) << ports.error;
  EXPECT_TRUE(contains(ports.error, "nothing was started")) << ports.error;
  const std::string file = folder_.write("wrong.toml",
                                         "[machine]\ngrid = \"2x1\"\nlaunch = \"local\"\naprun = \"/no/aprun\"\n"
                                         "[[host]]\nname = \"a\"\ncells = 2\n");
  const Ended no_aprun = aprun_cluster(file, {program});
  EXPECT_EQ(no_aprun.status, 2);
  EXPECT_TRUE(contains(no_aprun.error, "/no/aprun")) << no_aprun.error;
  EXPECT_TRUE(contains(no_aprun.error, "nothing was started")) << no_aprun.error;
}

TEST_F(Failure, ANodeWithoutAKeySaysWhoItIs) {
  const Ended ended =
      run({.arguments = {APRUN_PROGRAM, "--node", "127.0.0.1:1", "--process", "0"}, .input = "nonsense\n"});
  EXPECT_EQ(ended.status, 2);
  EXPECT_TRUE(contains(ended.error, "no key came")) << ended.error;
}

TEST_F(Failure, OutputThatCannotBeWrittenEndsTheRun) {
  const std::string program = folder_.compile("program", R"(
#include <stdio.h>
int main(void) { for (;;) puts("y"); })");
  const Ended many = aprun_cluster(local_cluster(folder_, 2, 1), {"--output", "/dev/full", program});
  EXPECT_EQ(many.status, 1);
  EXPECT_EQ(many.error, "aprun: cannot write /dev/full: No space left on device\n");
  const Ended one = run({.arguments = {APRUN_PROGRAM, "-n", "2", "--output", "/dev/full", program}});
  EXPECT_EQ(one.status, 1);
  EXPECT_EQ(one.error, "aplib: cannot write /dev/full: No space left on device\n");
}

TEST_F(Failure, NobodyReadsTheOutput) {
  const std::string program = folder_.compile("program", R"(
#include <stdio.h>
int main(void) { for (;;) puts("y"); })");
  const Ended ended = run({.arguments = {"/bin/bash", "-c",
                                         std::string(APRUN_PROGRAM) + " -f '" + local_cluster(folder_, 2, 1) + "' '" +
                                             program + "' | head -1; echo status ${PIPESTATUS[0]}"}});
  EXPECT_EQ(ended.out, "y\nstatus 141\n") << ended.error;
}

}  // namespace
}  // namespace aplib::test
