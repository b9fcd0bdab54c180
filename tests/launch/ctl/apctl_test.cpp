// SPDX-License-Identifier: MIT
// apctl as users run it, on machines of real processes.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <latch>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "checks.hpp"
#include "launch/ctl/registry.hpp"
#include "launch/process.hpp"
#include "launch/wire/status.hpp"

namespace aplib::test {
namespace {

using testing_support::contains;

namespace fs = std::filesystem;

using Strings = std::vector<std::string>;

/// Waits for a message that never comes, until somebody ends the machine.
constexpr const char* waiting = R"(
#include <aplib/cellos.h>
#include <stdio.h>
int main(int argc, char** argv) {
  printf("cell %d waits\n", getcid());
  fflush(stdout);
  for (;;) xy_recv(0, 0, 1);
})";

constexpr const char* greeting = R"(
#include <aplib/cellos.h>
#include <stdio.h>
int main(int argc, char** argv) {
  printf("cell %d task %d greets %s\n", getcid(), cellos_gettid(), argc > 1 ? argv[1] : "nobody");
  return 0;
})";

class Apctl : public ::testing::Test {
 protected:
  Apctl() : runtime_(folder_ / "run") { fs::create_directory(runtime_); }

  [[nodiscard]] Ended apctl(Strings arguments) const {
    arguments.insert(arguments.begin(), APCTL_PROGRAM);
    return run({.arguments = arguments, .environment = {{"XDG_RUNTIME_DIR", runtime_}}, .folder = folder_.path()});
  }
  [[nodiscard]] Start aprun(Strings arguments) const {
    arguments.insert(arguments.begin(), APRUN_PROGRAM);
    // The machine waits for this test, so it is not a deadlock.
    return {.arguments = arguments,
            .environment = {{"XDG_RUNTIME_DIR", runtime_}, {"APLIB_DEADLOCK_REPORT", "off"}},
            .folder = folder_.path()};
  }
  /// Numbers of the jobs that apctl lists.
  [[nodiscard]] Strings jobs() const {
    std::istringstream lines(apctl({"list"}).out);
    Strings jobs;
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty() && line.find_first_not_of("0123456789") != 0) jobs.push_back(line.substr(0, line.find(' ')));
    }
    return jobs;
  }

  Folder folder_;
  std::string runtime_;
};

constexpr const char* nobody = "no machine of this user runs on this computer\n";

TEST_F(Apctl, NothingRuns) {
  EXPECT_EQ(apctl({"list"}).out, nobody);
  const Ended status = apctl({"status"});
  EXPECT_EQ(status.status, 1);
  EXPECT_EQ(status.error, std::string("apctl: ") + nobody);
  EXPECT_EQ(apctl({"stop", "2147483646"}).error, "apctl: there is no job 2147483646: see apctl list\n");
}

TEST_F(Apctl, MistakesOnTheCommandLine) {
  for (const Strings& arguments :
       {Strings{}, Strings{"lits"}, Strings{"status", "x"}, Strings{"list", "--all"}, Strings{"load"},
        Strings{"load", "--cells", "3", "x"}, Strings{"up"}, Strings{"web", "--socket", "x", "--port", "1"}}) {
    const Ended ended = apctl(arguments);
    EXPECT_EQ(ended.status, 2) << ended.error;
    EXPECT_TRUE(ended.error.starts_with("apctl: ")) << ended.error;
    EXPECT_EQ(ended.out, "");
  }
  EXPECT_TRUE(contains(apctl({"lits"}).error, "unknown command lits: did you mean list?"));
}

TEST_F(Apctl, TheManualShowsTheHelp) {
  const Ended help = apctl({"--help"});
  EXPECT_EQ(help.status, 0);
  std::ifstream file(APCTL_MANUAL);
  const std::string manual{std::istreambuf_iterator<char>(file), {}};
  EXPECT_TRUE(contains(manual, help.out)) << "copy this into " << APCTL_MANUAL << ":\n" << help.out;
}

