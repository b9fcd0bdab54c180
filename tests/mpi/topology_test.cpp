// SPDX-License-Identifier: MIT
// Grids and graphs of ranks, against naive models, and what is refused.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

using Ints = std::vector<int>;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

void begin_topologies() {
  MPI_Init(nullptr, nullptr);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
}

int own_rank_in(MPI_Comm comm) {
  int rank = -1;
  MPI_Comm_rank(comm, &rank);
  return rank;
}

int ranks_of_world() {
  int size = -1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

int topology_in(MPI_Comm comm) {
  int status = -1;
  EXPECT_EQ(MPI_Topo_test(comm, &status), MPI_SUCCESS);
  return status;
}

/// What the members were in MPI_COMM_WORLD, as they tell.
Ints members_of(MPI_Comm comm) {
  int size = -1;
  MPI_Comm_size(comm, &size);
  const int own = own_rank_in(MPI_COMM_WORLD);
  Ints members(at(size));
  EXPECT_EQ(MPI_Allgather(&own, 1, MPI_INT, members.data(), 1, MPI_INT, comm), MPI_SUCCESS);
  return members;
}

int pick(std::mt19937& random, int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); }

// ---------------------------------------------------------------- MPI_Dims_create

/// All products of `count` factors, each at most as large as the one before.
void add_factorings(int product, std::size_t count, int most, Ints& begun, std::vector<Ints>& all) {
  if (count == 0) {
    if (product == 1) all.push_back(begun);
    return;
  }
  for (int factor = 1; factor <= most; ++factor) {
    if (product % factor != 0) continue;
    begun.push_back(factor);
    add_factorings(product / factor, count - 1, factor, begun, all);
    begun.pop_back();
  }
}

TEST(MpiDims, AreAsCloseToEachOtherAsCanBe) {
  run_well({{1, 1}, 1}, [] {
    begin_topologies();
    const int last = static_cast<int>(scaled(400));
    for (int count = 1; count <= 5; ++count) {
      for (int product = 1; product <= last; ++product) {
        Ints begun;
        std::vector<Ints> all;
        add_factorings(product, at(count), product, begun, all);
        // Of those that are equally close the one with the larger small factors.
        const Ints best = *std::ranges::min_element(all, {}, [](const Ints& dims) {
          Ints small_first(dims.rbegin(), dims.rend());
          for (int& dim : small_first) dim = -dim;
          return std::tuple(dims.front() - dims.back(), small_first);
        });
        Ints dims(at(count));
        EXPECT_EQ(MPI_Dims_create(product, count, dims.data()), MPI_SUCCESS);
        EXPECT_EQ(dims, best) << product;
      }
    }
    MPI_Finalize();
  });
}

TEST(MpiDims, AreWhatProgramsExpect) {
  run_well({{1, 1}, 1}, [] {
    begin_topologies();
    const std::vector<std::tuple<int, Ints, Ints>> cases = {
        {6, {0, 0}, {3, 2}},
        {7, {0, 0, 0}, {7, 1, 1}},
        {12, {0, 0, 0}, {3, 2, 2}},
        {16, {0, 0}, {4, 4}},
        {24, {0, 0, 0}, {4, 3, 2}},
        {60, {0, 0, 0}, {5, 4, 3}},
        {1000, {0, 0, 0, 0}, {8, 5, 5, 5}},
        {1024, {0, 0, 0}, {16, 8, 8}},
        {1000000000, {0, 0, 0}, {1000, 1000, 1000}},
        {2147483647, {0, 0}, {2147483647, 1}},
        {735134400, {0, 0, 0, 0}, {170, 168, 165, 156}},
        {6, {0, 3, 0}, {2, 3, 1}},
        {6, {3, 2}, {3, 2}},
        {6, {0, 6}, {1, 6}},
        {1, {}, {}},
        {1 << 30, Ints(40, 0),
         [] {
           Ints dims(40, 1);
           std::fill_n(dims.begin(), 30, 2);
           return dims;
         }()},
    };
    for (const auto& [nodes, given, expected] : cases) {
      Ints dims = given;
      EXPECT_EQ(MPI_Dims_create(nodes, static_cast<int>(dims.size()), dims.data()), MPI_SUCCESS);
      EXPECT_EQ(dims, expected) << nodes;
    }
    Ints dims = {0, 4};
    EXPECT_EQ(MPI_Dims_create(6, 2, dims.data()), MPI_ERR_DIMS);
    dims = {0, -1};
    EXPECT_EQ(MPI_Dims_create(6, 2, dims.data()), MPI_ERR_DIMS);
    dims = {2147483647, 2147483647};
    EXPECT_EQ(MPI_Dims_create(6, 2, dims.data()), MPI_ERR_DIMS);
    EXPECT_EQ(MPI_Dims_create(6, 0, nullptr), MPI_ERR_DIMS);
    EXPECT_EQ(MPI_Dims_create(6, -1, dims.data()), MPI_ERR_DIMS);
    EXPECT_EQ(MPI_Dims_create(6, 2, nullptr), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Dims_create(0, 2, dims.data()), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Dims_create(-6, 2, dims.data()), MPI_ERR_ARG);
    MPI_Finalize();
  });
}

