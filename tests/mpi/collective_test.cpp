// SPDX-License-Identifier: MIT
// What collective calls promise beyond their results (programs/collectives.c looks at those): the same bits on any
// placement, and errors of the standard's classes where ranks disagree.
#include <gtest/gtest.h>
#include <mpi.h>

#include <array>
#include <atomic>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "machines.hpp"
#include "mpi/board.hpp"

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
    EXPECT_EQ(MPI_Exscan(one.data(), one.data(), 1, MPI_INT, MPI_SUM, world), MPI_ERR_BUFFER);  // at rank 0, too
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

TEST(MpiCollective, ACallThatFailsByItsArgumentsDoesNotCount) {
  run_well({{3, 1}, 2}, [] {
    begin_world();
    std::array<int, 3> data{};
    if (rank_now() == 1) {
      EXPECT_EQ(MPI_Alltoall(data.data(), 1, MPI_INT, data.data(), 1, MPI_INT, MPI_COMM_WORLD), MPI_ERR_BUFFER);
      EXPECT_EQ(MPI_Gather(&data[1], 1, MPI_INT, data.data(), 1, MPI_INT, 1, MPI_COMM_WORLD), MPI_ERR_BUFFER);
    }
    EXPECT_EQ(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS);
    MPI_Finalize();
  });
}

// Each in another way to wait: for all, for the root's data, and for the root to have taken what it was given.
TEST(MpiCollective, ReportsOfDeadlocksNameTheCallTheRanksAndTheCommunicator) {
  const auto report_of = [](auto call) {
    const Report report = run({{3, 1}, 2}, [&] {
      MPI_Init(nullptr, nullptr);
      MPI_Barrier(MPI_COMM_WORLD);
      if (rank_now() == 1) {
        static_cast<void>(receive());
      } else {
        call();
      }
    });
    EXPECT_EQ(report.exit_status, static_cast<int>(ExitStatus::deadlock));
    return report.reason;
  };
  const std::string all = report_of([] { MPI_Barrier(MPI_COMM_WORLD); });
  EXPECT_NE(all.find("waits in MPI_Barrier for rank 1 of MPI_COMM_WORLD"), std::string::npos) << all;
  const std::string root = report_of([] {
    int one = 0;
    MPI_Bcast(&one, 1, MPI_INT, 1, MPI_COMM_WORLD);
  });
  EXPECT_NE(root.find("waits in MPI_Bcast for rank 1 of MPI_COMM_WORLD"), std::string::npos) << root;
  const std::string large = report_of([] {
    std::vector<int> own(3000);
    std::vector<int> all_of_them(own.size() * 3);
    MPI_Gather(own.data(), 3000, MPI_INT, all_of_them.data(), 3000, MPI_INT, 0, MPI_COMM_WORLD);
  });
  EXPECT_NE(large.find("waits in MPI_Gather for rank 1 of MPI_COMM_WORLD"), std::string::npos) << large;
}

TEST(MpiCollective, ARankThatHasEndedIsTold) {
  for (const std::uint32_t threads : {1U, 2U}) {
    const Report report = run({{3, 1}, threads}, [] {
      MPI_Init(nullptr, nullptr);
      MPI_Barrier(MPI_COMM_WORLD);
      if (rank_now() != 1) MPI_Barrier(MPI_COMM_WORLD);
    });
    EXPECT_EQ(report.exit_status, 1);
    EXPECT_NE(report.reason.find("rank 1 has ended without this call"), std::string::npos) << report.reason;
  }
}

// The others have its arrival, so it need not wait for them.
TEST(MpiCollective, ARankMayEndWhileOthersAreInTheCallThatItHasLeft) {
  for (const std::uint32_t threads : {1U, 2U, 4U}) {
    run_well({{4, 1}, threads}, [] {
      MPI_Init(nullptr, nullptr);
      for (int i = 0; i < 50; ++i) {
        int one = i;
        int sum = 0;
        MPI_Bcast(&one, 1, MPI_INT, i % 4, MPI_COMM_WORLD);
        MPI_Reduce(&one, &sum, 1, MPI_INT, MPI_SUM, (i + 1) % 4, MPI_COMM_WORLD);
        EXPECT_EQ(sum, rank_now() == (i + 1) % 4 ? 4 * i : 0);
      }
    });
  }
}

TEST(MpiCollective, CountsOfReductionsThatDisagreeAreToldToAll) {
  run_well({{3, 1}, 2}, [] {
    begin_world();
    std::array<int, 2000> own{};
    std::array<int, 2000> result{};
    for (int i = 0; i < 10; ++i) {
      const int count = rank_now() == 2 ? 1 + 1999 * (i % 2) : 2;
      EXPECT_EQ(MPI_Allreduce(own.data(), result.data(), count, MPI_INT, MPI_SUM, MPI_COMM_WORLD), MPI_ERR_COUNT);
      EXPECT_EQ(MPI_Allreduce(own.data(), result.data(), 2000, MPI_INT, MPI_SUM, MPI_COMM_WORLD), MPI_SUCCESS);
    }
    MPI_Finalize();
  });
}

