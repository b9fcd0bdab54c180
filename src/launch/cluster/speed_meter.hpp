// SPDX-License-Identifier: MIT
// SpeedMeter: the rate of a thread's work over whole periods of a CPU quota.
//
// A quota lets a group of processes run for, say, 43 of every 100 ms, and stops them for the rest. What a thread does in a time that is
// no multiple of that period says little. The meter notes work and time at each piece, and measures from the end of one
// stop to the end of another: whole periods, whatever their length.
#pragma once

#include <chrono>
#include <vector>

namespace aplib::launch {

class SpeedMeter {
 public:
  using Clock = std::chrono::steady_clock;
  /// Between pieces of microseconds: only a scheduler takes so long.
  static constexpr std::chrono::milliseconds stop_min{4};

  explicit SpeedMeter(Clock::time_point start) : start_(start), last_(start) {}

  /// `work` was done since the last call, which ends now.
  void add(double work, Clock::time_point now);
  /// Enough is known: `time` has passed; three times as much if stops show, whose lengths vary by some milliseconds.
  [[nodiscard]] bool enough(Clock::duration time) const;
  /// Work per second.
  [[nodiscard]] double rate() const;

 private:
  struct Stop {
    Clock::time_point end;
    Clock::duration length;
    double work;  ///< Done until its end, the piece that it interrupted included.
  };

  /// Keeps those stops that are a quota's: other processes take a thread's core for much shorter times than the longest.
  void note(const Stop& stop);

  Clock::time_point start_;
  Clock::time_point last_;
  double work_ = 0;
  std::vector<Stop> stops_;
};

}  // namespace aplib::launch
