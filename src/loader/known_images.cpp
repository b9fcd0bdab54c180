// SPDX-License-Identifier: MIT
// Invariants of the table:
//  1. It has a list of nodes per slot in which instances lie, and one list for those that lie elsewhere. A node is in
//     one list or in the pool of free nodes. Its memory is never given back, so a reader may look at a node at any
//     time, and at worst reads fields of another image.
//  2. Writers hold the mutex. They increment a list's `changes` before the first and after the last change, so it is
//     odd in between.
//  3. A reader believes what it read only if `changes` was even and is the same afterwards; else it reads again.
// So readers never wait for each other. They wait for writers only if those change the list of the same cell, which
// happens while that cell loads or unloads something. A signal's handler may read in the middle of its own thread's
// change; it finds nothing, since the end of that change would wait for it.
#include "loader/known_images.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>

#include "aplib/export.hpp"
#include "base/sanitizer.hpp"
#include "base/spin_lock.hpp"
#include "loader/context.hpp"
#include "loader/instance.hpp"
#include "memory/slot.hpp"

AplibDebuggerCounts aplib_debugger_counts = {0, 0, 64, nullptr};

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

std::mutex writers;
std::array<std::atomic<List*>, SlotPlan::count + 1> lists;  // of slots; the last one of what lies elsewhere
std::deque<List> list_memory;
std::deque<Node> node_memory;
Node* free_nodes = nullptr;

std::size_t list_of(const void* address) noexcept {
  return std::min(SlotPlan::cell_around(reinterpret_cast<std::uintptr_t>(address)), SlotPlan::count);
}

