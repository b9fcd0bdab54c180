// SPDX-License-Identifier: MIT
// HeapCaller: who calls malloc or a relative of it, where its memory lies, and which account counts it.
#include "loader/libc/heap.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "aplib/export.hpp"
#include "loader/context.hpp"
#include "loader/instance.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/dl.hpp"
#include "loader/libc/end.hpp"
#include "loader/libc/streams.hpp"
#include "memory/slot.hpp"
#include "memory/slot_heap.hpp"

extern "C" {
// libc's, declared only for fortified callers.
int __vasprintf_chk(char**, int, const char*, va_list);
}

// A sanitizer's own functions come first in the process, and know memory of their own alone.
#define APLIB_INTERPOSES_FREE (!APLIB_ASAN && !APLIB_TSAN)

namespace aplib::loader::libc {

struct HeapAccount {
  std::mutex mutex;
  HeapUse use;
  // Blocks are remembered: shared libraries free and take some without us, and a block of theirs must not be
  // subtracted.
  std::unordered_map<const void*, std::size_t> blocks;

  void add(const void* block, std::size_t bytes) {
    const std::lock_guard lock(mutex);
    const auto [place, fresh] = blocks.try_emplace(block, bytes);
    if (fresh) {
      ++use.blocks;
    } else {
      use.bytes -= static_cast<std::int64_t>(place->second);  // somebody else has freed it meanwhile
      place->second = bytes;
    }
    use.bytes += static_cast<std::int64_t>(bytes);
    use.peak = std::max(use.peak, use.bytes);
    ++use.calls;
  }
  void remove(const void* block) {
    const std::lock_guard lock(mutex);
    const auto place = blocks.find(block);
    if (place == blocks.end()) return;
    use.bytes -= static_cast<std::int64_t>(place->second);
    --use.blocks;
    blocks.erase(place);
  }
};

inline std::size_t usable_bytes(void* block) noexcept {
  return is_slot_block(block) ? SlotHeap::usable_bytes(block) : ::malloc_usable_size(block);
}

inline void free_block(void* block) noexcept {
  if (is_slot_block(block)) {
    free_slot_block(block);
  } else {
    std::free(block);
  }
}

/// The heap of the running flow's cell, if it is to be used without further ado; for what is called often.
inline SlotHeap* heap_at_hand() noexcept {
  const TaskContext* const context = here();
  return context != nullptr ? context->instance->uncounted_heap() : nullptr;
}

namespace {

[[gnu::noinline]] std::string describe_body(const char* call, const void* block, const void* caller) {
  const std::string place = place_in_program(caller);
  return fmt::format(
      "{}(): {} is the body of the message received last, which stays the library's until the next receive; leave this "
      "call out, or copy the body by readmsg or crecvs into memory of your own{}",
      call, block, place.empty() ? "" : fmt::format(" (called at {})", place));
}

}  // namespace

/// Lives for the time of one call. `caller`: as for calling().
class HeapCaller {
 public:
  explicit HeapCaller(const void* caller) : address_(caller) {
    TaskContext* const context = here();
    Instance* const instance = context != nullptr ? context->instance : calling(caller);
    if (instance == nullptr) return;
    if (instance->program().options().account_heap) account_ = &shared_part(instance->libc().heap);
    // Threads made behind our back may run beside the cell's flows: for them it is libc.
    if (context == nullptr || !instance->program().has_slot_heap()) return;
    in_slot_ = true;
    if (instance->program().is_reached() && !instance->program().has_low_memory()) alignment_max_ = SlotPlan::alignment;
    heap_ = instance->slot_heap();
  }

