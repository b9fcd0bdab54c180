// SPDX-License-Identifier: MIT
// The collective calls that only move data. In one address space a message is one copy, so data go straight from where
// they are to where they belong. Trees save messages only where these are small or all the same.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "mpi/blocks.hpp"
#include "mpi/meeting_rest.hpp"

namespace aplib::mpi {

namespace {

/// The caller's block to the root.
void give(const Collective& collective, int root, const Elements& own) {
  Board* const board = collective.board();
  if (board == nullptr) return collective.send(root, own);
  Meeting meeting(collective, *board);
  if (meeting.show(own)) return meeting.leave();
  meeting.arrive_and_wait();
  meeting.wait_for_finish(root);
}

/// Everyone's block to the root, which is the caller.
void gather_to(const Collective& collective, const Blocks& blocks) {
  if (Board* const board = collective.board()) {
    Meeting meeting(collective, *board);
    meeting.arrive_and_wait();
    return meeting.finish_after([&] {
      for (int i = 1; i < collective.size(); ++i) meeting.take(collective.before(i), blocks[collective.before(i)]);
    });
  }
  Window window(collective);
  for (int i = 1; i < collective.size(); ++i) {
    if (window.is_full()) window.wait();
    window.post(collective.before(i), blocks[collective.before(i)]);
  }
  window.wait();
}

/// The caller's block from the root.
void take(const Collective& collective, int root, const Elements& own) {
  Board* const board = collective.board();
  if (board == nullptr) return collective.receive(root, own);
  Meeting meeting(collective, *board);
  meeting.end_when_shown_by(root,
                            [root, own](Meeting& begun) { begun.leave_after([&] { begun.take_helped(root, own); }); });
}

/// The blocks of the root, which is the caller, to everyone.
void scatter_from(const Collective& collective, const Blocks& blocks) {
  if (Board* const board = collective.board()) {
    Meeting meeting(collective, *board);
    if (blocks.show(meeting)) return meeting.leave();
    return meeting.arrive_and_help();
  }
  for (int i = 1; i < collective.size(); ++i) collective.send(collective.before(i), blocks[collective.before(i)]);
}

/// The caller's block, own(), goes to the root; of the root itself only if it is not `in_place`. make_blocks(): what
/// the root receives.
template <class Own, class MakeBlocks>
void gather_all(const Call& call, Comm& comm, CollectiveKind kind, int root, bool in_place, const Own& own,
                const MakeBlocks& make_blocks) {
  check_root(comm, root);
  if (comm.rank() != root) {
    const Elements elements = own();
    return give(Collective(call, comm, kind, root), root, elements);
  }
  const Blocks blocks = make_blocks();
  Elements elements{};
  if (!in_place) check_own(blocks[root], elements = own());
  const Collective collective(call, comm, kind, root);
  if (!in_place) copy_own(blocks[root], elements);
  gather_to(collective, blocks);
}

/// The same from the root. make_blocks(): what it sends.
template <class Own, class MakeBlocks>
void scatter_all(const Call& call, Comm& comm, CollectiveKind kind, int root, bool in_place, const Own& own,
                 const MakeBlocks& make_blocks) {
  check_root(comm, root);
  if (comm.rank() != root) {
    const Elements elements = own();
    return take(Collective(call, comm, kind, root), root, elements);
  }
  const Blocks blocks = make_blocks();
  Elements elements{};
  if (!in_place) check_own(elements = own(), blocks[root]);
  const Collective collective(call, comm, kind, root);
  if (!in_place) copy_own(elements, blocks[root]);
  scatter_from(collective, blocks);
}

/// For all i from 1: sent(i) to rank + i * distance, and received(i) from rank - i * distance. No rank is everybody's
/// first.
template <class Sent, class Received>
void exchange_with(const Collective& collective, int distance, int count, const Sent& sent, const Received& received) {
  Window window(collective);
  for (int first = 1; first < count; first += Window::size_max) {
    const int end = std::min(first + Window::size_max, count);
    for (int i = first; i < end; ++i) window.post(collective.behind(i * distance), received(i));
    for (int i = first; i < end; ++i) collective.send(collective.before(i * distance), sent(i));
    window.wait();
  }
}

/// sent(i) to rank i, and its block from it, for all others.
template <class Sent>
void exchange_all(const Collective& collective, const Sent& sent, const Blocks& received) {
  exchange_with(
      collective, 1, collective.size(), [&](int i) { return sent(collective.before(i)); },
      [&](int i) { return received[collective.behind(i)]; });
}

/// Small blocks of one size, in two steps of about sqrt(size) messages each in place of size - 1 messages. The block
/// for rank + i goes by way of rank + i % radix, together with all that go on by a multiple of the radix.
/// (J. Bruck et al., "Efficient Algorithms for All-to-All Communications in Multiport Message-Passing Systems", IEEE
/// TPDS 8 (11), 1997, with the radix for which two steps do.)
class TwoSteps {
 public:
  static constexpr Count block_max = 512;  // some KiB more cost as much as the message that they save
  static constexpr int size_min = 16;      // with 8 ranks, two steps cost more than five messages

