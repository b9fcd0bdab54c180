// SPDX-License-Identifier: MIT
// Invariants of the table:
//  1. It has a list of nodes per stretch of 4 GiB in which instances of slots lie, and one list for those that lie
//     elsewhere. A node is in one list or in the pool of free nodes, and its memory is never given back: a reader may
//     look at a node at any time, and at worst reads fields of another image.
//  2. Writers hold the mutex. Before the first and after the last change of a list they increment its `changes`, so it
//     is odd in between.
//  3. A reader believes what it read only if `changes` was even and is the same afterwards; else it reads again.
// So readers never wait for each other, and for writers only if those change the list of the same cell, which happens
// while that cell loads or unloads something.
#include "loader/find_object.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>

#include <dlfcn.h>
#include <link.h>

#include "aplib/export.hpp"
#include "loader/context.hpp"
#include "loader/instance.hpp"

namespace aplib::loader {
namespace {

struct Node {
  std::atomic<Node*> next{nullptr};
  std::atomic<const char*> low{nullptr};
  std::atomic<const char*> high{nullptr};
  std::atomic<const char*> eh_frame_header{nullptr};
  std::atomic<Instance*> instance{nullptr};
};

struct List {
  std::atomic<std::uint32_t> changes{0};
  std::atomic<Node*> first{nullptr};
};

// 128 TiB of user addresses in stretches of 4 GiB: 256 KiB of pointers, of which only touched pages exist.
constexpr unsigned stretch_bits = 32;
constexpr std::size_t stretches = std::size_t{1} << (47 - stretch_bits);

std::mutex writers;
std::array<std::atomic<List*>, stretches> lists;
std::deque<List> list_memory;
std::deque<Node> node_memory;
Node* free_nodes = nullptr;

std::size_t stretch_of(const void* address) noexcept {
  return reinterpret_cast<std::uintptr_t>(address) >> stretch_bits;
}

bool find_in(const List& list, const char* address, FoundImage& found) noexcept {
  while (true) {
    const std::uint32_t before =
        list.changes.load(std::memory_order_acquire);  // acquire: what follows is read after it
    if ((before & 1U) != 0) continue;                  // a writer is between two stores; it makes no system call there
    bool hit = false;
    // relaxed throughout: `changes` says afterwards whether it was consistent
    for (const Node* node = list.first.load(std::memory_order_relaxed); node != nullptr;
         node = node->next.load(std::memory_order_relaxed)) {
      const char* low = node->low.load(std::memory_order_relaxed);
      const char* high = node->high.load(std::memory_order_relaxed);
      if (address >= low && address < high) {
        found = {node->instance.load(std::memory_order_relaxed), low, high,
                 node->eh_frame_header.load(std::memory_order_relaxed)};
        hit = true;
        break;
      }
      if (list.changes.load(std::memory_order_relaxed) != before)
        break;  // so a node that moved lists cannot lead us astray
    }
    std::atomic_thread_fence(std::memory_order_acquire);  // the loads above before the one below
    if (list.changes.load(std::memory_order_relaxed) == before) return hit;
  }
}

/// The lists that an image touches: an image lies in one stretch, or in several if it is outside slots.
template <class Change>
void change_lists(const char* low, const char* high, Change change) {
  for (std::size_t s = stretch_of(low); s <= stretch_of(high - 1); ++s) {
    List* list = lists[s].load(std::memory_order_relaxed);  // relaxed: we are the writer
    if (list == nullptr) {
      list = &list_memory.emplace_back();
      lists[s].store(list, std::memory_order_release);  // release: its construction
    }
    list->changes.fetch_add(1, std::memory_order_acq_rel);  // acq_rel: the changes stay inside
    change(*list);
    list->changes.fetch_add(1, std::memory_order_release);  // release: the same
  }
}

}  // namespace

bool find_image(const void* address, FoundImage& found) noexcept {
  const std::size_t stretch = stretch_of(address);
  if (stretch >= stretches) return false;
  const List* list = lists[stretch].load(std::memory_order_acquire);  // acquire: its construction
  return list != nullptr && find_in(*list, static_cast<const char*>(address), found);
}

void add_image(Instance& instance, const LoadedImage& image) {
  const char* low = image.base;
  const char* high = image.base + image.file->span();
  const Range header = image.file->eh_frame_header();
  const std::lock_guard lock(writers);
  change_lists(low, high, [&](List& list) {
    Node* node = free_nodes;
    if (node != nullptr) {
      free_nodes = node->next.load(std::memory_order_relaxed);  // relaxed, also below: readers check `changes`
    } else {
      node = &node_memory.emplace_back();
    }
    node->low.store(low, std::memory_order_relaxed);
    node->high.store(high, std::memory_order_relaxed);
    node->eh_frame_header.store(header.empty() ? nullptr : image.base + header.address, std::memory_order_relaxed);
    node->instance.store(&instance, std::memory_order_relaxed);
    node->next.store(list.first.load(std::memory_order_relaxed), std::memory_order_relaxed);
    list.first.store(node, std::memory_order_relaxed);
  });
}

void remove_image(const char* base) noexcept {
  FoundImage found;
  if (!find_image(base, found)) return;
  const std::lock_guard lock(writers);
  change_lists(found.low, found.high, [base](List& list) {
    std::atomic<Node*>* link = &list.first;
    // relaxed: we are the writer, and readers check `changes`
    for (Node* node = link->load(std::memory_order_relaxed); node != nullptr;
         node = link->load(std::memory_order_relaxed)) {
      if (node->low.load(std::memory_order_relaxed) == base) {
        link->store(node->next.load(std::memory_order_relaxed), std::memory_order_relaxed);
        node->next.store(free_nodes, std::memory_order_relaxed);
        free_nodes = node;
        return;
      }
      link = &node->next;
    }
  });
}

Instance* calling(const void* caller) noexcept {
  if (TaskContext* context = here(); context != nullptr) return context->instance;
  FoundImage found;
  return find_image(caller, found) ? found.instance : nullptr;
}

}  // namespace aplib::loader

