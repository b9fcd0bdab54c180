// SPDX-License-Identifier: MIT
// Topology: who is whose neighbour in a communicator. It never changes, so duplicates of a communicator share it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "mpi/collective.hpp"

namespace aplib::mpi {

/// Of MPI_Cart_create: a grid in which the last coordinate changes fastest from rank to rank. Without dimensions it is
/// one rank.
class Grid {
 public:
  static constexpr int kind = MPI_CART;

  struct Dimension {
    int size;
    bool is_periodic;
    int stride = 1;  ///< From a rank to its neighbour. The grid sets it.
  };

  /// REQUIRES: there are as many ranks as the sizes' product.
  explicit Grid(std::vector<Dimension> dimensions) noexcept;

  [[nodiscard]] std::span<const Dimension> dimensions() const noexcept { return dimensions_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] int coordinate(int rank, std::size_t dimension) const noexcept {
    return rank / dimensions_[dimension].stride % dimensions_[dimension].size;
  }
  /// The rank that is `distance` away along a dimension. MPI_PROC_NULL: it would lie outside.
  [[nodiscard]] int shifted(int rank, std::size_t dimension, std::int64_t distance) const noexcept;

 private:
  std::vector<Dimension> dimensions_;
  int size_ = 1;
};

/// Of MPI_Graph_create: every rank knows all edges.
struct Graph {
  static constexpr int kind = MPI_GRAPH;

  [[nodiscard]] std::span<const int> neighbours(int rank) const noexcept {
    const auto i = static_cast<std::size_t>(rank);
    const int begin = rank == 0 ? 0 : ends[i - 1];
    return std::span(edges).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(ends[i] - begin));
  }

  std::vector<int> ends;  ///< Of each rank's edges.
  std::vector<int> edges;
};

/// Of MPI_Dist_graph_create and MPI_Dist_graph_create_adjacent: a rank knows its own edges, which are the topology's.
struct DistributedGraph {
  static constexpr int kind = MPI_DIST_GRAPH;

  bool is_weighted;
  std::vector<int> source_weights;
  std::vector<int> destination_weights;
};

struct Topology {
  std::variant<Grid, Graph, DistributedGraph> shape;
  /// The caller's neighbours in the order of their blocks: from whom it receives, and to whom it sends.
  std::vector<int> sources;
  std::vector<int> destinations;
};
using TopologyPtr = std::shared_ptr<const Topology>;

/// Fails with MPI_ERR_TOPOLOGY if it has none.
[[nodiscard]] const Topology& topology_of(const Comm& comm);
[[noreturn]] void fail_topology(const Comm& comm, int wanted);
/// The same unless it has this shape.
template <class Shape>
const Shape& shape_of(const Comm& comm) {
  const Shape* const shape = comm.topology != nullptr ? std::get_if<Shape>(&comm.topology->shape) : nullptr;
  if (shape == nullptr) [[unlikely]]
    fail_topology(comm, Shape::kind);
  return *shape;
}

[[nodiscard]] TopologyPtr make_topology(Grid grid, int rank);
[[nodiscard]] TopologyPtr make_topology(Graph graph, int rank);

/// Collective, at the beginning of a call that makes a topology: fails at every rank unless all have given the same.
void check_same(const Call& call, Comm& comm, CollectiveKind kind, const std::vector<int>& given, const char* what);

/// Collective: gives each of those ranks of `parent` a communicator of them in this order, with its topology. All ranks
/// call; those that are not among them get MPI_COMM_NULL.
void give_comm(const Call& call, Comm& parent, const std::vector<int>& ranks, TopologyPtr topology, MPI_Comm* place);

/// 0..count - 1.
[[nodiscard]] std::vector<int> first_ranks(int count);

/// Fails unless it is a rank of the communicator, which no wildcard is.
void check_member(const char* parameter, const Comm& comm, int rank);

}  // namespace aplib::mpi
