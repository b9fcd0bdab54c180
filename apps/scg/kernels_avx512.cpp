// SPDX-License-Identifier: MIT
// The loops for computers with AVX-512.
#include "kernel_loops.hpp"

namespace scg {

extern const Kernels avx512_kernels;
const Kernels avx512_kernels{"avx512", lanes, pass, add, dot, triad};

}  // namespace scg
