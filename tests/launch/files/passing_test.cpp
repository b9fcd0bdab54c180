// SPDX-License-Identifier: MIT
// Files that hosts pass on while they come: who gets them from whom, and chains of transfers in one process.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <list>
#include <optional>
#include <span>

#include "launch/files/arrivals.hpp"
#include "launch/pool/file_tree.hpp"
#include "process.hpp"
#include "transfer.hpp"

namespace aplib::test {
namespace {

using Plan = launch::pool::SendPlan;
using Trouble = Plan::Trouble;

TEST(SendPlan, EachHostGetsThemFromTheOneBefore) {
  Plan plan(4);
  EXPECT_EQ(plan.join(2, true), std::nullopt);
  EXPECT_EQ(plan.join(0, true), 2U);
  EXPECT_EQ(plan.join(3, false), 0U);  // who cannot be reached is the end of a branch
  EXPECT_EQ(plan.join(1, true), 0U);
}

TEST(SendPlan, ChainsAreNotTooLong) {
  Plan plan(2 * Plan::chain_max + 1);
  std::size_t from_launcher = 0;
  for (std::size_t host = 0; host < 2 * Plan::chain_max + 1; ++host) from_launcher += !plan.join(host, true);
  EXPECT_EQ(from_launcher, 3U);
}

TEST(SendPlan, TheHostBeforeTakesTheDeadOnesPlace) {
  Plan plan(5);
  for (std::size_t host = 0; host < 4; ++host) static_cast<void>(plan.join(host, true));
  plan.leave(1);
  EXPECT_EQ(plan.again(2, Trouble::cut), 0U);
  plan.leave(2);
  plan.leave(3);
  EXPECT_EQ(plan.join(4, true), 0U);
  plan.leave(0);
  EXPECT_EQ(plan.again(4, Trouble::cut), std::nullopt);
}

TEST(SendPlan, WhoIsCutOffGoesOneBackAlsoBeforeTheDeathIsKnown) {
  Plan plan(4);
  for (std::size_t host = 0; host < 4; ++host) static_cast<void>(plan.join(host, true));
  EXPECT_EQ(plan.again(3, Trouble::cut), 1U);
  EXPECT_EQ(plan.again(3, Trouble::cut), 0U);
  EXPECT_EQ(plan.again(3, Trouble::cut), std::nullopt);
}

TEST(SendPlan, TheLauncherServesWhomTheOthersCannot) {
  Plan plan(6);
  for (std::size_t host = 0; host < 6; ++host) static_cast<void>(plan.join(host, true));
  EXPECT_EQ(plan.again(2, Trouble::unreached), std::nullopt);
  EXPECT_EQ(plan.again(3, Trouble::own), std::nullopt);
  plan.leave(4);
  EXPECT_EQ(plan.again(5, Trouble::unreached), 3U);  // it was dead
  for (int attempt = 1; attempt < Plan::attempts_max; ++attempt) static_cast<void>(plan.again(5, Trouble::cut));
  EXPECT_EQ(plan.again(5, Trouble::cut), std::nullopt);
}

/// A transfer under way between two hosts.
struct Leg {
  Leg(files::Sender& from, files::Receiver& to) : sender(from), receiver(to) {}

  files::Sender& sender;
  files::Receiver& receiver;
  std::uint64_t bytes = 0;

