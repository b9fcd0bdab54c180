// SPDX-License-Identifier: MIT
// The kernel's API for front ends whose tasks meet in memory: waits for conditions, and whose memory is where.
//
// `call`: as in api.hpp. Call from: task.
#pragma once

#include <cstdint>

#include "aplib/ids.hpp"
#include "cell/processor.hpp"
#include "kernel/api.hpp"

namespace aplib::api {

/// The calling task, which the following functions want.
[[nodiscard]] APLIB_API TaskControl& task(const char* call);

/// Waits until the condition holds, which the caller has just seen not to, or expects not to. Wake::ended: a cell that
/// it needs has ended. Wake::stopping: the machine stops, and the task unwinds already.
[[nodiscard]] APLIB_API Wake wait(TaskControl& self, const char* call, Condition& condition);

/// It does not hold, and a cell that it needs has ended.
[[nodiscard]] APLIB_API bool is_in_vain(const TaskControl& self, const Condition& condition) noexcept;

/// Other tasks of this processor look at their conditions at once.
APLIB_API void look_again(TaskControl& self) noexcept;
/// Other processors do.
APLIB_API void wake_others(TaskControl& self) noexcept;

/// Something has changed that conditions of others may be about. `waits`: the caller goes on to wait.
inline void stir(TaskControl& self, bool waits) noexcept {
  if (self.cell->processor->domain().some_carrier_sleeps()) [[unlikely]]
    wake_others(self);
  if (!waits) look_again(self);  // else they look when it waits
}

/// Threads that sleep in the cell's process, this one or another, look at their conditions (Condition::sleeps()).
APLIB_API void wake(TaskControl& self, const char* call, CellId cell);

/// The beginning of the caller's program. Waits until every cell of this process has been here or has ended, so that
/// none is far ahead of one that has not begun. Returns at once when the cell has been here before.
APLIB_API void begin_together(TaskControl& self, const char* call);

/// Which of the processors that carry cells carries the caller now.
[[nodiscard]] inline std::uint32_t processor(const TaskControl& self) noexcept { return self.cell->processor->index(); }
/// Processors that carry cells in this process.
[[nodiscard]] APLIB_API std::uint32_t processors(const char* call);

/// Whether this process carries the cell.
[[nodiscard]] APLIB_API bool is_local(const char* call, CellId cell);
/// The address by which the calling cell names what another cell has at `address` in its slot, for one-sided calls.
[[nodiscard]] APLIB_API void* own_address_of(const char* call, CellId cell, void* address);

}  // namespace aplib::api
