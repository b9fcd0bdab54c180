// SPDX-License-Identifier: MIT
// The yardstick for the solver's use of memory.
#pragma once

#include "solver.hpp"

namespace scg {

/// Runs a = b + s c over the solver's own three fields, all cells at a time and in step as the solver does, so that
/// caches are as full as in the solver. Returns the bytes per second that one thread moves meanwhile: 24 bytes an
/// element, as STREAM counts. All cells call it together. Destroys what the fields hold.
double measure_triad(Fields& fields);

}  // namespace scg
