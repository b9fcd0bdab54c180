// SPDX-License-Identifier: MIT
// The collective calls that only move data. In one address space a message is one copy, so data go straight from where
// they are to where they belong. Trees save messages only where these are small or all the same.
#include <algorithm>

#include "mpi/blocks.hpp"

namespace aplib::mpi {

namespace {

/// Everyone's block to the root.
void gather_to(const Collective& collective, int root, const Blocks& blocks) {
  Window window(collective);
  for (int i = 1; i < collective.size(); ++i) {
    if (window.is_full()) window.wait();
    window.post((root + i) % collective.size(), blocks[(root + i) % collective.size()]);
  }
  window.wait();
}

/// The root's blocks to everyone.
void scatter_from(const Collective& collective, int root, const Blocks& blocks) {
  for (int i = 1; i < collective.size(); ++i) {
    const int to = (root + i) % collective.size();
    collective.send(to, blocks[to]);
  }
}

/// sent(i) to rank i, and its block from it, for all others. Each rank begins with its neighbour, so that no one is
/// everybody's first.
template <class Sent>
void exchange_all(const Collective& collective, const Sent& sent, const Blocks& received) {
  Window window(collective);
  for (int first = 1; first < collective.size(); first += Window::size_max) {
    const int end = std::min(first + Window::size_max, collective.size());
    for (int i = first; i < end; ++i) window.post(collective.behind(i), received[collective.behind(i)]);
    for (int i = first; i < end; ++i) collective.send(collective.before(i), sent(collective.before(i)));
    window.wait();
  }
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

void exchange_blocks(const Collective& collective, const Blocks& sent, const Blocks& received) {
  copy_own(received[collective.rank()], sent[collective.rank()]);
  exchange_all(
      collective, [&](int to) { return sent[to]; }, received);
}

/// In log2 rounds by way of a small buffer: each round doubles what every rank has.
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
  const Elements nothing = bytes_at(nullptr, 0);
  for (int distance = 1; distance < collective.size(); distance *= 2)
    collective.exchange(collective.before(distance), nothing, collective.behind(distance), nothing);
}

void bcast(const Call& call, void* buffer, MPI_Count count, TypeHandle& type, int root, Comm& comm) {
  check_root(comm, root);
  const Elements elements = buffer_elements("buffer", buffer, count, travelling("datatype", type));
  const Collective collective(call, comm, CollectiveKind::bcast, root);
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
  check_root(comm, root);
  if (comm.rank() != root) {
    const Elements own = sent_elements(call, "sendbuf", sendbuf, "sendcount", sendcount, "sendtype", sendtype);
    return Collective(call, comm, CollectiveKind::gather, root).send(root, own);
  }
  check_count(call, "recvcount", recvcount);
  const Blocks blocks("recvbuf", recvbuf, recvcount, travelling(call, "recvtype", recvtype));
  if (sendbuf != MPI_IN_PLACE)
    copy_own(blocks[root], sent_elements(call, "sendbuf", sendbuf, "sendcount", sendcount, "sendtype", sendtype));
  gather_to(Collective(call, comm, CollectiveKind::gather, root), root, blocks);
}

void gatherv(const Call& call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
             Numbers recvcounts, Numbers displs, MPI_Datatype recvtype, int root, Comm& comm) {
  check_root(comm, root);
  if (comm.rank() != root) {
    const Elements own = sent_elements(call, "sendbuf", sendbuf, "sendcount", sendcount, "sendtype", sendtype);
    return Collective(call, comm, CollectiveKind::gatherv, root).send(root, own);
  }
  const Blocks blocks("recvbuf", recvbuf, "recvcounts", recvcounts, "displs", displs,
                      travelling(call, "recvtype", recvtype), comm.size());
  if (sendbuf != MPI_IN_PLACE)
    copy_own(blocks[root], sent_elements(call, "sendbuf", sendbuf, "sendcount", sendcount, "sendtype", sendtype));
  gather_to(Collective(call, comm, CollectiveKind::gatherv, root), root, blocks);
}

void scatter(const Call& call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
             MPI_Count recvcount, MPI_Datatype recvtype, int root, Comm& comm) {
  check_root(comm, root);
  if (comm.rank() != root) {
    const Elements own = sent_elements(call, "recvbuf", recvbuf, "recvcount", recvcount, "recvtype", recvtype);
    return Collective(call, comm, CollectiveKind::scatter, root).receive(root, own);
  }
  check_count(call, "sendcount", sendcount);
  const Blocks blocks("sendbuf", sendbuf, sendcount, travelling(call, "sendtype", sendtype));
  if (recvbuf != MPI_IN_PLACE)
    copy_own(sent_elements(call, "recvbuf", recvbuf, "recvcount", recvcount, "recvtype", recvtype), blocks[root]);
  scatter_from(Collective(call, comm, CollectiveKind::scatter, root), root, blocks);
}

void scatterv(const Call& call, const void* sendbuf, Numbers sendcounts, Numbers displs, MPI_Datatype sendtype,
              void* recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int root, Comm& comm) {
  check_root(comm, root);
  if (comm.rank() != root) {
    const Elements own = sent_elements(call, "recvbuf", recvbuf, "recvcount", recvcount, "recvtype", recvtype);
    return Collective(call, comm, CollectiveKind::scatterv, root).receive(root, own);
  }
  const Blocks blocks("sendbuf", sendbuf, "sendcounts", sendcounts, "displs", displs,
                      travelling(call, "sendtype", sendtype), comm.size());
  if (recvbuf != MPI_IN_PLACE)
    copy_own(sent_elements(call, "recvbuf", recvbuf, "recvcount", recvcount, "recvtype", recvtype), blocks[root]);
  scatter_from(Collective(call, comm, CollectiveKind::scatterv, root), root, blocks);
}

void allgather(const Call& call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
               MPI_Count recvcount, TypeHandle& recvtype, Comm& comm) {
  const Blocks blocks("recvbuf", recvbuf, recvcount, travelling("recvtype", recvtype));
  const Elements own = blocks[comm.rank()];
  if (sendbuf != MPI_IN_PLACE)
    copy_own(own, sent_elements(call, "sendbuf", sendbuf, "sendcount", sendcount, "sendtype", sendtype));
  const Collective collective(call, comm, CollectiveKind::allgather);
  if (comm.size() > 2 && own.bytes() <= small_gather_max / comm.size()) return gather_small(collective, own, blocks);
  exchange_all(
      collective, [&](int) { return own; }, blocks);
}

void allgatherv(const Call& call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                Numbers recvcounts, Numbers displs, TypeHandle& recvtype, Comm& comm) {
  const Blocks blocks("recvbuf", recvbuf, "recvcounts", recvcounts, "displs", displs, travelling("recvtype", recvtype),
                      comm.size());
  const Elements own = blocks[comm.rank()];
  if (sendbuf != MPI_IN_PLACE)
    copy_own(own, sent_elements(call, "sendbuf", sendbuf, "sendcount", sendcount, "sendtype", sendtype));
  exchange_all(
      Collective(call, comm, CollectiveKind::allgatherv), [&](int) { return own; }, blocks);
}

void alltoall(const Call& call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
              MPI_Count recvcount, TypeHandle& recvtype, Comm& comm) {
  const Blocks received("recvbuf", recvbuf, recvcount, travelling("recvtype", recvtype));
  if (sendbuf == MPI_IN_PLACE) return exchange_in_place(Collective(call, comm, CollectiveKind::alltoall), received);
  check_count(call, "sendcount", sendcount);
  const Blocks sent("sendbuf", sendbuf, sendcount, travelling(call, "sendtype", sendtype));
  exchange_blocks(Collective(call, comm, CollectiveKind::alltoall), sent, received);
}

void alltoallv(const Call& call, const void* sendbuf, Numbers sendcounts, Numbers sdispls, MPI_Datatype sendtype,
               void* recvbuf, Numbers recvcounts, Numbers rdispls, TypeHandle& recvtype, Comm& comm) {
  const Blocks received("recvbuf", recvbuf, "recvcounts", recvcounts, "rdispls", rdispls,
                        travelling("recvtype", recvtype), comm.size());
  if (sendbuf == MPI_IN_PLACE) return exchange_in_place(Collective(call, comm, CollectiveKind::alltoallv), received);
  const Blocks sent("sendbuf", sendbuf, "sendcounts", sendcounts, "sdispls", sdispls,
                    travelling(call, "sendtype", sendtype), comm.size());
  exchange_blocks(Collective(call, comm, CollectiveKind::alltoallv), sent, received);
}

void alltoallw(const Call& call, const void* sendbuf, Numbers sendcounts, Numbers sdispls,
               const MPI_Datatype sendtypes[], void* recvbuf, Numbers recvcounts, Numbers rdispls,
               const MPI_Datatype recvtypes[], Comm& comm) {
  const Blocks received(call, "recvbuf", recvbuf, "recvcounts", recvcounts, "rdispls", rdispls, "recvtypes", recvtypes,
                        comm.size());
  if (sendbuf == MPI_IN_PLACE) return exchange_in_place(Collective(call, comm, CollectiveKind::alltoallw), received);
  const Blocks sent(call, "sendbuf", sendbuf, "sendcounts", sendcounts, "sdispls", sdispls, "sendtypes", sendtypes,
                    comm.size());
  exchange_blocks(Collective(call, comm, CollectiveKind::alltoallw), sent, received);
}

}  // namespace aplib::mpi
