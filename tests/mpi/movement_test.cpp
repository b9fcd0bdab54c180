// SPDX-License-Identifier: MIT
// MPI_Alltoall among ranks of several processes: blocks of all sizes, around those from which it goes another way.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <vector>

#include "placements.hpp"

namespace aplib {
namespace {

using testing_support::Placement;
using testing_support::placement_name;
using testing_support::run_on;

class Alltoall : public testing::TestWithParam<Placement> {};

int block_value(int from, int to, int i) { return from * 100'003 + to * 1009 + i; }

void exchange_blocks(int elements, bool with_gaps, bool nonblocking) {
  int rank = -1;
  int size = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int step = with_gaps ? 3 : 1;  // ints from one element that is received to the next
  MPI_Datatype spread = MPI_DATATYPE_NULL;
  MPI_Type_create_resized(MPI_INT, 0, static_cast<MPI_Aint>(step * sizeof(int)), &spread);
  MPI_Type_commit(&spread);
  std::vector<int> sent;
  for (int to = 0; to < size; ++to)
    for (int i = 0; i < elements; ++i) sent.push_back(block_value(rank, to, i));
  std::vector<int> received(static_cast<std::size_t>(size * elements * step), -1);
  if (nonblocking) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ialltoall(sent.data(), elements, MPI_INT, received.data(), elements, spread, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else {
    MPI_Alltoall(sent.data(), elements, MPI_INT, received.data(), elements, spread, MPI_COMM_WORLD);
  }
  MPI_Type_free(&spread);
  int wrong = 0;
  for (int from = 0; from < size; ++from) {
    for (int i = 0; i < elements * step; ++i) {
      const int wanted = i % step == 0 ? block_value(from, rank, i / step) : -1;
      wrong += received[static_cast<std::size_t>(from * elements * step + i)] != wanted ? 1 : 0;
    }
  }
  EXPECT_EQ(wrong, 0) << elements << " elements, rank " << rank << " of " << size;
}

TEST_P(Alltoall, EachBlockComesToItsPlace) {
  run_on(GetParam(), [] {
    MPI_Init(nullptr, nullptr);
    for (const int elements : {0, 1, 2, 127, 128, 129, 700})
      for (const bool with_gaps : {false, true}) exchange_blocks(elements, with_gaps, elements % 2 != 0);
    MPI_Finalize();
  });
}

INSTANTIATE_TEST_SUITE_P(, Alltoall,
                         testing::Values(Placement{"fifteen", {15, 1}, 1, {7, 8}, {}, nullptr},
                                         Placement{"sixteen", {16, 1}, 1, {1, 15}, {}, nullptr},
                                         Placement{"seventeen", {17, 1}, 2, {6, 6, 5}, {.delay_polls_max = 3}, nullptr},
                                         Placement{"twenty", {20, 1}, 1, {10, 10}, {}, nullptr, {}, true},
                                         Placement{
                                             "thirty_one", {31, 1}, 1, {16, 15}, {.piece_bytes_max = 300}, nullptr},
                                         Placement{"ninety", {90, 1}, 2, {40, 50}, {}, nullptr}),
                         placement_name);

}  // namespace
}  // namespace aplib
