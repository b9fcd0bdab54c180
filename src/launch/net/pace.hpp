// SPDX-License-Identifier: MIT
// How much of a stream of messages is under way: enough to fill any path, and so little that it arrives soon after the
// stream has ended.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>

namespace aplib::launch::net {

class Pace {
 public:
  static constexpr std::size_t window_min = std::size_t{128} << 10;
  static constexpr std::size_t window_max = std::size_t{64} << 20;
  static constexpr std::size_t message_min = std::size_t{16} << 10;
  static constexpr std::size_t message_max = std::size_t{1} << 20;
  static constexpr double horizon_min = 0.1;

  /// Seconds, of a message there and back.
  explicit Pace(double round_trip) : horizon_(std::max(horizon_min, 2 * round_trip)) {}

  /// Twice what has arrived within the horizon. It doubles in each round trip, as TCP's own window, until the path is
  /// full.
  [[nodiscard]] std::size_t window() const { return std::clamp(2 * recent_, window_min, window_max); }
  /// Of the next message. Large messages are for fast paths: each is a part of the window.
  [[nodiscard]] std::size_t message() const { return std::clamp(window() / 16, message_min, message_max); }
  [[nodiscard]] bool may_send() const { return under_way_ == 0 || under_way_ + message() <= window(); }

  [[nodiscard]] std::size_t under_way() const { return under_way_; }
  void sent(std::size_t bytes) { under_way_ += bytes; }
  /// So much has arrived, as the sender hears at this time.
  void arrived(std::size_t bytes, double now) {
    under_way_ -= std::min(bytes, under_way_);
    arrivals_.push_back({now, bytes});
    recent_ += bytes;
    while (arrivals_.front().time < now - horizon_) {
      recent_ -= arrivals_.front().bytes;
      arrivals_.pop_front();
    }
  }

 private:
  struct Arrival {
    double time;
    std::size_t bytes;
  };
  double horizon_;
  std::size_t under_way_ = 0;
  std::size_t recent_ = 0;  // invariant: the sum of arrivals_
  std::deque<Arrival> arrivals_;
};

}  // namespace aplib::launch::net
