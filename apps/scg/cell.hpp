// SPDX-License-Identifier: MIT
// The cell program: what every cell of the machine runs.
#pragma once

#include <vector>

#include "block.hpp"
#include "job.hpp"

namespace scg {

/// Call from: task 0 of every cell, all of them. Cell 0 fills in `outcome`; the others leave it alone.
void cell_program(const Job& job, Outcome& outcome);

// The solution as a square of samples for a picture, gathered on cell 0. Each cell samples its own part of the
// square; the cells of a row give theirs to the row's first cell, and these to cell 0: as many steps as the machine
// is wide and high, not as it has cells.

/// The samples, of `side` along one direction of the square, that part `part` of the unknowns 0 .. total-1 provides.
[[nodiscard]] Range samples_of(Range part, int total, int side);

/// The samples of one block, row by row from the south. `u` needs its whole halo, corners included.
[[nodiscard]] std::vector<float> sample_block(const Field& u, const Block& block, int side);

/// All cells call it together. Returns side x side samples on cell 0, nothing on the others.
[[nodiscard]] std::vector<float> gather_samples(const Field& u, const Block& block, int side);

}  // namespace scg