  TwoSteps(const Collective& collective, Count block)
      : collective_(collective),
        size_(collective.size()),
        radix_(static_cast<int>(std::ceil(std::sqrt(size_)))),
        rows_((size_ + radix_ - 1) / radix_),
        block_(block),
        memory_(std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(2 * radix_ * rows_ * block))),
        sent_(memory_.get()),
        received_(sent_ + radix_ * rows_ * block) {}

  void exchange(const Blocks& from, const Blocks& to) {
    for (int i = 1; i < size_; ++i) pack(by_column(sent_, i), from[collective_.before(i)], 0, block_);
    step(1, radix_, [this](std::byte* base, int column) {
      return bytes_at(by_column(base, column), (size_ - column + radix_ - 1) / radix_ * block_);
    });
    // Block i has come from rank - i % radix. Those of column 0 are where they were, in places that rows leave free.
    for (int i = 1; i < size_; ++i) {
      const std::byte* const block = by_column(i % radix_ == 0 ? sent_ : received_, i);
      if (i < radix_) {
        unpack(to[collective_.behind(i)], block, 0, block_);
      } else {
        std::memcpy(by_row(sent_, i), block, static_cast<std::size_t>(block_));
      }
    }
    step(radix_, rows_, [this](std::byte* base, int row) {
      const int first = row * radix_;
      return bytes_at(by_row(base, first), std::min(radix_, size_ - first) * block_);
    });
    for (int i = radix_; i < size_; ++i) unpack(to[collective_.behind(i)], by_row(received_, i), 0, block_);
  }

 private:
  [[nodiscard]] std::byte* by_column(std::byte* base, int i) const noexcept {
    return base + (i % radix_ * rows_ + i / radix_) * block_;
  }
  [[nodiscard]] std::byte* by_row(std::byte* base, int i) const noexcept { return base + i * block_; }

  template <class Part>
  void step(int distance, int count, const Part& part) {
    exchange_with(
        collective_, distance, count, [&](int i) { return part(sent_, i); }, [&](int i) { return part(received_, i); });
  }

  const Collective& collective_;
  int size_;
  int radix_;
  int rows_;  // at most the radix
  Count block_;
  std::unique_ptr<std::byte[]> memory_;
  std::byte* sent_;
  std::byte* received_;
};

/// What a rank sends to itself. At a board it is copied while the rank waits for others.
class OwnBlock {
 public:
  /// Fails as check_own().
  OwnBlock(const Elements& to, const Elements& from) : to_(to), from_(from), bytes_(to.bytes()) { check_own(to, from); }
  /// In place: nothing is copied.
  explicit OwnBlock(const Elements& place) : to_(place), from_(place) {}

  [[nodiscard]] const Elements& sent() const noexcept { return from_; }
  /// False: nothing is left.
  bool copy_some() noexcept {
    copy_up_to(std::min(bytes_, copied_ + part_bytes));
    return copied_ < bytes_;
  }
  void copy_rest() noexcept { copy_up_to(bytes_); }

 private:
  static constexpr Count part_bytes = 4096;  // some 100 ns, in which others arrive

  void copy_up_to(Count end) noexcept {
    if (copied_ < end) copy(to_, from_, copied_, end - copied_);
    copied_ = end;
  }

