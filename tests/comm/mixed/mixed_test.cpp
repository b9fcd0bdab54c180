// SPDX-License-Identifier: MIT
// A mixture beyond the promises of modules: how often it asks which module, sums, and the memory of the module that has
// a pair.
#include "comm/mixed/mixed_module.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "aplib/error.hpp"
#include "base/os/bell.hpp"

namespace aplib::comm::test {
namespace {

struct Ignore final : Receiver {
  bool wants(Peer) override { return true; }
  void frame(Peer, const Label&, std::span<const std::byte>) override {}
  std::byte* large_begin(Peer, const Label&, std::size_t) override { return nullptr; }
  void large_end(Peer, const Label&, std::size_t, bool) override {}
  void peer_lost(Peer, const std::string&) override {}
};

/// Counts the calls that it gets.
class Fake final : public Module {
 public:
  explicit Fake(std::string name) : name_(std::move(name)) {}
  const char* name() const noexcept override { return name_.c_str(); }
  void start(Receiver&) override {}
  void send(Peer to, const Label&, std::span<const std::byte>) override { sent.push_back(to); }
  std::size_t queued(Peer to) const noexcept override { return to; }
  void flush() noexcept override { ++flushes; }
  bool poll() override {
    ++polls;
    const auto end = std::chrono::steady_clock::now() + cost;
    while (std::chrono::steady_clock::now() < end) {
    }
    return brings;
  }
  void wait(std::optional<std::chrono::nanoseconds>) override {}
  void wake() noexcept override {}
  bool reaches_memory(Peer) const noexcept override { return memory; }
  MemoryKey expose(Peer, std::span<std::byte>) override {
    MemoryKey key;
    key.bytes = 1;
    key.words[0] = static_cast<std::byte>(name_[0]);
    return key;
  }
  void conceal(Peer peer, const MemoryKey&) noexcept override { concealed.push_back(peer); }
  int descriptor() noexcept override { return bell_.descriptor(); }
  bool arm() override {
    ++armed;
    return sleeps;
  }
  void disarm() noexcept override { --armed; }
  bool close(std::chrono::nanoseconds linger) override {
    lingers.push_back(linger);
    return closes;
  }
  Traffic traffic() const noexcept override { return {1, 2, 3, 4, 5, 6}; }
  std::string describe(Peer peer) const override { return name_ + " to " + std::to_string(peer); }

  int polls = 0;
  int flushes = 0;
  int armed = 0;
  bool brings = false;
  bool memory = false;
  bool sleeps = false;
  bool closes = true;
  std::chrono::nanoseconds cost{0};
  std::vector<Peer> sent;
  std::vector<Peer> concealed;
  std::vector<std::chrono::nanoseconds> lingers;