/// collective PROGRAM ROUNDS: reductions, broadcasts and barriers, with numbers that tell whose they are. Without
/// ROUNDS until there is a file "enough".
constexpr const char* collective = R"(
#include <aplib/cellos.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int large[3000];
int main(int argc, char** argv) {
  int program = atoi(argv[1]), rounds = argc > 2 ? atoi(argv[2]) : 0, n = getncel(), wrong = 0, enough = 0;
  if (rounds == 0) printf("cell %d begins\n", getcid());
  fflush(stdout);
  for (int i = 0; rounds == 0 ? !enough : i < rounds; ++i) {
    int sum = 0, most = 0, who = 0;
    double total = 0;
    xy_isum(1000 * program + i, &sum);
    wrong += sum != n * (1000 * program + i);
    xy_dsum(0.5 * program, &total);
    wrong += total != n * (0.5 * program);
    x_imax(10 * program + getcid(), getcid(), &most, &who);
    wrong += most / 10 != program || most % 10 != who;
    int root = i % n;
    for (int k = 0; k < 3000; ++k) large[k] = getcid() == root ? 77 * program + i + k : -1;
    xy_brd(root, large, i % 2 ? sizeof large : sizeof(int));
    for (int k = 0; k < (i % 2 ? 3000 : 1); ++k) wrong += large[k] != 77 * program + i + k;
    sync(0, 0);
    xy_imax(getcid() == 0 && access("enough", F_OK) == 0, 0, &enough, &who);
  }
  printf("program %d cell %d: %d wrong\n", program, getcid(), wrong);
  return wrong != 0;
})";

TEST_F(Apctl, CollectivesOfALoadedProgramAreItsOwn) {
  const std::string program = folder_.compile("collective", collective);
  folder_.write("m.toml", "[machine]\ngrid = \"2x2\"\n[[host]]\ncount = 2\nthreads = 1\ncells = 2\n");
  Process machine(aprun({"-f", "m.toml", program, "1"}));
  for (const char* line : {"cell 0 begins", "cell 1 begins", "cell 2 begins", "cell 3 begins"})
    ASSERT_TRUE(machine.wait_for(line)) << machine.wait().error;
  for (const char* number : {"2", "3"}) EXPECT_EQ(apctl({"load", "./collective", number, "200"}).status, 0);
  for (const char* number : {"2", "3"}) {
    for (const char* cell : {"0", "1", "2", "3"})
      ASSERT_TRUE(machine.wait_for(std::string("program ") + number + " cell " + cell)) << machine.wait().error;
  }
  folder_.write("enough", "");
  const Ended ended = machine.wait();
  EXPECT_EQ(ended.status, 0) << ended.error;
  std::istringstream lines(ended.out);
  std::size_t right = 0;
  for (std::string line; std::getline(lines, line);) right += contains(line, ": 0 wrong") ? 1U : 0U;
  EXPECT_EQ(right, 12U) << ended.out << ended.error;
}

TEST_F(Apctl, AMachineInOneProcess) {
  Process machine(aprun({"-g", "2x1", folder_.compile("waiting", waiting)}));
  ASSERT_TRUE(machine.wait_for("cell 0 waits") && machine.wait_for("cell 1 waits"));
  ASSERT_EQ(jobs().size(), 1U);
  const Ended status = apctl({"status"});
  EXPECT_TRUE(contains(status.out, "state    running")) << status.out << status.error;
  EXPECT_TRUE(contains(status.out, "grid     2x1: 2 cells")) << status.out;
  EXPECT_EQ(apctl({"tasks"}).error, "apctl: tasks: only machines of aprun -f can tell\n");
  EXPECT_EQ(apctl({"stop", jobs().front()}).status, 0);
  const Ended ended = machine.wait();
  EXPECT_EQ(ended.status, 130) << ended.error;
  EXPECT_TRUE(contains(ended.error, "stopped by apctl")) << ended.error;
  EXPECT_EQ(apctl({"list"}).out, nobody);
  EXPECT_TRUE(fs::is_empty(runtime_ + "/aplib"));
}