// ---------------------------------------------------------------- grids

struct GridModel {
  Ints dims;
  Ints periods;

  [[nodiscard]] int size() const { return std::accumulate(dims.begin(), dims.end(), 1, std::multiplies<>{}); }
  [[nodiscard]] Ints coordinates(int rank) const {
    Ints coords(dims.size());
    for (std::size_t i = dims.size(); i-- > 0; rank /= dims[i]) coords[i] = rank % dims[i];
    return coords;
  }
  /// -3 (MPI_PROC_NULL): outside.
  [[nodiscard]] int rank(const Ints& coords) const {
    int rank = 0;
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (periods[i] == 0 && (coords[i] < 0 || coords[i] >= dims[i])) return MPI_PROC_NULL;
      rank = rank * dims[i] + ((coords[i] % dims[i]) + dims[i]) % dims[i];
    }
    return rank;
  }
};

GridModel random_grid(std::mt19937& random, int ranks) {
  GridModel grid;
  int left = ranks;
  for (int i = pick(random, 0, 4); i > 0; --i) {
    grid.dims.push_back(pick(random, 1, std::max(1, std::min(left, 6))));
    grid.periods.push_back(pick(random, 0, 1));
    left /= grid.dims.back();
  }
  std::ranges::shuffle(grid.dims, random);
  return grid;
}

void expect_grid(MPI_Comm comm, const GridModel& grid) {
  const int ndims = static_cast<int>(grid.dims.size());
  const int own = own_rank_in(comm);
  int found = -1;
  EXPECT_EQ(topology_in(comm), MPI_CART);
  EXPECT_EQ(MPI_Cartdim_get(comm, &found), MPI_SUCCESS);
  ASSERT_EQ(found, ndims);
  Ints dims(grid.dims.size());
  Ints periods(grid.dims.size());
  Ints coords(grid.dims.size());
  EXPECT_EQ(MPI_Cart_get(comm, ndims, dims.data(), periods.data(), coords.data()), MPI_SUCCESS);
  EXPECT_EQ(dims, grid.dims);
  EXPECT_EQ(periods, grid.periods);
  EXPECT_EQ(coords, grid.coordinates(own));
  for (int rank = 0; rank < grid.size(); ++rank) {
    EXPECT_EQ(MPI_Cart_coords(comm, rank, ndims, coords.data()), MPI_SUCCESS);
    EXPECT_EQ(coords, grid.coordinates(rank));
    for (std::size_t i = 0; i < coords.size(); ++i) {
      if (periods[i] != 0) coords[i] += (rank % 5 - 2) * dims[i];
    }
    EXPECT_EQ(MPI_Cart_rank(comm, coords.data(), &found), MPI_SUCCESS);
    EXPECT_EQ(found, rank);
  }
  for (int i = 0; i < ndims; ++i) {
    for (const int distance : {-2147483647, -7, -1, 0, 1, 2, 2147483647}) {
      int source = -1;
      int dest = -1;
      EXPECT_EQ(MPI_Cart_shift(comm, i, distance, &source, &dest), MPI_SUCCESS);
      const auto away = [&](int steps) {
        Ints there = grid.coordinates(own);
        const auto place = static_cast<std::int64_t>(there[at(i)]) + steps;
        const int size = grid.dims[at(i)];
        if (grid.periods[at(i)] == 0 && (place < 0 || place >= size)) return MPI_PROC_NULL;
        there[at(i)] = static_cast<int>((place % size + size) % size);
        return grid.rank(there);
      };
      EXPECT_EQ(source, away(-distance));
      EXPECT_EQ(dest, away(distance));
    }
  }
}

