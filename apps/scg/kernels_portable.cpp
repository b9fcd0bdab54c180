// SPDX-License-Identifier: MIT
// The loops for every computer: the instruction set all compilers may assume.
#include "kernel_loops.hpp"

namespace scg {

extern const Kernels portable_kernels;
const Kernels portable_kernels{"portable", lanes, pass, add, dot, triad};

}  // namespace scg
