// SPDX-License-Identifier: MIT
// The heap of programs: blocks of slots, how much memory an instance has taken, and what it maps at addresses of its
// own choice.
//
// Blocks of cells' heaps (memory/slot_heap.hpp) get into the hands of any code of the process. They look like
// malloc's and go where malloc's go: a program frees what libc has allocated for it, libc resizes a line that the
// program has allocated, libstdc++ deletes a string that the program's own code has made, a cell frees what another
// has sent. So who frees or resizes tells by the address; this library puts its own free and realloc before libc's
// for that.
//
// HeapUse: LoadOptions::account_heap. Where the memory lies: docs/loader.md, "The heap". Counted is what code of the
// program's own images takes (malloc, new, strdup, getline and their relatives), and given back when such code frees
// it. Shared libraries take and free memory uncounted: what they free for the program counts until its address is
// handed out again.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/slot_heap.hpp"

namespace aplib::loader {

class Instance;

inline bool is_slot_block(const void* block) noexcept {
  const SlotHeap* const heap = SlotHeap::around(block);
  return heap != nullptr && SlotHeap::is_made(heap);
}

/// Gives a slot block back to its heap. One that is none, or has been freed already, ends the program as libc's
/// free does. Call from: any thread.
void free_slot_block(void* block) noexcept;

/// Ends the program, or the process if no program runs: `block` is none.
[[noreturn]] void refuse_block(const char* call, const void* block) noexcept;

/// realloc() of a slot block for any caller: in the cell's own heap if a flow of that cell calls, else the block
/// moves to libc's heap. Null: no memory. Call from: any thread.
void* resize_slot_block(void* block, std::size_t bytes) noexcept;

/// The process frees slot blocks wherever they are freed. False where a sanitizer or a preloaded library has free
/// for itself: libstdc++ and other libraries must not get slot blocks there.
bool process_frees_slot_blocks() noexcept;

}  // namespace aplib::loader

namespace aplib::loader::libc {

struct HeapUse {
  std::int64_t bytes = 0;   ///< Held now, as the heap rounds sizes up.
  std::int64_t blocks = 0;  ///< Held now.
  std::int64_t peak = 0;    ///< The most bytes ever held.
  std::uint64_t calls = 0;  ///< That took memory, so far.
};

/// All zero unless the program was loaded with account_heap. Call from: any thread while the instance lives.
HeapUse heap_use(Instance& instance);

}  // namespace aplib::loader::libc
