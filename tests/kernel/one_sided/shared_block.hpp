// SPDX-License-Identifier: MIT
// Memory at the same place in every cell's slot, for programs that are linked with the library, whose cells share their
// globals.
#pragma once

#include <sys/mman.h>

#include <new>
#include <stdexcept>

#include "machines.hpp"
#include "memory/slot.hpp"

namespace aplib::testing_support {

/// A T of the calling cell, which other cells reach by put and get. It lives as long as this object; let cells meet in
/// a barrier before destroying it.
template <class T>
class SharedBlock {
 public:
  SharedBlock()
      : memory_(
            mmap(place(), bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0)) {
    if (memory_ != place()) throw std::runtime_error("the test's memory is taken");
    ::new (memory_) T{};
    barrier();
  }
  ~SharedBlock() { munmap(memory_, bytes); }
  SharedBlock(const SharedBlock&) = delete;
  SharedBlock& operator=(const SharedBlock&) = delete;
  T* operator->() noexcept { return static_cast<T*>(memory_); }
  T& operator*() noexcept { return *static_cast<T*>(memory_); }

 private:
  static constexpr std::size_t bytes = (sizeof(T) + 4095) & ~std::size_t{4095};
  static void* place() { return reinterpret_cast<void*>(SlotPlan::at(me()) + SlotPlan::bytes / 8 * 3); }
  void* memory_;
};

}  // namespace aplib::testing_support
