// SPDX-License-Identifier: MIT
// Collectives: barrier, broadcast, reductions, and the status network. All cells of the scope must call the same
// operation, with one task per cell at a time. A mismatch is an Error that names who called what.
// Reductions use one fixed binary tree over cids. So floating-point results are bitwise the same on every cell, for
// every number of threads and every placement.
//
//   double total = aplib::reduce_sum(local);
//   aplib::barrier();
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <type_traits>

#include "aplib/export.hpp"
#include "aplib/ids.hpp"
#include "aplib/message.hpp"

namespace aplib {

/// The cells that take part: the caller's row (along x), its column, or all. The host program takes no part.
enum class Scope : std::uint8_t { row, column, all, last = all };

enum class ReduceOp : std::uint8_t { sum, max, min, bit_or, bit_and, bit_xor, last = bit_xor };  // bit_*: integers only

/// A value and its location, for max and min. Of equal values the smallest location wins.
template <class T>
struct Located {
  T value;
  std::int32_t location;
};

/// Waits until all cells of the scope have called it. Returns true when any of them passed stat = true (CellOS: sync).
/// REQUIRES, for every collective: called from a task of a cell, by one task per cell at a time, and by all cells of
/// the scope with the same arguments except the value. Throws Error(mismatch) when cells disagree, Error(ended) when a
/// cell of the scope has ended, and Error(bad_argument) otherwise. Switches tasks: yes.
APLIB_API bool barrier(bool stat = false, Scope scope = Scope::all);

/// Reductions work on integers and floating-point numbers of 32 and 64 bits.
template <class T>
concept Number = std::is_arithmetic_v<T> && !
std::same_as<T, bool> && (sizeof(T) == 4 || sizeof(T) == 8);

namespace detail {
enum class NumberType : std::uint8_t { int32, float32, float64, int64, uint32, uint64, last = uint64 };

template <Number T>
inline constexpr NumberType number_type =
    std::same_as<T, float>    ? NumberType::float32
    : std::same_as<T, double> ? NumberType::float64
    : std::is_signed_v<T>     ? (sizeof(T) == 4 ? NumberType::int32 : NumberType::int64)
                              : (sizeof(T) == 4 ? NumberType::uint32 : NumberType::uint64);

/// A number as it travels: its bits, at the low end.
template <Number T>
[[nodiscard]] constexpr std::uint64_t bits_of(T value) noexcept {
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<std::uint32_t>(value);
  } else {
    return std::bit_cast<std::uint64_t>(value);
  }
}
template <Number T>
[[nodiscard]] constexpr T number_of(std::uint64_t bits) noexcept {
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<T>(static_cast<std::uint32_t>(bits));
  } else {
    return std::bit_cast<T>(bits);
  }
}

/// Combines numbers of this type, given and returned as bits. `location`: null, or the number's location.
APLIB_API std::uint64_t reduce(ReduceOp op, NumberType type, std::uint64_t bits, std::int32_t* location, Scope scope);
/// The same for each of `count` numbers.
APLIB_API void reduce_array(ReduceOp op, NumberType type, void* values, std::size_t count, Scope scope);

template <class Range>
concept WritableNumbers = WritableElements<Range> && Number<std::ranges::range_value_t<Range>>;
}  // namespace detail

/// Combines one number per cell; every cell gets the result. Sums of integers wrap around. Numbers of fewer than 32
/// bits become int. REQUIRES: as barrier(); the bit operations need integers. Throws as barrier(). Switches tasks: yes.
template <class T>
  requires Number<decltype(+T())>
[[nodiscard]] auto reduce(ReduceOp op, T value, Scope scope = Scope::all) {
  using Promoted = decltype(+value);
  return detail::number_of<Promoted>(
      detail::reduce(op, detail::number_type<Promoted>, detail::bits_of(+value), nullptr, scope));
}

/// Maximum or minimum with its location. REQUIRES: as barrier(); `op` is max or min. Source: CellOS xy_imax.
template <Number T>
[[nodiscard]] Located<T> reduce(ReduceOp op, Located<T> value, Scope scope = Scope::all) {
  value.value = detail::number_of<T>(
      detail::reduce(op, detail::number_type<T>, detail::bits_of(value.value), &value.location, scope));
  return value;
}

/// Combines arrays element by element. `values`, a span, vector or array, becomes the result, with the same bits as if
/// each element were reduced by itself. REQUIRES: as for one number; all cells give the same number of elements.
template <class Range>
  requires detail::WritableNumbers<Range>
void reduce(ReduceOp op, Range&& values, Scope scope = Scope::all) {
  detail::reduce_array(op, detail::number_type<std::ranges::range_value_t<Range>>, std::ranges::data(values),
                       std::ranges::size(values), scope);
}

namespace detail {
template <class T>
concept Reducible = requires(T value) { aplib::reduce(ReduceOp::max, value); } && !
std::ranges::range<T>;
}  // namespace detail

template <detail::Reducible T>
[[nodiscard]] auto reduce_sum(T value, Scope scope = Scope::all) {
  return reduce(ReduceOp::sum, value, scope);
}
template <detail::Reducible T>
[[nodiscard]] auto reduce_max(T value, Scope scope = Scope::all) {
  return reduce(ReduceOp::max, value, scope);
}
template <detail::Reducible T>
[[nodiscard]] auto reduce_min(T value, Scope scope = Scope::all) {
  return reduce(ReduceOp::min, value, scope);
}
template <detail::WritableNumbers Range>
void reduce_sum(Range&& values, Scope scope = Scope::all) {
  reduce(ReduceOp::sum, values, scope);
}
template <detail::WritableNumbers Range>
void reduce_max(Range&& values, Scope scope = Scope::all) {
  reduce(ReduceOp::max, values, scope);
}
template <detail::WritableNumbers Range>
void reduce_min(Range&& values, Scope scope = Scope::all) {
  reduce(ReduceOp::min, values, scope);
}

/// Copies `root`'s bytes into the `buffer` of every cell of the scope. Source: CellOS xy_brd.
/// REQUIRES: as barrier(); all give the same root and size; `root` is in the scope (the caller's row or column).
APLIB_API void broadcast(CellId root, std::span<std::byte> buffer, Scope scope = Scope::all);

/// The same for the elements of a span, vector or array of trivially copyable values.
template <class Range>
  requires(detail::WritableElements<Range> && !std::is_convertible_v<Range&, std::span<std::byte>>)
void broadcast(CellId root, Range&& buffer, Scope scope = Scope::all) {
  broadcast(root, detail::bytes_of(buffer), scope);
}

/// The status network: each cell posts a word, and any task reads the OR of all words, without a barrier.
namespace status {
/// Posts the cell's word. REQUIRES: called from a task of a cell. (CellOS: pstat)
APLIB_API void post(std::int32_t value);
/// The OR of all posted words. REQUIRES: called from a task. (CellOS: gstat; cstat gives bit 0 as 16)
[[nodiscard]] APLIB_API std::int32_t combined();
}  // namespace status

}  // namespace aplib