TEST_F(Apctl, AMachineThatASignalEndsLeavesNoSocket) {
  const std::string program = folder_.compile("waiting", waiting);
  for (const int signal : {SIGABRT, SIGSEGV, SIGUSR1, SIGALRM, SIGXCPU, SIGXFSZ}) {
    Process machine(aprun({"-g", "1x1", program}));
    ASSERT_TRUE(machine.wait_for("cell 0 waits"));
    EXPECT_EQ(jobs().size(), 1U);
    machine.signal(signal);
    EXPECT_EQ(machine.wait().status, 128 + signal);
    EXPECT_TRUE(fs::is_empty(runtime_ + "/aplib")) << signal;
  }
}

// Rank 0 waits in MPI_Init for rank 1, which never calls it.
TEST_F(Apctl, SignalsReachARankInMpiInit) {
  Process machine(
      aprun({"--processes", "--timeout", "40", "--expand", "-n", "2", "/bin/sh", "-c",
             "[ {cid} = 1 ] || exec " PROCESS_PROGRAM
             " handles; trap 'echo trapped' USR1; trap '' TERM; echo begins; while :; do sleep 0.01; done"}));
  ASSERT_TRUE(machine.wait_for("begins"));
  const Strings found = jobs();
  ASSERT_EQ(found.size(), 1U);
  Ended status;
  do status = apctl({"status", found[0]});
  while (status.status == 0 && !contains(status.out, "prepared"));
  machine.signal(SIGUSR1);
  for (const char* each : {"noted", "trapped"}) EXPECT_TRUE(machine.wait_for(each));
  machine.signal(SIGTERM);
  EXPECT_EQ(machine.wait().status, 128 + SIGTERM) << "rank 0 has no handler for it";
}

TEST_F(Apctl, AMachineOfSeveralProcesses) {
  const std::string program = folder_.compile("waiting", waiting);
  folder_.compile("greeting", greeting);
  folder_.write("m.toml", "[machine]\ngrid = \"2x2\"\n[[host]]\ncount = 2\nthreads = 1\ncells = 2\n");
  Process machine(aprun({"-f", "m.toml", program}));
  for (const char* line : {"cell 0 waits", "cell 1 waits", "cell 2 waits", "cell 3 waits"})
    ASSERT_TRUE(machine.wait_for(line)) << machine.wait().error;
  const Strings found = jobs();
  ASSERT_EQ(found.size(), 1U);

  const Ended status = apctl({"status", found[0]});
  EXPECT_EQ(status.status, 0) << status.error;
  for (const char* part : {"state    running", "file     m.toml", "grid     2x2: 4 cells", "\n0        local-1",
                           "\n1        local-2", "2-3"})
    EXPECT_TRUE(contains(status.out, part)) << part << " in\n" << status.out;

  Ended tasks = apctl({"tasks"});
  // A processor is on its way to wait, or a process is late.
  while (contains(tasks.out, "a processor that computes") || contains(tasks.out, "(no answer)"))
    tasks = apctl({"tasks"});
  for (const char* part : {"local-1:", "local-2:", "cell 0 task 0", "cell 3 task 0"})
    EXPECT_TRUE(contains(tasks.out, part)) << part << " in\n" << tasks.out;

  const Ended loaded = apctl({"load", "./greeting", "--world"});
  EXPECT_EQ(loaded.out, "./greeting is task 1000 of all cells of job " + found[0] + "\n") << loaded.error;
  for (const char* line : {"cell 0 task 1000 greets --world", "cell 3 task 1000 greets --world"})
    ASSERT_TRUE(machine.wait_for(line)) << line;
  EXPECT_EQ(apctl({"load", "--task", "33", found[0], "./greeting"}).status, 0);
  ASSERT_TRUE(machine.wait_for("cell 2 task 33 greets nobody"));

  // A program that cannot run is refused, and a number that is taken, and the machine goes on.
  folder_.write("text", "no program\n");
  for (const Strings& wrong : {Strings{"load", "./nothing"}, Strings{"load", "./text"}}) {
    const Ended refused = apctl(wrong);
    EXPECT_NE(refused.status, 0);
    EXPECT_TRUE(contains(refused.error, wrong[1].substr(2))) << refused.error;
  }
  for (const char* taken : {"0", "33"}) {
    const Ended refused = apctl({"load", "--task", taken, "./greeting"});
    EXPECT_NE(refused.status, 0);
    EXPECT_TRUE(contains(refused.error, std::string("is task ") + taken + " already")) << refused.error;
  }
  EXPECT_EQ(jobs(), found);

  EXPECT_EQ(apctl({"stop"}).status, 0);
  const Ended ended = machine.wait();
  EXPECT_EQ(ended.status, 130);
  EXPECT_TRUE(contains(ended.error, "stopped by apctl")) << ended.error;
  EXPECT_TRUE(fs::is_empty(runtime_ + "/aplib"));
}