 private:
  std::string name_;
  os::Bell bell_;
};

/// Process 0 of four: near has process 1, far has 2 and 3.
class Mixed : public testing::Test {
 protected:
  void make() {
    auto first = std::make_unique<Fake>("near");
    auto second = std::make_unique<Fake>("far");
    near = first.get();
    far = second.get();
    std::vector<std::unique_ptr<Module>> modules;
    modules.push_back(std::move(first));
    modules.push_back(std::move(second));
    mixed = std::make_unique<mixed::MixedModule>(0, std::move(modules), std::vector<std::uint32_t>{0, 0, 1, 1});
    mixed->start(ignore);
    mixed->poll();  // the first poll asks all
    near->polls = far->polls = 0;
  }
  Ignore ignore;
  Fake* near = nullptr;
  Fake* far = nullptr;
  std::unique_ptr<mixed::MixedModule> mixed;
};

constexpr int many = 1000;

TEST_F(Mixed, AsksAllWhileNothingComes) {
  make();
  far->cost = std::chrono::microseconds(5);
  for (int i = 0; i < many; ++i) EXPECT_FALSE(mixed->poll());
  EXPECT_EQ(near->polls, many);
  EXPECT_EQ(far->polls, many);
}

TEST_F(Mixed, AsksTheCostlyOneLessWhileTheOtherIsBusy) {
  make();
  far->cost = std::chrono::microseconds(20);
  near->cost = std::chrono::microseconds(1);
  for (int i = 0; i < many; ++i) mixed->poll();
  near->brings = true;
  far->polls = far->flushes = 0;
  for (int i = 0; i < many; ++i) EXPECT_TRUE(mixed->poll());
  EXPECT_LT(far->polls, many / 2);
  EXPECT_GT(far->polls, 0);
  EXPECT_GE(far->flushes, many - far->polls);
}

TEST_F(Mixed, AsksTheCostlyOneAgainWhenItBrings) {
  make();
  far->cost = std::chrono::microseconds(20);
  for (int i = 0; i < many; ++i) mixed->poll();
  near->brings = far->brings = true;
  while (far->polls == many) mixed->poll();
  far->polls = 0;
  for (int i = 0; i < many; ++i) mixed->poll();
  EXPECT_EQ(far->polls, many);
}

TEST_F(Mixed, AsksAllAfterASleep) {
  make();
  far->cost = std::chrono::milliseconds(1);
  for (int i = 0; i < 20; ++i) mixed->poll();
  near->brings = true;
  mixed->poll();
  far->polls = 0;
  mixed->wait(std::nullopt);  // one of them has something
  EXPECT_EQ(near->armed, 0);
  EXPECT_EQ(far->armed, 0);
  mixed->poll();
  EXPECT_EQ(far->polls, 1);
}

TEST_F(Mixed, TheModuleInChargeDoesIt) {
  make();
  far->memory = true;
  for (Peer peer = 1; peer < 4; ++peer) mixed->send(peer, {}, {});
  EXPECT_EQ(near->sent, std::vector<Peer>{1});
  EXPECT_EQ(far->sent, (std::vector<Peer>{2, 3}));
  EXPECT_EQ(mixed->queued(3), 3U);
  EXPECT_EQ(mixed->queued(0), 0U);
  EXPECT_EQ(mixed->queued(9), 0U);
  EXPECT_EQ(mixed->describe(1), "near to 1");
  EXPECT_EQ(mixed->describe(2), "far to 2");
  EXPECT_STREQ(mixed->name(), "near+far");
  EXPECT_FALSE(mixed->reaches_memory(1));
  EXPECT_TRUE(mixed->reaches_memory(2));
  EXPECT_FALSE(mixed->reaches_memory(0));
  const MemoryKey key = mixed->expose(2, {});
  EXPECT_EQ(static_cast<char>(key.words[0]), 'f');
  mixed->conceal(2, key);
  EXPECT_EQ(far->concealed, std::vector<Peer>{2});
  EXPECT_EQ(mixed->traffic().frames_sent, 2U);
  EXPECT_EQ(mixed->traffic().refused, 12U);
}

TEST_F(Mixed, ClosesAllWithinOneTime) {
  make();
  near->closes = false;
  EXPECT_FALSE(mixed->close(std::chrono::seconds(5)));
  ASSERT_EQ(near->lingers.size(), 1U);
  ASSERT_EQ(far->lingers.size(), 1U);
  EXPECT_LE(far->lingers[0], near->lingers[0]);
  EXPECT_TRUE(mixed->close(std::chrono::seconds(5)));  // everything was sent
  EXPECT_EQ(far->lingers.size(), 1U);
}

TEST_F(Mixed, SaysWhatIsWrong) {
  make();
  const auto message = [](auto&& what) -> std::string {
    try {
      what();
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(message([&] { mixed->send(0, {}, {}); }),
            "near+far: send: process 0 is this process; modules carry frames to others");
  EXPECT_EQ(message([&] { static_cast<void>(mixed->describe(7)); }),
            "near+far: describe: there is no process 7; the machine has 4");
  EXPECT_EQ(message([] { mixed::MixedModule(0, {}, {0, 0}); }), "0 modules cannot be mixed: 1 to 15 can");
}

}  // namespace
}  // namespace aplib::comm::test
