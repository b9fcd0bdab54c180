// SPDX-License-Identifier: MIT
// Malloc and its kin, counted per instance when asked. The heap itself is the process's one: blocks may go from cell to cell.
#include "loader/libc/heap.hpp"

#include <malloc.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <mutex>
#include <new>
#include <span>
#include <unordered_map>
#include <vector>

#include "loader/libc/caller.hpp"
#include "loader/libc/tables.hpp"

extern "C" {
// libc's, declared only for fortified callers.
int __vasprintf_chk(char**, int, const char*, va_list);
}

namespace aplib::loader {

struct HeapAccount {
  std::mutex mutex;
  HeapUse use;
  // Blocks are remembered: shared libraries free and take some without us, and a block of theirs must not be subtracted.
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

HeapUse heap_use(Instance& instance) {
  HeapAccount& account = libc::shared_part(instance.libc().heap);
  const std::lock_guard lock(account.mutex);
  return account.use;
}

namespace libc {
namespace {

/// The caller's account for the time of one call; none where no instance calls.
class Counting {
 public:
  explicit Counting(const void* caller) {
    if (LibcState* state = state_of(caller)) account_ = &shared_part(state->heap);
  }
  /// Counts `block`, if there is one, and returns it.
  template <class T>
  T* taken(T* block) {
    const int error = errno;
    if (account_ != nullptr && block != nullptr) account_->add(block, ::malloc_usable_size(block));
    errno = error;
    return block;
  }
  /// Before it is freed: afterwards another thread may take it.
  void* freed(void* block) {
    const int error = errno;
    if (account_ != nullptr && block != nullptr) account_->remove(block);
    errno = error;
    return block;
  }

