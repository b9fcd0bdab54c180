// SPDX-License-Identifier: MIT
// A process without a machine that calls MPI: it is rank 0 of 1. Each of these ends its process.
#include <gtest/gtest.h>
#include <mpi.h>
#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "aplib/error.hpp"
#include "base/sanitizer.hpp"
#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

class MpiAdoptionDeathTest : public testing::Test {
 protected:
  void SetUp() override { testing::GTEST_FLAG(death_test_style) = "threadsafe"; }
};

/// Ends the process with status 1 and the text unless the condition holds.
void must(bool holds, const char* text) {
  if (holds) return;
  std::fprintf(stderr, "it does not hold that %s\n", text);
  std::exit(1);
}

void live_alone() {
  int flag = 1;
  MPI_Initialized(&flag);
  must(flag == 0, "MPI has not begun");
  MPI_Init(nullptr, nullptr);
  int rank = -1;
  int size = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  must(rank == 0 && size == 1, "it is rank 0 of 1");

  int sum = 0;
  const int seven = 7;
  MPI_Allreduce(&seven, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  must(sum == 7, "collectives work");
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  int got = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 3, copy, &request);
  MPI_Send(&seven, 1, MPI_INT, 0, 3, copy);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  must(got == 7, "messages to oneself arrive");
  MPI_Comm_free(&copy);

  try {
    throw 5;
  } catch (int number) {
    MPI_Barrier(MPI_COMM_WORLD);
    must(number == 5, "exceptions stay");
  }
  int* number = nullptr;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &number, &flag);
  must(flag == 1 && *number == 0, "it is program 0");
}

TEST_F(MpiAdoptionDeathTest, AProcessIsAWorldOfItsOwn) {
  EXPECT_EXIT(
      {
        live_alone();
        MPI_Finalize();
        int flag = 0;
        MPI_Finalized(&flag);
        std::exit(flag == 1 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(MpiAdoptionDeathTest, ItMayEndWithoutMpiFinalize) {
  EXPECT_EXIT(
      {
        live_alone();
        std::exit(3);
      },
      testing::ExitedWithCode(3), "");
}

TEST_F(MpiAdoptionDeathTest, AbortEndsTheProcessWithItsCode) {
  EXPECT_EXIT(
      {
        MPI_Init(nullptr, nullptr);
        MPI_Abort(MPI_COMM_WORLD, 42);
      },
      testing::ExitedWithCode(42), "MPI_Abort: rank 0 of MPI_COMM_WORLD");
}

TEST_F(MpiAdoptionDeathTest, AWaitForNobodyIsReported) {
  EXPECT_EXIT(
      {
        MPI_Init(nullptr, nullptr);
        int value = 0;
        MPI_Recv(&value, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      },
      testing::ExitedWithCode(static_cast<int>(ExitStatus::deadlock)), "MPI_Recv.*rank 0 of MPI_COMM_WORLD, tag 7");
}

TEST_F(MpiAdoptionDeathTest, AnErrorIsFatal) {
  EXPECT_EXIT(
      {
        MPI_Init(nullptr, nullptr);
        MPI_Send(nullptr, 0, MPI_INT, 5, 7, MPI_COMM_WORLD);
      },
      testing::ExitedWithCode(1), "MPI_Send: dest is 5.*MPI_ERR_RANK");
}

TEST_F(MpiAdoptionDeathTest, AnyThreadMayBegin) {
  EXPECT_EXIT(
      {
        std::thread(live_alone).join();
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

#if !APLIB_ASAN && !APLIB_TSAN
TEST_F(MpiAdoptionDeathTest, ItsThreadEndsByPthreadExitAsAnyOther) {
  EXPECT_EXIT(
      {
        std::thread([] {
          live_alone();
          pthread_exit(nullptr);
        }).join();
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}
#endif

TEST_F(MpiAdoptionDeathTest, WhereAMachineIsOnlyItsTasksCall) {
  EXPECT_EXIT(run({{2, 1}, 1}, [] { std::thread([] { MPI_Init(nullptr, nullptr); }).join(); }),
              testing::ExitedWithCode(1), "MPI_Init: .*outside a task.*start the program with mpiexec");
}

}  // namespace
}  // namespace aplib
