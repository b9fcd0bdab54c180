// SPDX-License-Identifier: MIT
// What collective calls promise beyond their results (programs/collectives.c looks at those): the same bits on any
// placement, and errors of the standard's classes where ranks disagree.
#include <gtest/gtest.h>
#include <mpi.h>

#include <array>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

int rank_now() {
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

void begin_world() {
  MPI_Init(nullptr, nullptr);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

TEST(MpiCollective, ResultsHaveTheSameBitsOnAnyPlacement) {
  constexpr std::uint32_t ranks = 7;
  for (const std::size_t count : {std::size_t{3}, std::size_t{20000}}) {
    std::vector<double> first;
    for (const std::uint32_t threads : {1U, 2U, 3U, ranks}) {
      std::mutex mutex;
      run_well({{ranks, 1}, threads}, [&] {
        begin_world();
        std::mt19937 random(static_cast<unsigned>(rank_now()));
        std::vector<double> own(count);
        std::vector<double> result(count);
        for (double& value : own) value = 1.0 / static_cast<double>(random() + 1);
        EXPECT_EQ(
            MPI_Allreduce(own.data(), result.data(), static_cast<int>(count), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD),
            MPI_SUCCESS);
        {
          const std::scoped_lock lock(mutex);
          if (first.empty()) first = result;
          EXPECT_EQ(first, result);
        }
        MPI_Finalize();
      });
    }
  }
}

TEST(MpiCollective, WrongArgumentsHaveTheStandardsClasses) {
  run_well({{2, 1}, 1}, [] {
    begin_world();
    std::array<int, 4> one{};
    std::array<int, 4> two{};
    const MPI_Comm world = MPI_COMM_WORLD;
    EXPECT_EQ(MPI_Bcast(one.data(), 1, MPI_INT, 2, world), MPI_ERR_ROOT);
    EXPECT_EQ(MPI_Bcast(one.data(), 1, MPI_INT, -1, world), MPI_ERR_ROOT);
    EXPECT_EQ(MPI_Bcast(one.data(), -1, MPI_INT, 0, world), MPI_ERR_COUNT);
    EXPECT_EQ(MPI_Bcast(one.data(), 1, MPI_DATATYPE_NULL, 0, world), MPI_ERR_TYPE);
    EXPECT_EQ(MPI_Bcast(MPI_IN_PLACE, 1, MPI_INT, 0, world), MPI_ERR_BUFFER);
    EXPECT_EQ(MPI_Allreduce(one.data(), one.data(), 1, MPI_INT, MPI_SUM, world), MPI_ERR_BUFFER);
    EXPECT_EQ(MPI_Allreduce(one.data(), two.data(), 1, MPI_INT, MPI_OP_NULL, world), MPI_ERR_OP);
    EXPECT_EQ(MPI_Allreduce(one.data(), two.data(), 1, MPI_DOUBLE, MPI_BAND, world), MPI_ERR_OP);
    EXPECT_EQ(MPI_Alltoall(one.data(), 1, MPI_INT, one.data() + rank_now() * 0, 1, MPI_INT, world), MPI_ERR_BUFFER);
    EXPECT_EQ(MPI_Allgather(one.data(), -1, MPI_INT, two.data(), 1, MPI_INT, world), MPI_ERR_COUNT);
    EXPECT_EQ(MPI_Allgather(one.data(), 1, MPI_DATATYPE_NULL, two.data(), 1, MPI_INT, world), MPI_ERR_TYPE);
    EXPECT_EQ(MPI_Allgather(one.data(), 2, MPI_INT, two.data(), 1, MPI_INT, world), MPI_ERR_TRUNCATE);
    const std::array<int, 2> counts = {1, -1};
    const std::array<int, 2> places = {0, 1};
    EXPECT_EQ(MPI_Allgatherv(one.data(), 1, MPI_INT, two.data(), counts.data(), places.data(), MPI_INT, world),
              MPI_ERR_COUNT);
    EXPECT_EQ(MPI_Allgatherv(one.data(), 1, MPI_INT, two.data(), nullptr, places.data(), MPI_INT, world), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Barrier(world), MPI_SUCCESS);
    MPI_Finalize();
  });
}

// A call that has failed leaves no message that a later one would take for its own.
TEST(MpiCollective, CallsGoOnAfterCountsThatDisagree) {
  run_well({{2, 1}, 2}, [] {
    begin_world();
    std::array<int, 4> data{};
    const int mine = rank_now();
    for (int i = 0; i < 10; ++i) {
      data.fill(mine == 0 ? 7 : 0);
      const int result = MPI_Bcast(data.data(), mine == 0 ? 2 : 1 + 2 * (i % 2), MPI_INT, 0, MPI_COMM_WORLD);
      EXPECT_EQ(result, mine == 0 ? MPI_SUCCESS : i % 2 == 0 ? MPI_ERR_TRUNCATE : MPI_ERR_COUNT);
      data.fill(mine);
      EXPECT_EQ(MPI_Bcast(data.data(), 4, MPI_INT, 1, MPI_COMM_WORLD), MPI_SUCCESS);
      EXPECT_EQ(data, (std::array<int, 4>{1, 1, 1, 1}));
    }
    MPI_Finalize();
  });
}

TEST(MpiCollective, RanksThatDisagreeAreTold) {
  const Report report = run({{2, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    int one = 1;
    int sum = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank_now() == 0) {
      MPI_Bcast(&one, 1, MPI_INT, 0, MPI_COMM_WORLD);
      static_cast<void>(receive());  // ends with the machine
    } else {
      MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
  });
  EXPECT_EQ(report.exit_status, 1);
  EXPECT_NE(report.reason.find("MPI_Allreduce: rank 0 is in MPI_Bcast (call 1 of the communicator"), std::string::npos)
      << report.reason;
}

}  // namespace
}  // namespace aplib
