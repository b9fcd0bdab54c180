// SPDX-License-Identifier: MIT
// Messages that are copied from the memory of their sender, from type to type.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

/// Numbers in memory, as a datatype has them.
struct Numbers {
  Numbers(int size, int layout, int room = 0)
      : numbers(size), kind(layout), memory(place(room > size ? room : size), -1) {
    if (kind == 0) {
      MPI_Type_contiguous(size, MPI_INT, &type);
    } else if (kind == 1) {
      MPI_Type_vector(size, 1, 2, MPI_INT, &type);
    } else {
      MPI_Type_vector(size / 3, 3, 5, MPI_INT, &type);
    }
    MPI_Type_commit(&type);
  }
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;
  ~Numbers() { MPI_Type_free(&type); }

  [[nodiscard]] std::size_t place(int i) const {
    return static_cast<std::size_t>(kind == 0 ? i : kind == 1 ? 2 * i : i / 3 * 5 + i % 3);
  }
  /// Block by block, because place() for each number takes seconds when it is instrumented.
  void write(std::vector<int>& to, int first, int count) const {
    const int block = kind == 0 ? count : kind == 1 ? 1 : 3;
    const int gap = kind;
    int* at = to.data();
    for (int left = count, number = first; left > 0; left -= block, at += gap) {
      for (int i = std::min(block, left); i > 0; --i) *at++ = number++;
    }
  }
  void fill(int first) { write(memory, first, numbers); }
  /// The first `count` have come, and nothing else was written.
  void expect(int first, int count) const {
    std::vector<int> wanted(memory.size(), -1);
    write(wanted, first, count);
    EXPECT_TRUE(memory == wanted) << count << " numbers of layout " << kind;
  }

  int numbers;
  int kind;
  std::vector<int> memory;
  MPI_Datatype type = MPI_DATATYPE_NULL;
};

class LargeMessages : public testing::TestWithParam<Shape> {
 protected:
  static void run_ranks(std::function<void(int rank, int size)> program) {
    run_well(GetParam(), [program = std::move(program)] {
      MPI_Init(nullptr, nullptr);
      int rank = 0;
      int size = 0;
      MPI_Comm_rank(MPI_COMM_WORLD, &rank);
      MPI_Comm_size(MPI_COMM_WORLD, &size);
      program(rank, size);
      MPI_Barrier(MPI_COMM_WORLD);
      MPI_Finalize();
    });
  }
};
INSTANTIATE_TEST_SUITE_P(, LargeMessages,
                         testing::Values(Shape{{1, 1}, 1}, Shape{{2, 1}, 2}, Shape{{3, 1}, 1}, Shape{{5, 1}, 2},
                                         Shape{{3, 1}, Options::threads_per_cell}),
                         shape_name);

