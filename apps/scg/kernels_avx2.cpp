// SPDX-License-Identifier: MIT
// The loops for computers with AVX-2.
#include "kernel_loops.hpp"

namespace scg {

extern const Kernels avx2_kernels;
const Kernels avx2_kernels{"avx2", lanes, pass, add, dot, triad};

}  // namespace scg
