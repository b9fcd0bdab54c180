// SPDX-License-Identifier: MIT
// What a handle MPI_Datatype points to: a datatype (datatype.hpp) with what belongs to the rank's handle alone.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "mpi/attribute.hpp"
#include "mpi/call.hpp"
#include "mpi/datatype.hpp"
#include "mpi/error.hpp"

namespace aplib::mpi {

struct TypeHandle : Object {
  static constexpr ObjectKind kind = ObjectKind::datatype;

  TypeHandle(Rank& rank, DatatypePtr made, bool committed)
      : Object(rank, kind), datatype(std::move(made)), is_committed(committed) {}

  /// Whoever uses it after the call, another cell too, keeps a copy of this, not the object.
  DatatypePtr datatype;
  bool is_committed;
  std::string name{};
  Attributes attributes{};

  /// As the program has it.
  [[nodiscard]] MPI_Datatype handle() noexcept;
};

namespace detail {
void check_committed(const char* parameter, const TypeHandle& type);
[[noreturn]] void fail_bytes(MPI_Count count, const Datatype& type);
/// Of a null pointer or MPI_IN_PLACE, with elements: fails unless it is meant as MPI_BOTTOM.
void check_buffer(const char* parameter, const void* buffer, const Datatype& type);
}  // namespace detail

/// The rank's object of a handle, predefined or not; fails if there is none.
TypeHandle& datatype_of(const Call& call, const char* parameter, MPI_Datatype handle);

/// The rank's type that Fortran chose by precision and range: the same handle for the same choice.
MPI_Datatype f90_type(const Call& call, Combiner combiner, const std::vector<int>& chosen, BasicType type);

/// The datatype of data that travels; fails if it is not committed, or one that this machine lacks.
inline const DatatypePtr& committed(const char* parameter, const TypeHandle& type) {
  if (!type.is_committed || type.datatype->size() == 0) [[unlikely]]
    detail::check_committed(parameter, type);
  return type.datatype;
}

/// Of so many elements; the largest number, if there are more.
inline Count data_bytes(MPI_Count count, const TypeHandle& type) noexcept {
  Count bytes = 0;
  return __builtin_mul_overflow(type.datatype->size(), count, &bytes) ? std::numeric_limits<Count>::max() : bytes;
}

/// The value of MPI_IN_PLACE; no buffer lies there, or below.
inline constexpr std::uintptr_t in_place_value = 1;

/// The memory of `count` elements at a program's `buffer`; fails if they cannot be there.
inline Elements elements_at(const char* parameter, const void* buffer, MPI_Count count, const Datatype& type) {
  Count bytes = 0;
  if (__builtin_mul_overflow(type.size(), count, &bytes)) [[unlikely]]
    detail::fail_bytes(count, type);
  if (reinterpret_cast<std::uintptr_t>(buffer) <= in_place_value && bytes > 0) [[unlikely]]
    detail::check_buffer(parameter, buffer, type);
  return {const_cast<void*>(buffer), &type.layout(), count, type.extent()};
}

}  // namespace aplib::mpi
