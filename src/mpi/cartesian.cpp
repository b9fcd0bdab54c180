// SPDX-License-Identifier: MIT
// Grids of ranks: the functions MPI_Cart_*.
#include <fmt/format.h>

#include "mpi/topology.hpp"

namespace aplib::mpi {

Grid::Grid(std::vector<Dimension> dimensions) noexcept : dimensions_(std::move(dimensions)) {
  for (std::size_t i = dimensions_.size(); i-- > 0;) {
    dimensions_[i].stride = size_;
    size_ *= dimensions_[i].size;
  }
}

int Grid::shifted(int rank, std::size_t dimension, std::int64_t distance) const noexcept {
  const Dimension& along = dimensions_[dimension];
  const int from = coordinate(rank, dimension);
  std::int64_t to = from + distance;
  if (along.is_periodic) {
    to %= along.size;
    if (to < 0) to += along.size;
  } else if (to < 0 || to >= along.size) {
    return MPI_PROC_NULL;
  }
  return rank + (static_cast<int>(to) - from) * along.stride;
}

namespace {

/// The grid that a program describes, of ranks of the communicator.
Grid grid_of(const Comm& comm, int ndims, const int dims[], const int periods[]) {
  if (ndims < 0) fail(MPI_ERR_DIMS, fmt::format("ndims is {}; a grid has 0 dimensions or more", ndims));
  std::vector<Grid::Dimension> dimensions;
  std::int64_t size = 1;
  for (int i = 0; i < ndims; ++i) {
    if (dims[i] <= 0) fail(MPI_ERR_DIMS, fmt::format("dims[{}] is {}; a dimension has 1 rank or more", i, dims[i]));
    size *= dims[i];
    if (size > comm.size()) {
      fail(MPI_ERR_DIMS, fmt::format("a grid of {}{} ranks is larger than the communicator, which has {}; "
                                     "MPI_Dims_create finds dims that fit",
                                     i + 1 < ndims ? "at least " : "", size, comm.size()));
    }
    dimensions.push_back({dims[i], periods[i] != 0});
  }
  return Grid(std::move(dimensions));
}

/// Fails unless there is room for all dimensions.
void check_room(const Grid& grid, int maxdims) {
  if (static_cast<std::size_t>(maxdims) < grid.dimensions().size()) {
    fail(MPI_ERR_DIMS, fmt::format("maxdims is {}, but the grid has {} dimensions; MPI_Cartdim_get tells their number",
                                   maxdims, grid.dimensions().size()));
  }
}

void give_coordinates(const Grid& grid, int rank, int coords[]) {
  for (std::size_t i = 0; i < grid.dimensions().size(); ++i) coords[i] = grid.coordinate(rank, i);
}

}  // namespace

void cart_create(const Call& call, Comm& comm, int ndims, const int dims[], const int periods[], int, MPI_Comm* place) {
  *place = MPI_COMM_NULL;
  Grid grid = grid_of(comm, ndims, dims, periods);
  std::vector<int> given;
  for (const Grid::Dimension& dimension : grid.dimensions())
    given.insert(given.end(), {dimension.size, dimension.is_periodic ? 1 : 0});
  check_same(call, comm, CollectiveKind::cart_create, given, "dims or periods");
  const int size = grid.size();
  give_comm(call, comm, first_ranks(size), comm.rank() < size ? make_topology(std::move(grid), comm.rank()) : nullptr,
            place);
}

// Ranks keep their places: cells of a process are equally near to each other.
void cart_map(const Call&, Comm& comm, int ndims, const int dims[], const int periods[], int* newrank) {
  const Grid grid = grid_of(comm, ndims, dims, periods);
  *newrank = comm.rank() < grid.size() ? comm.rank() : MPI_UNDEFINED;
}

void cart_sub(const Call& call, Comm& comm, const int remain_dims[], MPI_Comm* place) {
  *place = MPI_COMM_NULL;
  const auto& grid = shape_of<Grid>(comm);
  const std::span<const Grid::Dimension> dimensions = grid.dimensions();
  check_array(call, "remain_dims", remain_dims, static_cast<MPI_Count>(dimensions.size()));
  std::vector<int> remain(dimensions.size());
  for (std::size_t i = 0; i < remain.size(); ++i) remain[i] = remain_dims[i] != 0 ? 1 : 0;
  check_same(call, comm, CollectiveKind::cart_sub, remain, "remain_dims");
  int first = comm.rank();
  int own = 0;
  std::vector<Grid::Dimension> remaining;
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    if (remain[i] == 0) continue;
    const int coordinate = grid.coordinate(comm.rank(), i);
    first -= coordinate * dimensions[i].stride;
    own = own * dimensions[i].size + coordinate;
    remaining.push_back(dimensions[i]);
  }
  std::vector<int> ranks = {first};
  for (const Grid::Dimension& dimension : remaining) {
    std::vector<int> longer;
    for (const int rank : ranks) {
      for (int i = 0; i < dimension.size; ++i) longer.push_back(rank + i * dimension.stride);
    }
    ranks = std::move(longer);
  }
  give_comm(call, comm, ranks, make_topology(Grid(std::move(remaining)), own), place);
}

