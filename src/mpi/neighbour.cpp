// SPDX-License-Identifier: MIT
// Collective calls among neighbours, MPI_Neighbor_*: every rank sends a block to each of its destinations, and receives
// one from each of its sources.
//
// Two ranks may be neighbours several times. Then the k-th block from one to the other is the k-th that the other
// receives from it, in the order of the lists. In a grid, what goes out in the negative direction comes in from the
// positive one; so there each pair of blocks is sent the other way round.
#include <algorithm>

#include "mpi/blocks.hpp"
#include "mpi/topology.hpp"

namespace aplib::mpi {

namespace {

int count_of(const std::vector<int>& neighbours) { return static_cast<int>(neighbours.size()); }

/// Blocks of a buffer that nobody uses without neighbours, so it may then be null.
Blocks equal_blocks(const char* name, const void* buffer, MPI_Count count, const TypeHandle& type,
                    const std::vector<int>& neighbours) {
  return {name, buffer, neighbours.empty() ? 0 : count, type};
}

/// `sent(i)`: what goes to destination i.
template <class Sent>
void exchange_blocks(const Collective& collective, const Topology& topology, const Sent& sent, const Blocks& received) {
  const std::vector<int>& sources = topology.sources;
  const std::vector<int>& destinations = topology.destinations;
  Window window(collective);
  std::size_t next = 0;
  // Posts what can be under way at the same time: one receive of each rank.
  const auto post = [&] {
    const std::size_t first = next;
    for (; next < sources.size() && !window.is_full(); ++next) {
      const int source = sources[next];
      if (source == MPI_PROC_NULL) continue;
      const auto posted = std::span(sources).subspan(first, next - first);
      if (std::ranges::find(posted, source) != posted.end()) return;
      window.post(source, received[static_cast<int>(next)]);
    }
  };
  post();
  const std::size_t swap = std::holds_alternative<Grid>(topology.shape) ? 1 : 0;
  for (std::size_t i = 0; i < destinations.size(); ++i) {
    const int destination = destinations[i ^ swap];
    if (destination != MPI_PROC_NULL) collective.send(destination, sent(static_cast<int>(i ^ swap)));
  }
  window.wait();
  while (next < sources.size()) {
    post();
    window.wait();
  }
}

}  // namespace

void neighbor_allgather(const Call& call, const void* sendbuf, MPI_Count sendcount, TypeHandle& sendtype, void* recvbuf,
                        MPI_Count recvcount, TypeHandle& recvtype, Comm& comm) {
  const Topology& topology = topology_of(comm);
  const Blocks own =
      equal_blocks("sendbuf", sendbuf, sendcount, travelling("sendtype", sendtype), topology.destinations);
  const Blocks received =
      equal_blocks("recvbuf", recvbuf, recvcount, travelling("recvtype", recvtype), topology.sources);
  const Packed packed(own[0]);
  exchange_blocks(
      Collective(call, comm, CollectiveKind::neighbor_allgather), topology,
      [&](int) -> const Packed& { return packed; }, received);
}

void neighbor_allgatherv(const Call& call, const void* sendbuf, MPI_Count sendcount, TypeHandle& sendtype,
                         void* recvbuf, Numbers recvcounts, Numbers displs, TypeHandle& recvtype, Comm& comm) {
  const Topology& topology = topology_of(comm);
  const Blocks own =
      equal_blocks("sendbuf", sendbuf, sendcount, travelling("sendtype", sendtype), topology.destinations);
  const Blocks received(call, "recvbuf", recvbuf, "recvcounts", recvcounts, "displs", displs,
                        travelling("recvtype", recvtype), count_of(topology.sources));
  const Packed packed(own[0]);
  exchange_blocks(
      Collective(call, comm, CollectiveKind::neighbor_allgatherv), topology,
      [&](int) -> const Packed& { return packed; }, received);
}

void neighbor_alltoall(const Call& call, const void* sendbuf, MPI_Count sendcount, TypeHandle& sendtype, void* recvbuf,
                       MPI_Count recvcount, TypeHandle& recvtype, Comm& comm) {
  const Topology& topology = topology_of(comm);
  const Blocks sent =
      equal_blocks("sendbuf", sendbuf, sendcount, travelling("sendtype", sendtype), topology.destinations);
  const Blocks received =
      equal_blocks("recvbuf", recvbuf, recvcount, travelling("recvtype", recvtype), topology.sources);
  exchange_blocks(
      Collective(call, comm, CollectiveKind::neighbor_alltoall), topology, [&](int i) { return sent[i]; }, received);
}

void neighbor_alltoallv(const Call& call, const void* sendbuf, Numbers sendcounts, Numbers sdispls,
                        TypeHandle& sendtype, void* recvbuf, Numbers recvcounts, Numbers rdispls, TypeHandle& recvtype,
                        Comm& comm) {
  const Topology& topology = topology_of(comm);
  const Blocks sent(call, "sendbuf", sendbuf, "sendcounts", sendcounts, "sdispls", sdispls,
                    travelling("sendtype", sendtype), count_of(topology.destinations));
  const Blocks received(call, "recvbuf", recvbuf, "recvcounts", recvcounts, "rdispls", rdispls,
                        travelling("recvtype", recvtype), count_of(topology.sources));
  exchange_blocks(
      Collective(call, comm, CollectiveKind::neighbor_alltoallv), topology, [&](int i) { return sent[i]; }, received);
}

void neighbor_alltoallw(const Call& call, const void* sendbuf, Numbers sendcounts, const MPI_Aint sdispls[],
                        const MPI_Datatype sendtypes[], void* recvbuf, Numbers recvcounts, const MPI_Aint rdispls[],
                        const MPI_Datatype recvtypes[], Comm& comm) {
  const Topology& topology = topology_of(comm);
  const Blocks sent(call, "sendbuf", sendbuf, "sendcounts", sendcounts, "sdispls", Numbers(sdispls), "sendtypes",
                    sendtypes, count_of(topology.destinations));
  const Blocks received(call, "recvbuf", recvbuf, "recvcounts", recvcounts, "rdispls", Numbers(rdispls), "recvtypes",
                        recvtypes, count_of(topology.sources));
  exchange_blocks(
      Collective(call, comm, CollectiveKind::neighbor_alltoallw), topology, [&](int i) { return sent[i]; }, received);
}

}  // namespace aplib::mpi
