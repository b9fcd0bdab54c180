// SPDX-License-Identifier: MIT
// Collective calls among neighbours, on random grids and graphs, against what the standard says in terms of messages.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <vector>

#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

constexpr int untouched = -77;

/// Neighbours of each rank, as the topology lists them.
struct Neighbourhood {
  std::vector<std::vector<int>> sources;
  std::vector<std::vector<int>> destinations;
  bool is_grid = false;

  explicit Neighbourhood(int size)
      : sources(static_cast<std::size_t>(size)), destinations(static_cast<std::size_t>(size)) {}

  /// Which of its blocks the source of rank's block l has sent there. REQUIRES: it is no MPI_PROC_NULL.
  [[nodiscard]] int block_sent(int rank, int l) const {
    if (is_grid) return l ^ 1;
    const auto& from = sources[static_cast<std::size_t>(rank)];
    const int source = from[static_cast<std::size_t>(l)];
    auto earlier = std::count(from.begin(), from.begin() + l, source);
    const auto& to = destinations[static_cast<std::size_t>(source)];
    for (std::size_t k = 0; k < to.size(); ++k) {
      if (to[k] == rank && earlier-- == 0) return static_cast<int>(k);
    }
    ADD_FAILURE() << "no edge from " << source << " to " << rank;
    return 0;
  }
};

int number_in(std::mt19937& random, int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); }

MPI_Comm make_grid(std::mt19937& random, int size, Neighbourhood& model) {
  std::vector<int> dims(static_cast<std::size_t>(number_in(random, 0, 3)));
  std::vector<int> periods(dims.size());
  int product = 1;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    dims[i] = number_in(random, 1, std::min(3, size / product));  // small ones: ranks are neighbours twice
    periods[i] = number_in(random, 0, 1);
    product *= dims[i];
  }
  model.is_grid = true;
  for (int rank = 0; rank < product; ++rank) {
    int stride = product;
    auto& list = model.sources[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < dims.size(); ++i) {
      stride /= dims[i];
      const int here = rank / stride % dims[i];
      for (const int step : {-1, 1}) {
        const int there = (here + step + dims[i]) % dims[i];
        const bool is_outside = periods[i] == 0 && there != here + step;
        list.push_back(is_outside ? MPI_PROC_NULL : rank + (there - here) * stride);
      }
    }
    model.destinations[static_cast<std::size_t>(rank)] = list;
  }
  MPI_Comm comm = MPI_COMM_NULL;
  EXPECT_EQ(MPI_Cart_create(MPI_COMM_WORLD, static_cast<int>(dims.size()), dims.data(), periods.data(), 0, &comm),
            MPI_SUCCESS);
  return comm;
}

MPI_Comm make_graph(std::mt19937& random, int size, Neighbourhood& model) {
  for (int i = number_in(random, 0, 2 * size); i > 0; --i) {
    const int one = number_in(random, 0, size - 1);
    const int other = number_in(random, 0, size - 1);
    model.sources[static_cast<std::size_t>(one)].push_back(other);
    if (one != other) model.sources[static_cast<std::size_t>(other)].push_back(one);
  }
  std::vector<int> ends;
  std::vector<int> edges;
  for (auto& list : model.sources) {
    std::ranges::shuffle(list, random);
    edges.insert(edges.end(), list.begin(), list.end());
    ends.push_back(static_cast<int>(edges.size()));
  }
  model.destinations = model.sources;
  MPI_Comm comm = MPI_COMM_NULL;
  EXPECT_EQ(MPI_Graph_create(MPI_COMM_WORLD, size, ends.data(), edges.data(), 0, &comm), MPI_SUCCESS);
  return comm;
}

MPI_Comm make_distributed(std::mt19937& random, int size, Neighbourhood& model) {
  for (int i = number_in(random, 0, 5 * size); i > 0; --i) {
    const int from = number_in(random, 0, size - 1);
    const int to = number_in(random, 0, size - 1);
    model.sources[static_cast<std::size_t>(to)].push_back(from);
    model.destinations[static_cast<std::size_t>(from)].push_back(to);
  }
  for (auto& list : model.sources) std::ranges::shuffle(list, random);
  for (auto& list : model.destinations) std::ranges::shuffle(list, random);
  int own = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &own);
  const auto& sources = model.sources[static_cast<std::size_t>(own)];
  const auto& destinations = model.destinations[static_cast<std::size_t>(own)];
  MPI_Comm comm = MPI_COMM_NULL;
  EXPECT_EQ(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, static_cast<int>(sources.size()), sources.data(),
                                           MPI_UNWEIGHTED, static_cast<int>(destinations.size()), destinations.data(),
                                           MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm),
            MPI_SUCCESS);
  return comm;
}