  /// False: nothing moves.
  bool step(std::mt19937_64& random) {
    const wire_bytes some = sender.next();
    bytes += some.size();
    give(receiver, some, &random);
    const wire_bytes reply = receiver.reply();
    give(sender, reply, &random);
    return !some.empty() || !reply.empty();
  }
  using wire_bytes = std::vector<std::byte>;
};

class PassedFiles : public ::testing::Test {
 protected:
  void make_source() {
    write_file(root_ / "from/large", random_text(random_, large));
    write_file(root_ / "from/deep/empty", "");
    for (int i = 0; i < 50; ++i)
      write_file(root_ / fmt::format("from/small/{}", i), random_text(random_, random_() % 5000));
    write_file(root_ / "from/sparse", random_text(random_, 70000));
    fs::resize_file(root_ / "from/sparse", 3 << 20);
    std::ofstream(root_ / "from/sparse", std::ios::app) << random_text(random_, 100000);
    fs::create_symlink("deep", root_ / "from/link");
  }
  std::shared_ptr<const files::Manifest> gather() {
    return std::make_shared<files::Manifest>(files::gather({{(root_ / "from").string(), "tree"}}, "launcher"));
  }
  files::Receiver::Settings settings(const std::string& host, files::Arrivals* arrivals = nullptr) {
    return {.folder = (root_ / host).string(), .resume = true, .host = host, .arrivals = arrivals};
  }
  void check(const std::string& host) { EXPECT_EQ(differences(root_ / "from", root_ / host / "tree"), "") << host; }

