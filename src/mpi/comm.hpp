// SPDX-License-Identifier: MIT
// Comm: a communicator, as one of its ranks sees it. An intercommunicator has two groups: the caller's own, and the
// remote one, whose ranks are those that messages go to and come from.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "aplib/ids.hpp"
#include "mpi/attribute.hpp"
#include "mpi/board.hpp"
#include "mpi/context.hpp"
#include "mpi/error.hpp"
#include "mpi/group.hpp"
#include "mpi/host_board.hpp"
#include "mpi/send_buffer.hpp"

namespace aplib::mpi {

struct Info;
struct Topology;

struct Comm : ErrorTarget {
  static constexpr ObjectKind kind = ObjectKind::comm;
  /// Contexts of the predefined ones, in which all cells agree without a word.
  static constexpr std::uint32_t world_context = 0;
  static constexpr std::uint32_t self_context = 1;
  /// The members have not agreed yet.
  static constexpr std::uint32_t no_context = ContextSet::count;

  /// `context`: the members have agreed on it, and none of them uses it for another communicator. It is the rank's
  /// again when the communicator ends.
  Comm(Rank& rank, Group& members, Errhandler& handler, std::string title, std::uint32_t context)
      : Comm(rank, members, members, handler, std::move(title), context) {}
  /// An intercommunicator. The members of both groups have agreed on its context.
  Comm(Rank& rank, Group& members, Group& remote, Errhandler& handler, std::uint32_t context);
  ~Comm() override;

  [[nodiscard]] void* handle() noexcept override;
  [[nodiscard]] std::string title() const override;
  /// The communicator of the nonblocking collective calls of this one: the same ranks, with a channel of their own.
  /// Made by the first of them. Pending calls know of it, and programs do not.
  [[nodiscard]] Comm& of_nonblocking_calls();
  /// A new one for the next persistent collective call. All ranks call it; they wait for each other now and then.
  [[nodiscard]] Comm& for_persistent_call(const Call& call);

  [[nodiscard]] bool is_inter() const noexcept { return peers != group; }
  /// Ranks of the caller's group are 0..size() - 1; rank() is the caller's.
  [[nodiscard]] int size() const noexcept { return static_cast<int>(group->size()); }
  [[nodiscard]] int rank() const noexcept { return own_rank; }
  /// Those that messages go to and come from: of an intercommunicator, the ranks of the remote group.
  [[nodiscard]] int peer_count() const noexcept { return static_cast<int>(peers->size()); }
  /// REQUIRES: 0 <= rank < peer_count().
  [[nodiscard]] CellId cell_of(int rank) const noexcept {
    return CellId{peers->cell(static_cast<std::uint32_t>(rank))};
  }
  /// MPI_UNDEFINED: the cell is not among the peers.
  [[nodiscard]] int rank_of(CellId cell) const noexcept { return peers->rank_of(index(cell)); }

  /// The context of messages from rank to rank, in the space of those (api::Space::mpi),
  [[nodiscard]] std::uint32_t context() const noexcept { return context_; }
  /// REQUIRES: it has none.
  void set_context(std::uint32_t context) noexcept;
  /// and that of collectives, in theirs (api::Space::mpi_collective).
  [[nodiscard]] std::uint32_t collective_context() const noexcept { return context_ | channel_; }
  [[nodiscard]] bool is_of_nonblocking_calls() const noexcept { return channel_ == nonblocking; }
  /// Then all its calls have one number.
  [[nodiscard]] bool is_of_persistent_call() const noexcept { return channel_ == persistent; }
  /// What the program says about its use of the communicator; null: nothing.
  void set_hints(const Info* given);
  /// The rank object, which rank() of Object hides here.
  [[nodiscard]] Rank& owner() const noexcept { return Object::rank(); }

  Group* group;
  Group* peers;  ///< The remote group of an intercommunicator, otherwise `group`.
  /// Of an intercommunicator: one of the caller's group alone, for the library. It has the same context: messages of
  /// the two come from different cells.
  Comm* local = nullptr;
  std::string name;
  int own_rank;
  Attributes attributes;
  SendBuffer send_buffer;
  std::shared_ptr<const Topology> topology;               ///< Null: it has none.
  std::uint32_t hints = 0;                                ///< Those that are true, a bit for each (comm.cpp).
  std::uint32_t collective_calls = 0;                     ///< That have begun.
  std::uint32_t ended_calls = 0;                          ///< Of nonblocking ones, those that are over.
  std::shared_ptr<PersistentNumbers> persistent_numbers;  ///< Made by the first persistent call, which has it, too.
  std::uint32_t duplications = 0;                         ///< The same of MPI_Comm_idup.
  BoardPtr board;                                         ///< Made by the first of them,
  bool has_no_board = false;                              ///< unless it cannot be.
  std::unique_ptr<HostBoard> host_board;                  ///< Then, where its ranks are on one host,
  bool has_no_host_board = false;                         ///< unless that cannot be, either.

 private:
  Comm(Rank& rank, Group& members, Group& others, Errhandler& handler, std::string title, std::uint32_t context)
      : ErrorTarget(rank, kind, handler),
        group(&members),
        peers(&others),
        name(std::move(title)),
        own_rank(members.own_rank()),
        context_(context) {
    group->hold();
    peers->hold();
  }
  /// The same ranks with another channel.
  Comm(Comm& of, std::uint32_t channel, std::uint32_t calls);

  std::uint32_t context_;
  std::uint32_t channel_ = 0;    // added to the context of collectives
  Comm* nonblocking_ = nullptr;  // of_nonblocking_calls()
};

// They fail unless it is of this sort.
void check_inter(const char* parameter, const Comm& comm);
void check_intra(const char* parameter, const Comm& comm);

Comm& comm_of(const Call& call, const char* parameter, MPI_Comm handle);
/// Null: the handle is none. For the raising of errors, which may be about the handle itself.
Comm* find_comm(Rank& rank, MPI_Comm handle) noexcept;

/// "ranks 1, 2 of MPI_COMM_WORLD": those of them that `is_meant` accepts.
template <class IsMeant>
std::string describe_ranks(const Comm& comm, const IsMeant& is_meant) {
  constexpr int named_max = 8;
  std::string text;
  int count = 0;
  for (int rank = 0; rank < comm.size(); ++rank) {
    if (is_meant(rank) && ++count <= named_max) text += (count == 1 ? "" : ", ") + std::to_string(rank);
  }
  return (count == 1 ? "rank " : "ranks ") + text + (count > named_max ? ", ... of " : " of ") + comm.title();
}

/// Collective over the parent: a communicator of those of its cells. Null: the caller is not among them.
Comm* make_part(const Call& call, const Comm& parent, std::vector<std::uint32_t> cells);

}  // namespace aplib::mpi
