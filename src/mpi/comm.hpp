// SPDX-License-Identifier: MIT
// Comm: a communicator, as one of its ranks sees it.
#pragma once

#include <cstdint>
#include <string>

#include "aplib/ids.hpp"
#include "mpi/attribute.hpp"
#include "mpi/error.hpp"
#include "mpi/group.hpp"

namespace aplib::mpi {

struct Comm : ErrorTarget {
  static constexpr ObjectKind kind = ObjectKind::comm;
  /// Contexts of the predefined ones, in which all cells agree without a word.
  static constexpr std::uint32_t world_context = 0;
  static constexpr std::uint32_t self_context = 1;

  /// `context`: the members have agreed on it, and none of them uses it for another communicator. It is the rank's
  /// again when the communicator ends.
  Comm(Rank& rank, Group& members, Errhandler& handler, std::string title, std::uint32_t context)
      : ErrorTarget(rank, kind, handler),
        group(&members),
        name(std::move(title)),
        own_rank(members.own_rank()),
        context_(context) {
    group->hold();
  }
  ~Comm() override;

  /// The program's.
  [[nodiscard]] void* handle() noexcept;

  /// Ranks are 0..size() - 1; rank() is the caller's.
  [[nodiscard]] int size() const noexcept { return static_cast<int>(group->size()); }
  [[nodiscard]] int rank() const noexcept { return own_rank; }
  /// REQUIRES: 0 <= rank < size().
  [[nodiscard]] CellId cell_of(int rank) const noexcept {
    return CellId{group->cell(static_cast<std::uint32_t>(rank))};
  }
  /// MPI_UNDEFINED: the cell is not in it.
  [[nodiscard]] int rank_of(CellId cell) const noexcept { return group->rank_of(index(cell)); }

  /// The context of messages from rank to rank, in the space of those (api::Space::mpi),
  [[nodiscard]] std::uint32_t context() const noexcept { return context_; }
  /// and that of collectives, in theirs (api::Space::mpi_collective).
  [[nodiscard]] std::uint32_t collective_context() const noexcept { return context_; }
  /// The rank object, which rank() of Object hides here.
  [[nodiscard]] Rank& owner() const noexcept { return Object::rank(); }

  /// For messages: its name, or what it is.
  [[nodiscard]] std::string title() const;

  Group* group;
  std::string name;
  int own_rank;
  Attributes attributes;
  std::uint32_t collective_calls = 0;  ///< That have begun.

 private:
  std::uint32_t context_;
};

Comm& comm_of(const Call& call, const char* parameter, MPI_Comm handle);
/// Null: the handle is none. For the raising of errors, which may be about the handle itself.
Comm* find_comm(Rank& rank, MPI_Comm handle) noexcept;

}  // namespace aplib::mpi
