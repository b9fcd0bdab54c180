// SPDX-License-Identifier: MIT
// Numbers that mean something, in the standard ABI's form and in the other MPI's: standard_KIND(value) and
// foreign_KIND(value) for the kinds of functions.txt that differ. And the functions of the standard ABI.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

// Here the functions have other types, and conversions of handles are functions of the library.
#define APLIB_MPI_OMIT_FUNCTIONS
#include <aplib_mpi_functions.hpp>
#include <front_values.hpp>

#include "mpi/handles.hpp"

namespace aplib::mpi::front {

inline constexpr const AplibMpiFunctions& own = aplib_mpi_functions;

template <class Handle>
std::uintptr_t value_of(Handle handle) noexcept {
  return reinterpret_cast<std::uintptr_t>(handle);
}

/// A status that nobody has written.
inline constexpr int unwritten = -0x7fff'fff0;
inline void blank(MPI_Status& status) noexcept { status.MPI_SOURCE = status.MPI_ERROR = unwritten; }

inline int returned(int error) noexcept {
  return error == MPI_SUCCESS ? MPI_SUCCESS : static_cast<int>(foreign_code(error));
}

using Convert = long (*)(long);
/// As many zeros if there are none.
std::vector<int> converted(Convert convert, const int* values, long count);
void convert_in_place(Convert convert, int* values, long count);
/// Where this number is for good.
int* place_of(int number);

}  // namespace aplib::mpi::front
