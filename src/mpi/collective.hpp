// SPDX-License-Identifier: MIT
// Collective: one collective call, as one of its ranks carries it out: messages of any layout to and from the others.
//
// The ranks of a communicator make the same calls in the same order, and messages between two cells stay in order. So a
// receive takes the next message of its rank, and the tag only tells which call that belongs to: what a call that
// failed has left is dropped, and anything else that is not of this call is an error, because the ranks disagree.
//
// A send never waits for its receiver, so any order of sends and receives is free of deadlocks. A message whose receive
// was posted before is copied once.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "kernel/mailbox.hpp"
#include "mpi/comm.hpp"
#include "mpi/layout.hpp"
#include "mpi/pending_call.hpp"
#include "mpi/rank.hpp"
#include "mpi/type.hpp"

namespace aplib::mpi {

enum class CollectiveKind : std::uint8_t {
  barrier,
  bcast,
  gather,
  gatherv,
  scatter,
  scatterv,
  allgather,
  allgatherv,
  alltoall,
  alltoallv,
  alltoallw,
  reduce,
  allreduce,
  reduce_scatter,
  reduce_scatter_block,
  scan,
  exscan,
  board,
  neighbor_allgather,
  neighbor_allgatherv,
  neighbor_alltoall,
  neighbor_alltoallv,
  neighbor_alltoallw,
  cart_create,
  cart_sub,
  graph_create,
  dist_graph_create,
  dist_graph_create_adjacent,
  file,
};

/// Bytes of elements side by side: those themselves, or a copy.
class Packed {
 public:
  explicit Packed(const Elements& elements);
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }

 private:
  std::unique_ptr<std::byte[]> copy_;
  const std::byte* data_;
  std::size_t size_;
};

class Collective {
 public:
  /// `detail`: what the ranks must agree on, too: the root or the operation.
  Collective(const Call& call, Comm& comm, CollectiveKind kind, int detail = 0);
  /// The same, as `call` goes on with it.
  Collective(const Call& call, const Collective& begun) noexcept : call_(call), comm_(begun.comm_), tag_(begun.tag_) {}

  [[nodiscard]] const char* name() const noexcept { return call_.name(); }
  [[nodiscard]] Comm& comm() const noexcept { return comm_; }
  [[nodiscard]] std::uint32_t tag() const noexcept { return tag_; }
  [[nodiscard]] int size() const noexcept { return comm_.size(); }
  [[nodiscard]] int rank() const noexcept { return comm_.rank(); }
  /// The rank `distance` behind the caller's; size() and more go round.
  [[nodiscard]] int behind(int distance) const noexcept { return (rank() + size() - distance) % size(); }
  [[nodiscard]] int before(int distance) const noexcept { return (rank() + distance) % size(); }

  void send(int to, const Elements& from) const { send(to, Packed(from)); }
  void send(int to, const Packed& from) const;
  /// Fails unless the message has exactly the bytes of `to`. May switch tasks.
  void receive(int from, const Elements& to) const;
  /// The communicator's board; null: it has none, because it has one rank or ranks in several processes. The first call
  /// of a communicator makes it, together with the other ranks.
  [[nodiscard]] Board* board() const {
    if (comm_.board == nullptr && !comm_.has_no_board) [[unlikely]]
      join_board();
    return comm_.board.get();
  }
  /// What the ranks share where they are in several processes of one host; null: they are not, or the communicator has
  /// had few calls, so that it may not pay. Small blocks go from all to all there in one step. REQUIRES: board() is
  /// null.
  [[nodiscard]] HostBoard* host_board() const {
    if (comm_.host_board == nullptr && !comm_.has_no_host_board) [[unlikely]]
      join_host_board();
    return comm_.host_board.get();
  }
  /// Waits as api::wait() does; a pending call pauses meanwhile, and those of the rank go on.
  [[nodiscard]] Wake wait(TaskControl& self, Condition& condition) const {
    if (is_alone()) [[likely]]
      return api::wait(self, name(), condition);
    return call_.rank().pending_calls.wait(call_, condition);
  }
  [[nodiscard]] bool is_pending() const noexcept { return pending() != nullptr; }
  [[nodiscard]] PendingCall* pending() const noexcept { return call_.pending(); }
  [[nodiscard]] bool is_brief() const noexcept { return is_pending() && pending()->is_brief(); }
  /// For reports: ", in MPI_Ibarrier" if the call is not the one that the program waits in.
  [[nodiscard]] std::string where() const { return is_pending() ? std::string(", in ") + name() : std::string(); }
  /// A rank is in the call of this tag.
  [[noreturn]] void fail_disagreement(int rank, std::uint32_t tag) const;
  /// Whether a message of a rank, or a word, is of this call. False: an earlier call has left it. Fails if the ranks
  /// disagree.
  [[nodiscard]] bool is_ours(int from, std::uint32_t tag) const;
  /// Both at the same time.
  void exchange(int to, const Elements& sent, int from, const Elements& received) const;