  [[nodiscard]] bool in_slot() const noexcept { return in_slot_; }
  /// The same for a block that is aligned. Where others name what lies in the heap, its layout is the same in all
  /// slots, which are alike only up to an alignment. What no slot has room for is refused there.
  [[nodiscard]] bool in_slot(std::size_t alignment) const noexcept {
    return in_slot_ && (alignment <= alignment_max_ || alignment > SlotPlan::bytes);
  }
  /// In the slot. Null, with errno set: no room.
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = SlotHeap::alignment_min) const noexcept {
    if (heap_ != nullptr) [[likely]]
      return alignment <= SlotHeap::alignment_min ? heap_->allocate(bytes) : heap_->allocate(bytes, alignment);
    errno = ENOMEM;
    return nullptr;
  }
  [[nodiscard]] void* allocate_zeroed(std::size_t count, std::size_t bytes) const noexcept {
    std::size_t whole = 0;
    if (heap_ != nullptr && !__builtin_mul_overflow(count, bytes, &whole)) [[likely]]
      return heap_->allocate_zeroed(whole);
    errno = ENOMEM;
    return nullptr;
  }

  /// Ends the program where `block` is the body of a message: it is no block of any heap.
  void refuse_body(const char* call, const void* block) const {
    TaskContext* const context = here();
    if (block != nullptr && context != nullptr && context->instance->services().is_received(block)) [[unlikely]]
      libc::abort_instance(*context->instance, describe_body(call, block, address_));
  }

  /// Counts `block`, if there is one, and returns it.
  template <class T>
  T* taken(T* block) const {
    if (account_ != nullptr && block != nullptr) [[unlikely]] {
      const int error = errno;
      account_->add(block, usable_bytes(block));
      errno = error;
    }
    return block;
  }
  /// Before it is freed: afterwards another thread may take it.
  void* freed(void* block) const {
    if (account_ != nullptr && block != nullptr) [[unlikely]] {
      const int error = errno;
      account_->remove(block);
      errno = error;
    }
    return block;
  }

 private:
  const void* address_;
  HeapAccount* account_ = nullptr;
  SlotHeap* heap_ = nullptr;
  bool in_slot_ = false;
  std::size_t alignment_max_ = SIZE_MAX;
};
// Malloc and its relatives, for programs whose heap is in their cell's slot, or is to be counted. Blocks may go from
// cell to cell, and be freed there.

HeapUse heap_use(Instance& instance) {
  HeapAccount& account = libc::shared_part(instance.libc().heap);
  const std::lock_guard lock(account.mutex);
  return account.use;
}

namespace {

// --- malloc

[[gnu::noinline]] void* allocate_for(const void* caller_address, std::size_t bytes) {
  const HeapCaller caller(caller_address);
  return caller.taken(caller.in_slot() ? caller.allocate(bytes) : std::malloc(bytes));
}
void* own_malloc(std::size_t bytes) {
  if (SlotHeap* heap = heap_at_hand()) [[likely]]
    return heap->allocate(bytes);
  return allocate_for(__builtin_return_address(0), bytes);
}
void* own_calloc(std::size_t count, std::size_t bytes) {
  const HeapCaller caller(__builtin_return_address(0));
  return caller.taken(caller.in_slot() ? caller.allocate_zeroed(count, bytes) : std::calloc(count, bytes));
}
[[gnu::noinline]] void free_for(const void* caller_address, void* block) {
  const HeapCaller caller(caller_address);
  if (!is_slot_block(block)) caller.refuse_body("free", block);
  free_block(caller.freed(block));
}
void own_free(void* block) {
  if (SlotHeap* heap = heap_at_hand(); heap != nullptr && heap == SlotHeap::around(block)) [[likely]] {
    if (!heap->release(block)) refuse_block("free", block);
  } else {
    free_for(__builtin_return_address(0), block);
  }
}

void* resize(const HeapCaller& caller, void* block, std::size_t bytes) {
  if (block == nullptr) return caller.taken(caller.in_slot() ? caller.allocate(bytes) : std::realloc(block, bytes));
  if (!is_slot_block(block)) caller.refuse_body("realloc", block);
  caller.freed(block);
  if (bytes == 0) {
    free_block(block);
    return nullptr;
  }
  void* const moved = is_slot_block(block) ? resize_slot_block(block, bytes) : std::realloc(block, bytes);
  if (moved == nullptr) caller.taken(block);  // it is still there
  return caller.taken(moved);
}
void* own_realloc(void* block, std::size_t bytes) {
  return resize(HeapCaller(__builtin_return_address(0)), block, bytes);
}
void* own_reallocarray(void* block, std::size_t count, std::size_t bytes) {
  std::size_t whole = 0;
  if (__builtin_mul_overflow(count, bytes, &whole)) {
    errno = ENOMEM;
    return nullptr;
  }
  return resize(HeapCaller(__builtin_return_address(0)), block, whole);
}

int own_posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  const HeapCaller caller(__builtin_return_address(0));
  if (!caller.in_slot(alignment)) {
    const int error = ::posix_memalign(block, alignment, bytes);
    if (error == 0) caller.taken(*block);
    return error;
  }
  if (alignment % sizeof(void*) != 0 || !std::has_single_bit(alignment)) return EINVAL;
  const int error = errno;
  void* const made = caller.allocate(bytes, alignment);
  errno = error;
  if (made == nullptr) return ENOMEM;
  *block = caller.taken(made);
  return 0;
}
/// As libc does, takes the next power of two.
void* aligned(const HeapCaller& caller, std::size_t alignment, std::size_t bytes) {
  if (!caller.in_slot(alignment)) return caller.taken(::memalign(alignment, bytes));
  if (alignment > SIZE_MAX / 2 + 1) {
    errno = EINVAL;
    return nullptr;
  }
  return caller.taken(caller.allocate(bytes, std::bit_ceil(alignment)));
}
std::size_t page() { return static_cast<std::size_t>(::getpagesize()); }

