// SPDX-License-Identifier: MIT
// Symmetric memory: memory of the heap in a cell's slot ("symmetric heap" is OpenSHMEM's term). Cells that allocate the
// same sizes in the same order get it at the same place, so that in put and get each can name the others' memory by its
// own address. Programs that aprun loads need not ask for it: their malloc and new give such memory if they use put or
// get.
//
//   auto table = aplib::make_symmetric<Entry[]>(1000);
//   aplib::put(peer, mine, &table[7]);
//   std::vector<double, aplib::SymmetricAllocator<double>> field(n);
// The memory of cells that allocate differently is not symmetric. Nothing here is collective: a cell that allocates
// later has the memory later. Memory belongs to the cell until it is freed or the machine ends.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "aplib/export.hpp"

namespace aplib {

inline constexpr std::size_t symmetric_alignment = 16;

/// Allocates at least `bytes` bytes of the calling cell's heap, aligned to `alignment`, a power of two of at most 4096.
/// The caller owns it, and frees it by symmetric_free(). REQUIRES: called from a task. Switches tasks: no. Throws
/// Error(exhausted) when the heap (a quarter of the slot: 1 GiB) or the system has no room, and Error(bad_argument) for
/// an impossible alignment. Source: OpenSHMEM, shmem_align.
[[nodiscard]] APLIB_API void* symmetric_allocate(std::size_t bytes, std::size_t alignment = symmetric_alignment);

/// Frees such memory. Null does nothing. It may be the memory of another cell of the process; that cell's heap may then
/// differ from others'. REQUIRES: called from a task. Switches tasks: no. Throws Error(bad_argument) when `memory` is
/// not such memory, or was freed before.
APLIB_API void symmetric_free(void* memory);

/// An allocator for containers, like std::allocator but in symmetric memory. Where containers grow differently, the
/// memory is no longer symmetric.
template <class T>
struct SymmetricAllocator {
  using value_type = T;
  using is_always_equal = std::true_type;

  SymmetricAllocator() noexcept = default;
  template <class U>
  SymmetricAllocator(const SymmetricAllocator<U>&) noexcept {}  // NOLINT: containers convert

  [[nodiscard]] T* allocate(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(
        symmetric_allocate(count * sizeof(T), alignof(T) > symmetric_alignment ? alignof(T) : symmetric_alignment));
  }
  void deallocate(T* memory, std::size_t) { symmetric_free(memory); }

  template <class U>
  friend bool operator==(const SymmetricAllocator&, const SymmetricAllocator<U>&) noexcept {
    return true;
  }
};

/// Destroys the object, or all `count` of an array, and frees the memory.
template <class T>
struct SymmetricDelete {
  void operator()(T* object) const {
    std::destroy_at(object);
    symmetric_free(object);
  }
};
template <class T>
struct SymmetricDelete<T[]> {
  std::size_t count = 0;
  void operator()(T* objects) const {
    std::destroy_n(objects, count);
    symmetric_free(objects);
  }
};

/// Owns an object (T) or an array (T[]) in symmetric memory. REQUIRES: destroyed on a task, while the machine runs.
template <class T>
using SymmetricPtr = std::unique_ptr<T, SymmetricDelete<T>>;

/// Makes one object from `arguments`, like std::make_unique. REQUIRES: called from a task. Throws as
/// symmetric_allocate(), and what the constructor throws.
template <class T, class... Arguments>
  requires(!std::is_array_v<T>)
[[nodiscard]] SymmetricPtr<T> make_symmetric(Arguments&&... arguments) {
  SymmetricAllocator<T> allocator;
  T* memory = allocator.allocate(1);
  try {
    return SymmetricPtr<T>(std::construct_at(memory, std::forward<Arguments>(arguments)...));
  } catch (...) {
    allocator.deallocate(memory, 1);
    throw;
  }
}

/// Makes an array of `count` objects, value-initialized. REQUIRES and throws: the same.
template <class T>
  requires std::is_unbounded_array_v<T>
[[nodiscard]] SymmetricPtr<T> make_symmetric(std::size_t count) {
  using Element = std::remove_extent_t<T>;
  SymmetricAllocator<Element> allocator;
  Element* memory = allocator.allocate(count);
  try {
    std::uninitialized_value_construct_n(memory, count);
  } catch (...) {
    allocator.deallocate(memory, count);
    throw;
  }
  return SymmetricPtr<T>(memory, SymmetricDelete<T>{count});
}

}  // namespace aplib
