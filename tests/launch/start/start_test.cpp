// SPDX-License-Identifier: MIT
// A Starter on this host. ssh, Slurm and PMIx have their own tests with real servers.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <random>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "comm/greeting.hpp"
#include "guard.hpp"
#include "launch/start/child.hpp"
#include "launch/start/launch_method.hpp"
#include "launch/start/starter.hpp"

namespace aplib::launch {
namespace {

start::NodeStart node_of(std::uint32_t process, std::vector<std::string> command,
                         cluster::LaunchKind kind = cluster::LaunchKind::local) {
  start::NodeStart node;
  node.process = process;
  node.host.name = "ws" + std::to_string(process + 1);
  node.host.launch = kind;
  node.command = std::move(command);
  node.input = "key\n";
  return node;
}

start::NodeStart shell(std::uint32_t process, const std::string& script) {
  return node_of(process, {"/bin/sh", "-c", script});
}

/// The name of a file of this process, which a node writes to report something.
std::string temporary_file() {
  return (std::filesystem::temp_directory_path() / ("aplib-start-" + std::to_string(::getpid()))).string();
}

/// Records a starter's events, and waits for them.
class Told {
 public:
  start::StartEvents events() {
    start::StartEvents events;
    events.failed = [this](std::uint32_t process, const std::string& text) { add(failed, process, text); };
    events.ended = [this](std::uint32_t process, int status, const std::string& words) {
      const std::lock_guard lock(mutex_);
      EXPECT_TRUE(statuses.emplace(process, status).second) << "told twice";
      last_words[process] = words;
      more_.notify_all();
    };
    events.said = [this](std::uint32_t process, const std::string& line) { add(said, process, line); };
    events.greets = [this](start::Contact contact) {
      const std::lock_guard lock(mutex_);
      EXPECT_TRUE(contacts.emplace(contact.process, std::move(contact)).second) << "told twice";
      more_.notify_all();
    };
    return events;
  }

  /// Waits for an event without a timeout; the test's own limit ends a wait for one that never comes.
  template <class Condition>
  void wait(Condition condition) {
    std::unique_lock lock(mutex_);
    more_.wait(lock, condition);
  }

  std::map<std::uint32_t, std::string> failed;  // guarded by the lock while the starter exists
  std::map<std::uint32_t, int> statuses;
  std::map<std::uint32_t, std::string> last_words;
  std::map<std::uint32_t, std::string> said;
  std::map<std::uint32_t, start::Contact> contacts;