/// Every part that keeps some dimensions.
void expect_parts(MPI_Comm comm, const GridModel& grid, std::mt19937& random) {
  Ints remain(grid.dims.size());
  for (int& remains : remain) remains = pick(random, 0, 1) * 3;
  MPI_Comm part = MPI_COMM_NULL;
  ASSERT_EQ(MPI_Cart_sub(comm, remain.data(), &part), MPI_SUCCESS);
  GridModel kept;
  for (std::size_t i = 0; i < remain.size(); ++i) {
    if (remain[i] == 0) continue;
    kept.dims.push_back(grid.dims[i]);
    kept.periods.push_back(grid.periods[i]);
  }
  expect_grid(part, kept);
  const Ints here = grid.coordinates(own_rank_in(comm));
  Ints expected;
  for (int rank = 0; rank < grid.size(); ++rank) {
    const Ints there = grid.coordinates(rank);
    bool is_in = true;
    for (std::size_t i = 0; i < remain.size(); ++i) is_in = is_in && (remain[i] != 0 || there[i] == here[i]);
    if (is_in) expected.push_back(rank);
  }
  EXPECT_EQ(members_of(part), expected);
  MPI_Comm_free(&part);
}

class Topologies : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(, Topologies,
                         testing::Values(Shape{{1, 1}, 1}, Shape{{2, 1}, 2}, Shape{{6, 1}, 1}, Shape{{8, 2}, 2},
                                         Shape{{33, 1}, 2}, Shape{{5, 1}, Options::threads_per_cell}),
                         shape_name);