TEST_F(Apctl, AllMachinesAreAskedAtOnce) {
  namespace ctl = launch::ctl;
  namespace wire = launch::wire;
  const std::string folder = ctl::own_folder(std::vector{runtime_ + "/aplib"});
  std::latch asked(2);
  // None answers before all have been asked.
  const auto answer_once = [&](std::uint32_t job, const ctl::RegistrySocket& listener) {
    for (;;) {
      const ctl::RegistrySocket client(::accept(listener.descriptor(), nullptr, nullptr));
      if (!client.receive(1000, [] { return true; })) continue;  // apctl only looks whether somebody listens
      asked.arrive_and_wait();
      const wire::MachineStatus status{.state = "running", .program = fmt::format("/program-{}", job)};
      static_cast<void>(client.send(wire::encode(ctl::Reply{{}, wire::encode(status)})));
      return;
    }
  };
  const std::array listeners{ctl::RegistrySocket::make(), ctl::RegistrySocket::make()};
  std::vector<std::jthread> machines;
  for (std::uint32_t job = 0; job < 2; ++job) {
    ASSERT_EQ(listeners[job].listen(ctl::job_socket(folder, job + 1)), 0);
    machines.emplace_back([&, job] { answer_once(job + 1, listeners[job]); });
  }
  const Ended ended = apctl({"list"});
  for (const char* program : {"/program-1", "/program-2"}) EXPECT_TRUE(contains(ended.out, program)) << ended.out;
}

TEST_F(Apctl, SeveralMachinesAreToldApart) {
  const std::string program = folder_.compile("waiting", waiting);
  Process first(aprun({program}));
  Process second(aprun({"-n", "3", program}));
  ASSERT_TRUE(first.wait_for("cell 0 waits") && second.wait_for("cell 2 waits"));
  ASSERT_EQ(jobs().size(), 2U);
  const Ended unclear = apctl({"stop"});
  EXPECT_EQ(unclear.status, 2);
  EXPECT_TRUE(contains(unclear.error, "2 machines run: say which one")) << unclear.error;
  // A killed aprun leaves a socket, and is still forgotten.
  first.signal(SIGKILL);
  EXPECT_EQ(first.wait().status, 137);
  ASSERT_EQ(jobs().size(), 1U);
  EXPECT_TRUE(contains(apctl({"status"}).out, "grid     3x1: 3 cells"));
  EXPECT_EQ(apctl({"stop"}).status, 0);
  EXPECT_EQ(second.wait().status, 130);
  EXPECT_TRUE(fs::is_empty(runtime_ + "/aplib"));
}

}  // namespace
}  // namespace aplib::test