  static constexpr std::size_t large = 5 << 20;
  Folder folder_;
  const fs::path root_ = folder_.path();
  std::mt19937_64 random_{7};
};

TEST_F(PassedFiles, PassOnWhileTheyCome) {
  make_source();
  files::Sender first(gather(), {});
  files::Arrivals at_a, at_b;
  files::Receiver a(settings("a", &at_a)), b(settings("b", &at_b)), c(settings("c"));
  std::optional<files::Sender> from_a, from_b;
  std::optional<Leg> ab, bc;
  Leg to_a{first, a};
  std::uint64_t at_c_before_a_had_all = 0;
  while (!c.ended()) {
    bool moves = random_() % 3 == 0 && to_a.step(random_);
    if (!ab && at_a.manifest())
      ab.emplace(from_a.emplace(at_a.manifest(), files::Sender::Settings{.arrivals = &at_a}), b);
    if (!bc && at_b.manifest())
      bc.emplace(from_b.emplace(at_b.manifest(), files::Sender::Settings{.arrivals = &at_b}), c);
    if (ab) moves = ab->step(random_) || moves;
    if (bc) moves = bc->step(random_) || moves;
    if (bc && !a.ended()) at_c_before_a_had_all = bc->bytes;
    ASSERT_TRUE(moves || to_a.step(random_)) << "all wait";
  }
  for (const auto* outcome : {&a.outcome(), &b.outcome(), &c.outcome()})
    EXPECT_EQ(outcome->problems, std::vector<std::string>());
  EXPECT_GT(at_c_before_a_had_all, large);
  EXPECT_LT(bc->bytes, large + (1 << 20));  // holes are not sent
  for (const char* host : {"a", "b", "c"}) check(host);
}

TEST_F(PassedFiles, AnotherSourceGoesOnWhereOneWasCutOff) {
  make_source();
  const auto manifest = gather();
  for (const std::uint64_t cut : {100'000, 1'000'000, 3'000'000, 5'400'000}) {
    const std::string a_name = fmt::format("a{}", cut), b_name = fmt::format("b{}", cut);
    files::Arrivals at_a;
    std::optional<files::Sender> first(std::in_place, manifest, files::Sender::Settings{}), from_a;
    std::optional<files::Receiver> a(std::in_place, settings(a_name, &at_a));
    files::Receiver b(settings(b_name));
    std::optional<Leg> to_a(Leg{*first, *a}), ab;
    bool was_cut = false;
    while (!b.ended()) {
      bool moves = to_a->step(random_);
      if (!ab && at_a.manifest())
        ab.emplace(from_a.emplace(at_a.manifest(), files::Sender::Settings{.arrivals = &at_a}), b);
      if (ab) moves = ab->step(random_) || moves;
      ASSERT_TRUE(moves) << "all wait";
      if (was_cut || to_a->bytes < cut) continue;
      was_cut = true;
      a.reset();
      first.emplace(manifest, files::Sender::Settings{});
      a.emplace(settings(a_name, &at_a));
      to_a.emplace(Leg{*first, *a});
    }
    while (!a->ended()) ASSERT_TRUE(to_a->step(random_));
    EXPECT_TRUE(was_cut);
    EXPECT_EQ(b.outcome().problems, std::vector<std::string>());
    EXPECT_LT(ab->bytes, large + (1 << 20));
    check(a_name);
    check(b_name);
  }
}

TEST_F(PassedFiles, AFileThatIsNotPlacedHereIsNotPassedOn) {
  make_source();
  write_file(root_ / "a/tree/small/7", "another one");
  const auto manifest = gather();
  files::Sender first(manifest, {});
  files::Arrivals at_a;
  files::Receiver a(settings("a", &at_a));
  Leg to_a{first, a};
  while (to_a.step(random_)) {
  }
  EXPECT_EQ(a.outcome().problems.size(), 1U);
  files::Sender from_a(at_a.manifest(), {.arrivals = &at_a});
  files::Arrivals at_b;
  {
    files::Receiver b(settings("b", &at_b));
    Leg ab{from_a, b};
    while (ab.step(random_)) {
    }
    EXPECT_TRUE(from_a.ended());
    EXPECT_FALSE(from_a.outcome().good());
    EXPECT_FALSE(b.ended());
  }
  // What it has already is not sent again.
  files::Sender second(manifest, {});
  files::Receiver b(settings("b", &at_b));
  Leg to_b{second, b};
  while (to_b.step(random_)) {
  }
  EXPECT_TRUE(b.outcome().good());
  EXPECT_LT(to_b.bytes, large);
  check("b");
}

TEST_F(PassedFiles, AFileThatChangesComesAnew) {
  make_source();
  files::Sender first(gather(), {});
  files::Arrivals at_a;
  files::Receiver a(settings("a", &at_a)), b(settings("b"));
  std::optional<files::Sender> from_a;
  std::optional<Leg> ab;
  Leg to_a{first, a};
  bool changed = false;
  while (!b.ended()) {
    bool moves = to_a.step(random_);
    if (!ab && at_a.manifest())
      ab.emplace(from_a.emplace(at_a.manifest(), files::Sender::Settings{.arrivals = &at_a}), b);
    if (ab) moves = ab->step(random_) || moves;
    ASSERT_TRUE(moves) << "all wait";
    if (!changed && ab && ab->bytes > (2 << 20)) {
      changed = true;
      write_file(root_ / "from/large", random_text(random_, large / 2));
    }
  }
  EXPECT_TRUE(changed);
  EXPECT_EQ(b.outcome().problems, std::vector<std::string>());
  check("a");
  check("b");
}

TEST_F(PassedFiles, WhatIsThereIsComparedAndPartsGoOn) {
  make_source();
  const auto manifest = gather();
  files::Arrivals at_b;
  {
    files::Sender first(manifest, {});
    files::Receiver b(settings("b", &at_b));
    Leg to_b{first, b};
    while (to_b.bytes < 3'000'000) ASSERT_TRUE(to_b.step(random_));
  }
  files::Sender first(manifest, {});
  files::Arrivals at_a;
  files::Receiver a(settings("a", &at_a));
  Leg to_a{first, a};
  while (to_a.step(random_)) {
  }
  ASSERT_TRUE(a.outcome().good());
  files::Sender from_a(at_a.manifest(), {.arrivals = &at_a});
  files::Receiver b(settings("b", &at_b));
  Leg ab{from_a, b};
  while (ab.step(random_)) {
  }
  EXPECT_EQ(b.outcome().problems, std::vector<std::string>());
  EXPECT_GT(b.outcome().kept + b.outcome().placed, 50U);
  EXPECT_LT(ab.bytes, large - 2'000'000 + (1 << 20));
  check("b");
}

}  // namespace
}  // namespace aplib::test