TEST_P(Topologies, GridsAgreeWithTheModel) {
  const unsigned seed = std::random_device{}();
  run_well(GetParam(), [seed] {
    begin_topologies();
    std::mt19937 random(seed);
    const int world = own_rank_in(MPI_COMM_WORLD);
    for (std::uint64_t i = 0; i < scaled(30); ++i) {
      const GridModel grid = random_grid(random, ranks_of_world());
      const int ndims = static_cast<int>(grid.dims.size());
      const int reorder = pick(random, 0, 1);
      int mapped = -1;
      EXPECT_EQ(MPI_Cart_map(MPI_COMM_WORLD, ndims, grid.dims.data(), grid.periods.data(), &mapped), MPI_SUCCESS);
      EXPECT_EQ(mapped, world < grid.size() ? world : MPI_UNDEFINED);
      MPI_Comm comm = MPI_COMM_WORLD;
      EXPECT_EQ(MPI_Cart_create(MPI_COMM_WORLD, ndims, grid.dims.data(), grid.periods.data(), reorder, &comm),
                MPI_SUCCESS);
      std::mt19937 further(static_cast<unsigned>(random()));
      if (world >= grid.size()) {
        EXPECT_EQ(comm, MPI_COMM_NULL);
        continue;
      }
      EXPECT_EQ(members_of(comm).size(), at(grid.size()));
      expect_grid(comm, grid);
      expect_parts(comm, grid, further);
      MPI_Comm copy = MPI_COMM_NULL;
      EXPECT_EQ(MPI_Comm_dup(comm, &copy), MPI_SUCCESS);
      MPI_Comm_free(&comm);
      expect_grid(copy, grid);
      MPI_Comm later = MPI_COMM_NULL;
      MPI_Request request = MPI_REQUEST_NULL;
      EXPECT_EQ(MPI_Comm_idup(copy, &later, &request), MPI_SUCCESS);
      EXPECT_EQ(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
      EXPECT_EQ(topology_in(later), MPI_CART);
      MPI_Comm_free(&later);
      MPI_Comm split = MPI_COMM_NULL;
      EXPECT_EQ(MPI_Comm_split(copy, 0, 0, &split), MPI_SUCCESS);
      EXPECT_EQ(topology_in(split), MPI_UNDEFINED);
      MPI_Comm_free(&split);
      MPI_Comm_free(&copy);
    }
    MPI_Finalize();
  });
  EXPECT_FALSE(HasFailure()) << "seed " << seed;
}

// ---------------------------------------------------------------- graphs

TEST_P(Topologies, GraphsAgreeWithTheModel) {
  const unsigned seed = std::random_device{}();
  run_well(GetParam(), [seed] {
    begin_topologies();
    std::mt19937 random(seed);
    const int world = own_rank_in(MPI_COMM_WORLD);
    for (std::uint64_t i = 0; i < scaled(30); ++i) {
      const int nodes = pick(random, 0, ranks_of_world());
      std::vector<Ints> neighbours(at(nodes));
      Ints ends;
      Ints edges;
      for (Ints& list : neighbours) {
        for (int k = pick(random, 0, 4); k > 0; --k) list.push_back(pick(random, 0, nodes - 1));
        edges.insert(edges.end(), list.begin(), list.end());
        ends.push_back(static_cast<int>(edges.size()));
      }
      int mapped = -1;
      EXPECT_EQ(MPI_Graph_map(MPI_COMM_WORLD, nodes, ends.data(), edges.data(), &mapped), MPI_SUCCESS);
      EXPECT_EQ(mapped, world < nodes ? world : MPI_UNDEFINED);
      MPI_Comm comm = MPI_COMM_WORLD;
      EXPECT_EQ(MPI_Graph_create(MPI_COMM_WORLD, nodes, ends.data(), edges.data(), 1, &comm), MPI_SUCCESS);
      if (world >= nodes) {
        EXPECT_EQ(comm, MPI_COMM_NULL);
        continue;
      }
      MPI_Comm copy = MPI_COMM_NULL;
      EXPECT_EQ(MPI_Comm_dup(comm, &copy), MPI_SUCCESS);
      MPI_Comm_free(&comm);
      EXPECT_EQ(topology_in(copy), MPI_GRAPH);
      EXPECT_EQ(members_of(copy).size(), at(nodes));
      int count = -1;
      int edge_count = -1;
      EXPECT_EQ(MPI_Graphdims_get(copy, &count, &edge_count), MPI_SUCCESS);
      EXPECT_EQ(std::pair(count, edge_count), std::pair(nodes, static_cast<int>(edges.size())));
      Ints ends_found(ends.size());
      Ints edges_found(edges.size());
      EXPECT_EQ(MPI_Graph_get(copy, nodes, edge_count, ends_found.data(), edges_found.data()), MPI_SUCCESS);
      EXPECT_EQ(ends_found, ends);
      EXPECT_EQ(edges_found, edges);
      for (int rank = 0; rank < nodes; ++rank) {
        EXPECT_EQ(MPI_Graph_neighbors_count(copy, rank, &count), MPI_SUCCESS);
        Ints found(at(count));
        EXPECT_EQ(MPI_Graph_neighbors(copy, rank, count, found.data()), MPI_SUCCESS);
        EXPECT_EQ(found, neighbours[at(rank)]);
      }
      MPI_Comm_free(&copy);
    }
    MPI_Finalize();
  });
  EXPECT_FALSE(HasFailure()) << "seed " << seed;
}

struct Edge {
  int from;
  int to;
  int weight;
  auto operator<=>(const Edge&) const = default;
};

/// The caller's edges, in, then out, as its communicator tells.
std::pair<std::vector<Edge>, std::vector<Edge>> edges_at_rank(MPI_Comm comm, bool weighted) {
  int in = -1;
  int out = -1;
  int has_weights = -1;
  EXPECT_EQ(topology_in(comm), MPI_DIST_GRAPH);
  EXPECT_EQ(MPI_Dist_graph_neighbors_count(comm, &in, &out, &has_weights), MPI_SUCCESS);
  EXPECT_EQ(has_weights, weighted ? 1 : 0);
  Ints sources(at(in));
  Ints source_weights(at(in), -1);
  Ints destinations(at(out));
  Ints destination_weights(at(out), -1);
  EXPECT_EQ(MPI_Dist_graph_neighbors(comm, in, sources.data(), source_weights.data(), out, destinations.data(),
                                     destination_weights.data()),
            MPI_SUCCESS);
  const int own = own_rank_in(comm);
  std::pair<std::vector<Edge>, std::vector<Edge>> edges;
  for (std::size_t i = 0; i < sources.size(); ++i) edges.first.push_back({sources[i], own, source_weights[i]});
  for (std::size_t i = 0; i < destinations.size(); ++i)
    edges.second.push_back({own, destinations[i], destination_weights[i]});
  return edges;
}

/// A random graph of all ranks, and how the caller's communicators must know it.
struct DistributedModel {
  DistributedModel(std::mt19937& random, int size, int rank) : own(rank), weighted(pick(random, 0, 1) == 1) {
    for (int k = pick(random, 0, 4 * size); k > 0; --k)
      all.push_back({pick(random, 0, size - 1), pick(random, 0, size - 1), weighted ? pick(random, 0, 9) : -1});
    std::ranges::copy_if(all, std::back_inserter(in), [&](const Edge& edge) { return edge.to == own; });
    std::ranges::copy_if(all, std::back_inserter(out), [&](const Edge& edge) { return edge.from == own; });
  }

  /// Each rank gives its own edges.
  [[nodiscard]] MPI_Comm make_adjacent() const {
    Ints froms;
    Ints tos;
    Ints in_weights;
    Ints out_weights;
    for (const Edge& edge : in) {
      froms.push_back(edge.from);
      in_weights.push_back(edge.weight);
    }
    for (const Edge& edge : out) {
      tos.push_back(edge.to);
      out_weights.push_back(edge.weight);
    }
    MPI_Comm comm = MPI_COMM_NULL;
    EXPECT_EQ(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, static_cast<int>(froms.size()), froms.data(),
                                             weighted ? in_weights.data() : MPI_UNWEIGHTED,
                                             static_cast<int>(tos.size()), tos.data(),
                                             weighted ? out_weights.data() : MPI_UNWEIGHTED, MPI_INFO_NULL, 1, &comm),
              MPI_SUCCESS);
    return comm;
  }

  /// A random rank gives each edge, together with those of the same source that it gave just before.
  [[nodiscard]] MPI_Comm make_anywhere(std::mt19937& random, int size) const {
    Ints froms;
    Ints degrees;
    Ints tos;
    Ints weights;
    for (const Edge& edge : all) {
      if (pick(random, 0, size - 1) != own) continue;
      if (froms.empty() || froms.back() != edge.from) {
        froms.push_back(edge.from);
        degrees.push_back(0);
      }
      ++degrees.back();
      tos.push_back(edge.to);
      weights.push_back(edge.weight);
    }
    const int* const given = !weighted ? MPI_UNWEIGHTED : weights.empty() ? MPI_WEIGHTS_EMPTY : weights.data();
    MPI_Comm comm = MPI_COMM_NULL;
    EXPECT_EQ(MPI_Dist_graph_create(MPI_COMM_WORLD, static_cast<int>(froms.size()), froms.data(), degrees.data(),
                                    tos.data(), given, MPI_INFO_NULL, 0, &comm),
              MPI_SUCCESS);
    return comm;
  }

  void expect_edges(MPI_Comm comm, bool in_order) const {
    const auto ordered = [in_order](std::vector<Edge> edges) {
      if (!in_order) std::ranges::sort(edges);
      return edges;
    };
    const auto found = edges_at_rank(comm, weighted);
    EXPECT_EQ(ordered(found.first), ordered(in));
    EXPECT_EQ(ordered(found.second), ordered(out));
    EXPECT_EQ(edges_at_rank(comm, weighted), found);
  }

  int own;
  bool weighted;
  std::vector<Edge> all;
  std::vector<Edge> in;  // of the caller
  std::vector<Edge> out;
};

