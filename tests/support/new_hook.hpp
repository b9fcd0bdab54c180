// SPDX-License-Identifier: MIT
// A test's own operator new: it fails when the test says so, or calls the test first. For the calling thread only. A
// program that links new_hook.cpp has it.
#pragma once

#include <cstdint>
#include <functional>
#include <new>
#include <utility>

namespace aplib::testing_support {

/// While it lives, each allocation of this thread calls `hook` first, which may throw std::bad_alloc. What the hook
/// allocates itself is not told.
class NewHook {
 public:
  explicit NewHook(std::function<void()> hook);
  ~NewHook();
  NewHook(const NewHook&) = delete;
  NewHook& operator=(const NewHook&) = delete;

 private:
  std::function<void()> hook_;
};

/// While it lives, this thread's allocation number `good`, from 0, and all later ones fail.
class NoMemory {
 public:
  explicit NoMemory(std::uint64_t good = 0)
      : hook_([this, good] {
          if (count_++ < good) return;
          failed_ = true;
          throw std::bad_alloc();
        }) {}
  /// One was refused.
  [[nodiscard]] bool failed() const noexcept { return failed_; }

 private:
  std::uint64_t count_ = 0;
  bool failed_ = false;
  NewHook hook_;
};

}  // namespace aplib::testing_support
