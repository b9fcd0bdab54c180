// SPDX-License-Identifier: MIT
// LaneGrowth: how many lanes a long link uses. It begins with one, or with some that stand before they are needed, for
// a new lane takes three round trips to stand. More are added while they help: when all that stand are full, and what
// waits would take long, or the system's buffers are what holds them back; and as long as the last ones made it faster.
// Pure logic: its owner says what time it is and what the system reports.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace aplib::comm::tcp {

class LaneGrowth {
 public:
  static constexpr unsigned lanes_max = 16;
  /// The first step: as many new lanes at once.
  static constexpr unsigned first_step = 4;
  /// Seconds.
  static constexpr double waits_long = 0.2;
  static constexpr double waits_long_round_trips = 2;
  static constexpr double faster = 1.1;
  /// New lanes begin slowly. After so many round trips they have shown what they can.
  static constexpr double round_trips_to_grow = 10;
  static constexpr double period_min = 0.02;

  /// What has happened, up to a time in seconds.
  struct Report {
    double now = 0;
    double round_trip = 0;           ///< Seconds.
    std::uint64_t acknowledged = 0;  ///< Bytes since the beginning.
    std::size_t waiting = 0;         ///< Bytes that no lane has.
    unsigned lanes = 0;              ///< That stand.
    bool buffers_limit = false;      ///< Most of the time since the last report a lane waited for a buffer's room.
  };

  struct Lanes {
    unsigned fixed = 0;  ///< So many, whatever happens; 0: as many as help,
    unsigned first = 1;  ///< and so many from the beginning.
  };

  explicit LaneGrowth(Lanes lanes) noexcept
      : wanted_(std::max(lanes.fixed != 0 ? lanes.fixed : lanes.first, 1U)),
        most_(lanes.fixed != 0 ? lanes.fixed : lanes_max) {}

  [[nodiscard]] unsigned wanted() const noexcept { return wanted_; }
  /// No more than these can be had.
  void limit(unsigned lanes) noexcept {
    most_ = std::max(lanes, 1U);
    wanted_ = std::min(wanted_, most_);
  }

  /// Some bytes had to wait, because all lanes were full. False: it was so already.
  bool press(double now, std::uint64_t acknowledged) noexcept {
    if (pressed_) return false;
    pressed_ = true;
    begun_ = now;
    acknowledged_ = acknowledged;
    return true;
  }
  [[nodiscard]] bool pressed() const noexcept { return pressed_; }
  /// When report() is to be called.
  [[nodiscard]] double next_report(double round_trip) const noexcept {
    return begun_ + std::max(period_min, round_trip);
  }

  /// After a period. True: more lanes are wanted than before.
  bool report(const Report& now) noexcept {
    if (now.waiting == 0) {
      pressed_ = false;
      return false;
    }
    const double seconds = now.now - begun_;
    if (seconds <= 0) return false;
    const double rate = static_cast<double>(now.acknowledged - acknowledged_) / seconds;
    begun_ = now.now;
    acknowledged_ = now.acknowledged;
    best_ = std::max(best_, rate);
    if (wanted_ >= most_ || now.lanes < wanted_) return false;
    const double waits_seconds = rate > 0 ? static_cast<double>(now.waiting) / rate : waits_long;
    if (!now.buffers_limit && waits_seconds < std::max(waits_long, waits_long_round_trips * now.round_trip))
      return false;
    if (tried_ && best_ < faster * before_) {
      // They have not helped yet. Those that never do were the last.
      if (now.now - grown_ > round_trips_to_grow * now.round_trip) most_ = wanted_;
      return false;
    }
    tried_ = true;
    before_ = best_;
    grown_ = now.now;
    wanted_ = std::min(most_, wanted_ == 1 ? 1 + first_step : 2 * wanted_);
    return true;
  }

 private:
  unsigned wanted_;
  unsigned most_;
  bool pressed_ = false;
  bool tried_ = false;  // Lanes were added.
  double begun_ = 0;    // The period.
  std::uint64_t acknowledged_ = 0;
  double best_ = 0;    // Bytes a second.
  double before_ = 0;  // The best before lanes were added,
  double grown_ = 0;   // and when that was.
};

}  // namespace aplib::comm::tcp
