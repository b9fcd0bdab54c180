// SPDX-License-Identifier: MIT
// The loops that take the time, once per instruction set. kernels() returns the best ones that this computer can run.
//
// One CG iteration is one pass over the block. Row by row, while its rows are in the nearest cache:
//     p = r + beta p          (and in every second iteration x += alpha_before p_before + alpha p)
//     r = r - alpha A p
//     sums of r*r and of products of neighbouring r, which give r*Ar
// A is the five-point matrix divided by its diagonal: 1 on the diagonal, -cx to the west and east, -cy to the south and
// north.
#pragma once

#include <cstddef>

namespace scg {

class Field;

/// The coefficients of one pass.
struct PassInput {
  double cx = 0.25;
  double cy = 0.25;
  double alpha = 0;
  double beta = 0;
  double alpha_before = 0;  ///< alpha of the previous pass; used with `add_to_x`.
  bool add_to_x = false;    ///< x += alpha_before * (p before the pass) + alpha * (p after it)
};

/// Sums over the block's own unknowns.
struct PassSums {
  double square = 0;      ///< r * r
  double horizontal = 0;  ///< products of east-west neighbours in the block
  double vertical = 0;    ///< products of north-south neighbours in the block
};

/// Where a pass stores the first and the last column of the new r, ny numbers each. The neighbours need them. Reading
/// them later would touch ny cache lines.
struct PassColumns {
  double* west;
  double* east;
};

struct Kernels {
  const char* name;  ///< "avx512", "avx2", "portable"
  int lanes;         ///< doubles in a vector

  /// One pass. REQUIRES: r's halo holds the neighbours' r from before the pass, and p's halo their p.
  PassSums (*pass)(Field& p, Field& r, Field& x, const PassInput& input, PassColumns columns);

  /// x += alpha * p over the block.
  void (*add)(Field& x, const Field& p, double alpha);

  /// Sum of a[i] * b[i].
  double (*dot)(const double* a, const double* b, int count);

  /// For comparison: a = b + s * c over whole fields (the "triad" of the STREAM benchmark). Moves 24 bytes per
  /// element.
  void (*triad)(Field& a, const Field& b, const Field& c, double s);
};

/// The widest kernels that this computer can run. Call from: anywhere; cheap.
const Kernels& kernels();

/// All kernels that this computer can run, widest first. The list ends with null. For tests and comparisons.
const Kernels* const* usable_kernels();

}  // namespace scg
