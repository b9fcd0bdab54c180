// SPDX-License-Identifier: MIT
// What a handle MPI_Datatype points to: a datatype (datatype.hpp) with what belongs to the rank's handle alone.
#pragma once

#include <string>

#include "mpi/attribute.hpp"
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

/// The rank's object of a handle, predefined or not; fails if there is none.
TypeHandle& datatype_of(const Call& call, const char* parameter, MPI_Datatype handle);

/// The datatype of data that travels; fails if it is not committed, or one that this machine lacks.
const DatatypePtr& committed(const char* parameter, const TypeHandle& type);

/// The memory of `count` elements at a program's `buffer`; fails if they cannot be there.
Elements elements_at(const char* parameter, const void* buffer, MPI_Count count, const Datatype& type);

}  // namespace aplib::mpi