  Elements to_;
  Elements from_;
  Count bytes_ = 0;
  Count copied_ = 0;
};

/// take(rank) of all others, no rank everybody's first.
template <class Take>
void take_others(const Collective& collective, const Take& take) {
  for (int i = 1; i < collective.size(); ++i) take(collective.behind(i));
}

/// What all others show, at the board. `is_copied`: all show copies.
void take_all(const Collective& collective, Meeting& meeting, OwnBlock& own, const Blocks& received, bool is_copied) {
  meeting.arrive();
  while (!meeting.is_complete() && own.copy_some()) {
  }
  meeting.wait_for_all();
  meeting.part_after(
      !is_copied, [&] { take_others(collective, [&](int from) { meeting.take(from, received[from]); }); },
      [&] { own.copy_rest(); });
}

/// Exchanges the blocks of one buffer with those of all others: pair by pair, each block leaves before another one
/// takes its place.
void exchange_in_place(const Collective& collective, const Blocks& blocks) {
  for (int round = 0; round < collective.size(); ++round) {
    const int partner = (round - collective.rank() + collective.size()) % collective.size();
    if (partner == collective.rank()) continue;
    const Elements block = blocks[partner];
    collective.send(partner, block);
    collective.receive(partner, block);
  }
}

// A call that fails by its own arguments does not count.
void exchange_blocks(const Call& call, Comm& comm, CollectiveKind kind, const Blocks& sent, const Blocks& received) {
  OwnBlock own(received[comm.rank()], sent[comm.rank()]);
  const Collective collective(call, comm, kind);
  if (Board* const board = collective.board()) {
    const bool is_small = sent.are_small(collective.size());
    Meeting meeting(collective, *board, is_small ? 1 : 0);
    sent.show(meeting);
    return take_all(collective, meeting, own, received, is_small);
  }
  own.copy_rest();
  const Count block = own.sent().bytes();
  const Count all = block * collective.size();
  if (HostBoard* const board = collective.host_board(); board != nullptr && kind == CollectiveKind::alltoall) {
    board->meet(collective, part_of(sent[0], 0, sent[0].count * collective.size()));
    if (HostBoard::holds(all))
      return take_others(collective, [&](int from) { board->take(from, received[from], collective.rank() * block); });
  }
  if (kind == CollectiveKind::alltoall && block <= TwoSteps::block_max && collective.size() >= TwoSteps::size_min)
    return TwoSteps(collective, block).exchange(sent, received);
  exchange_all(
      collective, [&](int to) { return sent[to]; }, received);
}

/// The caller's block to all. `is_small`: all blocks are.
void spread(const Collective& collective, OwnBlock& own, const Blocks& blocks, bool is_small) {
  if (Board* const board = collective.board()) {
    Meeting meeting(collective, *board, is_small ? 1 : 0);
    if (is_small) {
      static_cast<void>(meeting.show(own.sent()));
    } else {
      meeting.show(Given{.first = own.sent()});
    }
    return take_all(collective, meeting, own, blocks, is_small);
  }
  own.copy_rest();
  exchange_all(
      collective, [&](int) { return own.sent(); }, blocks);
}

/// Of calls where everyone gets everyone's block. `place`: where the caller gets its own.
OwnBlock own_block(const Call& call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
                   const Elements& place) {
  if (sendbuf == MPI_IN_PLACE) return OwnBlock(place);
  return {place, sent_elements(call, "sendbuf", sendbuf, "sendcount", sendcount, "sendtype", sendtype)};
}

/// By way of a small buffer: in log2 rounds, each of which doubles what every rank has.
constexpr Count small_gather_max = 2048;

void gather_small(const Collective& collective, const Elements& own, const Blocks& blocks) {
  const int size = collective.size();
  const Count block = own.bytes();
  std::array<std::byte, small_gather_max> packed;
  const auto packed_at = [&](int i) { return packed.data() + block * i; };
  pack(packed.data(), own, 0, block);
  for (int have = 1; have < size; have *= 2) {
    const Count bytes = std::min(have, size - have) * block;
    collective.exchange(collective.behind(have), bytes_at(packed.data(), bytes), collective.before(have),
                        bytes_at(packed_at(have), bytes));
  }
  for (int i = 1; i < size; ++i) unpack(blocks[collective.before(i)], packed_at(i), 0, block);
}

}  // namespace