TEST_P(Topologies, DistributedGraphsAgreeWithTheModel) {
  const unsigned seed = std::random_device{}();
  run_well(GetParam(), [seed] {
    begin_topologies();
    std::mt19937 random(seed);
    const int size = ranks_of_world();
    for (std::uint64_t i = 0; i < scaled(30); ++i) {
      const DistributedModel model(random, size, own_rank_in(MPI_COMM_WORLD));
      MPI_Comm comm = model.make_adjacent();
      MPI_Comm copy = MPI_COMM_NULL;
      EXPECT_EQ(MPI_Comm_dup(comm, &copy), MPI_SUCCESS);
      MPI_Comm_free(&comm);
      model.expect_edges(copy, true);
      EXPECT_EQ(members_of(copy).size(), at(size));
      MPI_Comm_free(&copy);
      comm = model.make_anywhere(random, size);
      model.expect_edges(comm, false);
      // The first ones are enough for a program that has no room for more.
      int first = -1;
      const int room = model.in.empty() ? 0 : 1;
      EXPECT_EQ(MPI_Dist_graph_neighbors(comm, room, &first, MPI_UNWEIGHTED, 0, nullptr, MPI_UNWEIGHTED), MPI_SUCCESS);
      EXPECT_EQ(first, room == 0 ? -1 : edges_at_rank(comm, model.weighted).first.front().from);
      MPI_Comm_free(&comm);
    }
    MPI_Finalize();
  });
  EXPECT_FALSE(HasFailure()) << "seed " << seed;
}

