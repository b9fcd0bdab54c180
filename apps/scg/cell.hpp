// SPDX-License-Identifier: MIT
// The cell program, which every cell of the machine runs.
#pragma once

#include <vector>

#include "block.hpp"
#include "job.hpp"

namespace scg {

/// Solves the job together with all other cells. Cell 0 fills in `outcome`; the others do not touch it. Call from: task
/// 0 of every cell. Collective.
void cell_program(const Job& job, Outcome& outcome);

// For a picture, cell 0 gathers the solution as a square of samples. Each cell samples its own part of the square. The
// cells of a row send their samples to the row's first cell, and the first cells send theirs to cell 0. So the number
// of steps is the width plus the height of the machine, not its number of cells.

/// The samples that the unknowns in `part` of 0 .. total-1 provide, of `side` samples along one direction of the
/// square.
[[nodiscard]] Range samples_of(Range part, int total, int side);

/// The samples of one block, row by row from the south. REQUIRES: the whole halo of `u` is filled, corners included.
[[nodiscard]] std::vector<float> sample_block(const Field& u, const Block& block, int side);

/// Returns side x side samples on cell 0, and nothing on the others. Collective.
[[nodiscard]] std::vector<float> gather_samples(const Field& u, const Block& block, int side);

}  // namespace scg
