// SPDX-License-Identifier: MIT
#include "loader/debugger_list.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>

AplibDebuggerCounts aplib_debugger_counts = {0, 0, 64, nullptr};

namespace aplib::loader {

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
struct List {
  std::mutex mutex;
  r_debug_extended space{};
  link_map* last = nullptr;
  r_debug_extended* system = nullptr;  // ld.so's own; null: not looked for, or none
  bool looked = false;
};

List& list() noexcept {
  static List* const the_list = new List;  // never destroyed: instances may outlive static objects
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
void append_namespace(List& all) noexcept {
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
  List& all = list();
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

void unlink(List& all, DebuggerEntries::Entry& entry) noexcept {
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
  if (!std::exchange(changed_, false) || !is_traced()) return;
  make_debugger_look();
}

void limit_debugger_list(std::size_t images) noexcept {
  const std::lock_guard lock(list().mutex);
  aplib_debugger_counts.limit = images;
}

}  // namespace aplib::loader