// ---------------------------------------------------------------- what is refused

TEST(MpiTopology, WrongGridsHaveTheStandardsClasses) {
  run_well({{4, 1}, 2}, [] {
    begin_topologies();
    const MPI_Comm world = MPI_COMM_WORLD;
    const Ints two = {2, 2};
    const Ints none = {0, 0};
    const auto cart = [&](MPI_Comm old, int ndims, const int* dims, const int* periods) {
      MPI_Comm made = MPI_COMM_WORLD;
      const int code = MPI_Cart_create(old, ndims, dims, periods, 0, &made);
      EXPECT_TRUE(code != MPI_ERR_DIMS || made == MPI_COMM_NULL);
      return code;
    };
    EXPECT_EQ(cart(MPI_COMM_NULL, 2, two.data(), none.data()), MPI_ERR_COMM);
    EXPECT_EQ(cart(world, -1, two.data(), none.data()), MPI_ERR_DIMS);
    EXPECT_EQ(cart(world, 2, nullptr, none.data()), MPI_ERR_ARG);
    EXPECT_EQ(cart(world, 2, two.data(), nullptr), MPI_ERR_ARG);
    EXPECT_EQ(cart(world, 2, none.data(), none.data()), MPI_ERR_DIMS);
    EXPECT_EQ(cart(world, 2, Ints{5, 1}.data(), none.data()), MPI_ERR_DIMS);
    EXPECT_EQ(cart(world, 2, Ints{2147483647, 2147483647}.data(), none.data()), MPI_ERR_DIMS);
    EXPECT_EQ(cart(world, 2, Ints{-2, -2}.data(), none.data()), MPI_ERR_DIMS);
    EXPECT_EQ(MPI_Cart_create(world, 2, two.data(), none.data(), 0, nullptr), MPI_ERR_ARG);
    int number = -1;
    EXPECT_EQ(MPI_Cart_map(world, 2, Ints{5, 1}.data(), none.data(), &number), MPI_ERR_DIMS);

    MPI_Comm grid = MPI_COMM_NULL;
    ASSERT_EQ(MPI_Cart_create(world, 2, two.data(), Ints{1, 0}.data(), 0, &grid), MPI_SUCCESS);
    Ints coords(2);
    int other = -1;
    EXPECT_EQ(MPI_Cart_coords(grid, 4, 2, coords.data()), MPI_ERR_RANK);
    EXPECT_EQ(MPI_Cart_coords(grid, MPI_PROC_NULL, 2, coords.data()), MPI_ERR_RANK);
    EXPECT_EQ(MPI_Cart_coords(grid, 0, 1, coords.data()), MPI_ERR_DIMS);
    EXPECT_EQ(MPI_Cart_coords(grid, 0, -1, coords.data()), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Cart_coords(grid, 0, 2, nullptr), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Cart_get(grid, 1, coords.data(), coords.data(), coords.data()), MPI_ERR_DIMS);
    EXPECT_EQ(MPI_Cart_get(grid, 2, coords.data(), nullptr, coords.data()), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Cart_rank(grid, Ints{-5, 2}.data(), &number), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Cart_rank(grid, Ints{0, -1}.data(), &number), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Cart_rank(grid, nullptr, &number), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Cart_shift(grid, 2, 1, &number, &other), MPI_ERR_DIMS);
    EXPECT_EQ(MPI_Cart_shift(grid, -1, 1, &number, &other), MPI_ERR_DIMS);
    EXPECT_EQ(MPI_Cart_shift(grid, 0, 1, nullptr, &other), MPI_ERR_ARG);
    MPI_Comm made = MPI_COMM_NULL;
    EXPECT_EQ(MPI_Cart_sub(grid, nullptr, &made), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Cart_sub(world, two.data(), &made), MPI_ERR_TOPOLOGY);
    EXPECT_EQ(MPI_Cartdim_get(world, &number), MPI_ERR_TOPOLOGY);
    EXPECT_EQ(MPI_Graphdims_get(grid, &number, &other), MPI_ERR_TOPOLOGY);
    EXPECT_EQ(MPI_Dist_graph_neighbors_count(grid, &number, &other, &other), MPI_ERR_TOPOLOGY);
    MPI_Comm point = MPI_COMM_NULL;
    ASSERT_EQ(MPI_Cart_create(MPI_COMM_SELF, 0, nullptr, nullptr, 0, &point), MPI_SUCCESS);
    EXPECT_EQ(MPI_Cart_shift(point, 0, 1, &number, &other), MPI_ERR_DIMS);
    MPI_Comm_free(&point);
    MPI_Comm_free(&grid);
    EXPECT_EQ(MPI_Barrier(world), MPI_SUCCESS);
    MPI_Finalize();
  });
}