 private:
  void add(std::map<std::uint32_t, std::string>& into, std::uint32_t process, const std::string& text) {
    const std::lock_guard lock(mutex_);
    into[process] += text + "|";
    more_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable more_;
};

TEST(Quote, AShellReadsWordsBack) {
  std::mt19937_64 random(20261121);
  std::vector<std::string> words{"", "plain", "it's", "-n", "a b"};
  for (int i = 0; i < 40; ++i) {
    std::string word;
    for (std::uint64_t length = random() % 12; length > 0; --length) {
      word += static_cast<char>(1 + random() % 126);
    }
    words.push_back(word);
  }
  std::vector<std::string> command{"/usr/bin/printf", "%s\\0"};
  command.insert(command.end(), words.begin(), words.end());
  FILE* pipe = ::popen(start::shell_command(command).c_str(), "r");
  std::string text;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
  ::pclose(pipe);
  std::string expected;
  for (const std::string& word : words) expected += word + '\0';
  EXPECT_EQ(text, expected);
  EXPECT_EQ(start::shell_quote("/usr/bin/aprun"), "/usr/bin/aprun");
}

TEST(Quote, SplitReadsWhatPeopleWrite) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(start::split_words("ssh -p 2222  -F 'my file'", "x"), (Words{"ssh", "-p", "2222", "-F", "my file"}));
  EXPECT_EQ(start::split_words("a\\ b \"c 'd'\" '' e\\\\", "x"), (Words{"a b", "c 'd'", "", "e\\"}));
  EXPECT_EQ(start::split_words("  ", "x"), Words{});
  EXPECT_THROW(static_cast<void>(start::split_words("ssh 'x", "option ssh")), Error);
  EXPECT_THROW(static_cast<void>(start::make_starter("ssh \"x")), Error);
}

TEST(Quote, FillInLeavesOtherBracesAlone) {
  const std::array<std::pair<std::string_view, std::string>, 2> values{{{"cmd", "run {host}"}, {"host", "ws1"}}};
  EXPECT_EQ(start::fill_in("on {host}: {cmd} ${x} {} {cmd", values), "on ws1: run {host} ${x} {} {cmd");
}

TEST(KeptWords, MarksStandBehindWhatHasNoEndOfLine) {
  start::KeptWords words;
  std::vector<std::string> heard;
  const auto hear = [&](const std::string& line) { heard.push_back(line); };
  words.take("aplib-node ends 3\naplib-node be", hear);
  EXPECT_FALSE(words.end().told) << "what has not begun cannot end";
  words.take("gins 17\none\nlast wordsaplib-node ends 5\n", hear);
  EXPECT_TRUE(words.end().began);
  EXPECT_TRUE(words.end().told);
  EXPECT_EQ(words.end().status, 5);
  EXPECT_EQ(heard, (std::vector<std::string>{"aplib-node ends 3", "one", "last words"}));
  EXPECT_EQ(words.end().words, heard);
}

TEST(KeptWords, AreBoundedAndTheLastAreKept) {
  start::KeptWords words;
  std::size_t bytes = 0;
  words.take("aplib-node no folder /there\n");
  EXPECT_EQ(words.end().lost_folder, "/there");
  words.take(std::string(3 * start::line_max, 'x'), [&](const std::string& line) {
    EXPECT_LE(line.size(), start::line_max);
    bytes += line.size();
  });
  EXPECT_GE(bytes, 2 * start::line_max) << "it does not wait for an end";
  words.take("\n");
  for (std::size_t i = 0; i < 2 * start::words_max; ++i) words.take(std::to_string(i) + "\n");
  ASSERT_EQ(words.end().words.size(), start::words_max);
  EXPECT_EQ(words.end().words.back(), std::to_string(2 * start::words_max - 1));
}

TEST(Slurm, HostLists) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(start::expand_hostlist("n1"), Names{"n1"});
  EXPECT_EQ(start::expand_hostlist("n[1-3,07-08]x,m"), (Names{"n1x", "n2x", "n3x", "n07x", "n08x", "m"}));
  EXPECT_EQ(start::expand_hostlist("r[1-2]n[9-10]"), (Names{"r1n9", "r1n10", "r2n9", "r2n10"}));
  EXPECT_EQ(start::expand_hostlist("n[1"), Names{"n[1"});
  EXPECT_EQ(start::expand_hostlist(""), Names{});
  EXPECT_EQ(start::expand_hostlist("n[1-99999999999]").size(), 65536U);
}

TEST(Slurm, HostListsOfNonsenseEnd) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (std::uint64_t length = random() % 12; length > 0; --length) text += "n[]-,19"[random() % 7];
    EXPECT_LE(start::expand_hostlist(text).size(), 65536U) << text;
  }
}

TEST(Local, GetsTheKeyAndEndsWithItsInput) {
  Told told;
  auto starter = start::make_starter();
  starter->start({shell(0, "read key; echo has $key; cat; echo end >&2")}, told.events());
  told.wait([&] { return told.said[0] == "has key|"; });
  starter->arrived(0);
  starter.reset();
  EXPECT_EQ(told.said[0], "has key|end|");
  EXPECT_TRUE(told.statuses.empty()) << "after the starter's end nothing but lines is told";
}

TEST(Local, OneThatGreetsIsHandedOver) {
  Told told;
  auto starter = start::make_starter();
  starter->start({shell(0,
                        "read key; printf 'good morning\\nAPlib\\r\\nis not all, and \\nthis APlib\\r\\n\\032 is\\n'; "
                        "read answer; echo heard $answer >&2; cat; exit 4"),
                  shell(1, "for part in A P l i b '\\r' '\\n' '\\032'; do printf $part; done; read key; cat"),
                  shell(2, "printf 'APlib\\r\\n'")},
                 told.events());
  told.wait([&] { return told.contacts.size() == 2 && told.statuses.contains(2); });
  const std::string magic(comm::Greeting::magic);
  EXPECT_TRUE(told.contacts[0].came.starts_with(magic)) << told.contacts[0].came;
  EXPECT_EQ(told.said[0], "good morning|APlib|is not all, and |this |") << "what came before are lines";
  EXPECT_EQ(told.contacts[1].came, magic) << "in eight pieces";
  EXPECT_EQ(told.said[2], "APlib|") << "it only begins like a greeting";
  EXPECT_TRUE(os::write_all(told.contacts[0].ends.writer.get(), "you\n"));
  told.wait([&] { return told.said[0].ends_with("|heard you|"); });
  told.contacts[0].ends = {};  // the end of its input
  told.wait([&] { return told.statuses.contains(0); });
  EXPECT_EQ(told.statuses[0], 4);
  told.contacts.clear();
}

