// SPDX-License-Identifier: MIT
// The loops where the time goes, once per instruction set; kernels() gives the best set this computer has.
//
// One CG iteration is one pass over the block. Row by row, while its rows are in the nearest cache:
//
//     p = r + beta p          (x += alpha_before p_before + alpha p, every second iteration)
//     r = r - alpha A p
//     sums of r*r and of products of neighbouring r, from which r*Ar follows
//
// A is the five-point matrix divided by its diagonal: 1 on the diagonal, -cx towards west and east, -cy towards south
// and north.
#pragma once

#include <cstddef>

namespace scg {

class Field;

/// What one pass needs to know.
struct PassInput {
  double cx = 0.25;
  double cy = 0.25;
  double alpha = 0;
  double beta = 0;
  double alpha_before = 0;  ///< alpha of the pass before; used with `add_to_x`.
  bool add_to_x = false;    ///< x += alpha_before * (p before the pass) + alpha * (p after it)
};

/// Sums over the block's own unknowns.
struct PassSums {
  double square = 0;      ///< r * r
  double horizontal = 0;  ///< products of unknowns side by side, both in the block
  double vertical = 0;    ///< products of unknowns one above the other, both in the block
};

/// Where a pass sets aside the first and the last column of the new r, ny numbers each: neighbours want them, and later
/// they would have to be picked from as many cache lines.
struct PassColumns {
  double* west;
  double* east;
};

struct Kernels {
  const char* name;  ///< "avx512", "avx2", "portable"
  int lanes;         ///< doubles in a vector

  /// One pass. r's halo must hold the neighbours' r as it is before the pass, p's halo their p.
  PassSums (*pass)(Field& p, Field& r, Field& x, const PassInput& input, PassColumns columns);

  /// x += alpha * p over the block.
  void (*add)(Field& x, const Field& p, double alpha);

  /// Sum of a[i] * b[i].
  double (*dot)(const double* a, const double* b, int count);

  /// The yardstick: a = b + s * c over whole fields (the "triad" of the STREAM benchmark). Moves 24 bytes an element.
  void (*triad)(Field& a, const Field& b, const Field& c, double s);
};

/// The widest set that was built and that this computer runs. Call from: anywhere; cheap.
const Kernels& kernels();

/// All that this computer runs, widest first; ends with null. For tests and comparisons.
const Kernels* const* usable_kernels();

}  // namespace scg