 private:
  template <int capacity>
  friend class WindowOf;

  Collective(const Call& call, Comm& comm, std::uint32_t tag) noexcept : call_(call), comm_(comm), tag_(tag) {}
  void join_board() const;
  void join_host_board() const;
  /// The call by which ranks come to their board.
  [[nodiscard]] Collective joining() const;
  /// No call of the rank is pending, or will be while this one waits.
  [[nodiscard]] bool is_alone() const noexcept { return !is_pending() && call_.rank().pending_calls.stays_empty(); }
  [[nodiscard]] api::Mailbox mailbox() const noexcept;

  const Call& call_;
  Comm& comm_;
  std::uint32_t tag_;
};

/// Some receives that are under way at the same time.
template <int capacity>
class WindowOf {
 public:
  static constexpr int size_max = capacity;

  explicit WindowOf(const Collective& collective) noexcept : collective_(collective) {}
  /// Takes back what has not come.
  ~WindowOf();
  WindowOf(const WindowOf&) = delete;
  WindowOf& operator=(const WindowOf&) = delete;

  [[nodiscard]] bool is_full() const noexcept { return count_ == size_max; }
  /// REQUIRES: not full; no other open receive is from this rank. `to` stays until wait() has returned.
  void post(int from, const Elements& to);
  /// Until all have come. Fails as Collective::receive(). Empty afterwards.
  void wait();

 private:
  struct Incoming {
    api::MailboxReceive receive;
    Elements to{};
    int from = 0;
    std::unique_ptr<std::byte[]> packed;  // null: the message goes to its place at once
  };

  void begin(Incoming& incoming);
  void wait_for_all();
  void finish(Incoming& incoming);

  const Collective& collective_;
  std::array<Incoming, size_max> incoming_;
  int count_ = 0;
};

extern template class WindowOf<1>;
extern template class WindowOf<8>;
using Window = WindowOf<8>;

// ---------------------------------------------------------------- arguments of collective calls

/// A rank will not do what this one waits for, or has waited for in an earlier call.
[[noreturn]] void fail_ended(int rank, std::string_view without = "this call");
inline constexpr std::string_view earlier_call = "an earlier call of the communicator";
/// A rank sends as many bytes as this rank does not expect.
[[noreturn]] void fail_bytes(int from, Count bytes, Count wanted);
void check_root(const Comm& comm, int root);
/// The memory of a buffer that may not be MPI_IN_PLACE. The type has been found valid.
Elements buffer_elements(const char* parameter, const void* buffer, MPI_Count count, const TypeHandle& type);
/// Fails if both sides are the same memory.
void check_alias(const Elements& send, const Elements& receive);
/// From the caller to itself: fails unless both have as many bytes, or if they are the same memory.
void check_own(const Elements& to, const Elements& from);
void copy_own(const Elements& to, const Elements& from);
/// Elements [first, first + count) of elements.
[[nodiscard]] Elements part_of(const Elements& elements, Count first, Count count) noexcept;

}  // namespace aplib::mpi
