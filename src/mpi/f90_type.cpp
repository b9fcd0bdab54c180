// SPDX-License-Identifier: MIT
// Fortran's types by precision and range: MPI_Type_create_f90_*. They are predefined, but have handles of their own,
// which tell what was chosen. The kinds are those that gfortran selects.
#include <fmt/format.h>

#include <array>
#include <span>

#include "mpi/rank.hpp"
#include "mpi/type.hpp"

namespace aplib::mpi {

namespace {

struct FloatKind {
  int precision;  // decimal digits
  int range;      // decimal exponents
  BasicType real;
  BasicType complex;
};
constexpr std::array<FloatKind, 4> float_kinds = {{{6, 37, BasicType{0xd2}, BasicType{0xdb}},
                                                   {15, 307, BasicType{0xda}, BasicType{0xe3}},
                                                   {18, 4931, BasicType{0x20}, BasicType{0x24}},
                                                   {33, 4931, BasicType{0xe2}, BasicType{0xeb}}}};

struct IntegerKind {
  int range;
  BasicType type;
};
constexpr std::array<IntegerKind, 5> integer_kinds = {
    {{2, BasicType{0xc1}}, {4, BasicType{0xc9}}, {9, BasicType{0xd1}}, {18, BasicType{0xd9}}, {38, BasicType{0xe1}}}};

void check_choice(const char* parameter, int value) {
  if (value < 0 && value != MPI_UNDEFINED)
    fail(MPI_ERR_ARG, fmt::format("{} is {}; it is a number of decimal digits, or MPI_UNDEFINED", parameter, value));
}

const FloatKind& float_kind(int p, int r) {
  check_choice("p", p);
  check_choice("r", r);
  if (p == MPI_UNDEFINED && r == MPI_UNDEFINED)
    fail(MPI_ERR_ARG, "p and r are both MPI_UNDEFINED; give at least one of them");
  for (const FloatKind& kind : float_kinds) {
    if (p <= kind.precision && r <= kind.range) return kind;  // MPI_UNDEFINED is below all
  }
  fail(MPI_ERR_ARG, fmt::format("Fortran has no type with precision {} and range {}; it has precisions up to {}, "
                                "ranges up to {}",
                                p == MPI_UNDEFINED ? 0 : p, r == MPI_UNDEFINED ? 0 : r, float_kinds.back().precision,
                                float_kinds.back().range));
}

}  // namespace

MPI_Datatype f90_type(const Call& call, Combiner combiner, const std::vector<int>& chosen, BasicType type) {
  TypeHandle*& place = call.rank().f90_types[{static_cast<int>(combiner), chosen}];
  if (place == nullptr) place = new TypeHandle(call.rank(), Datatype::f90(combiner, chosen, type), true);
  return place->handle();
}

void type_create_f90_real(const Call& call, int p, int r, MPI_Datatype* place) {
  *place = f90_type(call, Combiner::f90_real, {p, r}, float_kind(p, r).real);
}

void type_create_f90_complex(const Call& call, int p, int r, MPI_Datatype* place) {
  *place = f90_type(call, Combiner::f90_complex, {p, r}, float_kind(p, r).complex);
}

void type_create_f90_integer(const Call& call, int r, MPI_Datatype* place) {
  check_choice("r", r);
  for (const IntegerKind& kind : integer_kinds) {
    if (r == MPI_UNDEFINED || r > kind.range) continue;
    *place = f90_type(call, Combiner::f90_integer, {r}, kind.type);
    return;
  }
  fail(MPI_ERR_ARG,
       fmt::format("r is {}; Fortran has integers with ranges of up to {} digits", r, integer_kinds.back().range));
}

}  // namespace aplib::mpi
