// SPDX-License-Identifier: MIT
// Times as system calls take them.
#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>

namespace aplib::os {

/// A negative time is none.
[[nodiscard]] constexpr timespec timespec_of(std::chrono::nanoseconds time) noexcept {
  constexpr long per_second = 1'000'000'000;
  const long count = std::max(time.count(), std::chrono::nanoseconds::rep{0});
  return {.tv_sec = count / per_second, .tv_nsec = count % per_second};
}

}  // namespace aplib::os
