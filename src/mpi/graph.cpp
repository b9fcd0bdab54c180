// SPDX-License-Identifier: MIT
// Graphs that every rank knows as a whole: the functions MPI_Graph_*.
#include <fmt/format.h>

#include <algorithm>

#include "mpi/topology.hpp"

namespace aplib::mpi {

namespace {

/// The graph that a program describes, of ranks of the communicator.
Graph graph_of(const Call& call, const Comm& comm, int nnodes, const int indx[], const int edges[]) {
  if (nnodes < 0 || nnodes > comm.size())
    fail(MPI_ERR_ARG, fmt::format("nnodes is {}; the communicator has {} ranks", nnodes, comm.size()));
  for (int i = 0; i < nnodes; ++i) {
    const int before = i == 0 ? 0 : indx[i - 1];
    if (indx[i] < before) {
      fail(MPI_ERR_ARG, fmt::format("indx[{}] is {}; it counts the edges of nodes 0..{}, so it is {} or more", i,
                                    indx[i], i, before));
    }
  }
  const int count = nnodes == 0 ? 0 : indx[nnodes - 1];
  check_array(call, "edges", edges, count);
  for (int i = 0; i < count; ++i) {
    if (edges[i] < 0 || edges[i] >= nnodes)
      fail(MPI_ERR_ARG, fmt::format("edges[{}] is {}; the graph has nodes 0..{}", i, edges[i], nnodes - 1));
  }
  return {{indx, indx + nnodes}, {edges, edges + count}};
}

void check_room(const char* parameter, int room, std::size_t needed, const char* asked) {
  if (static_cast<std::size_t>(room) < needed)
    fail(MPI_ERR_ARG, fmt::format("{} is {}, but there are {}; {} tells their number", parameter, room, needed, asked));
}

}  // namespace

void graph_create(const Call& call, Comm& comm, int nnodes, const int indx[], const int edges[], int, MPI_Comm* place) {
  *place = MPI_COMM_NULL;
  Graph graph = graph_of(call, comm, nnodes, indx, edges);
  std::vector<int> given = graph.ends;
  given.insert(given.end(), graph.edges.begin(), graph.edges.end());
  check_same(call, comm, CollectiveKind::graph_create, given, "nodes or edges");
  if (nnodes == 0) return;
  give_comm(call, comm, first_ranks(nnodes),
            comm.rank() < nnodes ? make_topology(std::move(graph), comm.rank()) : nullptr, place);
}

// Ranks keep their places: cells of a process are equally near to each other.
void graph_map(const Call& call, Comm& comm, int nnodes, const int indx[], const int edges[], int* newrank) {
  static_cast<void>(graph_of(call, comm, nnodes, indx, edges));
  *newrank = comm.rank() < nnodes ? comm.rank() : MPI_UNDEFINED;
}

void graphdims_get(const Call&, Comm& comm, int* nnodes, int* nedges) {
  const auto& graph = shape_of<Graph>(comm);
  *nnodes = static_cast<int>(graph.ends.size());
  *nedges = static_cast<int>(graph.edges.size());
}

void graph_get(const Call& call, Comm& comm, int maxindex, int maxedges, int indx[], int edges[]) {
  const auto& graph = shape_of<Graph>(comm);
  check_room("maxindex", maxindex, graph.ends.size(), "MPI_Graphdims_get");
  check_room("maxedges", maxedges, graph.edges.size(), "MPI_Graphdims_get");
  check_array(call, "indx", indx, static_cast<MPI_Count>(graph.ends.size()));
  check_array(call, "edges", edges, static_cast<MPI_Count>(graph.edges.size()));
  std::ranges::copy(graph.ends, indx);
  std::ranges::copy(graph.edges, edges);
}

void graph_neighbors_count(const Call&, Comm& comm, int rank, int* count) {
  const auto& graph = shape_of<Graph>(comm);
  check_member("rank", comm, rank);
  *count = static_cast<int>(graph.neighbours(rank).size());
}

void graph_neighbors(const Call& call, Comm& comm, int rank, int maxneighbors, int neighbors[]) {
  const auto& graph = shape_of<Graph>(comm);
  check_member("rank", comm, rank);
  const std::span<const int> found = graph.neighbours(rank);
  check_room("maxneighbors", maxneighbors, found.size(), "MPI_Graph_neighbors_count");
  check_array(call, "neighbors", neighbors, static_cast<MPI_Count>(found.size()));
  std::ranges::copy(found, neighbors);
}

}  // namespace aplib::mpi
