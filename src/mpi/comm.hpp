// SPDX-License-Identifier: MIT
// Comm: a communicator, as one of its ranks sees it.
#pragma once

#include <string>

#include "mpi/attribute.hpp"
#include "mpi/error.hpp"
#include "mpi/group.hpp"

namespace aplib::mpi {

struct Comm : ErrorTarget {
  static constexpr ObjectKind kind = ObjectKind::comm;

  Comm(Rank& rank, Group& members, Errhandler& handler, std::string title)
      : ErrorTarget(rank, kind, handler), group(&members), name(std::move(title)), own_rank(members.own_rank()) {
    group->hold();
  }
  ~Comm() override { let_go(*group); }

  /// The program's.
  [[nodiscard]] void* handle() noexcept;

  Group* group;
  std::string name;
  int own_rank;
  Attributes attributes;
};

Comm& comm_of(const Call& call, const char* parameter, MPI_Comm handle);
/// Null: the handle is none. For the raising of errors, which may be about the handle itself.
Comm* find_comm(Rank& rank, MPI_Comm handle) noexcept;

}  // namespace aplib::mpi
