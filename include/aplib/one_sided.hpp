// SPDX-License-Identifier: MIT
// One-sided communication: a task copies data into or out of another cell's memory, and that cell need not call
// anything. The caller names remote memory by its own address of the same object: a global of a loaded program, a stack
// variable, or symmetric memory. Flags say what has arrived: they are counters, and each transfer raises them by one.
//
//   static Item table[1000];                       // of a program that aprun loads: each cell has its own
//   static aplib::Flag arrived;
//   aplib::put(aplib::CellId{3}, item, &table[7], {.arrived = &arrived});
//   aplib::wait_flag(arrived, 1);                  // on cell 3
// Order: what a cell does to another cell's memory (puts, gets, atomics, and messages that it sends there) happens in
// the order of the calls.
// Lifetime: a cell's memory stays until the machine ends, even after the cell has ended. Access to memory that the
// other cell does not have yet is a fault and ends the program: let the cells meet first (barrier).
// REQUIRES, for every call here: called from a task; the cell exists; remote memory lies in the caller's slot. Throws
// Error(bad_argument) otherwise. Source of the semantics: AP1000+, docs/one-sided.md.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "aplib/export.hpp"
#include "aplib/ids.hpp"

namespace aplib {

/// A counter of transfers, which wraps around. The C interface uses a plain int; both may use the same memory.
struct Flag {
  /// The current count. Everything transferred before the flag reached it can be read.
  [[nodiscard]] std::int32_t count() const noexcept { return __atomic_load_n(&raised, __ATOMIC_ACQUIRE); }
  /// REQUIRES: no transfer that raises the flag is under way.
  void reset(std::int32_t to = 0) noexcept { __atomic_store_n(&raised, to, __ATOMIC_RELEASE); }

  std::int32_t raised = 0;
};

/// Flags of a put. Null means no flag.
struct PutFlags {
  Flag* arrived = nullptr;  ///< In the target's memory, named by the caller's own address: raised after the data.
  /// The caller's: raised when the source may be changed. Without it the source may be changed when the call returns,
  /// which costs large transfers a copy.
  Flag* reusable = nullptr;
  bool acknowledge = false;  ///< Whether wait_acknowledged() waits for this put.
};

/// Flags of a get. Null means no flag.
struct GetFlags {
  Flag* arrived = nullptr;  ///< The caller's: raised when the data has arrived.
  /// In the memory of the cell that is read, named by the caller's own address: raised when the data has been read.
  Flag* taken = nullptr;
};

/// Items at regular distances on both sides. All numbers but `count` are in elements.
struct Strides {
  std::size_t count = 0;     ///< Items.
  std::size_t item = 1;      ///< Elements of one item.
  std::ptrdiff_t local = 1;  ///< From the start of one item to that of the next.
  std::ptrdiff_t remote = 1;
};

namespace detail {
/// `count` blocks of `bytes` bytes each; strides in bytes.
struct Blocks {
  std::size_t bytes = 0;
  std::size_t count = 1;
  std::ptrdiff_t local_stride = 0;
  std::ptrdiff_t remote_stride = 0;
};
enum class Fetch : std::uint8_t { add, bit_and, bit_or, bit_xor, exchange, min, max, compare_exchange };
/// The kind of number of an atomic: 4 or 8 bytes.
struct Word {
  std::uint32_t bytes;
  bool is_signed;
};
// `call`: the function that the user called, for errors.
APLIB_API void put(const char* call, CellId cell, const void* local, std::size_t bytes, void* remote,
                   const PutFlags& flags);
APLIB_API void get(const char* call, CellId cell, void* local, std::size_t bytes, const void* remote,
                   const GetFlags& flags);
APLIB_API void put(const char* call, CellId cell, const void* local, void* remote, const Blocks& blocks,
                   const PutFlags& flags);
APLIB_API void get(const char* call, CellId cell, void* local, const void* remote, const Blocks& blocks,
                   const GetFlags& flags);
APLIB_API void wait_flag(const char* call, const std::int32_t* flag, std::int32_t count);
APLIB_API void wait_acknowledged(const char* call);
APLIB_API std::uint64_t fetch(const char* call, Fetch what, CellId cell, void* remote, Word word, std::uint64_t operand,
                              std::uint64_t expected);

template <class T>
constexpr Blocks blocks_of(const Strides& strides) noexcept {
  constexpr auto size = static_cast<std::ptrdiff_t>(sizeof(T));
  return {strides.item * sizeof(T), strides.count, strides.local * size, strides.remote * size};
}

template <class T>
T fetch_as(const char* call, Fetch what, CellId cell, T* remote, T operand, T expected = 0) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "remote atomics work on 4 and 8 bytes");
  return static_cast<T>(fetch(call, what, cell, remote, {sizeof(T), std::is_signed_v<T>},
                              static_cast<std::uint64_t>(operand), static_cast<std::uint64_t>(expected)));
}
}  // namespace detail

/// Copies `local` to the target cell's object that the caller has at `remote`. Returns at once. The target may be the
/// caller's own cell. REQUIRES: called from a task of a cell. Switches tasks: only while more than send-limit bytes
/// wait for the target's process. Throws Error. Source: AP1000+, put.
template <class T>
  requires std::is_trivially_copyable_v<T>
