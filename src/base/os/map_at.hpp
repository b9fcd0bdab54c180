// SPDX-License-Identifier: MIT
// Memory at a place that the caller chooses.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace aplib::os {

/// As mmap(), at exactly this place, where nothing else may lie. False: errno says why; EEXIST: something lies there.
/// Call from: any thread.
[[nodiscard]] inline bool map_at(void* place, std::size_t bytes, int protection, int flags, int descriptor = -1,
                                 std::uint64_t offset = 0) noexcept {
  void* const got =
      ::mmap(place, bytes, protection, flags | MAP_FIXED_NOREPLACE, descriptor, static_cast<off_t>(offset));
  if (got == place) return true;
  if (got != MAP_FAILED) {  // a kernel before 4.17, which takes the address as a hint
    ::munmap(got, bytes);
    errno = EEXIST;
  }
  return false;
}

}  // namespace aplib::os
