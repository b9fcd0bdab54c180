// SPDX-License-Identifier: MIT
// How apctl and aprun find each other, and their messages. Other mutations: APLIB_TEST_SEED=n.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "aplib/error.hpp"
#include "checks.hpp"
#include "launch/ctl/door.hpp"
#include "launch/ctl/registry.hpp"
#include "launch/ctl/status.hpp"
#include "launch/wire/status.hpp"

namespace aplib::launch {
namespace {

using testing_support::error_text;
namespace fs = std::filesystem;

using Words = std::vector<std::string>;

wire::MachineStatus some_status() {
  wire::MachineStatus status;
  status.state = "running";
  status.seconds = 3723;
  status.grid = {2, 2};
  status.cells = CellMap::of(2, std::vector<std::uint32_t>{0, 1, 0, 0});
  status.file = "a b.toml";
  status.program = "/opt/scg";
  status.strangers = 0;
  status.processes = {{.name = "ws1",
                       .computer = "ws1.example",
                       .pid = 12,
                       .address = "10.0.0.1:5100",
                       .state = "running",
                       .node = {.module = "shm",
                                .frames_sent = 10,
                                .frames_received = 9,
                                .bytes_sent = 3'200'000,
                                .bytes_received = 999,
                                .polls = "56 us",
                                .routes = {{"shm", "1-3", ""}, {"tcp", "4", "tcp 10.0.0.2:5100, 1 stream, auth"}}}},
                      {.name = "ws2", .state = "calling"}};
  return status;
}

TEST(RegistryRequest, AnyWordsComeBack) {
  std::string every;
  for (int c = 0; c < 256; ++c) every += static_cast<char>(c);
  for (const Words& words :
       {Words{}, Words{""}, Words{"", ""}, Words{"a", "b c", "%", "100%", "\n"}, Words{every, every}}) {
    const auto request = wire::decode<ctl::Request>(wire::encode(ctl::Request{words}));
    ASSERT_TRUE(request);
    EXPECT_EQ(request->words, words);
  }
  const auto some = wire::encode(ctl::Request{{"load", "/p"}});
  for (std::size_t size = 0; size < some.size(); ++size)
    EXPECT_FALSE(wire::decode<ctl::Request>(std::span(some).first(size))) << "cut at " << size;
}

TEST(RegistryStatus, ComesBackFromItsBytes) {
  const auto status = wire::decode<wire::MachineStatus>(wire::encode(some_status()));
  ASSERT_TRUE(status);
  EXPECT_EQ(wire::encode(*status), wire::encode(some_status()));
  EXPECT_EQ(status->processes.size(), 2U);
  EXPECT_EQ(status->file, "a b.toml");
}

TEST(RegistryStatus, MutationsAreReadOrRefused) {
  const std::uint64_t seed = testing_support::test_seed(20240316);
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const wire::Bytes good = wire::encode(some_status());
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    wire::Bytes bytes = good;
    const auto at = static_cast<std::ptrdiff_t>(random() % bytes.size());
    const auto count = static_cast<std::ptrdiff_t>(random() % 30);
    switch (random() % 3) {
      case 0:
        bytes[static_cast<std::size_t>(at)] = static_cast<std::byte>(random());
        break;
      case 1:
        bytes.erase(bytes.begin() + at, bytes.begin() + std::min<std::ptrdiff_t>(at + count, std::ssize(bytes)));
        break;
      default:
        bytes.insert(bytes.begin() + at, good.begin(),
                     good.begin() + std::min<std::ptrdiff_t>(count, std::ssize(good)));
    }
    const auto status = wire::decode<wire::MachineStatus>(bytes);
    if (!status) {
      ++refused;
    } else {
      EXPECT_FALSE(ctl::job_status_text(1, *status).empty());
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_FALSE(wire::decode<wire::MachineStatus>({}));
  wire::Bytes twice = good;
  twice.insert(twice.end(), good.begin(), good.end());
  EXPECT_FALSE(wire::decode<wire::MachineStatus>(twice));
}

TEST(RegistryText, TablesForPeople) {
  EXPECT_EQ(ctl::job_status_text(77, some_status()),
            R"(job      77
state    running
time     1:02:03
file     a b.toml
program  /opt/scg
grid     2x2: 4 cells

process  host  computer     pid  state    cells   polls for  address        frames sent  received
0        ws1   ws1.example  12   running  0, 2-3  56 us      10.0.0.1:5100  10 (3.2 MB)  9 (999 B)
1        ws2                     calling  1                                 0 (0 B)      0 (0 B)

process  with  by
0        1-3   shm
0        4     tcp 10.0.0.2:5100, 1 stream, auth
)");
  EXPECT_EQ(ctl::job_list_text({{77, some_status()}, {1234, {}}}),
            R"(job   state    grid  processes  time     program
77    running  2x2   2          1:02:03  /opt/scg
1234           ?     0          0:00:00
)");
}

TEST(RegistryText, ShowsStrangersAndNoControlCharacters) {
  wire::MachineStatus status = some_status();
  status.strangers = 10;
  status.processes[0].node.refused = 2;  // refused by the port for messages
  status.processes[0].computer = "\x1b[2Jws1\nprocess 7 of nobody";
  status.program = "/opt/scg\nstate    lost";
  const std::string text = ctl::job_status_text(77, status);
  EXPECT_NE(text.find("dropped  12 connections of strangers\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\\x1b[2Jws1\\nprocess 7 of nobody  "), std::string::npos) << text;
  EXPECT_NE(text.find("program  /opt/scg\\nstate    lost\n"), std::string::npos) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
}

/// Sockets in the test's own folder.
class Registry : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "apctl-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    home_ = name;
    ::setenv("XDG_RUNTIME_DIR", name.c_str(), 1);
    folder_ = ctl::registry_folder();
  }
  void TearDown() override {
    ::unsetenv("XDG_RUNTIME_DIR");
    if (!home_.empty()) fs::remove_all(home_);
  }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  /// Leaves a socket as a dead aprun does.
  void leave_socket(std::uint32_t job) const {
    const ctl::RegistrySocket socket = ctl::RegistrySocket::make();
    ASSERT_EQ(socket.listen(ctl::job_socket(folder_, job)), 0);
  }
  static std::uint32_t self() { return static_cast<std::uint32_t>(::getpid()); }

