// SPDX-License-Identifier: MIT
// How apctl and aprun find each other and what they say. Other mutations: APLIB_TEST_SEED=n.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "aplib/error.hpp"
#include "launch/ctl/door.hpp"
#include "launch/ctl/registry.hpp"
#include "launch/ctl/status.hpp"

namespace aplib::launch {
namespace {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

ctl::JobStatus some_status() {
  ctl::JobStatus status;
  status.state = "running";
  status.seconds = 3723;
  status.grid = {2, 2};
  status.file = "a b.toml";
  status.program = "/opt/scg";
  status.processes = {{.name = "ws1",
                       .computer = "ws1.example",
                       .pid = 12,
                       .address = "10.0.0.1:5100",
                       .first_cell = 0,
                       .cells = 3,
                       .state = "running",
                       .frames_sent = 10,
                       .bytes_sent = 3'200'000,
                       .frames_received = 9,
                       .bytes_received = 999,
                       .ways = {{"shm", "1-3", ""}, {"tcp", "4", "tcp 10.0.0.2:5100, 1 stream, auth"}}},
                      {.name = "ws2", .computer = "", .address = "", .first_cell = 3, .cells = 1, .state = "calling"}};
  return status;
}

/// The error's text, or "no error".
std::string error_of(const std::function<void()>& what) {
  try {
    what();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(RegistryWords, AnyWordsComeBack) {
  std::string every;
  for (int c = 0; c < 256; ++c) every += static_cast<char>(c);
  for (const Words& words :
       {Words{}, Words{""}, Words{"", ""}, Words{"a", "b c", "%", "100%", "\n"}, Words{every, every}}) {
    const std::string line = ctl::join_words(words);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    EXPECT_EQ(ctl::split_words(line), words) << line;
  }
  for (const char* wrong : {" ", "a ", " a", "a  b", "%4", "%GG", "%4g", "a%", "%%"})
    EXPECT_EQ(ctl::split_words(wrong), std::nullopt) << wrong;
}

TEST(RegistryStatus, ComesBackFromItsLines) {
  const auto status = ctl::read_status_lines(ctl::status_lines(some_status()));
  ASSERT_TRUE(status);
  EXPECT_EQ(ctl::status_lines(*status), ctl::status_lines(some_status()));
  EXPECT_EQ(status->processes.size(), 2U);
  EXPECT_EQ(status->file, "a b.toml");
}

TEST(RegistryStatus, MutationsAreReadOrRefused) {
  const char* text = std::getenv("APLIB_TEST_SEED");
  const std::uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 0) : 20240316;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const std::string good = ctl::status_lines(some_status());
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string lines = good;
    const std::size_t at = random() % lines.size();
    switch (random() % 3) {
      case 0:
        lines[at] = static_cast<char>(random());
        break;
      case 1:
        lines.erase(at, random() % 30);
        break;
      default:
        lines.insert(at, good.substr(random() % good.size(), random() % 30));
    }
    const auto status = ctl::read_status_lines(lines);
    if (!status) {
      ++refused;
    } else {
      EXPECT_FALSE(ctl::job_status_text(1, *status).empty());
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_EQ(ctl::read_status_lines(""), std::nullopt);
  EXPECT_EQ(ctl::read_status_lines("job\n"), std::nullopt);
  EXPECT_EQ(ctl::read_status_lines(good + good), std::nullopt);
}

TEST(RegistryText, TablesForPeople) {
  EXPECT_EQ(ctl::job_status_text(77, some_status()),
            R"(job      77
state    running
time     1:02:03
file     a b.toml
program  /opt/scg
grid     2x2: 4 cells

process  host  computer     pid  state    cells  address        frames sent  received
0        ws1   ws1.example  12   running  0-2    10.0.0.1:5100  10 (3.2 MB)  9 (999 B)
1        ws2                     calling  3                     0 (0 B)      0 (0 B)

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

/// Sockets in a folder of the test's own.
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
  /// What a dead aprun leaves.
  void leave_socket(std::uint32_t job) const {
    const ctl::RegistrySocket socket = ctl::RegistrySocket::make();
    ASSERT_EQ(socket.listen(ctl::job_socket(folder_, job)), 0);
  }
  static std::uint32_t self() { return static_cast<std::uint32_t>(::getpid()); }

  fs::path home_;
  std::string folder_;
};

ctl::DoorActions plain_actions() {
  ctl::DoorActions actions;
  actions.status = [](const ctl::DoorReply& reply) {
    reply({.lines = ctl::status_lines(some_status()), .problem = {}});
  };
  actions.stop = [] {};
  return actions;
}

TEST_F(Registry, ARunningMachineIsFoundAndAsked) {
  EXPECT_EQ(ctl::registered_jobs(folder_), std::vector<std::uint32_t>{});
  std::atomic<int> stops{0};
  std::string loaded;
  {
    ctl::DoorActions actions = plain_actions();
    actions.stop = [&] { ++stops; };
    actions.tasks = [](ctl::DoorReply reply) {
      // From another thread, later.
      std::thread([reply = std::move(reply)] { reply({.lines = "task one\ntask two\n", .problem = {}}); }).detach();
    };
    actions.load = [&](const std::string& file, std::uint32_t task, const Words& arguments,
                       const ctl::DoorReply& reply) {
      if (file == "/bad") throw Error(Errc::failed, "no program");
      if (file == "/worse") return reply({.lines = {}, .problem = "not now"});
      loaded = file + " " + std::to_string(task) + " " + ctl::join_words(arguments);
      reply({});
    };
    const ctl::RegistryDoor door(std::move(actions));
    EXPECT_EQ(door.problem(), "");
    EXPECT_EQ(ctl::registered_jobs(folder_), std::vector<std::uint32_t>{self()});
    EXPECT_EQ(ctl::ask_job(folder_, self(), {"status"}), ctl::status_lines(some_status()));
    EXPECT_EQ(ctl::ask_job(folder_, self(), {"tasks"}), ctl::join_words({"text", "task one\ntask two\n"}) + "\n");
    EXPECT_EQ(ctl::ask_job(folder_, self(), {"load", "/p", "auto", "x y", ""}), "task 1000\n");
    EXPECT_EQ(loaded, "/p 1000 /p x%20y %");
    EXPECT_EQ(ctl::ask_job(folder_, self(), {"load", "/p", "auto"}), "task 1001\n");
    EXPECT_EQ(ctl::ask_job(folder_, self(), {"load", "/p", "7"}), "task 7\n");
    const auto ask = [&](const Words& request) {
      return error_of([&] { (void)ctl::ask_job(folder_, self(), request); });
    };
    EXPECT_EQ(ask({"load", "/bad", "auto"}), "no program");
    EXPECT_EQ(ask({"load", "/worse", "auto"}), "not now");
    EXPECT_EQ(ask({"load", "/p", "1048576"}), "load: task 1048576: use 0 .. 1048575");
    EXPECT_EQ(ask({"load"}), "load: a program is missing");
    EXPECT_EQ(ask({"dance"}),
              "this aprun does not know the request \"dance\": are apctl and aprun of the same installation?");
    EXPECT_EQ(ctl::ask_job(folder_, self(), {"stop"}), "");
    EXPECT_EQ(stops, 1);
  }
  EXPECT_EQ(ctl::registered_jobs(folder_), std::vector<std::uint32_t>{});
  EXPECT_EQ(files(), 0U);
  EXPECT_EQ(error_of([&] { (void)ctl::ask_job(folder_, self(), {"status"}); }),
            "there is no job " + std::to_string(self()) + ": see apctl list");
}

TEST_F(Registry, WhatAMachineCannotDoIsSaid) {
  const ctl::RegistryDoor door(plain_actions());
  EXPECT_EQ(error_of([&] { (void)ctl::ask_job(folder_, self(), {"tasks"}); }),
            "tasks: only machines of aprun -f can tell");
  EXPECT_EQ(error_of([&] {
              (void)ctl::ask_job(folder_, self(), {"load", "/p", "auto"});
            }),
            "load: only machines of aprun -f can load programs while they run");
}

TEST_F(Registry, TheEndOfAMachineEndsQuestions) {
  ctl::DoorActions actions = plain_actions();
  std::promise<void> asked;
  actions.tasks = [&](const ctl::DoorReply&) { asked.set_value(); };  // never answers
  auto door = std::make_unique<ctl::RegistryDoor>(std::move(actions));
  std::string error;
  std::thread client([&] { error = error_of([&] { (void)ctl::ask_job(folder_, self(), {"tasks"}); }); });
  asked.get_future().wait();
  door.reset();
  client.join();
  EXPECT_EQ(error, "the machine has ended");
}

TEST_F(Registry, StrangeClientsDoNoHarm) {
  const ctl::RegistryDoor door(plain_actions());
  const auto say = [&](const std::string& bytes) {
    const ctl::RegistrySocket socket = ctl::RegistrySocket::make();
    ASSERT_EQ(socket.connect(ctl::job_socket(folder_, self())), 0);
    (void)socket.send(bytes);
  };
  say("");
  say("status");  // and no end of line
  say("\n");
  say("%\n");
  say(" \n");
  say(std::string(3U << 20, 'x'));
  say(std::string(1000, '\0') + "\n");
  // One that goes away before it has read its answer.
  say("status\n");
  EXPECT_EQ(ctl::ask_job(folder_, self(), {"status"}), ctl::status_lines(some_status()));
}

TEST_F(Registry, DeadMachinesAreForgotten) {
  const std::uint32_t nobody = 0x7fff'fffe;  // above every limit of process ids
  leave_socket(nobody);
  leave_socket(1);  // a process, but no aprun
  std::ofstream(folder_ + "/notes.txt") << "not ours\n";
  {
    const ctl::RegistryDoor door(plain_actions());
    EXPECT_EQ(files(), 3U);  // the first is gone
    EXPECT_EQ(ctl::registered_jobs(folder_), std::vector<std::uint32_t>{self()});
    EXPECT_EQ(files(), 2U);
  }
  EXPECT_EQ(files(), 1U);
}

TEST_F(Registry, AFolderThatOthersCanUseIsRefused) {
  fs::permissions(folder_, fs::perms::group_all, fs::perm_options::add);
  const std::string text = folder_ +
                           " is not a folder of this user alone, so it cannot be trusted: remove it, or set "
                           "XDG_RUNTIME_DIR to a folder of yours";
  EXPECT_EQ(error_of([] { (void)ctl::registry_folder(); }), text);
  EXPECT_EQ(ctl::RegistryDoor(plain_actions()).problem(), text);
  fs::remove_all(folder_);
  fs::create_directory(home_ / "elsewhere");
  fs::create_directory_symlink(home_ / "elsewhere", folder_);
  EXPECT_EQ(error_of([] { (void)ctl::registry_folder(); }), text);
  fs::remove(folder_);
  ::setenv("XDG_RUNTIME_DIR", (home_ / "nowhere").c_str(), 1);
  EXPECT_NE(ctl::RegistryDoor(plain_actions()).problem().find("cannot make the folder"), std::string::npos);
  ::setenv("XDG_RUNTIME_DIR", (home_ / std::string(200, 'x')).c_str(), 1);
  fs::create_directory(home_ / std::string(200, 'x'));
  EXPECT_NE(ctl::RegistryDoor(plain_actions()).problem().find("cannot listen at"), std::string::npos);
}

}  // namespace
}  // namespace aplib::launch
