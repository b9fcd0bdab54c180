// SPDX-License-Identifier: MIT
// Getenv, setenv and environ, per instance.
//
// The program may change the block behind `environ` and assign `environ` itself. So the block is the truth, and we
// remember only which array is ours. As in libc, a replaced string lives on, because programs keep what getenv() gave
// them. Equal strings are kept once, so that a variable that changes to and fro costs nothing.
#include "loader/libc/state.hpp"

#include <dlfcn.h>
#include <glob.h>
#include <sys/auxv.h>
#include <unistd.h>
#include <wordexp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"

namespace aplib::loader::libc {

struct EnvironPrivate {
  std::mutex changing;
  /// What the program began with: strings of all instances, to be read only. May be null.
  const std::vector<std::string>* common = nullptr;
  std::unordered_set<std::string> strings;
  /// Arrays that were `environ` once; the last is the one with room. Old ones stay for threads that read them.
  std::vector<std::vector<char*>> blocks;
};

namespace {

std::string_view name_of(const char* entry) noexcept {
  const std::string_view whole(entry);
  return whole.substr(0, whole.find('='));
}

bool is_name(const char* name) noexcept {
  return name != nullptr && *name != '\0' && std::strchr(name, '=') == nullptr;
}

// Threads may call getenv() while another does: the entry may be replaced by an equal one meanwhile.
char* load(char*& entry) noexcept { return std::atomic_ref(entry).load(std::memory_order_acquire); }

char** find_entry(char** block, std::string_view name) noexcept {
  if (block == nullptr) return nullptr;
  for (; const char* text = load(*block); ++block) {
    if (std::strncmp(text, name.data(), name.size()) == 0 && text[name.size()] == '=') return block;
  }
  return nullptr;
}

std::size_t count(char** block) noexcept {
  std::size_t entries = 0;
  while (block != nullptr && block[entries] != nullptr) ++entries;
  return entries;
}

// Puts `entry`, not copied, into the block. With own.changing held.
void put(LibcState& state, EnvironPrivate& own, char* entry) {
  if (char** old = find_entry(*state.environ, name_of(entry))) {
    std::atomic_ref(*old).store(entry, std::memory_order_release);
    return;
  }
  const std::size_t entries = count(*state.environ);
  const bool ours = !own.blocks.empty() && *state.environ == own.blocks.back().data();
  if (!ours || entries + 2 > own.blocks.back().size()) {
    std::vector<char*> larger(2 * entries + 16, nullptr);
    if (entries > 0) std::memcpy(larger.data(), *state.environ, entries * sizeof(char*));
    own.blocks.push_back(std::move(larger));
    *state.environ = own.blocks.back().data();
  }
  (*state.environ)[entries + 1] = nullptr;
  (*state.environ)[entries] = entry;
}

void remove(LibcState& state, std::string_view name) noexcept {
  while (char** entry = find_entry(*state.environ, name)) {
    do {
      entry[0] = entry[1];
    } while (*entry++ != nullptr);
  }
}

// What programs store is theirs to change, although the set hands out constants: a changed string merely is found
// no more.
char* keep(EnvironPrivate& own, std::string entry) {
  return const_cast<char*>(own.strings.insert(std::move(entry)).first->c_str());
}

bool is_common(const EnvironPrivate& own, const char* entry) noexcept {
  if (own.common == nullptr) return false;
  return std::ranges::any_of(*own.common, [entry](const std::string& each) { return each.c_str() == entry; });
}

// For the program, which may write into it (strtok of PATH is a habit): a string of its own.
char* give_variable(LibcState& state, std::string_view name) {
  char** entry = name.empty() ? nullptr : find_entry(*state.environ, name);
  if (entry == nullptr) return nullptr;
  EnvironPrivate& own = shared_part(state.environment);
  char* text = load(*entry);
  if (is_common(own, text)) {
    const std::lock_guard lock(own.changing);
    text = load(*entry);
    if (is_common(own, text)) {
      text = keep(own, std::string(text));
      std::atomic_ref(*entry).store(text, std::memory_order_release);
    }
  }
  return text + name.size() + 1;
}

// --- what programs call

char* own_getenv(LibcState& state, const char* name) { return give_variable(state, name); }

char* own_secure_getenv(LibcState& state, const char* name) {
  return getauxval(AT_SECURE) != 0 ? nullptr : give_variable(state, name);
}

int own_setenv(LibcState& state, const char* name, const char* value, int overwrite) {
  if (!is_name(name)) return failed(EINVAL);
  try {
    EnvironPrivate& own = shared_part(state.environment);
    const std::lock_guard lock(own.changing);
    if (overwrite == 0 && find_entry(*state.environ, name) != nullptr) return 0;
    put(state, own, keep(own, std::string(name) + '=' + value));
    return 0;
  } catch (const std::bad_alloc&) {
    return failed(ENOMEM);
  }
}

int own_putenv(LibcState& state, char* entry) {
  try {
    EnvironPrivate& own = shared_part(state.environment);
    const std::lock_guard lock(own.changing);
    if (std::strchr(entry, '=') != nullptr) {
      put(state, own, entry);
    } else {
      remove(state, entry);
    }
    return 0;
  } catch (const std::bad_alloc&) {
    return failed(ENOMEM);
  }
}

int own_unsetenv(LibcState& state, const char* name) {
  if (!is_name(name)) return failed(EINVAL);
  try {
    EnvironPrivate& own = shared_part(state.environment);
    const std::lock_guard lock(own.changing);
    remove(state, name);
    return 0;
  } catch (const std::bad_alloc&) {
    return failed(ENOMEM);
  }
}

int own_clearenv(LibcState& state) {
  *state.environ = nullptr;
  return 0;
}

// --- what libc looks up itself

/// `body` is called while the process's environment is the program's, for one program at a time. It runs no code of it.
template <class Body>
auto with_environment(LibcState& state, const Body& body) {
  static std::mutex one;
  const std::lock_guard lock(one);
  char** const before = ::environ;
  const std::vector<char*> copy(before, before + count(before) + 1);
  char** const own = ::environ = *state.environ;
  const auto result = body();
  if (::environ == own) {
    ::environ = before;
    return result;
  }
  // "${X:=value}": libc has set a variable, in an array that it has made of its last one, which may have been `before`.
  for (char** each = ::environ; *each != nullptr; ++each) {
    const char* const there = find_variable(state, name_of(*each));
    if (there == nullptr || std::strcmp(there, std::strchr(*each, '=') + 1) != 0) set_variable(state, *each);
  }
  static auto* const kept = new std::vector<char*>;
  if (before != kept->data()) *kept = copy;
  ::environ = kept->data();
  return result;
}

int own_wordexp(LibcState& state, const char* words, wordexp_t* result, int flags) {
  return with_environment(state, [=] { return ::wordexp(words, result, flags); });
}

char* own_tempnam(const char* folder, const char* prefix) {
  using Native = char* (*)(const char*, const char*);
  static const auto native = reinterpret_cast<Native>(dlsym(RTLD_DEFAULT, "tempnam"));  // linkers warn of its name
  LibcState* const state = state_of(__builtin_return_address(0));
  return state != nullptr ? with_environment(*state, [=] { return native(folder, prefix); }) : native(folder, prefix);
}

using GlobError = int (*)(const char*, int);
int own_glob(LibcState& state, const char* pattern, int flags, GlobError on_error, glob_t* result) {
  const bool calls_back = on_error != nullptr || (flags & GLOB_ALTDIRFUNC) != 0;
  if (calls_back || (flags & (GLOB_TILDE | GLOB_TILDE_CHECK)) == 0) return ::glob(pattern, flags, on_error, result);
  return with_environment(state, [=] { return ::glob(pattern, flags, on_error, result); });
}

}  // namespace

char* find_variable(const LibcState& state, std::string_view name) noexcept {
  char** entry = name.empty() ? nullptr : find_entry(*state.environ, name);
  return entry == nullptr ? nullptr : load(*entry) + name.size() + 1;
}

void set_variable(LibcState& state, std::string_view entry) {
  EnvironPrivate& own = shared_part(state.environment);
  const std::lock_guard lock(own.changing);
  put(state, own, keep(own, std::string(entry)));
}

void start_environment(Instance& instance) {
  LibcState& state = instance.libc();
  EnvironPrivate& own = shared_part(state.environment);
  std::vector<char*> block;
  if (const auto& entries = instance.arguments().environment) {
    block.reserve(entries->size() + 16);
    own.common = entries.get();
    for (const std::string& entry : *entries) block.push_back(const_cast<char*>(entry.c_str()));
  }
  block.resize(block.size() + 16, nullptr);
  own.blocks.push_back(std::move(block));
  *state.environ = own.blocks.back().data();
}

std::span<const Binding> environ_bindings() {
  static const std::array table{
      variable<&LibcState::environ>("environ"),
      variable<&LibcState::environ>("__environ"),
      variable<&LibcState::environ>("_environ"),
      bound<::getenv, own_getenv>("getenv"),
      bound<::secure_getenv, own_secure_getenv>("secure_getenv"),
      bound<::setenv, own_setenv>("setenv"),
      bound<::putenv, own_putenv>("putenv"),
      bound<::unsetenv, own_unsetenv>("unsetenv"),
      bound<::clearenv, own_clearenv>("clearenv"),
      bound<::wordexp, own_wordexp>("wordexp"),
      Binding::of("tempnam", &own_tempnam),
      bound<::glob, own_glob>("glob"),
      bound<::glob, own_glob>("glob64"),
  };
  return table;
}

}  // namespace aplib::loader::libc
