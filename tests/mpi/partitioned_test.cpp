// SPDX-License-Identifier: MIT
// Partitioned communication: what arrives, when, and what is wrong.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "checks.hpp"
#include "error_class.hpp"
#include "placements.hpp"

namespace aplib {
namespace {

using testing_support::class_of;
using testing_support::Placement;
using testing_support::placement_name;
using testing_support::placements;

class PartitionedMessages : public testing::TestWithParam<Placement> {
 protected:
  /// `program`: of each rank, which sends to `next` and receives from `last`.
  static void run_ring(const std::function<void(int rank, int next, int last)>& program) {
    testing_support::run_on(GetParam(), [&program] {
      MPI_Init(nullptr, nullptr);
      MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
      MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
      int rank = 0;
      int size = 0;
      MPI_Comm_rank(MPI_COMM_WORLD, &rank);
      MPI_Comm_size(MPI_COMM_WORLD, &size);
      program(rank, (rank + 1) % size, (rank + size - 1) % size);
      MPI_Barrier(MPI_COMM_WORLD);
      MPI_Finalize();
    });
  }
};
INSTANTIATE_TEST_SUITE_P(, PartitionedMessages, testing::ValuesIn(placements()), placement_name);

/// How two sides see one message of ints: partitions, and elements of each.
struct TwoSides {
  int sent;
  int received;
  int ints;  ///< Of the whole.
};
constexpr int much = testing_support::sanitized ? 10 : 100;  // large messages either way
constexpr TwoSides all_sides[] = {
    {1, 1, 7},           {4, 4, 64},          {1, 16, 64},          {16, 1, 64},     {6, 4, 24},        {4, 6, 24},
    {8, 8, 4000 * much}, {3, 9, 2700 * much}, {64, 16, 640 * much}, {512, 64, 4096}, {9, 3, 900 * much}};

int value_of(int rank, int round, int i) { return rank * 1'000'003 + round * 7919 + i; }

/// Makes all partitions ready, in an order by chance, one by one, by lists and by ranges.
void make_ready(MPI_Request request, int partitions, std::minstd_rand& random) {
  std::vector<int> order(static_cast<std::size_t>(partitions));
  std::iota(order.begin(), order.end(), 0);
  switch (random() % 3) {
    case 0:
      std::shuffle(order.begin(), order.end(), random);
      for (const int i : order) EXPECT_EQ(MPI_Pready(i, request), MPI_SUCCESS);
      break;
    case 1:
      std::shuffle(order.begin(), order.end(), random);
      EXPECT_EQ(MPI_Pready_list(partitions / 2, order.data(), request), MPI_SUCCESS);
      EXPECT_EQ(MPI_Pready_list(partitions - partitions / 2, order.data() + partitions / 2, request), MPI_SUCCESS);
      break;
    default: {
      const int middle = static_cast<int>(random() % static_cast<unsigned>(partitions));
      EXPECT_EQ(MPI_Pready_range(middle, partitions - 1, request), MPI_SUCCESS);
      if (middle > 0) {
        EXPECT_EQ(MPI_Pready_range(0, middle - 1, request), MPI_SUCCESS);
      }
      break;
    }
  }
}

void wait_for_both(std::array<MPI_Request, 2>& requests, int way, MPI_Status* received) {
  std::array<MPI_Status, 2> statuses{};
  if (way % 3 == 0) {
    EXPECT_EQ(MPI_Waitall(2, requests.data(), statuses.data()), MPI_SUCCESS);
  } else if (way % 3 == 1) {
    for (int done = 0; done < 2; ++done) {
      int index = -1;
      MPI_Status status{};
      EXPECT_EQ(MPI_Waitany(2, requests.data(), &index, &status), MPI_SUCCESS);
      statuses.at(static_cast<std::size_t>(index)) = status;
    }
  } else {
    for (int flag = 0; flag == 0;) EXPECT_EQ(MPI_Testall(2, requests.data(), &flag, statuses.data()), MPI_SUCCESS);
  }
  *received = statuses[0];
}

TEST_P(PartitionedMessages, ArriveHoweverBothSidesDivideThem) {
  run_ring([](int rank, int next, int last) {
    std::minstd_rand random(static_cast<unsigned>(rank) + 5);
    for (const auto& [sent, received, ints] : all_sides) {
      std::vector<int> out(static_cast<std::size_t>(ints));
      std::vector<int> in(out.size());
      std::array<MPI_Request, 2> requests{};
      MPI_Precv_init(in.data(), received, ints / received, MPI_INT, last, 3, MPI_COMM_WORLD, MPI_INFO_NULL,
                     &requests[0]);
      MPI_Psend_init(out.data(), sent, ints / sent, MPI_INT, next, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
      for (int round = 0; round < 4; ++round) {
        std::fill(in.begin(), in.end(), -1);
        const bool starts_late = random() % 2 == 0;
        if (!starts_late) MPI_Start(&requests[0]);
        MPI_Start(&requests[1]);
        for (int i = 0; i < ints; ++i) out[static_cast<std::size_t>(i)] = value_of(rank, round, i);
        make_ready(requests[1], sent, random);
        if (starts_late) MPI_Start(&requests[0]);
        MPI_Status status{};
        wait_for_both(requests, round, &status);
        int count = 0;
        MPI_Get_count(&status, MPI_INT, &count);
        EXPECT_EQ(count, ints);
        EXPECT_EQ(status.MPI_SOURCE, last);
        EXPECT_EQ(status.MPI_TAG, 3);
        int wrong = 0;
        for (int i = 0; i < ints; ++i) wrong += in[static_cast<std::size_t>(i)] != value_of(last, round, i) ? 1 : 0;
        EXPECT_EQ(wrong, 0) << sent << " to " << received << " partitions of " << ints << " ints, round " << round;
      }
      for (MPI_Request& request : requests) EXPECT_EQ(MPI_Request_free(&request), MPI_SUCCESS);
    }
  });
}

// Each element is an int of every two.
TEST_P(PartitionedMessages, MayHaveGaps) {
  run_ring([](int rank, int next, int last) {
    MPI_Datatype spread = MPI_DATATYPE_NULL;
    MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &spread);
    MPI_Type_commit(&spread);
    for (const bool at_sender : {false, true}) {
      for (const bool at_receiver : {false, true}) {
        for (const int ints : {24, 2400 * much}) {
          std::vector<int> out(static_cast<std::size_t>(2 * ints), -5);
          std::vector<int> in(out.size(), -7);
          const auto place = [](bool is_spread, int i) { return static_cast<std::size_t>(is_spread ? 2 * i : i); };
          for (int i = 0; i < ints; ++i) out[place(at_sender, i)] = value_of(rank, 0, i);
          std::array<MPI_Request, 2> requests{};
          MPI_Psend_init(out.data(), 6, ints / 6, at_sender ? spread : MPI_INT, next, 0, MPI_COMM_WORLD, MPI_INFO_NULL,
                         &requests[0]);
          MPI_Precv_init(in.data(), 4, ints / 4, at_receiver ? spread : MPI_INT, last, 0, MPI_COMM_WORLD, MPI_INFO_NULL,
                         &requests[1]);
          MPI_Startall(2, requests.data());
          MPI_Pready_range(0, 5, requests[0]);
          EXPECT_EQ(MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE), MPI_SUCCESS);
          std::vector<int> expected(in.size(), -7);
          for (int i = 0; i < ints; ++i) expected[place(at_receiver, i)] = value_of(last, 0, i);
          EXPECT_EQ(in, expected);
          for (MPI_Request& request : requests) MPI_Request_free(&request);
        }
      }
    }
    MPI_Type_free(&spread);
  });
}

// Started in another order; and messages from rank to rank, with the same tag, are none of theirs.
TEST_P(PartitionedMessages, AreMatchedAsTheyWereMade) {
  run_ring([](int rank, int next, int last) {
    constexpr int count = 5;
    std::array<int, count> out{};
    std::array<int, count> in{};
    std::array<MPI_Request, count> sends{};
    std::array<MPI_Request, count> receives{};
    int other = -1;
    MPI_Request any = MPI_REQUEST_NULL;
    MPI_Irecv(&other, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &any);
    for (std::size_t i = 0; i < count; ++i) {
      MPI_Psend_init(&out.at(i), 1, 1, MPI_INT, next, 8, MPI_COMM_WORLD, MPI_INFO_NULL, &sends.at(i));
      MPI_Precv_init(&in.at(i), 1, 1, MPI_INT, last, 8, MPI_COMM_WORLD, MPI_INFO_NULL, &receives.at(i));
    }
    for (const std::size_t i : {3U, 0U, 4U, 1U, 2U}) {
      MPI_Start(&sends.at(i));
      out.at(i) = value_of(rank, 1, static_cast<int>(i));
      MPI_Pready(0, sends.at(i));
    }
    MPI_Startall(count, receives.data());
    EXPECT_EQ(MPI_Waitall(count, sends.data(), MPI_STATUSES_IGNORE), MPI_SUCCESS);
    EXPECT_EQ(MPI_Waitall(count, receives.data(), MPI_STATUSES_IGNORE), MPI_SUCCESS);
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(in.at(i), value_of(last, 1, static_cast<int>(i)));
    int flag = -1;
    MPI_Test(&any, &flag, MPI_STATUS_IGNORE);
    EXPECT_EQ(flag, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Send(&rank, 1, MPI_INT, next, 8, MPI_COMM_WORLD);
    MPI_Wait(&any, MPI_STATUS_IGNORE);
    EXPECT_EQ(other, last);
    for (MPI_Request& request : sends) MPI_Request_free(&request);
    for (MPI_Request& request : receives) MPI_Request_free(&request);
  });
}

// The freed receive was the first send's, though nothing had come from there.
TEST_P(PartitionedMessages, AreMatchedAlsoWhenNeverStarted) {
  run_ring([](int rank, int next, int last) {
    std::array<int, 2> out{rank, rank + 100};
    std::array<int, 2> in{-1, -1};
    std::array<MPI_Request, 2> sends{};
    std::array<MPI_Request, 2> receives{};
    for (std::size_t i = 0; i < 2; ++i) {
      MPI_Precv_init(&in.at(i), 1, 1, MPI_INT, last, 8, MPI_COMM_WORLD, MPI_INFO_NULL, &receives.at(i));
      if (i != 0) continue;
      EXPECT_EQ(MPI_Request_free(&receives[0]), MPI_SUCCESS);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (std::size_t i = 0; i < 2; ++i)
      MPI_Psend_init(&out.at(i), 1, 1, MPI_INT, next, 8, MPI_COMM_WORLD, MPI_INFO_NULL, &sends.at(i));
    EXPECT_EQ(MPI_Request_free(&sends[0]), MPI_SUCCESS);
    MPI_Start(&sends[1]);
    MPI_Pready(0, sends[1]);
    MPI_Start(&receives[1]);
    EXPECT_EQ(MPI_Wait(&receives[1], MPI_STATUS_IGNORE), MPI_SUCCESS);
    EXPECT_EQ(MPI_Wait(&sends[1], MPI_STATUS_IGNORE), MPI_SUCCESS);
    EXPECT_EQ(in[0], -1);
    EXPECT_EQ(in[1], last + 100);
    MPI_Request_free(&sends[1]);
    MPI_Request_free(&receives[1]);
  });
}

void send_word(int to) { MPI_Send(nullptr, 0, MPI_INT, to, 1, MPI_COMM_WORLD); }
void receive_word(int from) { MPI_Recv(nullptr, 0, MPI_INT, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE); }

bool has_arrived(MPI_Request request, int partition) {
  int flag = -1;
  EXPECT_EQ(MPI_Parrived(request, partition, &flag), MPI_SUCCESS);
  return flag != 0;
}

// Of eight partitions, two are one of the receiver's.
TEST_P(PartitionedMessages, TellWhichPartsHaveArrived) {
  run_ring([](int rank, int next, int last) {
    for (const int ints : {8, 240'000}) {
      std::vector<int> out(static_cast<std::size_t>(ints), rank);
      std::vector<int> in(out.size(), -1);
      std::array<MPI_Request, 2> requests{};
      MPI_Psend_init(out.data(), 8, ints / 8, MPI_INT, next, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
      MPI_Precv_init(in.data(), 4, ints / 4, MPI_INT, last, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
      EXPECT_TRUE(has_arrived(requests[1], 0));  // it is not active
      for (int round = 0; round < 3; ++round) {
        MPI_Startall(2, requests.data());
        MPI_Pready(4, requests[0]);
        MPI_Pready(7, requests[0]);
        send_word(next);
        receive_word(last);
        for (int i = 0; i < 20; ++i) EXPECT_FALSE(has_arrived(requests[1], 2));
        send_word(last);
        receive_word(next);
        MPI_Pready(5, requests[0]);
        while (!has_arrived(requests[1], 2)) continue;
        EXPECT_EQ(in[static_cast<std::size_t>(ints / 2)], last);
        EXPECT_EQ(in[static_cast<std::size_t>(ints / 4 * 3 - 1)], last);
        EXPECT_FALSE(has_arrived(requests[1], 0));
        EXPECT_FALSE(has_arrived(requests[1], 3));
        int flag = -1;
        MPI_Test(&requests[1], &flag, MPI_STATUS_IGNORE);
        EXPECT_EQ(flag, 0);
        send_word(last);
        receive_word(next);
        MPI_Pready_list(5, std::array{6, 3, 0, 1, 2}.data(), requests[0]);
        for (int i = 0; i < 4; ++i) {
          while (!has_arrived(requests[1], i)) continue;
        }
        EXPECT_EQ(in, std::vector<int>(in.size(), last));
        EXPECT_EQ(MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE), MPI_SUCCESS);
        std::fill(in.begin(), in.end(), -1);
      }
      for (MPI_Request& request : requests) MPI_Request_free(&request);
    }
  });
}

// The receiver fails, at each start; the sender does not wait for ever.
TEST_P(PartitionedMessages, MustNotBeLargerThanTheReceive) {
  run_ring([](int rank, int next, int last) {
    constexpr int large = 40'000;
    std::vector<int> out(3 * large, rank);
    std::vector<int> in(3 * large, -1);
    for (const auto& [sent, received] : {std::pair{3 * large, 2 * large}, {4, 2}, {1, 0}}) {
      std::array<MPI_Request, 2> requests{};
      MPI_Psend_init(out.data(), 1, sent, MPI_INT, next, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
      MPI_Precv_init(in.data(), 2, received / 2, MPI_INT, last, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
      for (int round = 0; round < 2; ++round) {
        MPI_Startall(2, requests.data());
        MPI_Pready(0, requests[0]);
        EXPECT_EQ(class_of(MPI_Wait(&requests[1], MPI_STATUS_IGNORE)), MPI_ERR_TRUNCATE);
        EXPECT_EQ(MPI_Wait(&requests[0], MPI_STATUS_IGNORE), MPI_SUCCESS);
      }
      EXPECT_EQ(in, std::vector<int>(in.size(), -1));
      for (MPI_Request& request : requests) MPI_Request_free(&request);
    }
  });
}

// Of four partitions of the receiver, what is sent fills two and a half.
TEST_P(PartitionedMessages, MayBeSmallerThanTheReceive) {
  run_ring([](int rank, int next, int last) {
    for (const int part : {2, 20'000}) {
      const std::vector<int> out(static_cast<std::size_t>(5 * part), rank);
      std::vector<int> in(static_cast<std::size_t>(8 * part), -1);
      std::array<MPI_Request, 2> requests{};
      MPI_Psend_init(out.data(), 5, part, MPI_INT, next, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
      MPI_Precv_init(in.data(), 4, 2 * part, MPI_INT, last, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
      MPI_Startall(2, requests.data());
      MPI_Pready_range(0, 3, requests[0]);
      while (!has_arrived(requests[1], 0) || !has_arrived(requests[1], 1)) continue;
      EXPECT_FALSE(has_arrived(requests[1], 2));
      EXPECT_FALSE(has_arrived(requests[1], 3));
      send_word(last);
      receive_word(next);
      MPI_Pready(4, requests[0]);
      MPI_Status status{};
      EXPECT_EQ(MPI_Wait(&requests[1], &status), MPI_SUCCESS);
      EXPECT_EQ(MPI_Wait(&requests[0], MPI_STATUS_IGNORE), MPI_SUCCESS);
      int count = 0;
      MPI_Get_count(&status, MPI_INT, &count);
      EXPECT_EQ(count, 5 * part);
      std::vector<int> expected(in.size(), -1);
      std::fill(expected.begin(), expected.begin() + 5 * part, last);
      EXPECT_EQ(in, expected);
      for (MPI_Request& request : requests) MPI_Request_free(&request);
    }
  });
}

TEST_P(PartitionedMessages, ToNobodyAreOverAtOnce) {
  run_ring([](int, int, int) {
    std::array<MPI_Request, 2> requests{};
    int data = 5;
    MPI_Psend_init(&data, 1, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
    MPI_Precv_init(&data, 1, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
    for (int round = 0; round < 2; ++round) {
      MPI_Startall(2, requests.data());
      EXPECT_EQ(MPI_Pready(0, requests[0]), MPI_SUCCESS);
      EXPECT_TRUE(has_arrived(requests[1], 0));
      std::array<MPI_Status, 2> statuses{};
      EXPECT_EQ(MPI_Waitall(2, requests.data(), statuses.data()), MPI_SUCCESS);
      EXPECT_EQ(statuses[1].MPI_SOURCE, MPI_PROC_NULL);
    }
    for (MPI_Request& request : requests) MPI_Request_free(&request);
  });
}

// As the standard has it since 4.0, without a _c double.
static_assert(std::is_same_v<decltype(&MPI_Psend_init), int (*)(const void*, int, MPI_Count, MPI_Datatype, int, int,
                                                                MPI_Comm, MPI_Info, MPI_Request*)>);
static_assert(std::is_same_v<decltype(&MPI_Precv_init),
                             int (*)(void*, int, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Info, MPI_Request*)>);

TEST_P(PartitionedMessages, OfNoRequestHaveArrived) {
  run_ring([](int, int, int) { EXPECT_TRUE(has_arrived(MPI_REQUEST_NULL, 0)); });
}

TEST_P(PartitionedMessages, MayBeAbandoned) {
  run_ring([](int, int next, int last) {
    static thread_local int data = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Precv_init(&data, 1, 1, MPI_INT, last, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    MPI_Start(&request);
    MPI_Precv_init(&data, 1, 1, MPI_INT, last, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    MPI_Psend_init(&data, 1, 1, MPI_INT, next, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    MPI_Start(&request);  // and MPI_Finalize comes
  });
}

TEST_P(PartitionedMessages, WrongCallsFail) {
  run_ring([](int, int next, int last) {
    std::array<int, 4> data{};
    MPI_Request bad = MPI_REQUEST_NULL;
    const auto send = [&](int partitions, int count, int dest, int tag) {
      return class_of(
          MPI_Psend_init(data.data(), partitions, count, MPI_INT, dest, tag, MPI_COMM_WORLD, MPI_INFO_NULL, &bad));
    };
    const auto receive = [&](int partitions, int source, int tag) {
      return class_of(
          MPI_Precv_init(data.data(), partitions, 1, MPI_INT, source, tag, MPI_COMM_WORLD, MPI_INFO_NULL, &bad));
    };
    EXPECT_EQ(send(0, 1, next, 0), MPI_ERR_ARG);
    EXPECT_EQ(send(-1, 1, next, 0), MPI_ERR_ARG);
    EXPECT_EQ(send(1, -1, next, 0), MPI_ERR_COUNT);
    EXPECT_EQ(send(1, 1, MPI_ANY_SOURCE, 0), MPI_ERR_RANK);
    EXPECT_EQ(send(1, 1, next, MPI_ANY_TAG), MPI_ERR_TAG);
    EXPECT_EQ(receive(1, MPI_ANY_SOURCE, 0), MPI_ERR_RANK);
    EXPECT_EQ(receive(1, last, MPI_ANY_TAG), MPI_ERR_TAG);

    std::array<MPI_Request, 2> requests{};
    MPI_Psend_init(data.data(), 4, 1, MPI_INT, next, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
    MPI_Precv_init(data.data(), 4, 1, MPI_INT, last, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
    int flag = -1;
    EXPECT_EQ(class_of(MPI_Pready(0, requests[0])), MPI_ERR_REQUEST);  // it is not active
    MPI_Startall(2, requests.data());
    EXPECT_EQ(class_of(MPI_Pready(0, requests[1])), MPI_ERR_REQUEST);
    EXPECT_EQ(class_of(MPI_Parrived(requests[0], 0, &flag)), MPI_ERR_REQUEST);
    EXPECT_EQ(class_of(MPI_Parrived(requests[1], 4, &flag)), MPI_ERR_ARG);
    EXPECT_EQ(class_of(MPI_Pready(4, requests[0])), MPI_ERR_ARG);
    EXPECT_EQ(class_of(MPI_Pready(-1, requests[0])), MPI_ERR_ARG);
    EXPECT_EQ(class_of(MPI_Pready_range(2, 1, requests[0])), MPI_ERR_ARG);
    EXPECT_EQ(class_of(MPI_Pready_range(1, 4, requests[0])), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Pready(2, requests[0]), MPI_SUCCESS);
    EXPECT_EQ(class_of(MPI_Pready(2, requests[0])), MPI_ERR_ARG);
    EXPECT_EQ(class_of(MPI_Pready_range(0, 3, requests[0])), MPI_ERR_ARG);  // and none of them is ready
    for (MPI_Request& request : requests) {
      MPI_Request copy = request;
      EXPECT_EQ(class_of(MPI_Request_free(&copy)), MPI_ERR_REQUEST);
      EXPECT_EQ(class_of(MPI_Cancel(&copy)), MPI_ERR_REQUEST);
      EXPECT_EQ(class_of(MPI_Start(&copy)), MPI_ERR_REQUEST);
    }
    EXPECT_EQ(MPI_Pready_list(3, std::array{3, 1, 0}.data(), requests[0]), MPI_SUCCESS);
    EXPECT_EQ(MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE), MPI_SUCCESS);
    for (MPI_Request& request : requests) EXPECT_EQ(MPI_Request_free(&request), MPI_SUCCESS);
  });
}

}  // namespace
}  // namespace aplib