void* own_memalign(std::size_t alignment, std::size_t bytes) {
  return aligned(HeapCaller(__builtin_return_address(0)), alignment, bytes);
}
void* own_aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return aligned(HeapCaller(__builtin_return_address(0)), alignment, bytes);
}
void* own_valloc(std::size_t bytes) { return aligned(HeapCaller(__builtin_return_address(0)), page(), bytes); }
void* own_pvalloc(std::size_t bytes) {
  std::size_t whole = 0;
  if (__builtin_add_overflow(bytes, page() - 1, &whole)) {
    errno = ENOMEM;
    return nullptr;
  }
  return aligned(HeapCaller(__builtin_return_address(0)), page(), whole / page() * page());
}
std::size_t own_malloc_usable_size(void* block) { return usable_bytes(block); }

// --- what gives memory that the caller frees

/// A copy of `count` elements of the program's text, and a zero.
template <class Char>
Char* copy_text(const HeapCaller& caller, const Char* text, std::size_t count) {
  const std::size_t bytes = (count + 1) * sizeof(Char);
  auto* copy = static_cast<Char*>(caller.taken(caller.in_slot() ? caller.allocate(bytes) : std::malloc(bytes)));
  if (copy == nullptr) return nullptr;
  std::memcpy(copy, text, count * sizeof(Char));
  copy[count] = 0;
  return copy;
}
char* own_strdup(const char* text) {
  return copy_text(HeapCaller(__builtin_return_address(0)), text, std::strlen(text));
}
char* own_strndup(const char* text, std::size_t bytes) {
  return copy_text(HeapCaller(__builtin_return_address(0)), text, ::strnlen(text, bytes));
}
wchar_t* own_wcsdup(const wchar_t* text) {
  return copy_text(HeapCaller(__builtin_return_address(0)), text, std::wcslen(text));
}

// libc allocates these.
int print_block(const void* address, char** text, const char* format, va_list arguments) {
  const HeapCaller caller(address);
  const int length = ::vasprintf(text, format, arguments);
  if (length >= 0) caller.taken(*text);
  return length;
}
int print_block_checked(const void* address, char** text, int level, const char* format, va_list arguments) {
  const HeapCaller caller(address);
  const int length = __vasprintf_chk(text, level, format, arguments);
  if (length >= 0) caller.taken(*text);
  return length;
}