void barrier(const Call& call, Comm& comm) {
  const Collective collective(call, comm, CollectiveKind::barrier);
  if (Board* const board = collective.board()) {
    Meeting meeting(collective, *board);
    meeting.arrive();
    return meeting.end_when_complete([](const Meeting&) {});
  }
  const Elements nothing = bytes_at(nullptr, 0);
  if (HostBoard* const board = collective.host_board()) return board->meet(collective, nothing);
  for (int distance = 1; distance < collective.size(); distance *= 2)
    collective.exchange(collective.before(distance), nothing, collective.behind(distance), nothing);
}

void bcast(const Call& call, void* buffer, MPI_Count count, TypeHandle& type, int root, Comm& comm) {
  check_root(comm, root);
  const Elements elements = buffer_elements("buffer", buffer, count, travelling("datatype", type));
  const Collective collective(call, comm, CollectiveKind::bcast, root);
  if (Board* const board = collective.board()) {
    if (comm.rank() != root) return take(collective, root, elements);
    Meeting meeting(collective, *board);
    if (meeting.show(elements)) return meeting.leave();
    return meeting.arrive_and_help();
  }
  if (HostBoard* const board = collective.host_board()) {
    if (comm.rank() == root) {
      board->tell(collective, elements);
    } else {
      board->hear(collective, root, elements);
    }
    if (HostBoard::can_tell(elements.bytes())) return;
  }
  const int size = collective.size();
  const int distance = collective.behind(root);  // from the root, in the tree
  int step = 1;
  while (step < size && (distance & step) == 0) step *= 2;
  if (distance != 0) collective.receive(collective.behind(step), elements);
  if (step == 1) return;
  const Packed packed(elements);  // once, however many get it
  for (step /= 2; step > 0; step /= 2) {
    if (distance + step < size) collective.send(collective.before(step), packed);
  }
}

void gather(const Call& call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
            MPI_Count recvcount, MPI_Datatype recvtype, int root, Comm& comm) {
  gather_all(
      call, comm, CollectiveKind::gather, root, sendbuf == MPI_IN_PLACE,
      [&] { return sent_elements(call, "sendbuf", sendbuf, "sendcount", sendcount, "sendtype", sendtype); },
      [&] {
        check_count(call, "recvcount", recvcount);
        return Blocks("recvbuf", recvbuf, recvcount, travelling(call, "recvtype", recvtype));
      });
}

void gatherv(const Call& call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
             Numbers recvcounts, Numbers displs, MPI_Datatype recvtype, int root, Comm& comm) {
  gather_all(
      call, comm, CollectiveKind::gatherv, root, sendbuf == MPI_IN_PLACE,
      [&] { return sent_elements(call, "sendbuf", sendbuf, "sendcount", sendcount, "sendtype", sendtype); },
      [&] {
        return Blocks(call, "recvbuf", recvbuf, "recvcounts", recvcounts, "displs", displs,
                      travelling(call, "recvtype", recvtype), comm.size());
      });
}

void scatter(const Call& call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
             MPI_Count recvcount, MPI_Datatype recvtype, int root, Comm& comm) {
  scatter_all(
      call, comm, CollectiveKind::scatter, root, recvbuf == MPI_IN_PLACE,
      [&] { return sent_elements(call, "recvbuf", recvbuf, "recvcount", recvcount, "recvtype", recvtype); },
      [&] {
        check_count(call, "sendcount", sendcount);
        return Blocks("sendbuf", sendbuf, sendcount, travelling(call, "sendtype", sendtype));
      });
}

void scatterv(const Call& call, const void* sendbuf, Numbers sendcounts, Numbers displs, MPI_Datatype sendtype,
              void* recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int root, Comm& comm) {
  scatter_all(
      call, comm, CollectiveKind::scatterv, root, recvbuf == MPI_IN_PLACE,
      [&] { return sent_elements(call, "recvbuf", recvbuf, "recvcount", recvcount, "recvtype", recvtype); },
      [&] {
        return Blocks(call, "sendbuf", sendbuf, "sendcounts", sendcounts, "displs", displs,
                      travelling(call, "sendtype", sendtype), comm.size());
      });
}