TEST(MpiCollective, ACopyIsWholeWhoeverHelps) {
  mpi::LayoutBuilder builder;
  builder.add_block(0, 4);
  const mpi::LayoutPtr layout = builder.finish();
  mpi::SharedCopy copy;
  std::mt19937 random(3);
  for (const bool helps : {false, true}) {
    for (std::uint64_t round = 0; round < scaled(50, 5, 1); ++round) {
      const std::size_t count = mpi::SharedCopy::bytes_min / 4 + random() % 100'000;
      std::vector<unsigned> from(count);
      for (unsigned& value : from) value = static_cast<unsigned>(random());
      std::vector<unsigned> to(2 * count, 7);
      const auto elements = static_cast<mpi::Count>(count);
      copy.begin({to.data(), layout.get(), elements, 8}, mpi::bytes_at(from.data(), 4 * elements));
      std::thread helper([&] {
        while (helps && copy.help()) {
        }
      });
      copy.finish();
      EXPECT_FALSE(copy.help());
      for (std::size_t i = 0; i < count; ++i) ASSERT_TRUE(to[2 * i] == from[i] && to[2 * i + 1] == 7) << i;
      helper.join();
    }
  }
}

// Unequal work makes cells move to the processor that idles, while their other task waits in a call, too.
TEST(MpiCollective, CellsMayMoveBetweenAndDuringCalls) {
  constexpr int ranks = 6;
  run_well({{ranks, 1}, 2}, [] {
    begin_world();
    const int mine = rank_now();
    std::atomic<bool> is_over{false};
    const auto work = [](int steps) {
      const double end = MPI_Wtime() + steps * 1e-4;
      while (MPI_Wtime() < end) this_task::yield();
    };
    Task other = spawn([&] {
      while (!is_over) work(1);
    });
    std::mt19937 random(static_cast<unsigned>(mine));
    for (int round = 0; round < 30; ++round) {
      work(static_cast<int>(random() % 10) * (mine % 2));
      long own = mine + round;
      long sum = 0;
      MPI_Allreduce(&own, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
      EXPECT_EQ(sum, ranks * (ranks - 1) / 2 + ranks * round);
      for (const int count : {5000, 30'000}) {  // by one processor, and by two
        std::vector<int> data(static_cast<std::size_t>(count), round % ranks == mine ? round : -1);
        MPI_Bcast(data.data(), count, MPI_INT, round % ranks, MPI_COMM_WORLD);
        EXPECT_EQ(data, std::vector<int>(static_cast<std::size_t>(count), round));
      }
    }
    is_over = true;
    other.join();
    MPI_Finalize();
  });
}

// While one rank copies from the others' memory, the machine stops, and their stacks unwind.
TEST(MpiCollective, AMachineMayStopWhileDataAreTaken) {
  for (int i = 0; i < 20; ++i) {
    const Report report = run({{4, 1}, 4}, [i] {
      MPI_Init(nullptr, nullptr);
      std::vector<int> own(100'000 + static_cast<std::size_t>(i) * 7);
      std::vector<int> all(own.size() * 4);
      const int count = static_cast<int>(own.size());
      for (int round = 0;; ++round) {
        if (round == i && rank_now() == i % 4) MPI_Abort(MPI_COMM_WORLD, 3);
        MPI_Allgather(own.data(), count, MPI_INT, all.data(), count, MPI_INT, MPI_COMM_WORLD);
        MPI_Allreduce(own.data(), all.data(), count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        MPI_Bcast(own.data(), count, MPI_INT, round % 4, MPI_COMM_WORLD);
      }
    });
    EXPECT_EQ(report.exit_status, 3);
  }
}

// ParallelIO and PnetCDF give them so.
TEST(BlocksWithoutElements, NeedNoType) {
  run_well({{3, 1}, 2}, [] {
    MPI_Init(nullptr, nullptr);
    int rank = -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::array<int, 3> sent{};
    std::array<int, 3> received{};
    const std::array<int, 3> places{};
    std::array<MPI_Datatype, 3> sent_types{MPI_DATATYPE_NULL, MPI_DATATYPE_NULL, MPI_DATATYPE_NULL};
    std::array<MPI_Datatype, 3> received_types = sent_types;
    const auto next = static_cast<std::size_t>((rank + 1) % 3);
    const auto last = static_cast<std::size_t>((rank + 2) % 3);
    sent[next] = received[last] = 1;
    sent_types[next] = received_types[last] = MPI_INT;
    int in = -1;
    EXPECT_EQ(MPI_Alltoallw(&rank, sent.data(), places.data(), sent_types.data(), &in, received.data(), places.data(),
                            received_types.data(), MPI_COMM_WORLD),
              MPI_SUCCESS);
    EXPECT_EQ(in, static_cast<int>(last));
    in = -1;
    MPI_Request request = MPI_REQUEST_NULL;
    EXPECT_EQ(MPI_Ialltoallw(&rank, sent.data(), places.data(), sent_types.data(), &in, received.data(), places.data(),
                             received_types.data(), MPI_COMM_WORLD, &request),
              MPI_SUCCESS);
    EXPECT_EQ(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
    EXPECT_EQ(in, static_cast<int>(last));
    MPI_Finalize();
  });
}

}  // namespace
}  // namespace aplib
