// SPDX-License-Identifier: MIT
// The logarithm of the gamma function, whose sign libm leaves in a variable: signgam, the instance's.
#include <math.h>  // NOLINT: lgamma_r is not C++'s

#include <array>
#include <cstddef>

#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"

namespace aplib::loader::libc {
namespace {

int* sign_of(const void* caller) {
  LibcState* state = state_of(caller);
  return state == nullptr ? &::signgam : &state->signgam;
}

double own_lgamma(double x) { return ::lgamma_r(x, sign_of(__builtin_return_address(0))); }
float own_lgammaf(float x) { return ::lgammaf_r(x, sign_of(__builtin_return_address(0))); }
long double own_lgammal(long double x) { return ::lgammal_r(x, sign_of(__builtin_return_address(0))); }

}  // namespace

std::span<const Binding> gamma_bindings() {
  static const std::array table{
      Binding::of("lgamma", &own_lgamma),
      Binding::of("lgammaf", &own_lgammaf),
      Binding::of("lgammal", &own_lgammal),
      Binding::of("gamma", &own_lgamma),
      Binding::of("gammaf", &own_lgammaf),
      Binding::of("gammal", &own_lgammal),
      Binding::of("lgammaf32", &own_lgammaf),
      Binding::of("lgammaf64", &own_lgamma),
      Binding::of("lgammaf32x", &own_lgamma),
      Binding::of("lgammaf64x", &own_lgammal),
      Binding::datum("signgam", offsetof(LibcState, signgam)),
      Binding::datum("__signgam", offsetof(LibcState, signgam)),
  };
  return table;
}

}  // namespace aplib::loader::libc