void put(CellId cell, std::span<const std::type_identity_t<T>> local, T* remote, const PutFlags& flags = {}) {
  detail::put("put", cell, local.data(), local.size_bytes(), remote, flags);
}
template <class T>  // one object
  requires std::is_trivially_copyable_v<T>
void put(CellId cell, const std::type_identity_t<T>& local, T* remote, PutFlags flags = {}) {
  detail::put("put", cell, &local, sizeof(T), remote, flags);
}
/// The same for items at regular distances. The flags are raised once, after the last item.
template <class T>
  requires std::is_trivially_copyable_v<T>
void put_stride(CellId cell, const std::type_identity_t<T>* local, T* remote, const Strides& strides,
                const PutFlags& flags = {}) {
  detail::put("put_stride", cell, local, remote, detail::blocks_of<T>(strides), flags);
}
/// A put of no data: raises the flag after everything that the caller's cell has put there before.
inline void raise_flag(CellId cell, Flag* remote) {
  detail::put("raise_flag", cell, nullptr, 0, nullptr, {.arrived = remote});
}

/// Copies the target cell's object that the caller has at `remote` to `local`. Returns at once. The data has arrived
/// when flags.arrived says so. REQUIRES: called from a task of a cell; `local` stays until the data has arrived.
/// Switches tasks: only while much is on its way from the target's process. Throws Error. Source: AP1000+, get.
template <class T>
  requires std::is_trivially_copyable_v<T>
void get(CellId cell, std::span<std::type_identity_t<T>> local, const T* remote, const GetFlags& flags = {}) {
  detail::get("get", cell, local.data(), local.size_bytes(), remote, flags);
}
template <class T>
  requires std::is_trivially_copyable_v<T>
void get(CellId cell, std::type_identity_t<T>& local, const T* remote, const GetFlags& flags = {}) {
  detail::get("get", cell, &local, sizeof(T), remote, flags);
}
template <class T>
  requires std::is_trivially_copyable_v<T>
void get_stride(CellId cell, std::type_identity_t<T>* local, const T* remote, const Strides& strides,
                const GetFlags& flags = {}) {
  detail::get("get_stride", cell, local, remote, detail::blocks_of<T>(strides), flags);
}

/// Waits until the flag's count has reached `count`, compared as a signed difference, so that it may wrap around. Does
/// not change the flag. REQUIRES: called from a task of a cell; transfers from or to that cell raise the flag.
/// Switches tasks: yes, unless the count is already reached. Source: AP1000+, amcheck.
inline void wait_flag(const Flag& flag, std::int32_t count) { detail::wait_flag("wait_flag", &flag.raised, count); }

/// Waits until all puts of the caller's cell with `acknowledge` have arrived. REQUIRES: called from a task of a cell.
/// Switches tasks: yes.
inline void wait_acknowledged() { detail::wait_acknowledged("wait_acknowledged"); }

/// Gets the value of the target cell's object that the caller has at `remote`, and waits for it. REQUIRES: as get().
/// Switches tasks: when the target is in another process.
template <class T>
  requires std::is_trivially_copyable_v<T>
[[nodiscard]] T get_value(CellId cell, const T* remote) {
  T value;
  Flag arrived;
  detail::get("get_value", cell, &value, sizeof(T), remote, {.arrived = &arrived});
  detail::wait_flag("get_value", &arrived.raised, 1);
  return value;
}

/// Remote atomics on numbers of 4 and 8 bytes. Each returns the old value, and is indivisible for everyone who uses
/// these functions, or std::atomic_ref with acquire and release, on the same number. REQUIRES: called from a task of a
/// cell; the number is aligned to its size. Switches tasks: when the target is in another process. Throws Error.
/// Source: the AP1000+ hardware's fetch-and-operate and compare-and-swap.
template <std::integral T>
T fetch_add(CellId cell, T* remote, std::type_identity_t<T> value) {
  return detail::fetch_as("fetch_add", detail::Fetch::add, cell, remote, value);
}
template <std::integral T>
T fetch_and(CellId cell, T* remote, std::type_identity_t<T> value) {
  return detail::fetch_as("fetch_and", detail::Fetch::bit_and, cell, remote, value);
}
template <std::integral T>
T fetch_or(CellId cell, T* remote, std::type_identity_t<T> value) {
  return detail::fetch_as("fetch_or", detail::Fetch::bit_or, cell, remote, value);
}
template <std::integral T>
T fetch_xor(CellId cell, T* remote, std::type_identity_t<T> value) {
  return detail::fetch_as("fetch_xor", detail::Fetch::bit_xor, cell, remote, value);
}
template <std::integral T>
T fetch_min(CellId cell, T* remote, std::type_identity_t<T> value) {
  return detail::fetch_as("fetch_min", detail::Fetch::min, cell, remote, value);
}
template <std::integral T>
T fetch_max(CellId cell, T* remote, std::type_identity_t<T> value) {
  return detail::fetch_as("fetch_max", detail::Fetch::max, cell, remote, value);
}
template <std::integral T>
T exchange(CellId cell, T* remote, std::type_identity_t<T> value) {
  return detail::fetch_as("exchange", detail::Fetch::exchange, cell, remote, value);
}
/// Stores `value` if the old value is `expected`, that is, when it returns `expected`.
template <std::integral T>
T compare_exchange(CellId cell, T* remote, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return detail::fetch_as("compare_exchange", detail::Fetch::compare_exchange, cell, remote, value,
                          static_cast<T>(expected));
}

}  // namespace aplib
