// SPDX-License-Identifier: MIT
// ReservedRange: address space taken once with no access, to be mapped over piece by piece, so that no other
// thread's mapping can come in between.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aplib {

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