constexpr std::array<int, 6> sizes = {30, 8190, 8196, 16386, 60'000, sanitized ? 72'000 : 300'000};
constexpr int many = sanitized ? 21'000 : 60'000;
int size_of_message(int from, int to, int number) {
  std::minstd_rand random(static_cast<unsigned>(1 + from * 100 + to * 10 + number));
  random.discard(3);
  return sizes[random() % sizes.size()];
}
int first_of_message(int from, int to, int number) { return from * 100'000'000 + to * 10'000'000 + number * 1'000'000; }

TEST_P(LargeMessages, OfAnyTypesAndModesComeWholeAndInOrder) {
  constexpr int messages = 6;
  for (unsigned seed = 0; seed < scaled(8, 2); ++seed) {
    run_ranks([seed](int rank, int size) {
      std::mt19937 random(seed * 100 + static_cast<unsigned>(rank));
      std::deque<Numbers> sent;
      std::deque<Numbers> received;
      std::vector<MPI_Request> sends;
      MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
      const auto send = [&](int to, int number) {
        Numbers& numbers = sent.emplace_back(size_of_message(rank, to, number), static_cast<int>(random() % 3));
        numbers.fill(first_of_message(rank, to, number));
        const auto begin = random() % 3 == 0 ? MPI_Issend : MPI_Isend;
        begin(numbers.memory.data(), 1, numbers.type, to, 3, MPI_COMM_WORLD, &sends.emplace_back());
      };
      struct Posted {
        Numbers* numbers;
        int from;
        int number;
      };
      std::vector<Posted> posted;
      std::vector<MPI_Request> receives;
      const auto post = [&](int from, int number) {
        const int wanted = size_of_message(from, rank, number);
        const int room = random() % 4 == 0 ? wanted / 2 / 3 * 3 : wanted;
        Numbers& numbers = received.emplace_back(room, static_cast<int>(random() % 3));
        posted.push_back({&numbers, from, number});
        MPI_Irecv(numbers.memory.data(), 1, numbers.type, from, 3, MPI_COMM_WORLD, &receives.emplace_back());
      };
      const auto take = [&](int from, int number) {
        const int wanted = size_of_message(from, rank, number);
        Numbers numbers(wanted, static_cast<int>(random() % 3));
        MPI_Status status{};
        int count = 0;
        if (random() % 2 == 0) {
          MPI_Message message = MPI_MESSAGE_NULL;
          MPI_Mprobe(from, 3, MPI_COMM_WORLD, &message, &status);
          MPI_Get_count(&status, MPI_INT, &count);
          EXPECT_EQ(count, wanted);
          MPI_Mrecv(numbers.memory.data(), 1, numbers.type, &message, &status);
        } else {
          MPI_Recv(numbers.memory.data(), 1, numbers.type, from, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        }
        MPI_Get_count(&status, MPI_INT, &count);
        EXPECT_EQ(count, wanted);
        numbers.expect(first_of_message(from, rank, number), wanted);
      };
      for (int number = 0; number < messages; ++number) {
        const bool ahead = random() % 2 == 0;  // posted before what it is for is sent, perhaps
        for (int from = 0; ahead && from < size; ++from) post(from, number);
        for (int to = 0; to < size; ++to) send(to, number);
        for (int from = 0; !ahead && from < size; ++from) random() % 2 == 0 ? post(from, number) : take(from, number);
      }
      std::vector<MPI_Status> statuses(receives.size());
      MPI_Waitall(static_cast<int>(receives.size()), receives.data(), statuses.data());
      for (std::size_t i = 0; i < posted.size(); ++i) {
        const int wanted = size_of_message(posted[i].from, rank, posted[i].number);
        int error_class = MPI_SUCCESS;
        MPI_Error_class(statuses[i].MPI_ERROR, &error_class);
        EXPECT_EQ(error_class, posted[i].numbers->numbers < wanted ? MPI_ERR_TRUNCATE : MPI_SUCCESS);
        posted[i].numbers->expect(first_of_message(posted[i].from, rank, posted[i].number), posted[i].numbers->numbers);
      }
      EXPECT_EQ(MPI_Waitall(static_cast<int>(sends.size()), sends.data(), MPI_STATUSES_IGNORE), MPI_SUCCESS);
    });
  }
}

TEST_P(LargeMessages, AreExchangedByBlockingCalls) {
  constexpr int rounds = scaled(20, 4, 1);
  run_ranks([](int rank, int size) {
    const int next = (rank + 1) % size;
    const int last = (rank + size - 1) % size;
    for (int kind = 0; kind < 3; ++kind) {
      Numbers sent(many, kind);
      Numbers received(many, (kind + 1) % 3);
      sent.fill(rank);
      MPI_Sendrecv(sent.memory.data(), 1, sent.type, next, 1, received.memory.data(), 1, received.type, last, 1,
                   MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      received.expect(last, many);
      MPI_Sendrecv_replace(received.memory.data(), 1, received.type, last, 2, next, 2, MPI_COMM_WORLD,
                           MPI_STATUS_IGNORE);
      received.expect(rank, many);
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Isendrecv(sent.memory.data(), 1, sent.type, next, 3, received.memory.data(), 1, received.type, last, 3,
                    MPI_COMM_WORLD, &request);
      sent.fill(1'000'000);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      received.expect(last, many);
      // To oneself, first sent and then received.
      MPI_Send(sent.memory.data(), 1, sent.type, rank, 4, MPI_COMM_WORLD);
      sent.fill(2'000'000);
      MPI_Recv(received.memory.data(), 1, received.type, rank, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      received.expect(1'000'000, many);
      // The memory is the sender's again as soon as the call has returned.
      for (int round = 0; round < rounds; ++round) {
        if (rank + 1 < size) {
          sent.fill(round);
          (round % 2 == 0 ? MPI_Send : MPI_Ssend)(sent.memory.data(), 1, sent.type, rank + 1, 5, MPI_COMM_WORLD);
          sent.fill(-round);
        }
        if (rank > 0) {
          MPI_Recv(received.memory.data(), 1, received.type, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
          received.expect(round, many);
        }
      }
    }
  });
}

// Their data are copied: nobody reads the memory any more.
TEST_P(LargeMessages, OfFreedAndCancelledRequestsAreBuffered) {
  run_ranks([](int rank, int size) {
    const int next = (rank + 1) % size;
    const int last = (rank + size - 1) % size;
    Numbers numbers(many, 1);
    Numbers attached(many + 10'000, 0);
    MPI_Request request = MPI_REQUEST_NULL;
    numbers.fill(1);
    MPI_Isend(numbers.memory.data(), 1, numbers.type, next, 1, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Status status{};
    int cancelled = 1;
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    EXPECT_EQ(cancelled, 0);
    numbers.fill(2);
    MPI_Buffer_attach(attached.memory.data(), 4 * (many + 10'000));
    MPI_Bsend(numbers.memory.data(), 1, numbers.type, next, 1, MPI_COMM_WORLD);
    void* detached = nullptr;
    int bytes = 0;
    MPI_Buffer_detach(&detached, &bytes);
    numbers.fill(3);
    MPI_Isend(numbers.memory.data(), 1, numbers.type, next, 1, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
    Numbers received(many, 2);
    for (int round = 1; round <= 3; ++round) {
      MPI_Recv(received.memory.data(), 1, received.type, last, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      received.expect(round, many);
    }
  });
}

TEST_P(LargeMessages, ThatArePersistentAreSentAgain) {
  run_ranks([](int rank, int size) {
    Numbers sent(many, 2);
    Numbers received(many, 1);
    std::array<MPI_Request, 2> requests{};
    MPI_Send_init(sent.memory.data(), 1, sent.type, (rank + 1) % size, 1, MPI_COMM_WORLD, requests.data());
    MPI_Recv_init(received.memory.data(), 1, received.type, (rank + size - 1) % size, 1, MPI_COMM_WORLD, &requests[1]);
    for (int round = 0; round < 10; ++round) {
      sent.fill(rank + round);
      MPI_Startall(2, requests.data());
      MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE);
      received.expect((rank + size - 1) % size + round, many);
    }
    for (MPI_Request& request : requests) MPI_Request_free(&request);
  });
}

TEST(LargeMessagesOfTasksThatExit, AreWhole) {
  for (const std::uint32_t threads : {1U, 2U}) {
    const Report report = run({{2, 1}, threads}, [] {
      MPI_Init(nullptr, nullptr);
      int rank = 0;
      MPI_Comm_rank(MPI_COMM_WORLD, &rank);
      std::vector<int> data(60'000, rank == 0 ? 5 : 0);
      if (rank == 0) {
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Isend(data.data(), 60'000, MPI_INT, 1, 7, MPI_COMM_WORLD, &request);
        MPI_Send(nullptr, 0, MPI_INT, 1, 8, MPI_COMM_WORLD);
        this_task::exit(0);  // and data is gone
      }
      MPI_Recv(nullptr, 0, MPI_INT, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Recv(data.data(), 60'000, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      EXPECT_EQ(data, std::vector<int>(60'000, 5));
      MPI_Finalize();
    });
    EXPECT_EQ(report.exit_status, 0) << report.reason;
  }
}

TEST(LargeMessagesReport, SaysWhoWaitsInSends) {
  for (const std::uint32_t threads : {1U, 2U}) {
    const Report report = run({{2, 1}, threads}, [] {
      MPI_Init(nullptr, nullptr);
      int rank = 0;
      MPI_Comm_rank(MPI_COMM_WORLD, &rank);
      std::vector<int> data(60'000);
      MPI_Send(data.data(), 60'000, MPI_INT, 1 - rank, 7, MPI_COMM_WORLD);
      MPI_Recv(data.data(), 60'000, MPI_INT, 1 - rank, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Finalize();
    });
    EXPECT_EQ(report.exit_status, static_cast<int>(ExitStatus::deadlock));
    for (const char* const wait :
         {"cell 0 task 0: waits in MPI_Send for 1 of its requests: 240000 bytes to be received by rank 1",
          "cell 1 task 0: waits in MPI_Send for 1 of its requests: 240000 bytes to be received by rank 0"})
      EXPECT_NE(report.reason.find(wait), std::string::npos) << wait << "\nin\n" << report.reason;
    EXPECT_NE(report.reason.find("sends of 32 KiB or more wait until they are received, and here the receivers wait in "
                                 "such sends, too: receive first on one side, or use MPI_Sendrecv or MPI_Isend"),
              std::string::npos)
        << report.reason;
  }
}

TEST(LargeMessagesReport, SaysNothingOfBuffersWhereNobodySendsToASender) {
  const Report report = run({{2, 1}, 2}, [] {
    MPI_Init(nullptr, nullptr);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::vector<int> data(60'000);
    if (rank == 0) {
      MPI_Send(data.data(), 60'000, MPI_INT, 1, 7, MPI_COMM_WORLD);
    } else {
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Isend(data.data(), 60'000, MPI_INT, 0, 7, MPI_COMM_WORLD, &request);
      MPI_Recv(data.data(), 60'000, MPI_INT, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
  });
  EXPECT_EQ(report.exit_status, static_cast<int>(ExitStatus::deadlock));
  EXPECT_NE(report.reason.find("waits in MPI_Send"), std::string::npos) << report.reason;
  EXPECT_EQ(report.reason.find("receive first"), std::string::npos) << report.reason;
}

}  // namespace
}  // namespace aplib
