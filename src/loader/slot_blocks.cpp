// SPDX-License-Identifier: MIT
#include "loader/slot_blocks.hpp"

#include <dlfcn.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "aplib/export.hpp"
#include "loader/context.hpp"
#include "loader/instance.hpp"
#include "loader/libc/end.hpp"

// A sanitizer's own functions come first in the process, and know memory of their own alone.
#define APLIB_INTERPOSES_FREE (!APLIB_ASAN && !APLIB_TSAN)

namespace aplib::loader {
namespace {

/// `heap` is that of the running flow's cell, so it may use it without further ado.
bool is_own(const SlotHeap* heap) noexcept {
  TaskContext* const context = here();
  return context != nullptr && context->instance->made_heap() == heap;
}

}  // namespace

void refuse_block(const char* call, const void* block) noexcept {
  constexpr std::size_t room = 200;
  char text[room];
  std::snprintf(text, room, "%s(): %p is no block of the heap, or has been freed before", call, block);
  if (TaskContext* context = here()) libc::abort_instance(*context->instance, text);
  std::fprintf(stderr, "aplib: %s\n", text);
  std::abort();
}

void free_slot_block(void* block) noexcept {
  SlotHeap* const heap = SlotHeap::around(block);
  if (!(is_own(heap) ? heap->release(block) : heap->release_from_outside(block))) refuse_block("free", block);
}

void* resize_slot_block(void* block, std::size_t bytes) noexcept {
  SlotHeap* const heap = SlotHeap::around(block);
  if (is_own(heap)) return heap->resize(block, bytes);
  void* const moved = std::malloc(bytes);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, block, std::min(bytes, SlotHeap::usable_bytes(block)));
  if (!heap->release_from_outside(block)) refuse_block("realloc", block);
  return moved;
}

}  // namespace aplib::loader

#if APLIB_INTERPOSES_FREE

namespace {

/// The function that the process would have without us.
template <class Function>
class Next {
 public:
  explicit constexpr Next(const char* name) : name_(name) {}
  Function* get() noexcept {
    Function* found = found_.load(std::memory_order_relaxed);  // relaxed: it is the same whoever finds it
    if (found == nullptr) [[unlikely]] {
      found = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name_));
      found_.store(found, std::memory_order_relaxed);
    }
    return found;
  }

 private:
  const char* name_;
  std::atomic<Function*> found_{nullptr};
};

constinit Next<void(void*)> next_free("free");
constinit Next<void*(void*, std::size_t)> next_realloc("realloc");
constinit Next<std::size_t(void*)> next_usable_size("malloc_usable_size");

}  // namespace

// Before anybody has an error of dlsym pending, which the next dlsym would free.
[[gnu::constructor]] static void find_next() noexcept {
  next_free.get();
  next_realloc.get();
  next_usable_size.get();
}

// Found before libc's, also by libc. A block that is no slot's costs a compare more.
extern "C" {
APLIB_API void free(void* block) noexcept {
  if (aplib::loader::is_slot_block(block)) [[unlikely]] {
    aplib::loader::free_slot_block(block);
  } else {
    next_free.get()(block);
  }
}

APLIB_API void* realloc(void* block, std::size_t bytes) noexcept {
  if (!aplib::loader::is_slot_block(block)) [[likely]]
    return next_realloc.get()(block, bytes);
  if (bytes != 0) return aplib::loader::resize_slot_block(block, bytes);
  aplib::loader::free_slot_block(block);
  return nullptr;
}

APLIB_API std::size_t malloc_usable_size(void* block) noexcept {
  if (aplib::loader::is_slot_block(block)) [[unlikely]]
    return aplib::SlotHeap::usable_bytes(block);
  return next_usable_size.get()(block);
}
}

#endif

namespace aplib::loader {

bool process_frees_slot_blocks() noexcept {
  Dl_info ours{};
  Dl_info first{};
  return APLIB_INTERPOSES_FREE && dladdr(reinterpret_cast<const void*>(&free_slot_block), &ours) != 0 &&
         dladdr(dlsym(RTLD_DEFAULT, "free"), &first) != 0 && ours.dli_fbase == first.dli_fbase;
}

}  // namespace aplib::loader
