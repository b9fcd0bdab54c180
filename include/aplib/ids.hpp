// SPDX-License-Identifier: MIT
// Names of things: strong ids, so that a task cannot be passed where a cell is meant. No run-time cost.
//
//   aplib::CellId peer{3};
//   printf("%u\n", aplib::index(peer));
#pragma once

#include <cstdint>

namespace aplib {

/// A cell of the machine, 0 .. count-1, row-major: cid = x + y * ncelx (CellOS numbering). The host program has the
/// id that this_machine::host_cell() gives.
enum class CellId : std::uint32_t {};

/// A task inside one cell. The first task of a cell started by Machine::run is 0.
enum class TaskId : std::uint32_t {};

/// Wildcards for receives. 0 is an ordinary id and type, hence not these.
inline constexpr CellId any_cell{0xffff'ffffU};
inline constexpr TaskId any_task{0xffff'ffffU};
inline constexpr std::int32_t any_type = -1;

/// Limits that the 64-bit match key imposes: 14 bits of cells (plus the host), 20 of tasks, 24 of types.
inline constexpr std::uint32_t cell_count_max = 16'384;
inline constexpr std::uint32_t task_id_max = (1U << 20) - 1;
inline constexpr std::int32_t message_type_max = (1 << 24) - 1;

/// The plain number of an id.
constexpr std::uint32_t index(CellId id) noexcept { return static_cast<std::uint32_t>(id); }
constexpr std::uint32_t index(TaskId id) noexcept { return static_cast<std::uint32_t>(id); }

}  // namespace aplib
