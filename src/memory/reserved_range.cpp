// SPDX-License-Identifier: MIT
#include "memory/reserved_range.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "aplib/error.hpp"

namespace aplib {
namespace {

constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

}  // namespace

ReservedRange::ReservedRange(std::uint64_t bytes, std::uint64_t alignment, char* low, std::uint64_t room)
    : bytes_(bytes) {
  if (low != nullptr) {
    // Instances of a cell lie one after the other, so the first try nearly always finds its place; what is in the
    // way is passed in doubling steps.
    std::uint64_t step = alignment;
    for (std::uint64_t offset = 0; offset + bytes <= room; offset += step, step *= 2) {
      void* wanted = low + align_up(offset, alignment);
      void* got = mmap(wanted, bytes, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
      if (got == wanted) {
        base_ = static_cast<char*>(got);
        return;
      }
      if (got != MAP_FAILED) munmap(got, bytes);  // a kernel that takes the address as a hint
      if (errno != EEXIST) break;
    }
  }
  const std::uint64_t slack = alignment > 4096 ? alignment : 0;
  void* got = mmap(nullptr, bytes + slack, PROT_NONE, flags, -1, 0);
  if (got == MAP_FAILED) {
    throw Error(
        Errc::exhausted,
        fmt::format(
            "no address space for an instance of {} KiB: {}; start fewer cells, or raise vm.max_map_count (sysctl) "
            "and the limit on address space (ulimit -v)",
            bytes / 1024, std::strerror(errno)));
  }
  base_ = static_cast<char*>(got);
  if (slack != 0) {
    const auto address = reinterpret_cast<std::uint64_t>(got);
    const std::uint64_t before = align_up(address, alignment) - address;
    if (before != 0) munmap(base_, before);
    if (slack != before) munmap(base_ + before + bytes, slack - before);
    base_ += before;
  }
}

ReservedRange::ReservedRange(ReservedRange&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

ReservedRange& ReservedRange::operator=(ReservedRange&& other) noexcept {
  if (this != &other) {
    release();
    base_ = std::exchange(other.base_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void ReservedRange::release() noexcept {
  if (base_ != nullptr) munmap(base_, bytes_);
  base_ = nullptr;
}

}  // namespace aplib
