// SPDX-License-Identifier: MIT
// Threads that take turns at their cell's processor (cell/baton.hpp), and call MPI when it is theirs. Programs with
// threads of their own: program_test.cpp.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "cell/baton.hpp"
#include "kernel/machine_impl.hpp"
#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

constexpr int threads_each = 3;

/// The threads of one rank.
class Threads {
 public:
  Threads() : baton_(*running_task()) { baton_.leave(); }
  ~Threads() {
    for (std::thread& thread : threads_) thread.join();
    baton_.close();
  }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  /// One call, or several in one turn. False: the machine stopped.
  bool call(const std::function<void()>& what) {
    EXPECT_TRUE(baton_.enter());
    bool done = false;
    try {
      what();
      done = true;
    } catch (const Stopped&) {
    }
    baton_.leave();
    return done;
  }
  void start(std::function<void()> what) { threads_.emplace_back(std::move(what)); }

 private:
  Baton baton_;
  std::vector<std::thread> threads_;
};

int own_rank() {
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

class MpiThreads : public testing::TestWithParam<std::uint32_t> {
 protected:
  static void run_ranks(const std::function<void(int rank, int size)>& program) {
    run_well(Shape{{GetParam(), 1}, Options::threads_per_cell}, [&program] {
      MPI_Init(nullptr, nullptr);
      program(own_rank(), static_cast<int>(GetParam()));
      MPI_Barrier(MPI_COMM_WORLD);
      MPI_Finalize();
    });
  }
};
INSTANTIATE_TEST_SUITE_P(, MpiThreads, testing::Values(1, 2, 3));

// Each thread has a tag of its own; messages go around, small ones and those that are lent.
TEST_P(MpiThreads, ExchangeMessagesAllAtOnce) {
  run_ranks([](int rank, int size) {
    Threads threads;
    const auto exchange = [&](int tag) {
      std::vector<int> sent(tag % 2 == 0 ? 4 : 20'000);
      std::vector<int> received(sent.size());
      for (int round = 0; round < 40; ++round) {
        std::iota(sent.begin(), sent.end(), 1000 * rank + round);
        const int count = static_cast<int>(sent.size());
        ASSERT_TRUE(threads.call([&] {
          MPI_Sendrecv(sent.data(), count, MPI_INT, (rank + 1) % size, tag, received.data(), count, MPI_INT,
                       (rank + size - 1) % size, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }));
        std::iota(sent.begin(), sent.end(), 1000 * ((rank + size - 1) % size) + round);
        ASSERT_EQ(received, sent);
      }
    };
    for (int i = 0; i < threads_each; ++i) threads.start([&exchange, i] { exchange(i); });
    exchange(threads_each);  // the main thread calls, too
  });
}

// Each thread makes its own partitions ready while the main one waits for all. Those of the first half are lent.
TEST_P(MpiThreads, MakePartitionsReadyWhileAnotherWaits) {
  run_ranks([](int rank, int size) {
    constexpr int each = 4;
    constexpr int partitions = threads_each * each;
    for (const int count : {20'000, 3}) {
      std::vector<int> sent(static_cast<std::size_t>(partitions * count));
      std::vector<int> received(sent.size());
      std::array<MPI_Request, 2> requests{};
      MPI_Psend_init(sent.data(), partitions, count, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD, MPI_INFO_NULL,
                     &requests[0]);
      MPI_Precv_init(received.data(), each, threads_each * count, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD,
                     MPI_INFO_NULL, &requests[1]);
      for (int round = 0; round < 10; ++round) {
        MPI_Startall(2, requests.data());
        Threads threads;
        for (int thread = 0; thread < threads_each; ++thread) {
          threads.start([&, thread] {
            for (int i = thread; i < partitions; i += threads_each) {
              const auto begin = sent.begin() + std::ptrdiff_t{i} * count;
              std::fill(begin, begin + count, 1000 * rank + 100 * round + i);
              ASSERT_TRUE(threads.call([&] { EXPECT_EQ(MPI_Pready(i, requests[0]), MPI_SUCCESS); }));
            }
          });
        }
        ASSERT_TRUE(threads.call([&] { MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE); }));
        const int from = (rank + size - 1) % size;
        for (std::size_t i = 0; i < received.size(); ++i)
          ASSERT_EQ(received[i], 1000 * from + 100 * round + static_cast<int>(i) / count);
      }
      for (MPI_Request& request : requests) MPI_Request_free(&request);
    }
  });
}

// More threads than cores, each with a partner in another rank: whoever finds a message for another thread gives way.
TEST_P(MpiThreads, WaitForPartnersOfTheirOwn) {
  constexpr int threads_many = 8;
  constexpr int rounds = 200;
  run_ranks([](int rank, int size) {
    const int next = (rank + 1) % size;
    const int previous = (rank + size - 1) % size;
    Threads threads;
    for (int tag = 0; tag < threads_many; ++tag) {
      threads.start([&, tag] {
        for (int round = 0; round < rounds; ++round) {
          const int sent = rank + tag * round;
          int received = -1;
          ASSERT_TRUE(threads.call([&] { MPI_Send(&sent, 1, MPI_INT, next, tag, MPI_COMM_WORLD); }));
          ASSERT_TRUE(
              threads.call([&] { MPI_Recv(&received, 1, MPI_INT, previous, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE); }));
          ASSERT_EQ(received, previous + tag * round);
        }
      });
    }
  });
}

// The main thread is not in a call when another one waits; and that does not keep a third from calling.
TEST_P(MpiThreads, AWaitGivesTheProcessorOn) {
  run_ranks([](int rank, int) {
    Threads threads;
    std::atomic<int> got{0};
    for (int tag = 0; tag < threads_each; ++tag) {
      threads.start([&, tag] {
        int value = 0;
        threads.call([&] { MPI_Recv(&value, 1, MPI_INT, rank, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE); });
        got += value;
        got.notify_all();
      });
    }
    for (int tag = threads_each - 1; tag >= 0; --tag) {
      const int before = got;
      const int value = tag + 1;
      threads.start(
          [&, tag, value] { threads.call([&] { MPI_Send(&value, 1, MPI_INT, rank, tag, MPI_COMM_WORLD); }); });
      got.wait(before);
    }
    EXPECT_EQ(got, threads_each * (threads_each + 1) / 2);
  });
}

// Threads that never stop calling do not keep one that stands in line, or waits, from its turn.
TEST_P(MpiThreads, LetOthersCallThoughTheyNeverStop) {
  run_ranks([](int rank, int size) {
    std::atomic<bool> is_over{false};
    Threads threads;
    for (int i = 0; i < threads_each; ++i) {
      threads.start([&] {
        int here = 0;
        while (!is_over) threads.call([&] { MPI_Iprobe(MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &here, MPI_STATUS_IGNORE); });
      });
    }
    for (int round = 0; round < 20; ++round) {
      int value = -1;
      threads.call([&] {
        MPI_Sendrecv(&round, 1, MPI_INT, (rank + 1) % size, 1, &value, 1, MPI_INT, (rank + size - 1) % size, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      });
      EXPECT_EQ(value, round);
    }
    is_over = true;
  });
}

// Threads ask whether something has come, again and again, while others wait and send.
TEST_P(MpiThreads, TestsAndProbesLetOthersCall) {
  run_ranks([](int rank, int size) {
    Threads threads;
    threads.start([&] {
      int value = -1;
      MPI_Request request = MPI_REQUEST_NULL;
      threads.call([&] { MPI_Irecv(&value, 1, MPI_INT, (rank + size - 1) % size, 1, MPI_COMM_WORLD, &request); });
      for (int done = 0; done == 0;) threads.call([&] { MPI_Test(&request, &done, MPI_STATUS_IGNORE); });
      EXPECT_EQ(value, (rank + size - 1) % size);
    });
    threads.start([&] {
      MPI_Status status{};
      for (int here = 0; here == 0;)
        threads.call([&] { MPI_Iprobe(MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &here, &status); });
      int value = -1;
      threads.call([&] { MPI_Recv(&value, 1, MPI_INT, status.MPI_SOURCE, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE); });
      EXPECT_EQ(value, rank);
    });
    threads.start([&] { threads.call([&] { MPI_Send(&rank, 1, MPI_INT, (rank + 1) % size, 1, MPI_COMM_WORLD); }); });
    threads.call([&] { MPI_Send(&rank, 1, MPI_INT, rank, 2, MPI_COMM_WORLD); });
  });
}

TEST_P(MpiThreads, CollectivesOfCommunicatorsOfTheirOwn) {
  run_ranks([](int rank, int size) {
    std::array<MPI_Comm, threads_each> comms{};
    for (MPI_Comm& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    {
      Threads threads;
      for (int i = 0; i < threads_each; ++i) {
        threads.start([&, i] {
          for (int round = 0; round < 50; ++round) {
            const int own = rank + i * round;
            int sum = -1;
            const MPI_Comm comm = comms[static_cast<unsigned>(i)];
            if (round % 2 == 0) {
              threads.call([&] { MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, comm); });
            } else {
              MPI_Request request = MPI_REQUEST_NULL;
              threads.call([&] { MPI_Iallreduce(&own, &sum, 1, MPI_INT, MPI_SUM, comm, &request); });
              threads.call([&] { MPI_Wait(&request, MPI_STATUS_IGNORE); });
            }
            ASSERT_EQ(sum, size * (size - 1) / 2 + size * i * round);
          }
        });
      }
    }
    for (MPI_Comm& comm : comms) MPI_Comm_free(&comm);
  });
}

TEST_P(MpiThreads, AMachineThatStopsEndsTheirWaits) {
  const int all = static_cast<int>(GetParam()) * threads_each;
  std::atomic<int> begun{0};  // of all ranks: those that have not begun when the machine stops never do
  std::atomic<int> stopped{0};
  const Report report = run(Shape{{GetParam(), 1}, Options::threads_per_cell}, [&] {
    MPI_Init(nullptr, nullptr);
    const int rank = own_rank();
    const int last = static_cast<int>(GetParam()) - 1;
    {
      Threads threads;
      for (int i = 0; i < threads_each; ++i) {
        threads.start([&] {
          int value = 0;
          const bool done = threads.call([&] {
            ++begun;
            begun.notify_all();
            MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
          });
          if (!done) ++stopped;
        });
      }
      for (int seen = begun; seen < all; seen = begun) begun.wait(seen);
      if (rank == last)
        threads.start(
            [&] { threads.call([] { running_task()->cell->processor->domain().fail(7, "a thread ends it"); }); });
    }
  });
  EXPECT_EQ(report.exit_status, 7);
  EXPECT_EQ(stopped, all);
}

}  // namespace
}  // namespace aplib