bool find_in(const List& list, const char* address, FoundImage& found) noexcept {
  for (SpinWait spin;; spin.pause()) {
    const std::uint32_t before =
        list.changes.load(std::memory_order_acquire);  // acquire: what follows is read after it
    if ((before & 1U) != 0) continue;                  // a writer is between two stores, perhaps without its core
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

/// Makes what an image needs: its lists, and a free node for each. May throw std::bad_alloc.
void make_room(const char* low, const char* high) {
  const Node* free = free_nodes;
  for (std::size_t i = list_of(low); i <= list_of(high - 1); ++i) {
    if (lists[i].load(std::memory_order_relaxed) == nullptr)                   // relaxed: we are the writer
      lists[i].store(&list_memory.emplace_back(), std::memory_order_release);  // release: its construction
    if (free != nullptr) {
      free = free->next.load(std::memory_order_relaxed);  // relaxed: readers check `changes`
      continue;
    }
    Node& node = node_memory.emplace_back();
    node.next.store(std::exchange(free_nodes, &node), std::memory_order_relaxed);  // relaxed: the same
  }
}

/// This thread changes lists, which its signal handlers can see.
[[gnu::tls_model("initial-exec")]] constinit thread_local std::atomic<bool> changes_here{false};

/// The lists that an image touches: an image lies in one slot, or across several that no cell has. REQUIRES: they are
/// made. `change` must not throw: readers would wait for ever.
template <class Change>
void change_lists(const char* low, const char* high, Change change) noexcept {
  changes_here.store(true, std::memory_order_relaxed);  // relaxed: the first change keeps it before
  for (std::size_t i = list_of(low); i <= list_of(high - 1); ++i) {
    List& list = *lists[i].load(std::memory_order_relaxed);  // relaxed: we are the writer
    list.changes.fetch_add(1, std::memory_order_acq_rel);    // acq_rel: the changes stay inside
    change(list);
    list.changes.fetch_add(1, std::memory_order_release);  // release: the same
  }
  changes_here.store(false, std::memory_order_release);  // release: the last change is before it
}

}  // namespace

bool find_image(const void* address, FoundImage& found) noexcept {
  if (changes_here.load(std::memory_order_relaxed)) return false;              // relaxed: own value
  const List* list = lists[list_of(address)].load(std::memory_order_acquire);  // acquire: its construction
  return list != nullptr && find_in(*list, static_cast<const char*>(address), found);
}

void add_image(Instance& instance, const LoadedImage& image) {
  const char* low = image.base;
  const char* high = image.base + image.file->span();
  const Range header = image.file->eh_frame_header();
  const std::lock_guard lock(writers);
  make_room(low, high);
  change_lists(low, high, [&](List& list) {
    Node* const node = free_nodes;
    free_nodes = node->next.load(std::memory_order_relaxed);  // relaxed, also below: readers check `changes`
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

// ---------------------------------------------------------------- debuggers

/// The head, what the debugger reads, and our own chain of those of one instance.
struct DebuggerEntries::Entry {
  link_map map{};
  std::string path;
  Entry* next = nullptr;
  bool listed = false;
};

namespace {

// Process-wide, like _r_debug itself. A debugger can stop the process between any two stores, so each change is
// visible by one store: of r_next for the namespace, of l_next for an entry.
struct DebuggerList {
  std::mutex mutex;
  r_debug_extended space{};
  link_map* last = nullptr;
  r_debug_extended* system = nullptr;  // ld.so's own; null: not looked for, or none
  bool looked = false;
};

DebuggerList& list() noexcept {
  static DebuggerList* const the_list = new DebuggerList;  // never destroyed: instances may outlive static objects
  return *the_list;
}

/// ld.so tells the debugger where its list is by DT_DEBUG of the executable.
r_debug_extended* find_system_list() noexcept {
  r_debug_extended* found = nullptr;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        for (const ElfW(Phdr) & header : std::span(info->dlpi_phdr, info->dlpi_phnum)) {
          if (header.p_type != PT_DYNAMIC) continue;
          for (auto* entry = reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + header.p_vaddr);
               entry->d_tag != DT_NULL; ++entry) {
            if (entry->d_tag == DT_DEBUG)
              *static_cast<r_debug_extended**>(result) = reinterpret_cast<r_debug_extended*>(entry->d_un.d_ptr);
          }
        }
        return 1;  // the first one is the executable
      },
      &found);
  return found;
}

template <class T>
void store(T& place, T value) noexcept {
  std::atomic_ref<T>(place).store(value, std::memory_order_release);  // release: what it leads to is written before
}

/// Our namespace behind the last one of ld.so. Again at every change: when ld.so gets a namespace of its own by
/// dlmopen, it may forget ours.
void append_namespace(DebuggerList& all) noexcept {
  if (!all.looked) {
    all.looked = true;
    all.system = find_system_list();
    if (all.system == nullptr) return;
    aplib_debugger_counts.space = &all.space;
    all.space.base.r_version = 2;
    all.space.base.r_brk = all.system->base.r_brk;
    all.space.base.r_ldbase = all.system->base.r_ldbase;
    all.space.base.r_state = r_debug::RT_CONSISTENT;
  }
  if (all.system == nullptr) return;
  r_debug_extended* end = all.system;
  while (end->r_next != nullptr && end->r_next != &all.space) end = end->r_next;
  if (end->r_next == nullptr) store(end->r_next, &all.space);
  if (all.system->base.r_version < 2) store(all.system->base.r_version, 2);
}

/// A debugger, or another tracer, is attached.
bool is_traced() noexcept {
  char text[1024];
  const int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t bytes = read(file, text, sizeof text);
  close(file);
  if (bytes <= 0) return false;
  const std::string_view status(text, static_cast<std::size_t>(bytes));
  constexpr std::string_view label = "TracerPid:\t";
  const std::size_t place = status.find(label);
  return place != std::string_view::npos && place + label.size() < status.size() && status[place + label.size()] != '0';
}

}  // namespace

// Many cells start at once, and the answer takes as long as the rest of an entry.
bool was_traced_lately() noexcept {
  constexpr std::int64_t lately_ns = 2'000'000;
  constexpr std::int64_t traced = 1;  // in place of the lowest bit of the time
  static std::atomic<std::int64_t> last_look{0};
  const std::int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  const std::int64_t last = last_look.load(std::memory_order_relaxed);  // relaxed: it says all itself
  if (last != 0 && now - last < lately_ns) return (last & traced) != 0;
  const bool is = is_traced();
  last_look.store((now & ~traced) | (is ? traced : 0), std::memory_order_relaxed);  // relaxed: same
  return is;
}

namespace {

/// gdb watches the probes inside ld.so, not r_brk. After a probe of a load or of an unload it reads what ld.so says
/// has changed; only after the unload of an object does it read all namespaces anew. So one is loaded and unloaded:
/// the smallest library that every glibc brings and nobody uses.
void make_debugger_look() noexcept {
  // One at a time: two who share the library would not unload it when the first of them is through.
  static std::mutex* const one_at_a_time = new std::mutex;
  const std::lock_guard lock(*one_at_a_time);
  for (const char* name : {"libBrokenLocale.so.1", "libanl.so.1", "libutil.so.1"}) {
    if (void* present = dlopen(name, RTLD_LAZY | RTLD_NOLOAD); present != nullptr) {
      dlclose(present);
      continue;
    }
    if (void* handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL); handle != nullptr) {
      dlclose(handle);
      return;
    }
  }
}

}  // namespace