TEST(Local, EndsAreToldWithStatusAndLastWords) {
  Told told;
  auto starter = start::make_starter();
  starter->start({shell(0, "echo a; echo b >&2; exit 3"), shell(1, "kill -SEGV $$"), shell(2, "printf unfinished"),
                  shell(3, "i=0; while [ $i -lt 100 ]; do echo $i; i=$((i+1)); done")},
                 told.events());
  told.wait([&] { return told.statuses.size() == 4; });
  EXPECT_EQ(told.statuses, (std::map<std::uint32_t, int>{{0, 3}, {1, 128 + SIGSEGV}, {2, 0}, {3, 0}}));
  EXPECT_NE(told.last_words[0].find("b"), std::string::npos);
  EXPECT_EQ(told.last_words[2], "unfinished");
  EXPECT_EQ(told.last_words[3].substr(0, 7), "80 | 81") << "some last lines only";
}

TEST(Local, WhatCannotBeExecutedIsNamedWithTheRemedy) {
  Told told;
  auto starter = start::make_starter();
  start::NodeStart folder = shell(1, "true");
  folder.host.folder = "/no/such/folder";
  starter->start({node_of(0, {"/no/such/aprun"}), folder}, told.events());
  told.wait([&] { return told.failed.size() == 2; });
  EXPECT_EQ(told.failed[0],
            "host 'ws1': cannot execute /no/such/aprun: No such file or directory; give the path of aprun there (aprun "
            "= \"...\"), or its folder (folder = \"...\")|");
  EXPECT_NE(told.failed[1].find("host 'ws2': cannot go to the folder /no/such/folder"), std::string::npos);
}

TEST(Local, RunsInItsFolderWithoutOurFiles) {
  const int open = ::open("/dev/null", O_RDONLY);  // opened by code that does not think of children
  Told told;
  auto starter = start::make_starter();
  start::NodeStart node = shell(0, "pwd; ls /proc/self/fd | wc -l");
  node.host.folder = "/usr";
  starter->start({node}, told.events());
  told.wait([&] { return !told.statuses.empty(); });
  ::close(open);
  EXPECT_EQ(told.said[0].substr(0, 7), "/usr|4|") << "its three files and the one that ls reads";
}

TEST(Local, WhatDoesNotEndByItselfIsKilledWithItsChildren) {
  Told told;
  auto starter = start::make_starter();
  starter->start({shell(0, "trap '' TERM; sleep 1000 & echo $$ $!; while :; do sleep 1000; done"),
                  shell(1, "sleep 1000 & echo $$ $!; kill -STOP $$")},
                 told.events());
  told.wait([&] { return told.said[0].ends_with('|') && told.said[1].ends_with('|'); });
  starter.reset();
  for (const std::uint32_t process : {0U, 1U}) {
    const pid_t group = std::atoi(told.said[process].c_str());
    ASSERT_GT(group, 1);
    // Orphans of the group stay zombies until process 1 collects them.
    for (int round = 0; round < 6000 && ::kill(-group, 0) == 0; ++round) ::usleep(10000);
    EXPECT_NE(::kill(-group, 0), 0);
  }
}

TEST(Local, ANodeThatClosesItsOutputCostsNothing) {
  const std::string closed = temporary_file();
  Told told;
  auto starter = start::make_starter();
  starter->start({shell(0, "exec >&- 2>&-; > " + closed + "; read key; read more")}, told.events());
  while (!std::filesystem::exists(closed)) ::usleep(1000);
  std::filesystem::remove(closed);
  const std::clock_t before = std::clock();
  ::usleep(300000);
  EXPECT_LT(std::clock() - before, CLOCKS_PER_SEC / 10) << "of 300 ms: a closed pipe is not polled over and over";
}

TEST(Command, GetsTheWordsQuoted) {
  Told told;
  auto starter = start::make_starter();
  start::NodeStart once = node_of(0, {"/bin/echo", "it's", "a  b"}, cluster::LaunchKind::command);
  once.host.command = "echo to {host} {address}; {cmd}";
  once.host.address = "10.0.0.1";
  start::NodeStart twice = node_of(1, {"/bin/echo", "it's", "a  b"}, cluster::LaunchKind::command);
  twice.host.command = "sh -c {quoted-cmd}";
  start::NodeStart folder = node_of(2, {"pwd"}, cluster::LaunchKind::command);
  folder.host.command = "{cmd}";
  folder.host.folder = "/usr";
  starter->start({once, twice, folder}, told.events());
  told.wait([&] { return told.statuses.size() == 3; });
  EXPECT_EQ(told.said[0], "to ws1 10.0.0.1|it's a  b|");
  EXPECT_EQ(told.said[1], "it's a  b|");
  EXPECT_EQ(told.said[2], "/usr|");
}

TEST(Command, AProgramThatIsMissingIsSaid) {
  Told told;
  auto starter = start::make_starter();
  start::NodeStart node = node_of(0, {"/no/aprun", "--node"}, cluster::LaunchKind::command);
  node.host.command = "env {cmd}";
  starter->start({node}, told.events());
  told.wait([&] { return !told.failed.empty(); });
  EXPECT_NE(told.failed[0].find("host 'ws1': its command ended with status 127"), std::string::npos) << told.failed[0];
  EXPECT_NE(told.failed[0].find("try it by hand: env /no/aprun --node"), std::string::npos) << told.failed[0];
}

