// SPDX-License-Identifier: MIT
// The cell program: what every cell of the machine runs.
#pragma once

#include "job.hpp"

namespace scg {

/// Call from: task 0 of every cell, all of them. Cell 0 fills in `outcome`; the others leave it alone.
void cell_program(const Job& job, Outcome& outcome);

}  // namespace scg
