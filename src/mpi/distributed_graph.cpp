// SPDX-License-Identifier: MIT
// Graphs of which each rank knows its own edges: the functions MPI_Dist_graph_*.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "mpi/info.hpp"
#include "mpi/topology.hpp"

namespace aplib::mpi {

namespace {

bool is_weighted(const int* weights) { return weights != MPI_UNWEIGHTED; }

constexpr const char* weights_text = "answers to whether edges have weights (MPI_UNWEIGHTED)";

/// A neighbour as a program gives it.
void check_edge(const Comm& comm, const char* ranks_name, int i, int rank) {
  if (rank < 0 || rank >= comm.size()) {
    fail(MPI_ERR_RANK, fmt::format("{}[{}] is {}; it must be a rank of the communicator, 0..{}", ranks_name, i, rank,
                                   comm.size() - 1));
  }
}

/// `edges`: their number.
void check_weights(const Call& call, const char* name, const int weights[], int edges) {
  if (!is_weighted(weights) || edges == 0) return;
  if (weights == MPI_WEIGHTS_EMPTY)
    fail(MPI_ERR_ARG, fmt::format("{} is MPI_WEIGHTS_EMPTY, but there are {} edges; it is for none", name, edges));
  check_array(call, name, weights, edges);
  for (int i = 0; i < edges; ++i) {
    if (weights[i] < 0) fail(MPI_ERR_ARG, fmt::format("{}[{}] is {}; a weight is 0 or more", name, i, weights[i]));
  }
}

/// All ranks of the communicator get one like it, with what they know of the graph.
void give_graph(const Call& call, Comm& comm, DistributedGraph graph, std::vector<int> sources,
                std::vector<int> destinations, MPI_Comm* place) {
  give_comm(call, comm, first_ranks(comm.size()),
            std::make_shared<const Topology>(Topology{std::move(graph), std::move(sources), std::move(destinations)}),
            place);
}

/// An end of an edge, on its way to the rank that it belongs to.
struct EdgeEnd {
  int rank;
  int neighbour;
  int weight;
  int is_incoming;
};

/// Brings every end to its rank, by way of others: in step i to the rank 2^i behind, if the remaining distance has that
/// bit. So nobody needs to know from whom ends will come.
std::vector<EdgeEnd> route(const Call& call, Comm& comm, std::vector<EdgeEnd> ends) {
  const Collective collective(call, comm, CollectiveKind::dist_graph_create);
  for (int step = 1; step < collective.size(); step *= 2) {
    const auto stays = [&](const EdgeEnd& end) {
      return ((end.rank - collective.rank() + collective.size()) % collective.size() & step) == 0;
    };
    const auto leaving = std::partition(ends.begin(), ends.end(), stays);
    const std::vector<EdgeEnd> sent(leaving, ends.end());
    ends.erase(leaving, ends.end());
    const int to = collective.before(step);
    const int from = collective.behind(step);
    std::size_t count = sent.size();
    std::size_t coming = 0;
    collective.exchange(to, bytes_at(&count, sizeof count), from, bytes_at(&coming, sizeof coming));
    ends.resize(ends.size() + coming);
    const auto bytes = [](std::size_t number) { return static_cast<Count>(number * sizeof(EdgeEnd)); };
    collective.exchange(to, bytes_at(sent.data(), bytes(count)), from,
                        bytes_at(ends.data() + ends.size() - coming, bytes(coming)));
  }
  return ends;
}

}  // namespace

void dist_graph_create_adjacent(const Call& call, Comm& comm, int indegree, const int sources[],
                                const int sourceweights[], int outdegree, const int destinations[],
                                const int destweights[], Info*, int, MPI_Comm* place) {
  *place = MPI_COMM_NULL;
  const auto check_side = [&](const char* degree_name, int degree, const char* ranks_name, const int ranks[],
                              const char* weights_name, const int weights[]) {
    if (degree < 0) fail(MPI_ERR_ARG, fmt::format("{} is {}; a number of edges is 0 or more", degree_name, degree));
    for (int i = 0; i < degree; ++i) check_edge(comm, ranks_name, i, ranks[i]);
    check_weights(call, weights_name, weights, degree);
  };
  check_side("indegree", indegree, "sources", sources, "sourceweights", sourceweights);
  check_side("outdegree", outdegree, "destinations", destinations, "destweights", destweights);
  if (is_weighted(sourceweights) != is_weighted(destweights)) {
    fail(MPI_ERR_TOPOLOGY,
         "only one of sourceweights and destweights is MPI_UNWEIGHTED; give weights for both or for "
         "none (MPI_WEIGHTS_EMPTY where there are no edges)");
  }
  check_same(call, comm, CollectiveKind::dist_graph_create_adjacent, {is_weighted(sourceweights) ? 1 : 0},
             weights_text);
  const auto weights_of = [](const int weights[], int degree) {
    return is_weighted(weights) && degree > 0 ? std::vector<int>(weights, weights + degree) : std::vector<int>{};
  };
  give_graph(call, comm,
             {is_weighted(sourceweights), weights_of(sourceweights, indegree), weights_of(destweights, outdegree)},
             {sources, sources + indegree}, {destinations, destinations + outdegree}, place);
}

void dist_graph_create(const Call& call, Comm& comm, int n, const int sources[], const int degrees[],
                       const int destinations[], const int weights[], Info*, int, MPI_Comm* place) {
  *place = MPI_COMM_NULL;
  std::int64_t edges = 0;
  for (int i = 0; i < n; ++i) {
    check_edge(comm, "sources", i, sources[i]);
    if (degrees[i] < 0)
      fail(MPI_ERR_ARG, fmt::format("degrees[{}] is {}; a number of edges is 0 or more", i, degrees[i]));
    edges += degrees[i];
  }
  if (edges > INT_MAX) fail(MPI_ERR_ARG, fmt::format("there are {} edges, more than an int can count", edges));
  check_array(call, "destinations", destinations, edges);
  check_weights(call, "weights", weights, static_cast<int>(edges));
  std::vector<EdgeEnd> ends;
  ends.reserve(static_cast<std::size_t>(edges) * 2);
  int next = 0;
  for (int i = 0; i < n; ++i) {
    for (int k = 0; k < degrees[i]; ++k, ++next) {
      check_edge(comm, "destinations", next, destinations[next]);
      const int weight = is_weighted(weights) ? weights[next] : 0;
      ends.push_back({sources[i], destinations[next], weight, 0});
      ends.push_back({destinations[next], sources[i], weight, 1});
    }
  }
  check_same(call, comm, CollectiveKind::dist_graph_create, {is_weighted(weights) ? 1 : 0}, weights_text);
  ends = route(call, comm, std::move(ends));
  // The same order at both ends, also of edges between the same two ranks.
  std::ranges::sort(ends, {}, [](const EdgeEnd& end) { return std::tuple(end.neighbour, end.weight); });
  DistributedGraph graph{is_weighted(weights), {}, {}};
  std::vector<int> froms;
  std::vector<int> tos;
  for (const EdgeEnd& end : ends) {
    (end.is_incoming != 0 ? froms : tos).push_back(end.neighbour);
    if (graph.is_weighted)
      (end.is_incoming != 0 ? graph.source_weights : graph.destination_weights).push_back(end.weight);
  }
  give_graph(call, comm, std::move(graph), std::move(froms), std::move(tos), place);
}

void dist_graph_neighbors_count(const Call&, Comm& comm, int* indegree, int* outdegree, int* weighted) {
  *weighted = shape_of<DistributedGraph>(comm).is_weighted ? 1 : 0;
  *indegree = static_cast<int>(comm.topology->sources.size());
  *outdegree = static_cast<int>(comm.topology->destinations.size());
}

// With less room it gives the first ones.
void dist_graph_neighbors(const Call& call, Comm& comm, int maxindegree, int sources[], int sourceweights[],
                          int maxoutdegree, int destinations[], int destweights[]) {
  const auto& graph = shape_of<DistributedGraph>(comm);
  const auto give = [&](const std::vector<int>& ranks, const std::vector<int>& weights, int room,
                        const char* ranks_name, int to[], const char* weights_name, int weights_to[]) {
    const int count = std::min(room, static_cast<int>(ranks.size()));
    check_array(call, ranks_name, to, count);
    std::copy_n(ranks.begin(), count, to);
    if (!graph.is_weighted || weights_to == MPI_UNWEIGHTED) return;
    check_array(call, weights_name, weights_to, count);
    std::copy_n(weights.begin(), count, weights_to);
  };
  give(comm.topology->sources, graph.source_weights, maxindegree, "sources", sources, "sourceweights", sourceweights);
  give(comm.topology->destinations, graph.destination_weights, maxoutdegree, "destinations", destinations,
       "destweights", destweights);
}

}  // namespace aplib::mpi
