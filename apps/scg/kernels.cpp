// SPDX-License-Identifier: MIT
#include "kernels.hpp"

#include <array>
#include <cstddef>

namespace scg {

extern const Kernels portable_kernels;
#if SCG_X86_KERNELS
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;
#endif

namespace {

struct Usable {
  std::array<const Kernels*, 4> list{};
  std::size_t count = 0;

  Usable() {
#if SCG_X86_KERNELS
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (avx2 && __builtin_cpu_supports("avx512f")) list[count++] = &avx512_kernels;
    if (avx2) list[count++] = &avx2_kernels;
#endif
    list[count++] = &portable_kernels;
  }
};

const Usable& usable() {
  static const Usable found;
  return found;
}

}  // namespace

const Kernels& kernels() { return *usable().list[0]; }

const Kernels* const* usable_kernels() { return usable().list.data(); }

}  // namespace scg