  fs::path home_;
  std::string folder_;
};

ctl::Verbs plain_verbs() {
  return {{"status",
           [](const Words&, const ctl::ReplyTaker& reply) {
             reply({{}, wire::encode(some_status())});
           }},
          {"stop", [](const Words&, const ctl::ReplyTaker& reply) { reply({}); }}};
}

TEST_F(Registry, ARunningMachineIsFoundAndAsked) {
  EXPECT_EQ(ctl::registered_jobs(folder_), std::vector<std::uint32_t>{});
  std::atomic<int> stops{0};
  Words loaded;
  {
    ctl::Verbs verbs = plain_verbs();
    verbs["stop"] = [&](const Words&, const ctl::ReplyTaker& reply) {
      ++stops;
      reply({});
    };
    verbs["tasks"] = [](const Words&, const ctl::ReplyTaker& reply) {
      // Later, from another thread.
      std::thread([reply] { reply(ctl::text_reply("task one\ntask two\n")); }).detach();
    };
    verbs["load"] = ctl::load_verb(
        [&](const std::string& file, std::uint32_t task, const Words& arguments, const ctl::ReplyTaker& reply) {
          if (file == "/bad") throw Error(Errc::failed, "no program");
          if (file == "/worse") return reply({"not now", {}});
          loaded = {file, std::to_string(task)};
          loaded.insert(loaded.end(), arguments.begin(), arguments.end());
          reply({});
        });
    const ctl::RegistryDoor door(std::move(verbs));
    EXPECT_EQ(door.problem(), "");
    EXPECT_EQ(ctl::registered_jobs(folder_), std::vector<std::uint32_t>{self()});
    const auto said = [&](const Words& request) { return ctl::text_of(ctl::ask_job(folder_, self(), request)); };
    EXPECT_EQ(ctl::ask_job(folder_, self(), {"status"}), wire::encode(some_status()));
    EXPECT_EQ(said({"tasks"}), "task one\ntask two\n");
    EXPECT_EQ(said({"load", "/p", "auto", "x y", ""}), "1000");
    EXPECT_EQ(loaded, (Words{"/p", "1000", "/p", "x y", ""}));
    EXPECT_EQ(said({"load", "/p", "auto"}), "1001");
    EXPECT_EQ(said({"load", "/p", "7"}), "7");
    const auto ask = [&](const Words& request) {
      return error_text([&] { (void)ctl::ask_job(folder_, self(), request); });
    };
    EXPECT_EQ(ask({"load", "/bad", "auto"}), "no program");
    EXPECT_EQ(ask({"load", "/worse", "auto"}), "not now");
    EXPECT_EQ(ask({"load", "/worse", "8"}), "not now");
    EXPECT_EQ(said({"load", "/p", "8"}), "8") << "a refusal takes no number";
    EXPECT_EQ(said({"load", "/p", "auto"}), "1002");
    EXPECT_EQ(ask({"load", "/p", "1048576"}), "load: task 1048576: use 0 .. 1048575");
    for (const char* used : {"0", "7", "1000"}) {
      EXPECT_EQ(ask({"load", "/p", used}), "load: a program of this machine is task " + std::string(used) +
                                               " already: use another number, or none");
    }
    EXPECT_EQ(ask({"load"}), "load: a program is missing");
    EXPECT_EQ(ask({"dance"}),
              "this aprun does not know the request \"dance\": are apctl and aprun of the same installation?");
    EXPECT_EQ(said({"stop"}), "");
    EXPECT_EQ(stops, 1);
  }
  EXPECT_EQ(ctl::registered_jobs(folder_), std::vector<std::uint32_t>{});
  EXPECT_EQ(files(), 0U);
  EXPECT_EQ(error_text([&] { (void)ctl::ask_job(folder_, self(), {"status"}); }),
            "there is no job " + std::to_string(self()) + ": see apctl list");
}

TEST_F(Registry, WhatAMachineCannotDoIsSaid) {
  const ctl::RegistryDoor door(ctl::machine_verbs(
      "/p", {2, 1}, [] { return std::string(); }, [](int, const std::string&) {}));
  EXPECT_EQ(error_text([&] { (void)ctl::ask_job(folder_, self(), {"tasks"}); }),
            "tasks: only machines of aprun -f can tell");
  EXPECT_EQ(error_text([&] {
              (void)ctl::ask_job(folder_, self(), {"load", "/p", "auto"});
            }),
            "load: only machines of aprun -f can load programs while they run");
}

TEST_F(Registry, TheEndOfAMachineEndsQuestions) {
  ctl::Verbs verbs = plain_verbs();
  std::promise<void> asked;
  verbs["tasks"] = [&](const Words&, const ctl::ReplyTaker&) { asked.set_value(); };  // never answers
  auto door = std::make_unique<ctl::RegistryDoor>(std::move(verbs));
  std::string error;
  std::thread client([&] { error = error_text([&] { (void)ctl::ask_job(folder_, self(), {"tasks"}); }); });
  asked.get_future().wait();
  door.reset();
  client.join();
  EXPECT_EQ(error, "the machine has ended");
}

TEST_F(Registry, StrangeClientsDoNoHarm) {
  const ctl::RegistryDoor door(plain_verbs());
  const auto say = [&](const std::string& bytes) {
    const ctl::RegistrySocket socket = ctl::RegistrySocket::make();
    ASSERT_EQ(socket.connect(ctl::job_socket(folder_, self())), 0);
    (void)::send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  };
  const auto framed = [](const std::string& body) {
    std::string text(4, '\0');
    for (std::size_t i = 0; i < 4; ++i) text[i] = static_cast<char>(body.size() >> (8 * i));
    return text + body;
  };
  say("");
  say("status");  // an invalid length
  say("\n");
  say(framed(""));
  say(framed(" \n"));
  say(framed(std::string(3U << 20, 'x')));
  say(framed(std::string(1000, '\0')));
  say(framed(std::string(1000, '\xff')));
  say(std::string(2, '\0'));
  // A caller that closes before it has read its answer.
  const wire::Bytes status = wire::encode(ctl::Request{{"status"}});
  say(framed({reinterpret_cast<const char*>(status.data()), status.size()}));
  EXPECT_EQ(ctl::ask_job(folder_, self(), {"status"}), wire::encode(some_status()));
}

TEST_F(Registry, DeadMachinesAreForgotten) {
  const std::uint32_t nobody = 0x7fff'fffe;  // above every limit of process ids
  leave_socket(nobody);
  leave_socket(1);  // a process, but not an aprun
  for (const std::uint32_t job : {nobody, 1U}) {
    fs::create_directory(ctl::job_folder(folder_, job));
    std::ofstream(ctl::job_folder(folder_, job) + "/1") << "a socket of it\n";
  }
  std::ofstream(folder_ + "/notes.txt") << "not ours\n";
  {
    const ctl::RegistryDoor door(plain_verbs());
    EXPECT_EQ(files(), 4U);  // the first is gone, with its folder
    EXPECT_FALSE(fs::exists(ctl::job_folder(folder_, nobody)));
    EXPECT_EQ(ctl::registered_jobs(folder_), std::vector<std::uint32_t>{self()});
    EXPECT_EQ(files(), 3U);
  }
  EXPECT_EQ(files(), 2U);
}

TEST_F(Registry, WhoIsKilledBeforeHeListensIsForgotten) {
  const std::uint32_t nobody = 0x7fff'fffe;  // above every limit of process ids
  std::ofstream(ctl::job_socket(folder_, nobody) + ".new");
  std::ofstream(ctl::job_socket(folder_, 1) + ".new");  // a process may be on its way
  std::ofstream(folder_ + "/notes.new");
  EXPECT_TRUE(ctl::registered_jobs(folder_).empty());
  EXPECT_FALSE(fs::exists(ctl::job_socket(folder_, nobody) + ".new"));
  EXPECT_EQ(files(), 2U);
}

TEST_F(Registry, AMachineThatTakesNothingHoldsUpNobody) {
  const ctl::RegistrySocket stopped = ctl::RegistrySocket::make();
  ASSERT_EQ(stopped.listen(ctl::job_socket(folder_, 1)), 0);
  // More looks than connections can wait there.
  for (int look = 0; look < 40; ++look) ASSERT_EQ(ctl::registered_jobs(folder_), std::vector<std::uint32_t>{1});
  EXPECT_EQ(error_text([&] { (void)ctl::ask_job(folder_, 1, {"status"}, 1); }),
            "job 1 has not answered for 1 s; is its aprun stopped?");
}

TEST_F(Registry, AFolderThatSomebodyElseHasTakenIsPassedOver) {
  const std::string taken = (home_ / "taken").string();
  const std::string own = (home_ / "own").string();
  fs::create_directory(taken);
  fs::permissions(taken, fs::perms::all);
  EXPECT_EQ(ctl::own_folder(std::vector{taken, own}), own);
  EXPECT_EQ(fs::status(own).permissions(), fs::perms::owner_all);
  EXPECT_EQ(ctl::own_folder(std::vector{own, taken}), own);
  const std::string problem = error_text([&] {
    (void)ctl::own_folder(std::vector{taken, (home_ / "a" / "b").string()});
  });
  EXPECT_NE(problem.find(taken + " is not a folder of this user alone"), std::string::npos) << problem;
  EXPECT_NE(problem.find("/a/b: No such file or directory"), std::string::npos) << problem;
}

TEST_F(Registry, AFolderThatOthersCanUseIsRefused) {
  fs::permissions(folder_, fs::perms::group_all, fs::perm_options::add);
  const std::string text = folder_ +
                           " is not a folder of this user alone, so it cannot be trusted: remove it, or set "
                           "XDG_RUNTIME_DIR to a folder of yours";
  EXPECT_EQ(error_text([] { (void)ctl::registry_folder(); }), text);
  EXPECT_EQ(ctl::RegistryDoor(plain_verbs()).problem(), text);
  fs::remove_all(folder_);
  fs::create_directory(home_ / "elsewhere");
  fs::create_directory_symlink(home_ / "elsewhere", folder_);
  EXPECT_EQ(error_text([] { (void)ctl::registry_folder(); }), text);
  fs::remove(folder_);
  ::setenv("XDG_RUNTIME_DIR", (home_ / "nowhere").c_str(), 1);
  EXPECT_NE(ctl::RegistryDoor(plain_verbs()).problem().find("cannot make the folder"), std::string::npos);
  ::setenv("XDG_RUNTIME_DIR", (home_ / std::string(200, 'x')).c_str(), 1);
  fs::create_directory(home_ / std::string(200, 'x'));
  EXPECT_NE(ctl::RegistryDoor(plain_verbs()).problem().find("cannot listen at"), std::string::npos);
}

}  // namespace
}  // namespace aplib::launch