/// libc will resize the line, and a sanitizer's realloc knows no slot.
bool lend_to_libc(char*& line, std::size_t& room) {
  room = std::max(room, std::size_t{1});
  auto* const copy = static_cast<char*>(std::malloc(room));
  if (copy == nullptr) return false;
  std::memcpy(copy, line, std::min(room, usable_bytes(line)));
  free_slot_block(std::exchange(line, copy));
  return true;
}

/// getdelim() while other tasks run.
ssize_t read_line(char** line, std::size_t* room, int delimiter, std::FILE* file) {
  if (line == nullptr || room == nullptr || !line_may_wait(file, delimiter))
    return ::getdelim(line, room, delimiter, file);
  std::string read;
  if (!read_line_in_turn(file, delimiter, read)) return -1;
  if (*line == nullptr || *room <= read.size()) {
    auto* const longer = static_cast<char*>(std::realloc(*line, read.size() + 1));
    if (longer == nullptr) return -1;
    *line = longer;
    *room = read.size() + 1;
  }
  std::memcpy(*line, read.c_str(), read.size() + 1);
  return static_cast<ssize_t>(read.size());
}

ssize_t read_delimited(const HeapCaller& caller, char** line, std::size_t* room, int delimiter, std::FILE* file) {
  if (line != nullptr) {
    caller.freed(*line);
    if (is_slot_block(*line) && !lend_to_libc(*line, *room)) return -1;
  }
  const ssize_t length = read_line(line, room, delimiter, file);
  if (line != nullptr) caller.taken(*line);
  return length;
}
ssize_t own_getline(char** line, std::size_t* room, std::FILE* file) {
  return read_delimited(HeapCaller(__builtin_return_address(0)), line, room, '\n', file);
}
ssize_t own_getdelim(char** line, std::size_t* room, int delimiter, std::FILE* file) {
  return read_delimited(HeapCaller(__builtin_return_address(0)), line, room, delimiter, file);
}

}  // namespace

std::span<const Binding> heap_bindings() {
  static const std::vector<Binding> table = [] {
    std::vector<Binding> all{
        Binding::of("malloc", &own_malloc),
        Binding::of("calloc", &own_calloc),
        Binding::of("free", &own_free),
        Binding::of("cfree", &own_free),
        Binding::of("realloc", &own_realloc),
        Binding::of("reallocarray", &own_reallocarray),
        Binding::of("posix_memalign", &own_posix_memalign),
        Binding::of("memalign", &own_memalign),
        Binding::of("aligned_alloc", &own_aligned_alloc),
        Binding::of("valloc", &own_valloc),
        Binding::of("pvalloc", &own_pvalloc),
        Binding::of("malloc_usable_size", &own_malloc_usable_size),
        Binding::of("strdup", &own_strdup),
        Binding::of("__strdup", &own_strdup),
        Binding::of("strndup", &own_strndup),
        Binding::of("__strndup", &own_strndup),
        Binding::of("wcsdup", &own_wcsdup),
        Binding::of("asprintf", &Formatted<print_block, char, char**>::with_dots),
        Binding::of("__asprintf", &Formatted<print_block, char, char**>::with_dots),
        Binding::of("vasprintf", &Formatted<print_block, char, char**>::with_list),
        Binding::of("__asprintf_chk", &Formatted<print_block_checked, char, char**, int>::with_dots),
        Binding::of("__vasprintf_chk", &Formatted<print_block_checked, char, char**, int>::with_list),
        Binding::of("getline", &own_getline),
        Binding::of("getdelim", &own_getdelim),
        Binding::of("__getdelim", &own_getdelim),
    };
    for (Binding& binding : all)
      binding.of_heap = !binding.name.ends_with("getline") && !binding.name.ends_with("getdelim");
    return all;
  }();
  return table;
}

}  // namespace aplib::loader::libc

// ---------------------------------------------------------------- blocks

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
