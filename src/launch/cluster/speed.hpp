// SPDX-License-Identifier: MIT
// Speed of this computer, for cells = "auto". SpeedKernel is work of a known amount; SpeedMeter its rate.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "launch/cluster/shares.hpp"

namespace aplib::launch::cluster {

/// The time that a run of Speed::Kind::memory or ::compute takes; three times as long where a CPU quota stops threads.
constexpr std::chrono::milliseconds speed_run_time{400};
/// A command of Speed::Kind::command that takes longer is ended.
constexpr std::chrono::seconds speed_command_time_max{60};

/// Work per second of this many threads together: grid points (memory), multiply-adds (compute), or the value of a
/// number or a command. Blocks for `time` and keeps the threads busy. Throws Error(failed), which says why, when a
/// command gives no number or memory is short. Call from: any thread.
[[nodiscard]] double measure_speed(const Speed& speed, std::uint32_t threads,
                                   std::chrono::milliseconds time = speed_run_time);

/// Threads that will carry a host's cells, if it has enough cells: a number, or one per usable core. `threads` has the
/// form of the option.
[[nodiscard]] std::uint32_t speed_threads(const std::string& threads);

/// Both for this host, as share_cells() needs them. `needed`: whether the speed is needed; otherwise it is 0 and costs
/// no time.
[[nodiscard]] HostSpeed measure_host(const Speed& speed, const std::string& threads, bool needed);

/// The rate of a thread's work over whole periods of a CPU quota.
/// A quota lets a group of processes run for, say, 43 of every 100 ms, and stops them for the rest. The work of a
/// thread in a time that is not a multiple of that period says little. The meter records work and time of each piece,
/// and measures from the end of one stop to the end of another: whole periods of any length.
class SpeedMeter {
 public:
  using Clock = std::chrono::steady_clock;
  /// Between pieces that take microseconds, only a scheduler takes this long.
  static constexpr std::chrono::milliseconds stop_min{4};

  explicit SpeedMeter(Clock::time_point start) : start_(start), last_(start) {}

  /// `work` was done since the last call.
  void add(double work, Clock::time_point now);
  /// Whether enough is known: `time` has passed, or three times as much if there are stops, whose lengths vary by some
  /// milliseconds.
  [[nodiscard]] bool enough(Clock::duration time) const;
  /// Work per second.
  [[nodiscard]] double rate() const;

 private:
  struct Stop {
    Clock::time_point end;
    Clock::duration length;
    double work;  ///< Done until its end, including the interrupted piece
  };

  /// Keeps only the stops of a quota: other processes take a thread's core for much shorter times than the longest
  /// stop.
  void note(const Stop& stop);

  Clock::time_point start_;
  Clock::time_point last_;
  double work_ = 0;
  std::vector<Stop> stops_;
};

/// Work of a known amount, in small pieces, for one thread.
class SpeedKernel {
 public:
  virtual ~SpeedKernel() = default;
  SpeedKernel() = default;
  SpeedKernel(const SpeedKernel&) = delete;
  SpeedKernel& operator=(const SpeedKernel&) = delete;

  /// Does the next piece, some ten microseconds of work. Returns the amount.
  virtual double step() = 0;
  /// A value that depends on all results, so that no compiler omits the work.
  [[nodiscard]] virtual double result() const = 0;
};

/// Conjugate gradients on a grid of `points` x `points`: a 5-point stencil, dot products and updates of four arrays
/// of doubles, which is bound by memory if they do not fit into a cache. Unit: grid points of a whole iteration.
/// Throws std::bad_alloc.
[[nodiscard]] std::unique_ptr<SpeedKernel> make_memory_kernel(std::size_t points);
/// Multiply-adds of doubles in registers. Unit: one of them.
[[nodiscard]] std::unique_ptr<SpeedKernel> make_compute_kernel();

/// The size of a grid for each of `threads`, so that their arrays together are larger than this computer's caches,
/// within limits (64 .. 128 MiB).
[[nodiscard]] std::size_t memory_kernel_points(std::size_t threads);

/// Runs `line` with sh and empty standard input, and reads the number that it writes to standard output. Blocks. Throws
/// Error(failed), with the line and the remedy, when it fails, takes longer than `time_max` (then it is killed with
/// everything that it started in its group), or writes anything but a number above 0. `subject` begins the messages.
[[nodiscard]] double command_number(const std::string& subject, const std::string& line, std::chrono::seconds time_max);

}  // namespace aplib::launch::cluster