void cartdim_get(const Call&, Comm& comm, int* ndims) {
  *ndims = static_cast<int>(shape_of<Grid>(comm).dimensions().size());
}

void cart_get(const Call& call, Comm& comm, int maxdims, int dims[], int periods[], int coords[]) {
  const auto& grid = shape_of<Grid>(comm);
  check_room(grid, maxdims);
  const auto ndims = static_cast<MPI_Count>(grid.dimensions().size());
  check_array(call, "dims", dims, ndims);
  check_array(call, "periods", periods, ndims);
  check_array(call, "coords", coords, ndims);
  for (std::size_t i = 0; i < grid.dimensions().size(); ++i) {
    dims[i] = grid.dimensions()[i].size;
    periods[i] = grid.dimensions()[i].is_periodic ? 1 : 0;
  }
  give_coordinates(grid, comm.rank(), coords);
}

void cart_rank(const Call& call, Comm& comm, const int coords[], int* rank) {
  const auto& grid = shape_of<Grid>(comm);
  const std::span<const Grid::Dimension> dimensions = grid.dimensions();
  check_array(call, "coords", coords, static_cast<MPI_Count>(dimensions.size()));
  int found = 0;
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    const int next = grid.shifted(found, i, coords[i]);
    if (next == MPI_PROC_NULL) {
      fail(MPI_ERR_ARG, fmt::format("coords[{}] is {}; this dimension is not periodic, and has coordinates 0..{}", i,
                                    coords[i], dimensions[i].size - 1));
    }
    found = next;
  }
  *rank = found;
}

void cart_coords(const Call& call, Comm& comm, int rank, int maxdims, int coords[]) {
  const auto& grid = shape_of<Grid>(comm);
  check_member("rank", comm, rank);
  check_room(grid, maxdims);
  check_array(call, "coords", coords, static_cast<MPI_Count>(grid.dimensions().size()));
  give_coordinates(grid, rank, coords);
}

void cart_shift(const Call&, Comm& comm, int direction, int disp, int* source, int* dest) {
  const auto& grid = shape_of<Grid>(comm);
  const auto dimension = static_cast<std::size_t>(direction);
  if (direction < 0 || dimension >= grid.dimensions().size()) {
    fail(MPI_ERR_DIMS,
         grid.dimensions().empty()
             ? fmt::format("direction is {}, but the grid has no dimensions", direction)
             : fmt::format("direction is {}; the grid has dimensions 0..{}", direction, grid.dimensions().size() - 1));
  }
  *source = grid.shifted(comm.rank(), dimension, -static_cast<std::int64_t>(disp));
  *dest = grid.shifted(comm.rank(), dimension, disp);
}

}  // namespace aplib::mpi
