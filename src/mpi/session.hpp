// SPDX-License-Identifier: MIT
// Session: a beginning and an end of MPI that a part of a program has for itself, beside MPI_Init or without it.
#pragma once

#include <string>

#include "mpi/error.hpp"
#include "mpi/send_buffer.hpp"

namespace aplib::mpi {

struct Session : ErrorTarget {
  static constexpr ObjectKind kind = ObjectKind::session;

  Session(Rank& rank, Errhandler& handler) : ErrorTarget(rank, kind, handler) {}

  [[nodiscard]] std::string title() const override { return "a session"; }

  SendBuffer send_buffer;
};

}  // namespace aplib::mpi