/// Element i of what a rank sends in its block k.
int value_of(int rank, int k, int i) { return rank * 1000000 + k * 10000 + i; }

/// A communicator's neighbourhood collectives, with blocks of up to `most` elements and a gap behind each.
class Exchange {
 public:
  Exchange(MPI_Comm comm, const Neighbourhood& model, int most) : comm_(comm), model_(model), most_(most) {
    MPI_Comm_rank(comm, &own_);
    sources_ = model.sources[static_cast<std::size_t>(own_)];
    const auto out = model.destinations[static_cast<std::size_t>(own_)].size();
    stride_ = static_cast<std::size_t>(most) + 1;
    for (std::size_t k = 0; k < std::max<std::size_t>(out, 1); ++k) {
      for (std::size_t i = 0; i < stride_; ++i)
        sent_.push_back(value_of(own_, static_cast<int>(k), static_cast<int>(i)));
    }
    for (std::size_t k = 0; k < out; ++k) {
      sent_counts_.push_back(some(own_, static_cast<int>(k)));
      sent_places_.push_back(static_cast<int>(k * stride_));
    }
    for (std::size_t l = 0; l < sources_.size(); ++l) places_.push_back(static_cast<int>(l * stride_));
    MPI_Datatype contiguous = MPI_DATATYPE_NULL;
    MPI_Type_contiguous(most, MPI_INT, &contiguous);
    MPI_Type_create_resized(contiguous, 0, static_cast<MPI_Aint>(stride_ * sizeof(int)), &block_);
    MPI_Type_commit(&block_);
    MPI_Type_free(&contiguous);
  }
  ~Exchange() { MPI_Type_free(&block_); }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  void gather() {
    begin();
    EXPECT_EQ(MPI_Neighbor_allgather(sent_.data(), most_, MPI_INT, received_.data(), 1, block_, comm_), MPI_SUCCESS);
    expect_blocks(&Exchange::all, false, "MPI_Neighbor_allgather");
    begin();
    const auto counts = counts_from(&Exchange::same, false);
    EXPECT_EQ(MPI_Neighbor_allgatherv(sent_.data(), same(own_, 0), MPI_INT, received_.data(), counts.data(),
                                      places_.data(), MPI_INT, comm_),
              MPI_SUCCESS);
    expect_blocks(&Exchange::same, false, "MPI_Neighbor_allgatherv");
  }

  void exchange() {
    begin();
    EXPECT_EQ(MPI_Neighbor_alltoall(sent_.data(), 1, block_, received_.data(), 1, block_, comm_), MPI_SUCCESS);
    expect_blocks(&Exchange::all, true, "MPI_Neighbor_alltoall");
    begin();
    EXPECT_EQ(MPI_Neighbor_alltoall_c(sent_.data(), 1, block_, received_.data(), 1, block_, comm_), MPI_SUCCESS);
    expect_blocks(&Exchange::all, true, "MPI_Neighbor_alltoall_c");
    begin();
    const auto counts = counts_from(&Exchange::some, true);
    EXPECT_EQ(MPI_Neighbor_alltoallv(sent_.data(), sent_counts_.data(), sent_places_.data(), MPI_INT, received_.data(),
                                     counts.data(), places_.data(), MPI_INT, comm_),
              MPI_SUCCESS);
    expect_blocks(&Exchange::some, true, "MPI_Neighbor_alltoallv");
  }

