// SPDX-License-Identifier: MIT
// The kernel's API for front ends whose tasks meet in memory: waits for conditions.
//
// `call`: as in api.hpp. Call from: task.
#pragma once

#include <cstdint>

#include "aplib/ids.hpp"
#include "cell/cell.hpp"
#include "kernel/api.hpp"

namespace aplib::api {

/// Waits until the condition holds. Wake::ended: a cell that it needs has ended. Wake::stopping: the machine stops, and
/// the task unwinds already.
[[nodiscard]] APLIB_API Wake wait(const char* call, Condition& condition);

/// Something has changed that conditions of others may be about. `waits`: the caller goes on to wait.
APLIB_API void stir(const char* call, bool waits);

/// Other tasks of this processor look at their conditions at once.
APLIB_API void look_again(const char* call);

/// Which of the processors that carry cells carries the caller now.
[[nodiscard]] APLIB_API std::uint32_t processor(const char* call);
/// Processors that carry cells in this process.
[[nodiscard]] APLIB_API std::uint32_t processors(const char* call);

/// Whether this process carries the cell.
[[nodiscard]] APLIB_API bool is_local(const char* call, CellId cell);

}  // namespace aplib::api