void allgather(const Call& call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
               MPI_Count recvcount, TypeHandle& recvtype, Comm& comm) {
  const Blocks blocks("recvbuf", recvbuf, recvcount, travelling("recvtype", recvtype));
  OwnBlock own = own_block(call, sendbuf, sendcount, sendtype, blocks[comm.rank()]);
  const Collective collective(call, comm, CollectiveKind::allgather);
  const Count bytes = own.sent().bytes();
  const bool has_board = collective.board() != nullptr;
  if (HostBoard* const board = has_board ? nullptr : collective.host_board()) {
    own.copy_rest();
    board->meet(collective, own.sent());
    if (HostBoard::holds(bytes)) return take_others(collective, [&](int from) { board->take(from, blocks[from]); });
  }
  if (!has_board && comm.size() > 2 && bytes <= small_gather_max / comm.size()) {
    own.copy_rest();
    return gather_small(collective, own.sent(), blocks);
  }
  spread(collective, own, blocks, Meeting::is_small(bytes));
}

void allgatherv(const Call& call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                Numbers recvcounts, Numbers displs, TypeHandle& recvtype, Comm& comm) {
  const Blocks blocks(call, "recvbuf", recvbuf, "recvcounts", recvcounts, "displs", displs,
                      travelling("recvtype", recvtype), comm.size());
  OwnBlock own = own_block(call, sendbuf, sendcount, sendtype, blocks[comm.rank()]);
  spread(Collective(call, comm, CollectiveKind::allgatherv), own, blocks, false);
}

void alltoall(const Call& call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
              MPI_Count recvcount, TypeHandle& recvtype, Comm& comm) {
  const Blocks received("recvbuf", recvbuf, recvcount, travelling("recvtype", recvtype));
  if (sendbuf == MPI_IN_PLACE) return exchange_in_place(Collective(call, comm, CollectiveKind::alltoall), received);
  check_count(call, "sendcount", sendcount);
  const Blocks sent("sendbuf", sendbuf, sendcount, travelling(call, "sendtype", sendtype));
  exchange_blocks(call, comm, CollectiveKind::alltoall, sent, received);
}

void alltoallv(const Call& call, const void* sendbuf, Numbers sendcounts, Numbers sdispls, MPI_Datatype sendtype,
               void* recvbuf, Numbers recvcounts, Numbers rdispls, TypeHandle& recvtype, Comm& comm) {
  const Blocks received(call, "recvbuf", recvbuf, "recvcounts", recvcounts, "rdispls", rdispls,
                        travelling("recvtype", recvtype), comm.size());
  if (sendbuf == MPI_IN_PLACE) return exchange_in_place(Collective(call, comm, CollectiveKind::alltoallv), received);
  const Blocks sent(call, "sendbuf", sendbuf, "sendcounts", sendcounts, "sdispls", sdispls,
                    travelling(call, "sendtype", sendtype), comm.size());
  exchange_blocks(call, comm, CollectiveKind::alltoallv, sent, received);
}

void alltoallw(const Call& call, const void* sendbuf, Numbers sendcounts, Numbers sdispls,
               const MPI_Datatype sendtypes[], void* recvbuf, Numbers recvcounts, Numbers rdispls,
               const MPI_Datatype recvtypes[], Comm& comm) {
  const Blocks received(call, "recvbuf", recvbuf, "recvcounts", recvcounts, "rdispls", rdispls, "recvtypes", recvtypes,
                        comm.size());
  if (sendbuf == MPI_IN_PLACE) return exchange_in_place(Collective(call, comm, CollectiveKind::alltoallw), received);
  const Blocks sent(call, "sendbuf", sendbuf, "sendcounts", sendcounts, "sdispls", sdispls, "sendtypes", sendtypes,
                    comm.size());
  exchange_blocks(call, comm, CollectiveKind::alltoallw, sent, received);
}

}  // namespace aplib::mpi