  void exchange_by_types() {
    begin();
    const auto bytes = [](const std::vector<int>& places) {
      std::vector<MPI_Aint> offsets;
      for (const int place : places) offsets.push_back(static_cast<MPI_Aint>(sizeof(int)) * place);
      return offsets;
    };
    const auto counts = counts_from(&Exchange::some, true);
    const std::vector<MPI_Count> large_counts(counts.begin(), counts.end());
    const std::vector<MPI_Count> large_sent_counts(sent_counts_.begin(), sent_counts_.end());
    const std::vector<MPI_Datatype> types(sources_.size(), MPI_INT);
    const std::vector<MPI_Datatype> sent_types(sent_counts_.size(), MPI_INT);
    EXPECT_EQ(
        MPI_Neighbor_alltoallw_c(sent_.data(), large_sent_counts.data(), bytes(sent_places_).data(), sent_types.data(),
                                 received_.data(), large_counts.data(), bytes(places_).data(), types.data(), comm_),
        MPI_SUCCESS);
    expect_blocks(&Exchange::some, true, "MPI_Neighbor_alltoallw_c");
    begin();
    EXPECT_EQ(MPI_Neighbor_alltoallw(sent_.data(), sent_counts_.data(), bytes(sent_places_).data(), sent_types.data(),
                                     received_.data(), counts.data(), bytes(places_).data(), types.data(), comm_),
              MPI_SUCCESS);
    expect_blocks(&Exchange::some, true, "MPI_Neighbor_alltoallw");
  }

 private:
  // How many elements a rank sends in a block.
  using Elements = int (Exchange::*)(int rank, int block) const;
  [[nodiscard]] int all(int, int) const { return most_; }
  [[nodiscard]] int some(int rank, int block) const { return (rank * 7 + block * 3) % (most_ + 1); }
  [[nodiscard]] int same(int rank, int) const { return rank * 5 % (most_ + 1); }

  void begin() { received_.assign(sources_.size() * stride_, untouched); }

  /// The block that comes in block l, of those that its source sends.
  [[nodiscard]] int block_in(std::size_t l, bool each_its_own) const {
    return each_its_own && sources_[l] != MPI_PROC_NULL ? model_.block_sent(own_, static_cast<int>(l)) : 0;
  }

  [[nodiscard]] std::vector<int> counts_from(Elements elements, bool each_its_own) const {
    std::vector<int> counts;
    for (std::size_t l = 0; l < sources_.size(); ++l) {
      const int count = (this->*elements)(sources_[l], block_in(l, each_its_own));
      counts.push_back(sources_[l] == MPI_PROC_NULL ? most_ : count);
    }
    return counts;
  }

  /// What came is what was sent, and everything else is as it was.
  void expect_blocks(Elements elements, bool each_its_own, const char* call) const {
    for (std::size_t l = 0; l < sources_.size(); ++l) {
      const int source = sources_[l];
      const int block = block_in(l, each_its_own);
      const int count = source == MPI_PROC_NULL ? 0 : (this->*elements)(source, block);
      for (int i = 0; i < static_cast<int>(stride_); ++i) {
        ASSERT_EQ(received_[l * stride_ + static_cast<std::size_t>(i)],
                  i < count ? value_of(source, block, i) : untouched)
            << call << ": element " << i << " of block " << l << " at rank " << own_;
      }
    }
  }

  MPI_Comm comm_;
  const Neighbourhood& model_;
  int most_;
  int own_ = -1;
  std::vector<int> sources_;
  std::size_t stride_ = 0;
  std::vector<int> sent_;
  std::vector<int> sent_counts_;
  std::vector<int> sent_places_;
  std::vector<int> places_;
  std::vector<int> received_;
  MPI_Datatype block_ = MPI_DATATYPE_NULL;
};

class Neighbours : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(, Neighbours,
                         testing::Values(Shape{{1, 1}, 1}, Shape{{2, 1}, 2}, Shape{{9, 1}, 2}, Shape{{33, 1}, 2},
                                         Shape{{6, 1}, Options::threads_per_cell}),
                         shape_name);

TEST_P(Neighbours, GetTheBlocksThatTheModelSays) {
  const unsigned seed = std::random_device{}();
  run_well(GetParam(), [seed] {
    MPI_Init(nullptr, nullptr);
    std::mt19937 random(seed);
    int size = -1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (std::uint64_t i = 0; i < scaled(60); ++i) {
      Neighbourhood model(size);
      MPI_Comm comm = i % 3 == 0   ? make_grid(random, size, model)
                      : i % 3 == 1 ? make_graph(random, size, model)
                                   : make_distributed(random, size, model);
      const int most = number_in(random, 0, 9) > 0 ? number_in(random, 1, 5) : 5000;  // some are too long for an entry
      if (comm == MPI_COMM_NULL) continue;
      {
        Exchange exchange(comm, model, most);
        exchange.gather();
        exchange.exchange();
        exchange.exchange_by_types();
      }
      MPI_Comm_free(&comm);
    }
    MPI_Finalize();
  });
  EXPECT_FALSE(HasFailure()) << "seed " << seed;
}