DebuggerEntries::DebuggerEntries() noexcept = default;

DebuggerEntries::~DebuggerEntries() { remove_all(); }

DebuggerEntries::DebuggerEntries(DebuggerEntries&& other) noexcept
    : first_(std::exchange(other.first_, nullptr)), changed_(std::exchange(other.changed_, false)) {}

DebuggerEntries& DebuggerEntries::operator=(DebuggerEntries&& other) noexcept {
  if (this != &other) {
    remove_all();
    first_ = std::exchange(other.first_, nullptr);
    changed_ = std::exchange(other.changed_, false);
  }
  return *this;
}

void DebuggerEntries::add(const std::string& path, const char* base, const char* dynamic_section) {
  auto entry = std::make_unique<Entry>();
  entry->path = path;
  entry->map.l_addr = reinterpret_cast<ElfW(Addr)>(base);
  entry->map.l_name = entry->path.data();
  entry->map.l_ld = reinterpret_cast<ElfW(Dyn)*>(const_cast<char*>(dynamic_section));
  DebuggerList& all = list();
  {
    const std::lock_guard lock(all.mutex);
    append_namespace(all);
    entry->listed = all.system != nullptr && aplib_debugger_counts.listed < aplib_debugger_counts.limit;
    if (entry->listed) {
      entry->map.l_prev = all.last;
      store(all.last != nullptr ? all.last->l_next : all.space.base.r_map, &entry->map);
      all.last = &entry->map;
      ++aplib_debugger_counts.listed;
      changed_ = true;
    } else {
      ++aplib_debugger_counts.left_out;
    }
  }
  entry->next = first_;
  first_ = entry.release();
}

namespace {

void unlink(DebuggerList& all, DebuggerEntries::Entry& entry) noexcept {
  if (!entry.listed) {
    --aplib_debugger_counts.left_out;
    return;
  }
  link_map& map = entry.map;
  if (map.l_next != nullptr) {
    map.l_next->l_prev = map.l_prev;
  } else {
    all.last = map.l_prev;
  }
  store(map.l_prev != nullptr ? map.l_prev->l_next : all.space.base.r_map, map.l_next);
  --aplib_debugger_counts.listed;
}

}  // namespace

void DebuggerEntries::remove(const char* base) noexcept {
  for (Entry** place = &first_; *place != nullptr; place = &(*place)->next) {
    Entry* const entry = *place;
    if (entry->map.l_addr != reinterpret_cast<ElfW(Addr)>(base)) continue;
    {
      const std::lock_guard lock(list().mutex);
      unlink(list(), *entry);
    }
    changed_ = changed_ || entry->listed;
    *place = entry->next;
    delete entry;
    return;
  }
}

void DebuggerEntries::remove_all() noexcept {
  if (first_ == nullptr) return;
  while (first_ != nullptr) remove(reinterpret_cast<const char*>(first_->map.l_addr));
  tell();
}

void DebuggerEntries::tell() noexcept {
  if (!std::exchange(changed_, false) || !was_traced_lately()) return;
  make_debugger_look();
}

void limit_debugger_list(std::size_t images) noexcept {
  const std::lock_guard lock(list().mutex);
  aplib_debugger_counts.limit = images;
}

}  // namespace aplib::loader

// Older unwinders, backtrace libraries and sanitizers walk all objects. Ours come after the process's.
// Sanitizers call this before they are ready for instrumented code.
extern "C" APLIB_API APLIB_NO_SANITIZE int dl_iterate_phdr(int (*callback)(struct dl_phdr_info*, size_t, void*),
                                                           void* data) {
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
