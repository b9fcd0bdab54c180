// SPDX-License-Identifier: MIT
// Two processes: frames, memory, death by SIGKILL, and what is left.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include "comm/kind.hpp"
#include "conformance.hpp"

namespace aplib::comm::test {
namespace {

/// Whether this process has mapped a file of that folder. (Its entries say nothing: other programs have files there.)
bool has_mapped_of(const std::string& folder) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(" " + folder) != line.npos) return true;
  }
  return false;
}

std::size_t entries(const char* folder) {
  std::size_t count = 0;
  DIR* const stream = ::opendir(folder);
  if (stream == nullptr) return 0;
  while (::readdir(stream) != nullptr) ++count;
  ::closedir(stream);
  return count;
}

/// A net with one node, that of this process; the other process is at the other end.
class OneModule final : public Net {
 public:
  explicit OneModule(std::unique_ptr<Module> module) : module_(std::move(module)) {}
  std::unique_ptr<Module> module(Peer) override { return std::move(module_); }

 private:
  std::unique_ptr<Module> module_;
};

class Processes : public ::testing::Test {
 protected:
  /// The child runs `program` with its node. The parent goes on with node().
  void fork_with(const std::function<void(Node& node)>& program) {
    std::array<int, 2> up{};
    std::array<int, 2> down{};
    ASSERT_EQ(::pipe2(up.data(), O_CLOEXEC), 0);
    ASSERT_EQ(::pipe2(down.data(), O_CLOEXEC), 0);
    key_ = JobKey::make();
    child_ = ::fork();
    ASSERT_GE(child_, 0);
    if (child_ == 0) {
      {
        const std::unique_ptr<Node> node = make(1, up[1], down[0]);
        program(*node);
        node->close(std::chrono::seconds(60));
        node->destroy();
      }
      ::_exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    node_ = make(0, down[1], up[0]);
    for (const int descriptor : {up[0], up[1], down[0], down[1]}) ::close(descriptor);
  }
  [[nodiscard]] Node& node() { return *node_; }
  /// The child's.
  [[nodiscard]] const std::string& socket_name() const { return socket_name_; }
  void kill_child() { ASSERT_EQ(::kill(child_, SIGKILL), 0); }
  [[nodiscard]] pid_t child() const { return child_; }
  /// The child's exit status; -1: a signal.
  int await_child() {
    int status = 0;
    while (::waitpid(child_, &status, 0) < 0 && errno == EINTR) {
    }
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void TearDown() override {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      await_child();
    }
    if (node_) node_->destroy();
  }

  static void run(Node& node, const std::function<bool()>& done) {
    while (!done()) {
      if (!node.poll() && !done()) node.module().wait(std::nullopt);
    }
  }

 private:
  std::unique_ptr<Node> make(Peer self, int out, int in) {
    const std::unique_ptr<ModuleKind> kind = shm_kind();
    const std::unique_ptr<Port> port =
        kind->open(PortSettings{.address = {}, .ports = {}, .host = "host", .key = *key_, .provider = {}});
    const std::string own = port->endpoint();
    constexpr std::size_t name_digits = 32;
    std::array<char, 512> other{};
    EXPECT_EQ(::write(out, own.c_str(), own.size() + 1), static_cast<ssize_t>(own.size() + 1));
    EXPECT_GT(::read(in, other.data(), other.size()), 0);
    JoinSettings settings{.machine = "m", .self = self, .endpoints = {own, other.data()}, .names = {}};
    if (self == 1) std::swap(settings.endpoints[0], settings.endpoints[1]);
    EXPECT_TRUE(kind->joins(settings.endpoints[0], settings.endpoints[1]));
    socket_name_ = settings.endpoints[1].substr(0, name_digits);
    net_ = std::make_unique<OneModule>(port->join(settings));
    return std::make_unique<Node>(*net_, self, 2);
  }

  std::optional<JobKey> key_;
  std::string socket_name_;
  pid_t child_ = -1;
  std::unique_ptr<OneModule> net_;
  std::unique_ptr<Node> node_;
};

TEST_F(Processes, FramesBothWays) {
  constexpr std::uint64_t rounds = 2'000;
  const auto size_of = [](std::uint64_t i) { return i % 50 == 0 ? 300'000 : i % 400; };
  const auto play = [&](Node& node, Peer to) {
    for (std::uint64_t i = 0; i < rounds; ++i) {
      node.send(to, size_of(i));
      if (i % 8 == 0) node.poll();
    }
    run(node, [&] { return node.recorder().frames(to) == rounds; });
    while (node.module().queued(to) != 0) node.poll();
  };
  fork_with([&](Node& node) { play(node, 0); });
  play(node(), 1);
  EXPECT_EQ(await_child(), 0);
}

TEST_F(Processes, SleepersWakeEachOther) {
  constexpr std::uint64_t rounds = 500;
  fork_with([&](Node& node) {
    for (std::uint64_t i = 0; i < rounds; ++i) {
      run(node, [&] { return node.recorder().frames(0) == i + 1; });
      node.send(0, 8);
    }
    while (node.module().queued(0) != 0) node.poll();
  });
  for (std::uint64_t i = 0; i < rounds; ++i) {
    node().send(1, 8);
    run(node(), [&] { return node().recorder().frames(1) == i + 1; });
  }
  EXPECT_EQ(await_child(), 0);
}

TEST_F(Processes, MemoryIsReachedAndConcealed) {
  static std::array<std::uint64_t, 1'000> memory{};  // At the same address in both processes.
  static MemoryKey key;
  constexpr std::size_t key_bytes = sizeof key;
  fork_with([&](Node& node) {
    key = node.module().expose(0, std::as_writable_bytes(std::span(memory)));
    // The key is in the memory itself, where the parent reads it.
    node.send(0, 8);
    run(node, [&] { return node.recorder().frames(0) == 1; });
    EXPECT_EQ(memory[999], 4711U);
    node.module().conceal(0, key);
    node.send(0, 8);
    run(node, [&] { return node.recorder().frames(0) == 2; });
    EXPECT_EQ(memory[0], 7U);
  });
  ASSERT_TRUE(node().module().reaches_memory(1));
  run(node(), [&] { return node().recorder().frames(1) == 1; });
  iovec here{&key, key_bytes};
  iovec there{&key, key_bytes};
  ASSERT_EQ(::process_vm_readv(child(), &here, 1, &there, 1, 0), static_cast<ssize_t>(key_bytes));
  std::array<std::uint64_t, 1'000> mine{};
  mine[0] = 7;
  mine[999] = 4711;
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  node().module().write(1, key, address, std::as_bytes(std::span(mine)), 1);
  node().send(1, 8);
  run(node(), [&] { return node().recorder().frames(1) == 2; });
  mine[0] = 8;
  node().module().write(1, key, address, std::as_bytes(std::span(mine)), 2);
  node().send(1, 8);
  run(node(), [&] { return node().recorder().transfers() == 2; });
  EXPECT_TRUE(*node().recorder().transfer(1));
  EXPECT_FALSE(*node().recorder().transfer(2));
  EXPECT_EQ(await_child(), 0);
}

TEST_F(Processes, DeathIsToldToASleeperAndNothingIsLeft) {
  const std::size_t open = entries("/proc/self/fd");
  fork_with([&](Node& node) {
    node.send(0, 8);
    while (true) run(node, [] { return false; });
  });
  run(node(), [&] { return node().recorder().frames(1) == 1; });
  EXPECT_FALSE(has_mapped_of("/dev/shm/")) << "a file that stays there after a kill";
  for (int i = 0; i < 100; ++i) node().send(1, 100'000);
  std::thread killer([&] { kill_child(); });
  run(node(), [&] { return node().recorder().lost(1) == 1; });
  killer.join();
  EXPECT_EQ(node().recorder().why(1), "its process has ended");
  EXPECT_EQ(node().module().queued(1), 0U);
  EXPECT_EQ(await_child(), -1);
  node().destroy();
  EXPECT_EQ(entries("/proc/self/fd"), open);
  std::ifstream sockets("/proc/net/unix");
  const std::string all((std::istreambuf_iterator<char>(sockets)), std::istreambuf_iterator<char>());
  EXPECT_EQ(all.find(socket_name()), std::string::npos);
}

}  // namespace
}  // namespace aplib::comm::test