TEST(MpiNeighbour, WrongArgumentsHaveTheStandardsClasses) {
  run_well({{2, 1}, 2}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    std::array<int, 4> one{};
    std::array<int, 4> two{};
    EXPECT_EQ(MPI_Neighbor_allgather(one.data(), 1, MPI_INT, two.data(), 1, MPI_INT, MPI_COMM_WORLD), MPI_ERR_TOPOLOGY);
    MPI_Comm ring = MPI_COMM_NULL;
    const int size = 2;
    const int periodic = 1;
    ASSERT_EQ(MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, &ring), MPI_SUCCESS);
    EXPECT_EQ(MPI_Neighbor_allgather(MPI_IN_PLACE, 1, MPI_INT, two.data(), 1, MPI_INT, ring), MPI_ERR_BUFFER);
    EXPECT_EQ(MPI_Neighbor_allgather(one.data(), -1, MPI_INT, two.data(), 1, MPI_INT, ring), MPI_ERR_COUNT);
    EXPECT_EQ(MPI_Neighbor_alltoall(one.data(), 1, MPI_DATATYPE_NULL, two.data(), 1, MPI_INT, ring), MPI_ERR_TYPE);
    EXPECT_EQ(MPI_Neighbor_alltoall(one.data(), 1, MPI_INT, nullptr, 1, MPI_INT, ring), MPI_ERR_BUFFER);
    const std::array<int, 2> counts = {1, -1};
    const std::array<int, 2> places = {0, 1};
    EXPECT_EQ(MPI_Neighbor_alltoallv(one.data(), counts.data(), places.data(), MPI_INT, two.data(), counts.data(),
                                     places.data(), MPI_INT, ring),
              MPI_ERR_COUNT);
    EXPECT_EQ(MPI_Neighbor_allgatherv(one.data(), 1, MPI_INT, two.data(), nullptr, places.data(), MPI_INT, ring),
              MPI_ERR_ARG);
    const std::array<MPI_Aint, 2> offsets = {0, 4};
    const std::array<MPI_Datatype, 2> types = {MPI_INT, MPI_DATATYPE_NULL};
    EXPECT_EQ(MPI_Neighbor_alltoallw(one.data(), places.data(), offsets.data(), types.data(), two.data(), places.data(),
                                     offsets.data(), types.data(), ring),
              MPI_ERR_TYPE);
    EXPECT_EQ(MPI_Neighbor_alltoallw(one.data(), places.data(), offsets.data(), nullptr, two.data(), places.data(),
                                     offsets.data(), types.data(), ring),
              MPI_ERR_ARG);
    EXPECT_EQ(MPI_Neighbor_alltoall(one.data(), 2, MPI_INT, two.data(), 1, MPI_INT, ring), MPI_ERR_TRUNCATE);
    one = {1, 2, 3, 4};
    EXPECT_EQ(MPI_Neighbor_alltoall(one.data(), 2, MPI_INT, two.data(), 2, MPI_INT, ring), MPI_SUCCESS);
    EXPECT_EQ(two, (std::array<int, 4>{3, 4, 1, 2}));  // what goes left comes from the right
    // A rank without neighbours needs no buffers.
    MPI_Comm alone = MPI_COMM_NULL;
    ASSERT_EQ(MPI_Cart_create(MPI_COMM_SELF, 0, nullptr, nullptr, 0, &alone), MPI_SUCCESS);
    EXPECT_EQ(MPI_Neighbor_alltoall(nullptr, 1, MPI_INT, nullptr, 1, MPI_INT, alone), MPI_SUCCESS);
    EXPECT_EQ(MPI_Neighbor_alltoallv(nullptr, nullptr, nullptr, MPI_INT, nullptr, nullptr, nullptr, MPI_INT, alone),
              MPI_SUCCESS);
    MPI_Finalize();
  });
}

}  // namespace
}  // namespace aplib
