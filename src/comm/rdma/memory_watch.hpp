// SPDX-License-Identifier: MIT
// MemoryWatch: hears of memory that is unmapped, given back (madvise) or moved (mremap), from the kernel (userfaultfd). munmap() and its like return after the watch has heard of it, on whatever thread they are called.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

namespace aplib::comm {

/// Thread safety: as said. Costs a thread, which sleeps.
class MemoryWatch {
 public:
  struct Range {
    std::uintptr_t begin;
    std::uintptr_t end;
  };
  /// What has gone since the last time.
  struct Gone {
    static constexpr std::size_t ranges_max = 256;
    std::array<Range, ranges_max> ranges;
    std::size_t count = 0;
    bool everything = false;  ///< There were too many.
  };

  /// Null: the kernel does not let us (vm.unprivileged_userfaultfd, a seccomp filter, an old kernel).
  [[nodiscard]] static std::unique_ptr<MemoryWatch> open() noexcept;
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  /// Watches whole pages. False: memory of a kind that cannot be watched, as that of a file. Any thread.
  [[nodiscard]] bool add(Range pages) noexcept;
  void remove(Range pages) noexcept;

  /// Any thread. What was unmapped before this call is in it. Allocates nothing.
  void take(Gone& into) noexcept;

 private:
  MemoryWatch(int faults, int stop);
  void listen() noexcept;

  const int faults_;
  const int stop_;
  std::mutex mutex_;
  Gone gone_;
  std::thread listener_;
};

}  // namespace aplib::comm
