// SPDX-License-Identifier: MIT
// Strong types for ids, so that a task cannot be passed where a cell is meant. They cost nothing at run time.
//
//   aplib::CellId peer{3};
//   printf("%u\n", aplib::index(peer));
#pragma once

#include <cstdint>

namespace aplib {

/// A cell of the machine, 0 .. count-1, numbered in rows as in CellOS: cid = x + y * ncelx. The host program has the id
/// that this_machine::host_cell() returns.
enum class CellId : std::uint32_t {};

/// A task inside one cell. The first task of a cell started by Machine::run is 0.
enum class TaskId : std::uint32_t {};

/// Wildcards of receives. They are not 0, because 0 is an ordinary id and type.
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
