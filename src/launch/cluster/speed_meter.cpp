// SPDX-License-Identifier: MIT
#include "launch/cluster/speed_meter.hpp"

#include <algorithm>

namespace aplib::launch {

void SpeedMeter::add(double work, Clock::time_point now) {
  work_ += work;
  if (now - last_ >= stop_min) note({now, now - last_, work_});
  last_ = now;
}

void SpeedMeter::note(const Stop& stop) {
  const auto longest = std::ranges::max_element(stops_, {}, &Stop::length);
  if (longest != stops_.end() && 2 * stop.length < longest->length) return;
  std::erase_if(stops_, [&](const Stop& other) { return 2 * other.length < stop.length; });
  stops_.push_back(stop);
}

bool SpeedMeter::enough(Clock::duration time) const {
  const Clock::duration passed = last_ - start_;
  if (passed < time) return false;
  return stops_.empty() || passed >= 3 * time;
}

double SpeedMeter::rate() const {
  Stop from{start_, {}, 0};
  Stop to{last_, {}, work_};
  // Stops that leave most of the time out are a few accidents, not a quota.
  if (stops_.size() > 1 && 2 * (stops_.back().end - stops_.front().end) >= last_ - start_) {
    from = stops_.front();
    to = stops_.back();
  }
  const double seconds = std::chrono::duration<double>(to.end - from.end).count();
  return seconds > 0 ? (to.work - from.work) / seconds : 0;
}

}  // namespace aplib::launch
