// SPDX-License-Identifier: MIT
// WakeCost alone, and threads that meet again and again, in a simulation: how long they take if they poll by it, and
// by the constant that it has replaced.
#include "cell/wake_cost.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace aplib {
namespace {

using namespace std::chrono_literals;
using Duration = WakeCost::Duration;
using Random = std::mt19937_64;

TEST(WakeCost, BeginsWithWhatIsUnseen) { EXPECT_EQ(WakeCost().poll_time(), 50us); }

TEST(WakeCost, IsThatOfADearWakeUpAtOnce) {
  WakeCost cost;
  cost.woken_after(300us);
  EXPECT_EQ(cost.poll_time(), 350us);
}

TEST(WakeCost, ForgetsAPreemptionAfterTwentyWakeUps) {
  WakeCost cost;
  cost.woken_after(10ms);
  EXPECT_EQ(cost.poll_time(), WakeCost::most + 50us);
  for (int i = 0; i < 20; ++i) cost.woken_after(20us);
  EXPECT_LT(cost.poll_time(), 100us);
}

TEST(WakeCost, IsPutToTheProofWhereLongWaitsArePolledThrough) {
  WakeCost cost;
  cost.woken_after(4ms);
  for (int i = 0; i < 2000; ++i) cost.polled_for(200us);
  EXPECT_LT(cost.poll_time(), 55us);
}

TEST(WakeCost, IsNotWornAwayByShortWaits) {
  WakeCost cost;
  cost.woken_after(200us);
  for (int i = 0; i < 2000; ++i) cost.polled_for(20us);
  EXPECT_EQ(cost.poll_time(), 250us);
}

double log_uniform(Random& random, double low, double high) {
  return std::exp(std::uniform_real_distribution(std::log(low), std::log(high))(random));
}
Duration us(double value) { return Duration(static_cast<Duration::rep>(value * 1000)); }

// Waits of all lengths, of lengths just beyond the polling time, and series of both.
TEST(WakeCost, CostsAtMostTwiceWhatIsPaidByOneWhoKnowsTheLengths) {
  for (std::uint64_t seed = 0; seed < 10'000; ++seed) {
    Random random(seed);
    WakeCost cost;
    const Duration wake_up = us(log_uniform(random, 2, 1000));
    const Duration sleep = wake_up + WakeCost::unseen;
    const double spite = std::uniform_real_distribution(0.0, 1.0)(random);
    const double longest = log_uniform(random, 60, 20'000);
    Duration paid{};
    Duration best{};
    for (int i = 0; i < 300; ++i) {
      const Duration polls = cost.poll_time();
      const Duration wait =
          std::bernoulli_distribution(spite)(random) ? polls + 1us : us(log_uniform(random, 1, longest));
      best += std::min(wait, sleep);
      if (wait <= polls) {
        paid += wait;
        cost.polled_for(wait);
      } else {
        paid += polls + sleep;
        cost.woken_after(wake_up);
      }
    }
    ASSERT_LE(paid, 2.05 * best + 3 * sleep) << "seed " << seed;
  }
}

/// The cost that never learns.
class Constant {
 public:
  [[nodiscard]] static Duration poll_time() noexcept { return 50us; }
  static void woken_after(Duration) noexcept {}
  static void polled_for(Duration) noexcept {}
};

struct Computer {
  explicit Computer(Random& random)
      : threads(static_cast<std::size_t>(log_uniform(random, 2, 257))),
        latency(us(log_uniform(random, 2, 1000))),
        call(std::min(us(log_uniform(random, 0.5, 20)), latency)),
        work(us(log_uniform(random, 1, 500))),
        unevenness(us(log_uniform(random, 0.1, 20))),
        is_tree(std::bernoulli_distribution(0.5)(random)) {}

  std::size_t threads;  // each has a core
  Duration latency;     // from a waker's call until the sleeper runs
  Duration call;        // of the waker
  Duration work;        // between two meetings, and by how much it differs
  Duration unevenness;
  bool is_tree;  // who is woken wakes others; else the last to come wakes all
};

/// Threads that meet in a barrier after each piece of work.
template <class Cost>
class Meetings {
 public:
  Meetings(const Computer& computer, Random& random) : computer_(computer), random_(random), ready_(computer.threads) {}

  /// One iteration, in which one thread comes late by the delay. Returns how many slept.
  std::size_t meet(Duration delay = {}) {
    std::vector<Duration> come(computer_.threads);
    std::uniform_int_distribution<Duration::rep> more(0, computer_.unevenness.count());
    for (std::size_t i = 0; i < come.size(); ++i) come[i] = ready_[i] + computer_.work + Duration(more(random_));
    if (delay != Duration{}) come[random_() % come.size()] += delay;
    const auto last = std::max_element(come.begin(), come.end());
    const Duration complete = *last;
    std::vector<std::size_t> sleepers;
    const Duration polls = cost_.poll_time();
    for (std::size_t i = 0; i < come.size(); ++i) {
      ready_[i] = complete;
      if (complete - come[i] > polls) {
        sleepers.push_back(i);
      } else {
        cost_.polled_for(complete - come[i]);
      }
    }
    wake(sleepers, complete);
    ready_[static_cast<std::size_t>(last - come.begin())] += computer_.call * (computer_.is_tree ? 2 : sleepers.size());
    return sleepers.size();
  }

 private:
  void wake(const std::vector<std::size_t>& sleepers, Duration complete) {
    for (std::size_t nth = 0; nth < sleepers.size(); ++nth) {
      Duration woken = complete;
      if (computer_.is_tree) {
        for (std::size_t above = nth + 1; above != 0; above = (above - 1) / 2) {
          woken += computer_.latency + computer_.call * ((above - 1) % 2 + 1);
          if (above == 1) break;
        }
      } else {
        woken += computer_.call * (nth + 1) + computer_.latency;
      }
      ready_[sleepers[nth]] = woken;
      cost_.woken_after(woken - complete);
    }
  }

  const Computer& computer_;
  Random& random_;
  Cost cost_;
  std::vector<Duration> ready_;
};

/// Iterations until nobody sleeps any more after a burst in which threads were delayed by 10 ms; `most` if that does
/// not happen.
template <class Cost>
int iterations_to_recover(std::uint64_t seed, int most) {
  Random random(seed);
  const Computer computer(random);
  Meetings<Cost> meetings(computer, random);
  for (int i = 0; i < 10; ++i) meetings.meet();
  for (std::uint64_t i = 0; i < 1 + seed % 10; ++i) meetings.meet(10ms);
  for (int i = 0; i < most; ++i) {
    if (meetings.meet() == 0) return i;
  }
  return most;
}

constexpr std::uint64_t seeds = 10'000;

TEST(WakeCost, ThreadsRecoverFromDelaysWithinTwentyIterations) {
  int worst = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) worst = std::max(worst, iterations_to_recover<WakeCost>(seed, 21));
  EXPECT_LE(worst, 20);
}

TEST(WakeCost, ByAConstantManyNeverRecover) {
  std::uint64_t never = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) never += iterations_to_recover<Constant>(seed, 21) > 20 ? 1 : 0;
  EXPECT_GT(never, seeds / 4);
}

}  // namespace
}  // namespace aplib
