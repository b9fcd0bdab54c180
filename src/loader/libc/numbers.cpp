// SPDX-License-Identifier: MIT
// rand, random, drand48 and their relatives: libc's re-entrant generators give each instance the sequence of the
// program alone.
//
// The logarithm of the gamma function leaves its sign in a variable, signgam, which is the instance's.
#include <math.h>  // NOLINT: lgamma_r is not C++'s

#include <array>
#include <cstddef>
#include <cstdlib>
#include <mutex>

#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"

namespace aplib::loader::libc {

struct RandomState {
  std::mutex mutex;  // as in libc: threads of a program may share the sequence
  random_data data{};
  std::array<char, 128> table{};
  drand48_data data48{};

  // random() starts as after srandom(1).
  RandomState() noexcept { initstate_r(1, table.data(), table.size(), &data); }
};

namespace {

int next_random(LibcState& state) {
  RandomState& own = shared_part(state.random);
  const std::lock_guard lock(own.mutex);
  int result = 0;
  random_r(&own.data, &result);
  return result;
}

void seed_random(LibcState& state, unsigned seed) {
  RandomState& own = shared_part(state.random);
  const std::lock_guard lock(own.mutex);
  srandom_r(seed, &own.data);
}

// One number of the drand48 family by its re-entrant function.
template <class Result>
Result next48(LibcState& state, int (*generate)(drand48_data*, Result*)) {
  RandomState& own = shared_part(state.random);
  const std::lock_guard lock(own.mutex);
  Result result{};
  generate(&own.data48, &result);
  return result;
}

template <class Result>
Result next48_from(LibcState& state, unsigned short* from, int (*generate)(unsigned short*, drand48_data*, Result*)) {
  RandomState& own = shared_part(state.random);
  const std::lock_guard lock(own.mutex);
  Result result{};
  generate(from, &own.data48, &result);
  return result;
}

// Where the caller of initstate() and setstate() finds what it gave last: the word before the numbers.
char* table_in_use(const RandomState& own) { return reinterpret_cast<char*>(&own.data.state[-1]); }

// --- what programs call. rand() and random() are one generator, as in glibc.

int own_rand(LibcState& state) { return next_random(state); }

long own_random(LibcState& state) { return next_random(state); }

void own_srand(LibcState& state, unsigned seed) { seed_random(state, seed); }

char* own_initstate(LibcState& state, unsigned seed, char* table, std::size_t bytes) {
  RandomState& own = shared_part(state.random);
  const std::lock_guard lock(own.mutex);
  char* before = table_in_use(own);
  return initstate_r(seed, table, bytes, &own.data) == 0 ? before : nullptr;
}

char* own_setstate(LibcState& state, char* table) {
  RandomState& own = shared_part(state.random);
  const std::lock_guard lock(own.mutex);
  char* before = table_in_use(own);
  return setstate_r(table, &own.data) == 0 ? before : nullptr;
}

double own_drand48(LibcState& state) { return next48<double>(state, drand48_r); }

long own_lrand48(LibcState& state) { return next48<long>(state, lrand48_r); }

long own_mrand48(LibcState& state) { return next48<long>(state, mrand48_r); }

double own_erand48(LibcState& state, unsigned short* from) { return next48_from<double>(state, from, erand48_r); }

long own_nrand48(LibcState& state, unsigned short* from) { return next48_from<long>(state, from, nrand48_r); }

long own_jrand48(LibcState& state, unsigned short* from) { return next48_from<long>(state, from, jrand48_r); }

void own_srand48(LibcState& state, long seed) {
  RandomState& own = shared_part(state.random);
  const std::lock_guard lock(own.mutex);
  srand48_r(seed, &own.data48);
}

unsigned short* own_seed48(LibcState& state, unsigned short* seed) {
  RandomState& own = shared_part(state.random);
  const std::lock_guard lock(own.mutex);
  seed48_r(seed, &own.data48);
  return own.data48.__old_x;
}

void own_lcong48(LibcState& state, unsigned short* parameters) {
  RandomState& own = shared_part(state.random);
  const std::lock_guard lock(own.mutex);
  lcong48_r(parameters, &own.data48);
}

}  // namespace

std::span<const Binding> random_bindings() {
  static const std::array table{
      bound<::rand, own_rand>("rand"),
      bound<::srand, own_srand>("srand"),
      bound<::random, own_random>("random"),
      bound<::srand, own_srand>("srandom"),
      bound<::initstate, own_initstate>("initstate"),
      bound<::setstate, own_setstate>("setstate"),
      bound<::drand48, own_drand48>("drand48"),
      bound<::erand48, own_erand48>("erand48"),
      bound<::lrand48, own_lrand48>("lrand48"),
      bound<::nrand48, own_nrand48>("nrand48"),
      bound<::mrand48, own_mrand48>("mrand48"),
      bound<::jrand48, own_jrand48>("jrand48"),
      bound<::srand48, own_srand48>("srand48"),
      bound<::seed48, own_seed48>("seed48"),
      bound<::lcong48, own_lcong48>("lcong48"),
  };
  return table;
}

// ---------------------------------------------------------------- the sign that lgamma leaves

namespace {

int* sign_of(const void* caller) {
  LibcState* state = state_of(caller);
  return state == nullptr ? &::signgam : state->signgam.place();
}

double own_lgamma(double x) { return ::lgamma_r(x, sign_of(__builtin_return_address(0))); }
float own_lgammaf(float x) { return ::lgammaf_r(x, sign_of(__builtin_return_address(0))); }
long double own_lgammal(long double x) { return ::lgammal_r(x, sign_of(__builtin_return_address(0))); }

}  // namespace

std::span<const Binding> gamma_bindings() {
  static const std::array table{
      Binding::of("lgamma", &own_lgamma),       Binding::of("lgammaf", &own_lgammaf),
      Binding::of("lgammal", &own_lgammal),     Binding::of("gamma", &own_lgamma),
      Binding::of("gammaf", &own_lgammaf),      Binding::of("gammal", &own_lgammal),
      Binding::of("lgammaf32", &own_lgammaf),   Binding::of("lgammaf64", &own_lgamma),
      Binding::of("lgammaf32x", &own_lgamma),   Binding::of("lgammaf64x", &own_lgammal),
      variable<&LibcState::signgam>("signgam"), variable<&LibcState::signgam>("__signgam"),
  };
  return table;
}

}  // namespace aplib::loader::libc
