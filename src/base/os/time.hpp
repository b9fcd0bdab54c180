// SPDX-License-Identifier: MIT
// Times as system calls take them.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>

namespace aplib::os {

/// A negative time is none.
[[nodiscard]] constexpr timespec timespec_of(std::chrono::nanoseconds time) noexcept {
  constexpr long per_second = 1'000'000'000;
  const long count = std::max(time.count(), std::chrono::nanoseconds::rep{0});
  return {.tv_sec = count / per_second, .tv_nsec = count % per_second};
}

/// Processor time of this process so far.
[[nodiscard]] inline std::uint64_t cpu_microseconds() noexcept {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& time) {
    return static_cast<std::uint64_t>(time.tv_sec * 1'000'000 + time.tv_usec);
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

}  // namespace aplib::os
