// SPDX-License-Identifier: MIT
#include "mpi/topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace aplib::mpi {

namespace {

const char* maker_of(int kind) {
  return kind == MPI_CART    ? "MPI_Cart_create"
         : kind == MPI_GRAPH ? "MPI_Graph_create"
                             : "MPI_Dist_graph_create or MPI_Dist_graph_create_adjacent";
}

int kind_of(const Topology& topology) {
  return std::visit([](const auto& shape) { return shape.kind; }, topology.shape);
}

}  // namespace

const Topology& topology_of(const Comm& comm) {
  if (comm.topology == nullptr) [[unlikely]] {
    fail(MPI_ERR_TOPOLOGY,
         "comm has no topology; make one with MPI_Cart_create, MPI_Graph_create or MPI_Dist_graph_create_adjacent");
  }
  return *comm.topology;
}

void fail_topology(const Comm& comm, int wanted) {
  const std::string has =
      comm.topology == nullptr ? "no topology" : fmt::format("a topology of {}", maker_of(kind_of(*comm.topology)));
  fail(MPI_ERR_TOPOLOGY, fmt::format("comm has {}; give one of {}", has, maker_of(wanted)));
}

TopologyPtr make_topology(Grid grid, int rank) {
  std::vector<int> neighbours;
  for (std::size_t i = 0; i < grid.dimensions().size(); ++i) {
    neighbours.push_back(grid.shifted(rank, i, -1));
    neighbours.push_back(grid.shifted(rank, i, 1));
  }
  return std::make_shared<const Topology>(Topology{std::move(grid), neighbours, neighbours});
}

TopologyPtr make_topology(Graph graph, int rank) {
  const std::span<const int> own = graph.neighbours(rank);
  std::vector<int> neighbours(own.begin(), own.end());
  return std::make_shared<const Topology>(Topology{std::move(graph), neighbours, neighbours});
}

void check_same(const Call& call, Comm& comm, CollectiveKind kind, const std::vector<int>& given, const char* what) {
  struct Range {
    std::uint64_t lowest;
    std::uint64_t highest;
  };
  std::uint64_t digest = 14695981039346656037U;  // FNV-1a, by numbers
  for (const int number : given) digest = (digest ^ static_cast<std::uint32_t>(number)) * 1099511628211U;
  Range all{digest, digest};
  const Collective collective(call, comm, kind);
  for (int distance = 1; distance < collective.size(); distance *= 2) {
    Range others{};
    collective.exchange(collective.before(distance), bytes_at(&all, sizeof all), collective.behind(distance),
                        bytes_at(&others, sizeof others));
    all.lowest = std::min(all.lowest, others.lowest);
    all.highest = std::max(all.highest, others.highest);
  }
  if (all.lowest != all.highest)
    fail(MPI_ERR_ARG, fmt::format("the ranks of the communicator give different {}; give the same at all", what));
}

void give_comm(const Call& call, Comm& parent, const std::vector<int>& ranks, TopologyPtr topology, MPI_Comm* place) {
  std::vector<std::uint32_t> cells;
  cells.reserve(ranks.size());
  for (const int rank : ranks) cells.push_back(index(parent.cell_of(rank)));
  Comm* const made = make_part(call, parent, std::move(cells));
  if (made == nullptr) return;
  made->topology = std::move(topology);
  *place = handle_of<MPI_Comm>(*made);
}

std::vector<int> first_ranks(int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

void check_member(const char* parameter, const Comm& comm, int rank) {
  if (rank < 0 || rank >= comm.size()) [[unlikely]]
    fail(MPI_ERR_RANK,
         fmt::format("{} is {}; it must be a rank of the communicator, 0..{}", parameter, rank, comm.size() - 1));
}

void topo_test(const Call&, Comm& comm, int* status) {
  *status = comm.topology == nullptr ? MPI_UNDEFINED : kind_of(*comm.topology);
}

}  // namespace aplib::mpi
