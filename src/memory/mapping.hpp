// SPDX-License-Identifier: MIT
// The mappings of this process, as the system tells them: /proc/self/maps.
//
// ReservedRange: address space that is reserved once, without access, and mapped over piece by piece, so that no other
// thread's mapping comes in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace aplib {

struct Mapping {
  std::uintptr_t low = 0;
  std::uintptr_t high = 0;
  bool readable = false;
  bool writable = false;
  std::string name;  ///< "/usr/lib/libc.so.6", "[heap]", or empty.
};

/// Calls `see` for each, by rising addresses, until it returns false. Takes some 100 us. Any thread.
void for_each_mapping(const std::function<bool(const Mapping&)>& see);

/// What kind of memory an address is of, for people. Any thread.
std::string describe_memory(const void* address);

// ---------------------------------------------------------------- reserved ranges

class ReservedRange {
 public:
  ReservedRange() = default;
  /// `bytes` (whole pages) aligned to `alignment`, at the lowest free place in [low, low + room) if low is not
  /// null, else anywhere. Throws Error(exhausted).
  ReservedRange(std::uint64_t bytes, std::uint64_t alignment, char* low, std::uint64_t room);
  ~ReservedRange() { release(); }
  ReservedRange(ReservedRange&& other) noexcept;
  ReservedRange& operator=(ReservedRange&& other) noexcept;

  [[nodiscard]] char* base() const noexcept { return base_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  void release() noexcept;

 private:
  char* base_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace aplib