// ---------------------------------------------------------------- what unwinders ask

// Exported, and before libc in the process's search order: libgcc's unwinder (gcc 12 and newer) asks this, and
// nothing else, for the tables of a frame. Source: glibc manual, "Dynamic Linker Introspection".
extern "C" APLIB_API int _dl_find_object(void* address, struct dl_find_object* result) {
  aplib::loader::FoundImage found;
  if (aplib::loader::find_image(address, found)) {
    std::memset(result, 0, sizeof *result);
    result->dlfo_map_start = const_cast<char*>(found.low);
    result->dlfo_map_end = const_cast<char*>(found.high);
    result->dlfo_eh_frame = const_cast<char*>(found.eh_frame_header);
    return found.eh_frame_header != nullptr ? 0 : -1;
  }
  using Find = int (*)(void*, struct dl_find_object*);
  static const auto next = reinterpret_cast<Find>(dlsym(RTLD_NEXT, "_dl_find_object"));
  return next != nullptr ? next(address, result) : -1;
}

namespace aplib::loader {
namespace {

using Iterate = int (*)(int (*)(struct dl_phdr_info*, size_t, void*), void*);
/// libc's. No function-local static, no std::atomic: both are instrumented code.
constinit Iterate next_iterate = nullptr;

/// Images of the running instance alone, because a walk over thousands would be of no use to anyone.
[[gnu::noinline]] int iterate_images(int (*callback)(struct dl_phdr_info*, size_t, void*), void* data) {
  const TaskContext* context = here();
  if (context == nullptr) return 0;
  for (const LoadedImage& image : context->instance->images()) {
    if (image.file == nullptr) continue;
    struct dl_phdr_info info {};
    info.dlpi_addr = reinterpret_cast<ElfW(Addr)>(image.base);
    info.dlpi_name = image.file->path().c_str();
    info.dlpi_phdr = reinterpret_cast<const ElfW(Phdr)*>(image.file->program_headers().data());
    info.dlpi_phnum = static_cast<ElfW(Half)>(image.file->program_headers().size() / sizeof(ElfW(Phdr)));
    info.dlpi_adds = 1;
    if (const int result = callback(&info, sizeof info, data); result != 0) return result;
  }
  return 0;
}

}  // namespace
}  // namespace aplib::loader

// Older unwinders, backtrace libraries and sanitizers walk all objects. Ours come after the process's.
// Sanitizers call this before they are ready for instrumented code.
extern "C" APLIB_API __attribute__((no_sanitize("address", "thread", "undefined"))) int dl_iterate_phdr(
    int (*callback)(struct dl_phdr_info*, size_t, void*), void* data) {
  using aplib::loader::Iterate;
  Iterate next = __atomic_load_n(&aplib::loader::next_iterate, __ATOMIC_RELAXED);  // relaxed: all find the same
  if (next == nullptr) {
    next = reinterpret_cast<Iterate>(dlsym(RTLD_NEXT, "dl_iterate_phdr"));
    if (next == nullptr) return 0;
    __atomic_store_n(&aplib::loader::next_iterate, next, __ATOMIC_RELAXED);  // relaxed: the same
  }
  const int result = next(callback, data);
  if (result != 0 || aplib::current_program_context == nullptr) return result;
  return aplib::loader::iterate_images(callback, data);
}
