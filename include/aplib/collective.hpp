// SPDX-License-Identifier: MIT
// Collectives: barrier, broadcast, reductions, and the status network. All cells (of the scope) must call the same operation; one task
// per cell at a time. A mismatch is an Error that names who called what.
//
// Reductions use one fixed binary tree over cids, so floating-point results are bitwise the same on every cell, for every number of
// threads and every placement.
//
//   double total = aplib::reduce_sum(local);
//   aplib::barrier();
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "aplib/export.hpp"
#include "aplib/ids.hpp"

namespace aplib {

/// Which cells take part: the caller's row (along x), its column, or all. The host program takes no part.
enum class Scope : std::uint8_t { row, column, all };

enum class ReduceOp : std::uint8_t { sum, max, min, bit_or, bit_and, bit_xor };  // bit_*: integers only

/// A value and who has it (max and min "with location"). The smallest location wins a tie.
template <class T>
struct Located {
  T value;
  std::int32_t location;
};

/// Waits until all cells of the scope have called it. Returns true when any of them passed stat = true (CellOS: sync).
/// Call from: task. Switches tasks: yes.
APLIB_API bool barrier(bool stat = false, Scope scope = Scope::all);

/// Combines one value per cell; every cell gets the result. Call from: task. Switches tasks: yes. Throws Error(mismatch).
[[nodiscard]] APLIB_API std::int32_t reduce(ReduceOp op, std::int32_t value, Scope scope = Scope::all);
[[nodiscard]] APLIB_API float reduce(ReduceOp op, float value, Scope scope = Scope::all);
[[nodiscard]] APLIB_API double reduce(ReduceOp op, double value, Scope scope = Scope::all);

/// Max or min with location. `op`: max or min. Source: CellOS xy_imax.
[[nodiscard]] APLIB_API Located<std::int32_t> reduce(ReduceOp op, Located<std::int32_t> value,
                                                     Scope scope = Scope::all);
[[nodiscard]] APLIB_API Located<float> reduce(ReduceOp op, Located<float> value, Scope scope = Scope::all);
[[nodiscard]] APLIB_API Located<double> reduce(ReduceOp op, Located<double> value, Scope scope = Scope::all);

template <class T>
[[nodiscard]] T reduce_sum(T value, Scope scope = Scope::all) {
  return reduce(ReduceOp::sum, value, scope);
}
template <class T>
[[nodiscard]] T reduce_max(T value, Scope scope = Scope::all) {
  return reduce(ReduceOp::max, value, scope);
}
template <class T>
[[nodiscard]] T reduce_min(T value, Scope scope = Scope::all) {
  return reduce(ReduceOp::min, value, scope);
}

/// Copies `root`'s bytes into everyone's `buffer`; all give the same size. `root` must be in the scope (caller's row or column).
/// Call from: task. Switches tasks: yes. Source: CellOS xy_brd.
APLIB_API void broadcast(CellId root, std::span<std::byte> buffer, Scope scope = Scope::all);

/// The status network: each cell posts a word; anyone reads the OR of all words at once, without a barrier.
namespace status {
APLIB_API void post(std::int32_t value);  ///< Call from: task of a cell. (CellOS: pstat)
[[nodiscard]] APLIB_API std::int32_t
combined();  ///< OR of all posted words. Call from: task. (CellOS: gstat; cstat is bit 0 as 16)
}  // namespace status

}  // namespace aplib