TEST(MpiTopology, WrongGraphsHaveTheStandardsClasses) {
  run_well({{4, 1}, 2}, [] {
    begin_topologies();
    MPI_Comm made = MPI_COMM_NULL;
    int number = -1;
    Ints lists(4);
    const Ints ends = {1, 2, 3, 4};
    const Ints ring = {1, 2, 3, 0};
    const auto graph = [&](int nodes, const int* indx, const int* edges) {
      made = MPI_COMM_WORLD;
      const int code = MPI_Graph_create(MPI_COMM_WORLD, nodes, indx, edges, 0, &made);
      EXPECT_TRUE(code == MPI_SUCCESS || made == MPI_COMM_NULL || made == MPI_COMM_WORLD);
      return code;
    };
    EXPECT_EQ(graph(-1, ends.data(), ring.data()), MPI_ERR_ARG);
    EXPECT_EQ(graph(5, ends.data(), ring.data()), MPI_ERR_ARG);
    EXPECT_EQ(graph(4, nullptr, ring.data()), MPI_ERR_ARG);
    EXPECT_EQ(graph(4, ends.data(), nullptr), MPI_ERR_ARG);
    EXPECT_EQ(graph(2, Ints{2, 1}.data(), ring.data()), MPI_ERR_ARG);
    EXPECT_EQ(graph(2, Ints{-1, 1}.data(), ring.data()), MPI_ERR_ARG);
    EXPECT_EQ(graph(2, Ints{1, 2}.data(), Ints{1, 2}.data()), MPI_ERR_ARG);
    EXPECT_EQ(graph(2, Ints{1, 2}.data(), Ints{1, -1}.data()), MPI_ERR_ARG);
    ASSERT_EQ(graph(4, ends.data(), ring.data()), MPI_SUCCESS);
    EXPECT_EQ(MPI_Graph_neighbors_count(made, 4, &number), MPI_ERR_RANK);
    EXPECT_EQ(MPI_Graph_neighbors(made, -1, 1, &number), MPI_ERR_RANK);
    EXPECT_EQ(MPI_Graph_neighbors(made, 0, 0, &number), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Graph_get(made, 3, 4, lists.data(), lists.data()), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Graph_get(made, 4, 3, lists.data(), lists.data()), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Cart_coords(made, 0, 2, lists.data()), MPI_ERR_TOPOLOGY);
    MPI_Comm_free(&made);

    EXPECT_EQ(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS);
    MPI_Finalize();
  });
}

