// SPDX-License-Identifier: MIT
// Watch: the flag that a task waits for. A flag is an int in anybody's memory that transfers raise by one each; the
// user's, hence no std::atomic.
//
// A wait cannot miss a flag, though who raises it takes no lock and knows of no list:
//
//   waiter:  cell.watcher = processor   parker.announce(): heavy fence   look at the flag   sleep
//   raiser:  raise the flag             light fence                      look at cell.watcher, then at its parker
//
// Either the waiter sees the flag, or the raiser sees the watcher and that it sleeps; see parker.hpp for the two
// fences.
#pragma once

#include <cstdint>

namespace aplib {

struct Watch {
  const std::int32_t* flag = nullptr;
  std::int32_t count = 0;  ///< To be reached, as a signed difference.

  // acquire: what was written before the flag was raised
  [[nodiscard]] std::int32_t now() const noexcept { return __atomic_load_n(flag, __ATOMIC_ACQUIRE); }
  [[nodiscard]] bool reached() const noexcept {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(now()) - static_cast<std::uint32_t>(count)) >= 0;
  }

  /// Raises a flag by one, behind what was written before; null: none. Who waits must be woken: see wake_watcher().
  static void raise(std::int32_t* flag) noexcept {
    if (flag != nullptr) __atomic_fetch_add(flag, 1, __ATOMIC_RELEASE);  // release: the data before it
  }
};

}  // namespace aplib