 private:
  HeapAccount* account_ = nullptr;
};

// --- malloc

void* own_malloc(std::size_t bytes) { return Counting(__builtin_return_address(0)).taken(std::malloc(bytes)); }
void* own_calloc(std::size_t count, std::size_t bytes) {
  return Counting(__builtin_return_address(0)).taken(std::calloc(count, bytes));
}
void own_free(void* block) { std::free(Counting(__builtin_return_address(0)).freed(block)); }

void* resize(Counting counting, void* block, std::size_t bytes) {
  counting.freed(block);
  const std::size_t held = block != nullptr ? ::malloc_usable_size(block) : 0;
  void* moved = std::realloc(block, bytes);
  if (moved == nullptr && bytes != 0 && held != 0) counting.taken(block);  // it is still there
  return counting.taken(moved);
}
void* own_realloc(void* block, std::size_t bytes) {
  return resize(Counting(__builtin_return_address(0)), block, bytes);
}
void* own_reallocarray(void* block, std::size_t count, std::size_t bytes) {
  std::size_t whole = 0;
  if (__builtin_mul_overflow(count, bytes, &whole)) {
    errno = ENOMEM;
    return nullptr;
  }
  return resize(Counting(__builtin_return_address(0)), block, whole);
}

int own_posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  Counting counting(__builtin_return_address(0));
  const int error = ::posix_memalign(block, alignment, bytes);
  if (error == 0) counting.taken(*block);
  return error;
}
void* own_memalign(std::size_t alignment, std::size_t bytes) {
  return Counting(__builtin_return_address(0)).taken(::memalign(alignment, bytes));
}
void* own_aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return Counting(__builtin_return_address(0)).taken(std::aligned_alloc(alignment, bytes));
}
void* own_valloc(std::size_t bytes) { return Counting(__builtin_return_address(0)).taken(::valloc(bytes)); }
void* own_pvalloc(std::size_t bytes) { return Counting(__builtin_return_address(0)).taken(::pvalloc(bytes)); }

// --- what gives memory that the caller frees

char* own_strdup(const char* text) { return Counting(__builtin_return_address(0)).taken(::strdup(text)); }
char* own_strndup(const char* text, std::size_t bytes) {
  return Counting(__builtin_return_address(0)).taken(::strndup(text, bytes));
}
wchar_t* own_wcsdup(const wchar_t* text) { return Counting(__builtin_return_address(0)).taken(::wcsdup(text)); }

int own_vasprintf(char** text, const char* format, va_list arguments) {
  Counting counting(__builtin_return_address(0));
  const int length = ::vasprintf(text, format, arguments);
  if (length >= 0) counting.taken(*text);
  return length;
}
int own_asprintf(char** text, const char* format, ...) {
  Counting counting(__builtin_return_address(0));
  va_list arguments;
  va_start(arguments, format);
  const int length = ::vasprintf(text, format, arguments);
  va_end(arguments);
  if (length >= 0) counting.taken(*text);
  return length;
}
int own_vasprintf_chk(char** text, int level, const char* format, va_list arguments) {
  Counting counting(__builtin_return_address(0));
  const int length = __vasprintf_chk(text, level, format, arguments);
  if (length >= 0) counting.taken(*text);
  return length;
}
int own_asprintf_chk(char** text, int level, const char* format, ...) {
  Counting counting(__builtin_return_address(0));
  va_list arguments;
  va_start(arguments, format);
  const int length = __vasprintf_chk(text, level, format, arguments);
  va_end(arguments);
  if (length >= 0) counting.taken(*text);
  return length;
}

ssize_t read_delimited(Counting counting, char** line, std::size_t* room, int delimiter, std::FILE* file) {
  if (line != nullptr) counting.freed(*line);
  const ssize_t length = ::getdelim(line, room, delimiter, file);
  if (line != nullptr) counting.taken(*line);
  return length;
}
ssize_t own_getline(char** line, std::size_t* room, std::FILE* file) {
  return read_delimited(Counting(__builtin_return_address(0)), line, room, '\n', file);
}
ssize_t own_getdelim(char** line, std::size_t* room, int delimiter, std::FILE* file) {
  return read_delimited(Counting(__builtin_return_address(0)), line, room, delimiter, file);
}

// --- new and delete

void* own_new(std::size_t bytes) { return Counting(__builtin_return_address(0)).taken(::operator new(bytes)); }
void* own_new_nothrow(std::size_t bytes, const std::nothrow_t& tag) {
  return Counting(__builtin_return_address(0)).taken(::operator new(bytes, tag));
}
void* own_new_aligned(std::size_t bytes, std::align_val_t alignment) {
  return Counting(__builtin_return_address(0)).taken(::operator new(bytes, alignment));
}
void* own_new_aligned_nothrow(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t& tag) {
  return Counting(__builtin_return_address(0)).taken(::operator new(bytes, alignment, tag));
}
// One for all forms: sizes and tags after the block change nothing here.
void own_delete(void* block) { ::operator delete(Counting(__builtin_return_address(0)).freed(block)); }
void own_delete_aligned(void* block, std::align_val_t alignment) {
  ::operator delete(Counting(__builtin_return_address(0)).freed(block), alignment);
}
void own_delete_aligned_sized(void* block, std::size_t, std::align_val_t alignment) {
  ::operator delete(Counting(__builtin_return_address(0)).freed(block), alignment);
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
        Binding::of("strdup", &own_strdup),
        Binding::of("__strdup", &own_strdup),
        Binding::of("strndup", &own_strndup),
        Binding::of("__strndup", &own_strndup),
        Binding::of("wcsdup", &own_wcsdup),
        Binding::of("asprintf", &own_asprintf),
        Binding::of("__asprintf", &own_asprintf),
        Binding::of("vasprintf", &own_vasprintf),
        Binding::of("__asprintf_chk", &own_asprintf_chk),
        Binding::of("__vasprintf_chk", &own_vasprintf_chk),
        Binding::of("getline", &own_getline),
        Binding::of("getdelim", &own_getdelim),
        Binding::of("__getdelim", &own_getdelim),
        Binding::of("_Znwm", &own_new),
        Binding::of("_Znam", &own_new),
        Binding::of("_ZnwmRKSt9nothrow_t", &own_new_nothrow),
        Binding::of("_ZnamRKSt9nothrow_t", &own_new_nothrow),
        Binding::of("_ZnwmSt11align_val_t", &own_new_aligned),
        Binding::of("_ZnamSt11align_val_t", &own_new_aligned),
        Binding::of("_ZnwmSt11align_val_tRKSt9nothrow_t", &own_new_aligned_nothrow),
        Binding::of("_ZnamSt11align_val_tRKSt9nothrow_t", &own_new_aligned_nothrow),
        Binding::of("_ZdlPv", &own_delete),
        Binding::of("_ZdaPv", &own_delete),
        Binding::of("_ZdlPvm", &own_delete),
        Binding::of("_ZdaPvm", &own_delete),
        Binding::of("_ZdlPvRKSt9nothrow_t", &own_delete),
        Binding::of("_ZdaPvRKSt9nothrow_t", &own_delete),
        Binding::of("_ZdlPvSt11align_val_t", &own_delete_aligned),
        Binding::of("_ZdaPvSt11align_val_t", &own_delete_aligned),
        Binding::of("_ZdlPvSt11align_val_tRKSt9nothrow_t", &own_delete_aligned),
        Binding::of("_ZdaPvSt11align_val_tRKSt9nothrow_t", &own_delete_aligned),
        Binding::of("_ZdlPvmSt11align_val_t", &own_delete_aligned_sized),
        Binding::of("_ZdaPvmSt11align_val_t", &own_delete_aligned_sized),
    };
    for (Binding& binding : all) binding.only_when_accounting = true;
    return all;
  }();
  return table;
}

}  // namespace libc
}  // namespace aplib::loader