TEST(MpiTopology, WrongDistributedGraphsHaveTheStandardsClasses) {
  run_well({{4, 1}, 2}, [] {
    begin_topologies();
    const MPI_Comm world = MPI_COMM_WORLD;
    MPI_Comm made = MPI_COMM_NULL;
    const Ints ring = {1, 2, 3, 0};
    const auto adjacent = [&](int in, const int* sources, const int* source_weights, int out, const int* destinations,
                              const int* destination_weights) {
      made = MPI_COMM_WORLD;
      const int code = MPI_Dist_graph_create_adjacent(world, in, sources, source_weights, out, destinations,
                                                      destination_weights, MPI_INFO_NULL, 0, &made);
      EXPECT_TRUE(code == MPI_SUCCESS || made == MPI_COMM_NULL || made == MPI_COMM_WORLD);
      return code;
    };
    const int* const all = ring.data();
    EXPECT_EQ(adjacent(-1, all, all, 1, all, all), MPI_ERR_ARG);
    EXPECT_EQ(adjacent(1, all, all, -1, all, all), MPI_ERR_ARG);
    EXPECT_EQ(adjacent(1, Ints{4}.data(), all, 1, all, all), MPI_ERR_RANK);
    EXPECT_EQ(adjacent(1, all, all, 1, Ints{MPI_PROC_NULL}.data(), all), MPI_ERR_RANK);
    EXPECT_EQ(adjacent(1, nullptr, all, 1, all, all), MPI_ERR_ARG);
    EXPECT_EQ(adjacent(1, all, nullptr, 1, all, all), MPI_ERR_ARG);
    EXPECT_EQ(adjacent(1, all, all, 1, all, MPI_WEIGHTS_EMPTY), MPI_ERR_ARG);
    EXPECT_EQ(adjacent(1, all, Ints{-1}.data(), 1, all, all), MPI_ERR_ARG);
    EXPECT_EQ(adjacent(1, all, all, 1, all, MPI_UNWEIGHTED), MPI_ERR_TOPOLOGY);
    const auto distributed = [&](int n, const int* sources, const int* degrees, const int* destinations,
                                 const int* weights) {
      made = MPI_COMM_WORLD;
      const int code =
          MPI_Dist_graph_create(world, n, sources, degrees, destinations, weights, MPI_INFO_NULL, 0, &made);
      EXPECT_TRUE(code == MPI_SUCCESS || made == MPI_COMM_NULL || made == MPI_COMM_WORLD);
      return code;
    };
    EXPECT_EQ(distributed(-1, all, all, all, all), MPI_ERR_ARG);
    EXPECT_EQ(distributed(1, Ints{-1}.data(), all, all, all), MPI_ERR_RANK);
    EXPECT_EQ(distributed(1, all, Ints{-1}.data(), all, all), MPI_ERR_ARG);
    EXPECT_EQ(distributed(2, all, Ints{2147483647, 2147483647}.data(), all, all), MPI_ERR_ARG);
    EXPECT_EQ(distributed(1, all, all, Ints{4}.data(), all), MPI_ERR_RANK);
    EXPECT_EQ(distributed(1, all, all, nullptr, all), MPI_ERR_ARG);
    EXPECT_EQ(distributed(1, all, all, all, nullptr), MPI_ERR_ARG);
    EXPECT_EQ(distributed(1, all, all, all, MPI_WEIGHTS_EMPTY), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Dist_graph_neighbors(world, 0, nullptr, nullptr, 0, nullptr, nullptr), MPI_ERR_TOPOLOGY);
    EXPECT_EQ(MPI_Barrier(world), MPI_SUCCESS);
    MPI_Finalize();
  });
}

// Otherwise the ranks would have communicators that do not fit together.
TEST(MpiTopology, RanksThatDescribeDifferentTopologiesAreTold) {
  run_well({{4, 1}, 2}, [] {
    begin_topologies();
    const int own = own_rank_in(MPI_COMM_WORLD);
    const Ints periods = {0, own == 2 ? 1 : 0};
    MPI_Comm made = MPI_COMM_WORLD;
    EXPECT_EQ(MPI_Cart_create(MPI_COMM_WORLD, 2, Ints{2, 2}.data(), periods.data(), 0, &made), MPI_ERR_ARG);
    EXPECT_EQ(made, MPI_COMM_NULL);
    const Ints edges = {1, own == 0 ? 1 : 0};
    EXPECT_EQ(MPI_Graph_create(MPI_COMM_WORLD, 2, Ints{1, 2}.data(), edges.data(), 0, &made), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Dist_graph_create(MPI_COMM_WORLD, 0, nullptr, nullptr, nullptr,
                                    own == 3 ? MPI_UNWEIGHTED : MPI_WEIGHTS_EMPTY, MPI_INFO_NULL, 0, &made),
              MPI_ERR_ARG);
    EXPECT_EQ(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS);
    MPI_Finalize();
  });
  const Report report = run({{3, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Cart_create(MPI_COMM_WORLD, 2, Ints{2, 2}.data(), Ints{0, 0}.data(), 0, &made);
  });
  EXPECT_EQ(report.exit_status, 1);
  EXPECT_NE(report.reason.find("MPI_Cart_create: a grid of 4 ranks is larger than the communicator, which has 3; "
                               "MPI_Dims_create finds dims that fit (MPI_ERR_DIMS on MPI_COMM_WORLD)"),
            std::string::npos)
      << report.reason;
}

}  // namespace
}  // namespace aplib
