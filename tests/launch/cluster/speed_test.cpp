// SPDX-License-Identifier: MIT
// Speeds of hosts by number, by command and by measurement, and how a CPU quota affects measurements.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <string>

#include "aplib/error.hpp"
#include "checks.hpp"
#include "launch/cluster/speed.hpp"

namespace aplib::launch {
namespace {

using namespace std::chrono_literals;

cluster::Speed speed_of(cluster::Speed::Kind kind, double number = 0, const std::string& command = {}) {
  cluster::Speed speed;
  speed.kind = kind;
  speed.number = number;
  speed.command = command;
  return speed;
}

std::string command_error(const std::string& line, std::chrono::seconds limit = 60s) {
  return testing_support::error_text([&] { (void)cluster::command_number("s", line, limit); }, Errc::failed);
}

TEST(SpeedOfHost, RunsGiveSomeSpeed) {
  for (const cluster::Speed::Kind kind : {cluster::Speed::Kind::memory, cluster::Speed::Kind::compute}) {
    for (const std::uint32_t threads : {1U, 3U}) {
      const double speed = cluster::measure_speed(speed_of(kind), threads, 20ms);
      EXPECT_TRUE(std::isfinite(speed));
      EXPECT_GT(speed, 1000);
    }
  }
}

TEST(SpeedOfHost, NumbersAndCommandsSayItThemselves) {
  EXPECT_EQ(cluster::measure_speed(speed_of(cluster::Speed::Kind::number, 2.5), 7), 2.5);
  EXPECT_EQ(cluster::measure_speed(speed_of(cluster::Speed::Kind::command, 0, "echo; echo ' 1.5e3 '"), 7), 1500);
  // It gets no input, because a node's own input brings the job's key.
  EXPECT_EQ(cluster::measure_speed(speed_of(cluster::Speed::Kind::command, 0, "expr 1 + $(wc -c)"), 7), 1);
}

TEST(SpeedOfHost, CommandsThatGiveNoNumberAreErrorsInWords) {
  EXPECT_EQ(command_error("exit 3"), "s: the command \"exit 3\" failed with status 3: try it on this host");
  EXPECT_EQ(command_error("kill -9 $$"), "s: the command \"kill -9 $$\" failed with status 137: try it on this host");
  EXPECT_EQ(
      command_error("echo fast"),
      "s: the command \"echo fast\" wrote \"fast\\n\", not a number above 0: it must print that and nothing else");
  for (const char* line : {"true", "echo 0", "echo -1", "echo nan", "echo inf", "echo 1 2", "echo 1x"}) {
    EXPECT_NE(command_error(line).find("not a number above 0"), std::string::npos) << line;
  }
  // Far more than a pipe holds.
  EXPECT_NE(command_error("yes | head -c 1000000").find("not a number above 0"), std::string::npos);
}

TEST(SpeedOfHost, CommandsThatHangAreEnded) {
  EXPECT_EQ(command_error("sleep 1000 & sleep 1000", 1s),
            "s: the command \"sleep 1000 & sleep 1000\" is not done after 1 s: use a shorter one");
}

TEST(SpeedOfHost, ThreadsAsTheOptionSays) {
  EXPECT_EQ(cluster::speed_threads("3"), 3U);
  EXPECT_GE(cluster::speed_threads(""), 1U);
  EXPECT_EQ(cluster::speed_threads("auto"), cluster::speed_threads(""));
  EXPECT_EQ(cluster::speed_threads("per-cell"), cluster::speed_threads(""));
  const cluster::HostSpeed host = cluster::measure_host(speed_of(cluster::Speed::Kind::memory), "5", false);
  EXPECT_EQ(host.threads, 5U);
  EXPECT_EQ(host.speed, 0);
}

TEST(SpeedKernel, TheSolverStaysFiniteAndCountsItsPoints) {
  const auto kernel = cluster::make_memory_kernel(70);
  double work = 0;
  for (int i = 0; i < 3 * 2000; ++i) work += kernel->step();  // three passes of one piece each
  EXPECT_DOUBLE_EQ(work, 2000.0 * 70 * 70);
  EXPECT_TRUE(std::isfinite(kernel->result()));
}

/// Work at 1000 per second in pieces of 0.1 ms, by a thread that may run only in the first `share` of each period.
double rate_under_quota(std::chrono::microseconds period, double share, std::chrono::microseconds phase,
                        std::chrono::microseconds other_stops) {
  const cluster::SpeedMeter::Clock::time_point start{};
  cluster::SpeedMeter meter(start);
  const std::chrono::duration<double, std::micro> burst = period * share;
  auto now = phase;
  while (!meter.enough(400ms)) {
    now += 100us;
    const auto in_period = now % period;
    if (in_period > burst) now += period - in_period;
    // Another program has the core for a while.
    if (other_stops > 0us && now % 30000us < 100us) now += other_stops;
    meter.add(0.1, start + (now - phase));
  }
  return meter.rate();
}

TEST(SpeedMeter, WithoutStopsItIsWorkByTime) { EXPECT_NEAR(rate_under_quota(100ms, 1, 0us, 0us), 1000, 1); }

TEST(SpeedMeter, AQuotaIsSeenWhereverTheRunBegins) {
  for (const double share : {0.244, 0.43, 0.9}) {
    const double disturbed = rate_under_quota(100ms, share, 50ms, 4500us);
    for (auto phase = 0us; phase < 100ms; phase += 7ms) {
      EXPECT_NEAR(rate_under_quota(100ms, share, phase, 0us), 1000 * share, 10) << share << " " << phase.count();
      // Other processes that sometimes use the core are part of its speed, and do not hide the quota.
      EXPECT_NEAR(rate_under_quota(100ms, share, phase, 4500us), disturbed, 10 * share)
          << share << " " << phase.count();
      EXPECT_NEAR(rate_under_quota(50ms, share, phase, 0us), 1000 * share, 12) << share << " " << phase.count();
    }
  }
}

}  // namespace
}  // namespace aplib::launch