TEST(Starter, ManyAtOnce) {
  constexpr std::uint32_t count = 64;
  Told told;
  auto starter = start::make_starter();
  std::vector<start::NodeStart> nodes;
  for (std::uint32_t i = 0; i < count; ++i) nodes.push_back(shell(i, "read key; echo $key; read more"));
  starter->start(nodes, told.events());
  told.wait([&] { return told.said.size() == count; });
  starter.reset();
  EXPECT_TRUE(told.failed.empty());
}

TEST(Starter, EndedBeforeAllHaveBegun) {
  for (int round = 0; round < 20; ++round) {
    Told told;
    auto starter = start::make_starter();
    starter->start({shell(0, "read key; read more"), shell(1, "read key; read more")}, told.events());
    starter.reset();
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a process is left";
    EXPECT_EQ(errno, ECHILD);
    EXPECT_TRUE(told.failed.empty()) << told.failed.begin()->second;
    EXPECT_TRUE(told.said.empty()) << told.said.begin()->second;
  }
}

TEST(Starter, PmixIsNotOurs) {
  Told told;
  auto starter = start::make_starter();
  EXPECT_THROW(starter->start({node_of(0, {"x"}, cluster::LaunchKind::pmix)}, told.events()), Error);
}

TEST(Starter, SlurmOutsideOfAnAllocation) {
  if (std::getenv("SLURM_JOB_ID") != nullptr) GTEST_SKIP() << "needs no Slurm allocation around it";
  Told told;
  auto starter = start::make_starter();
  starter->start({node_of(0, {"x"}, cluster::LaunchKind::slurm)}, told.events());
  told.wait([&] { return !told.failed.empty(); });
  EXPECT_NE(told.failed[0].find("inside a Slurm allocation only"), std::string::npos);
  EXPECT_TRUE(start::slurm_hosts().empty());
}

/// A process of its own is the launcher: `launch` starts a shell with the script, which reports its group by a file and
/// then does `last`. The launcher is killed, unless the script has done so.
void expect_the_guard_kills(const std::function<void(const std::string& script)>& launch, const std::string& last) {
  const std::string file = temporary_file();
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    launch("trap '' TERM; sleep 1000 & echo $$ > " + file + ".part; mv " + file + ".part " + file + "; " + last +
           "while :; do sleep 1000; done");
    ::_exit(1);
  }
  while (!std::filesystem::exists(file)) ::usleep(1000);
  pid_t group = 0;
  std::ifstream(file) >> group;
  std::filesystem::remove(file);
  ASSERT_GT(group, 1);
  ::kill(launcher, SIGKILL);
  EXPECT_EQ(::waitpid(launcher, nullptr, 0), launcher);
  for (int round = 0; round < 6000 && ::kill(-group, 0) == 0; ++round) ::usleep(10000);
  EXPECT_NE(::kill(-group, 0), 0) << "it ignores SIGTERM, and the end of its input: the guard kills it";
}

TEST(Starter, AKilledLauncherLeavesNothing) {
  const auto launch = [](const std::string& script) {
    Told told;
    auto starter = start::make_starter();
    starter->start({shell(0, script)}, told.events());
    for (;;) ::pause();
  };
  expect_the_guard_kills(launch, "");
}

TEST(Starter, ALauncherThatIsKilledAtOnceLeavesNothing) {
  // The guard knows the process although the launcher never comes to speak of it.
  const auto launch = [](const std::string& script) {
    start::Guard guard;
    const start::Child child({"/bin/sh", "-c", script}, "", &guard);
    for (;;) ::pause();
  };
  expect_the_guard_kills(launch, "kill -KILL $PPID; ");
}

TEST(Child, LivesWithoutItsGuard) {
  ::signal(SIGPIPE, SIG_IGN);
  start::Guard guard;
  const pid_t pid = testing_support::guard_of(::getpid());
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  start::Child child({"/bin/sh", "-c", "exit 7"}, "", &guard);
  std::optional<int> status;
  while (!(status = child.ended())) ::usleep(1000);
  EXPECT_EQ(status, 7);
}

TEST(Guard, ThatIsStoppedHoldsNobodyUp) {
  const pid_t maker = ::fork();
  if (maker == 0) {
    constexpr unsigned patience_s = 60;
    ::alarm(patience_s);
    std::optional<start::Guard> guard(std::in_place);
    ::kill(testing_support::guard_of(::getpid()), SIGSTOP);
    guard.reset();
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(maker, &status, 0), maker);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace aplib::launch
