// SPDX-License-Identifier: MIT
// Synchronous sends: they are over when their message is received, and not before, whatever the receiver does.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "placements.hpp"

namespace aplib {
namespace {

using testing_support::Placement;
using testing_support::placement_name;
using testing_support::placements;

int world_rank() {
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
int world_size() {
  int size = -1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

class SynchronousSends : public testing::TestWithParam<Placement> {
 protected:
  /// `program`: of each rank, which sends to `next` and receives from `last`.
  static void run_ring(const std::function<void(int rank, int next, int last)>& program) {
    testing_support::run_on(GetParam(), [&program] {
      MPI_Init(nullptr, nullptr);
      const int rank = world_rank();
      const int size = world_size();
      program(rank, (rank + 1) % size, (rank + size - 1) % size);
      MPI_Barrier(MPI_COMM_WORLD);
      MPI_Finalize();
    });
  }
};
INSTANTIATE_TEST_SUITE_P(, SynchronousSends, testing::ValuesIn(placements()), placement_name);

void send_word(int to, int tag) { MPI_Send(nullptr, 0, MPI_INT, to, tag, MPI_COMM_WORLD); }
void receive_word(int from, int tag) { MPI_Recv(nullptr, 0, MPI_INT, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE); }
void expect_open(MPI_Request& request) {
  for (int i = 0; i < 20; ++i) {
    int flag = -1;
    MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    EXPECT_EQ(flag, 0);
  }
}

constexpr int data_tag = 1;
constexpr int word_tag = 2;

// The receive comes after word that the send was still open.
TEST_P(SynchronousSends, AreOverAfterTheReceiveAndNotBefore) {
  run_ring([](int rank, int next, int last) {
    for (const int count : {0, 1, 1000, 100'000}) {
      const std::vector<int> out(static_cast<std::size_t>(count), rank);
      std::vector<int> in(out.size(), -1);
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Issend(out.data(), count, MPI_INT, next, data_tag, MPI_COMM_WORLD, &request);
      expect_open(request);
      send_word(next, word_tag);
      receive_word(last, word_tag);
      MPI_Status status{};
      EXPECT_EQ(
          MPI_Recv(in.data(), count, MPI_INT, count == 1 ? MPI_ANY_SOURCE : last, MPI_ANY_TAG, MPI_COMM_WORLD, &status),
          MPI_SUCCESS);
      EXPECT_EQ(status.MPI_SOURCE, last);
      EXPECT_EQ(status.MPI_TAG, data_tag);
      EXPECT_EQ(in, std::vector<int>(in.size(), last));
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      EXPECT_EQ(request, MPI_REQUEST_NULL);
    }
  });
}

// What a blocking one precedes cannot come before its message is received.
TEST_P(SynchronousSends, BlockUntilTheReceive) {
  run_ring([](int rank, int next, int last) {
    if (next == rank) return;
    for (int turn = 0; turn < 2; ++turn) {
      if (rank % 2 == turn && !(rank == 0 && next % 2 == turn)) {
        MPI_Ssend(&rank, 1, MPI_INT, next, data_tag, MPI_COMM_WORLD);
        send_word(next, word_tag);
      }
      if (last % 2 == turn && !(last == 0 && rank % 2 == turn)) {
        MPI_Status status{};
        MPI_Probe(last, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        EXPECT_EQ(status.MPI_TAG, data_tag);
        for (int i = 0; i < 100; ++i) {
          int flag = -1;
          MPI_Iprobe(last, word_tag, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
          EXPECT_EQ(flag, 0);
        }
        int got = -1;
        MPI_Recv(&got, 1, MPI_INT, last, data_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        EXPECT_EQ(got, last);
        receive_word(last, word_tag);
      }
    }
  });
}

TEST_P(SynchronousSends, ReachTheRankItself) {
  run_ring([](int rank, int, int) {
    for (const bool receive_first : {false, true}) {
      std::array<MPI_Request, 2> requests{};
      int got = -1;
      if (receive_first) MPI_Irecv(&got, 1, MPI_INT, rank, data_tag, MPI_COMM_WORLD, &requests[1]);
      MPI_Issend(&rank, 1, MPI_INT, rank, data_tag, MPI_COMM_WORLD, &requests[0]);
      if (!receive_first) {
        expect_open(requests[0]);
        MPI_Irecv(&got, 1, MPI_INT, rank, data_tag, MPI_COMM_WORLD, &requests[1]);
      }
      MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE);
      EXPECT_EQ(got, rank);
    }
  });
}

// The receiver has asked for the message, and waits for something else, which comes after the send.
TEST_P(SynchronousSends, AreOverWhileTheReceiverWaitsForSomethingElse) {
  run_ring([](int rank, int next, int last) {
    for (int what = 0; what < 8; ++what) {
      int got = -1;
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Irecv(&got, 1, MPI_INT, last, data_tag, MPI_COMM_WORLD, &request);
      if (rank % 2 == 0 && next != rank) {
        MPI_Ssend(&rank, 1, MPI_INT, next, data_tag, MPI_COMM_WORLD);
      } else {
        MPI_Request sent = MPI_REQUEST_NULL;
        MPI_Issend(&rank, 1, MPI_INT, next, data_tag, MPI_COMM_WORLD, &sent);
        MPI_Wait(&sent, MPI_STATUS_IGNORE);
      }
      int sum = -1;
      switch (what % 4) {
        case 0:
          MPI_Barrier(MPI_COMM_WORLD);
          break;
        case 1:
          MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
          EXPECT_EQ(sum, world_size() * (world_size() - 1) / 2);
          break;
        case 2:
          send_word(next, word_tag);
          MPI_Probe(last, word_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
          receive_word(last, word_tag);
          break;
        default: {
          MPI_Comm copy = MPI_COMM_NULL;
          MPI_Comm_dup(MPI_COMM_WORLD, &copy);
          MPI_Comm_free(&copy);
          break;
        }
      }
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      EXPECT_EQ(got, last);
    }
  });
}

// A probe that takes a message has not received it.
TEST_P(SynchronousSends, AreOverWhenAMatchedMessageIsReceived) {
  run_ring([](int rank, int next, int last) {
    for (const bool later : {false, true}) {
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Issend(&rank, 1, MPI_INT, next, data_tag, MPI_COMM_WORLD, &request);
      MPI_Message message = MPI_MESSAGE_NULL;
      MPI_Mprobe(MPI_ANY_SOURCE, data_tag, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
      send_word(last, word_tag);
      receive_word(next, word_tag);
      expect_open(request);
      send_word(next, word_tag);
      receive_word(last, word_tag);
      int got = -1;
      if (later) {
        MPI_Request received = MPI_REQUEST_NULL;
        MPI_Imrecv(&got, 1, MPI_INT, &message, &received);
        MPI_Wait(&received, MPI_STATUS_IGNORE);
      } else {
        MPI_Mrecv(&got, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
      }
      EXPECT_EQ(got, last);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
  });
}

// All ranks send to all, on two communicators, and receive in another order.
TEST_P(SynchronousSends, ManyAreUnderWayAtOnce) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  run_ring([seed](int rank, int, int) {
    constexpr int rounds = 20;
    const int size = world_size();
    const auto total = static_cast<std::size_t>(size * rounds);
    std::mt19937 random(seed + static_cast<unsigned>(rank));
    std::array<MPI_Comm, 2> comms{MPI_COMM_WORLD, MPI_COMM_NULL};
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
    std::vector<MPI_Request> sends(total);
    std::vector<int> out(total);
    for (std::size_t i = 0; i < total; ++i) {
      const int to = static_cast<int>(i) % size;
      const int round = static_cast<int>(i) / size;
      out[i] = rank * 1000 + round;
      MPI_Issend(&out[i], 1, MPI_INT, to, round / 2 % 3, comms[i / static_cast<std::size_t>(size) % 2], &sends[i]);
    }
    std::vector<int> order(total);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, random);
    std::vector<MPI_Request> receives(total);
    std::vector<int> in(total, -1);
    for (const int i : order) {
      const int round = i / size;
      MPI_Irecv(&in[static_cast<std::size_t>(i)], 1, MPI_INT, i % size, round / 2 % 3,
                comms[static_cast<std::size_t>(round % 2)], &receives[static_cast<std::size_t>(i)]);
    }
    MPI_Waitall(static_cast<int>(total), sends.data(), MPI_STATUSES_IGNORE);
    MPI_Waitall(static_cast<int>(total), receives.data(), MPI_STATUSES_IGNORE);
    int sum = 0;
    for (const int value : in) sum += value;
    EXPECT_EQ(sum, rounds * 1000 * size * (size - 1) / 2 + size * rounds * (rounds - 1) / 2);
    MPI_Comm_free(&comms[1]);
  });
}

TEST_P(SynchronousSends, StartAgain) {
  run_ring([](int rank, int next, int last) {
    int out = rank;
    int in = -1;
    std::array<MPI_Request, 2> requests{};
    MPI_Ssend_init(&out, 1, MPI_INT, next, data_tag, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv_init(&in, 1, MPI_INT, last, data_tag, MPI_COMM_WORLD, &requests[1]);
    for (int i = 0; i < 10; ++i) {
      out = rank + i;
      MPI_Start(&requests[0]);
      expect_open(requests[0]);
      MPI_Barrier(MPI_COMM_WORLD);
      MPI_Start(&requests[1]);
      int index = -1;
      MPI_Waitany(2, requests.data(), &index, MPI_STATUS_IGNORE);
      EXPECT_TRUE(index == 0 || index == 1);
      MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE);
      EXPECT_EQ(in, last + i);
      MPI_Barrier(MPI_COMM_WORLD);
    }
    for (MPI_Request& request : requests) MPI_Request_free(&request);
  });
}

// A cancelled receive receives nothing, and a send that has left is not cancelled.
TEST_P(SynchronousSends, AreNotOverByACancelledReceive) {
  run_ring([](int rank, int next, int last) {
    int never = -1;
    MPI_Request cancelled = MPI_REQUEST_NULL;
    MPI_Irecv(&never, 1, MPI_INT, last, data_tag, MPI_COMM_WORLD, &cancelled);
    MPI_Cancel(&cancelled);
    MPI_Wait(&cancelled, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Issend(&rank, 1, MPI_INT, next, data_tag, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Barrier(MPI_COMM_WORLD);
    expect_open(request);
    MPI_Barrier(MPI_COMM_WORLD);
    int got = -1;
    MPI_Recv(&got, 1, MPI_INT, last, data_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Status status{};
    MPI_Wait(&request, &status);
    int flag = -1;
    MPI_Test_cancelled(&status, &flag);
    EXPECT_EQ(flag, 0);
    EXPECT_EQ(got, last);
    EXPECT_EQ(never, -1);
  });
}

TEST_P(SynchronousSends, ToNobodyOrFreedAreNoMatter) {
  run_ring([](int rank, int next, int last) {
    MPI_Ssend(&rank, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Issend(&rank, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < 3; ++i) {
      MPI_Issend(&rank, 1, MPI_INT, next, data_tag, MPI_COMM_WORLD, &request);
      MPI_Request_free(&request);
      EXPECT_EQ(request, MPI_REQUEST_NULL);
      int got = -1;
      MPI_Recv(&got, 1, MPI_INT, last, data_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      EXPECT_EQ(got, last);
    }
  });
}

TEST(SynchronousSend, ToARankThatHasEndedFails) {
  testing_support::run_well({{2, 1}, 2}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (world_rank() == 0) {
      const int value = 1;
      EXPECT_EQ(MPI_Ssend(&value, 1, MPI_INT, 1, data_tag, MPI_COMM_WORLD), MPI_ERR_PROC_ABORTED);
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Issend(&value, 1, MPI_INT, 1, data_tag, MPI_COMM_WORLD, &request);
      EXPECT_EQ(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_ERR_PROC_ABORTED);
      EXPECT_EQ(MPI_Recv(nullptr, 0, MPI_INT, 1, data_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_ERR_PROC_ABORTED);
      EXPECT_EQ(MPI_Probe(1, data_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_ERR_PROC_ABORTED);
    }
    MPI_Finalize();
  });
}

// A receive may be open for a message that never comes, as long as nobody waits for it.
TEST(OpenReceive, FromARankThatHasEndedIsOnlyAnErrorToWhoWaitsForIt) {
  for (const std::vector<std::uint32_t>& processes : {std::vector<std::uint32_t>{}, {1, 1, 1}}) {
    testing_support::run_on({"", {3, 1}, 1, processes, {}, nullptr}, [] {
      MPI_Init(nullptr, nullptr);
      MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
      if (world_rank() == 2) {
        receive_word(1, 0);
        send_word(1, data_tag);
      }
      if (world_rank() != 1) {
        MPI_Finalize();
        return;
      }
      std::array<MPI_Request, 3> requests{};
      MPI_Irecv(nullptr, 0, MPI_INT, 0, data_tag, MPI_COMM_WORLD, &requests[0]);
      MPI_Irecv(nullptr, 0, MPI_INT, 2, data_tag, MPI_COMM_WORLD, &requests[1]);
      MPI_Irecv(nullptr, 0, MPI_INT, 0, data_tag, MPI_COMM_WORLD, &requests[2]);
      EXPECT_EQ(MPI_Recv(nullptr, 0, MPI_INT, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_ERR_PROC_ABORTED);
      expect_open(requests[0]);
      int flag = -1;
      EXPECT_EQ(MPI_Request_get_status(requests[0], &flag, MPI_STATUS_IGNORE), MPI_SUCCESS);
      EXPECT_EQ(flag, 0);
      int index = -1;
      EXPECT_EQ(MPI_Testany(3, requests.data(), &index, &flag, MPI_STATUS_IGNORE), MPI_SUCCESS);
      EXPECT_EQ(flag, 0);
      send_word(2, 0);
      EXPECT_EQ(MPI_Waitany(3, requests.data(), &index, MPI_STATUS_IGNORE), MPI_SUCCESS);
      EXPECT_EQ(index, 1);
      EXPECT_EQ(MPI_Testall(3, requests.data(), &flag, MPI_STATUSES_IGNORE), MPI_SUCCESS);
      EXPECT_EQ(flag, 0);
      std::array<int, 3> indices{};
      EXPECT_EQ(MPI_Testsome(3, requests.data(), &index, indices.data(), MPI_STATUSES_IGNORE), MPI_SUCCESS);
      EXPECT_EQ(index, 0);
      MPI_Status status{};
      EXPECT_EQ(MPI_Cancel(&requests[0]), MPI_SUCCESS);
      EXPECT_EQ(MPI_Wait(&requests[0], &status), MPI_SUCCESS);
      MPI_Test_cancelled(&status, &flag);
      EXPECT_EQ(flag, 1);
      EXPECT_EQ(MPI_Waitany(3, requests.data(), &index, MPI_STATUS_IGNORE), MPI_ERR_PROC_ABORTED);
      EXPECT_EQ(index, 2);
      MPI_Irecv(nullptr, 0, MPI_INT, 0, data_tag, MPI_COMM_WORLD, &requests[0]);
      EXPECT_EQ(MPI_Wait(&requests[0], MPI_STATUS_IGNORE), MPI_ERR_PROC_ABORTED);
      MPI_Irecv(nullptr, 0, MPI_INT, 0, data_tag, MPI_COMM_WORLD, &requests[0]);
      EXPECT_EQ(MPI_Waitsome(1, requests.data(), &index, indices.data(), MPI_STATUSES_IGNORE), MPI_ERR_IN_STATUS);
      MPI_Irecv(nullptr, 0, MPI_INT, 0, data_tag, MPI_COMM_WORLD, &requests[0]);
      EXPECT_EQ(MPI_Waitall(1, requests.data(), MPI_STATUSES_IGNORE), MPI_ERR_IN_STATUS);
      MPI_Finalize();
    });
  }
}

// Who waits for what, in MPI's words. That there is a report says that all of them sleep.
TEST(MpiDeadlock, NamesCallRankCommunicatorAndTag) {
  const Report report = testing_support::run({{4, 1}, 2}, [] {
    MPI_Init(nullptr, nullptr);
    const int rank = world_rank();
    MPI_Comm half = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank / 2, 0, &half);
    MPI_Comm_set_name(half, "half");
    int value = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    switch (rank) {
      case 0:
        MPI_Ssend(&value, 1, MPI_INT, 1, 77, MPI_COMM_WORLD);
        break;
      case 1:
        MPI_Probe(MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        break;
      case 2:
        MPI_Issend(&value, 1, MPI_INT, 1, 78, half, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        break;
      default:
        MPI_Mprobe(1, MPI_ANY_TAG, half, &message, MPI_STATUS_IGNORE);
        break;
    }
  });
  EXPECT_NE(report.exit_status, 0);
  for (const std::string expected :
       {"cell 0 task 0: waits in MPI_Ssend for the receipt of a message to rank 1 of MPI_COMM_WORLD, tag 77, for ",
        "cell 1 task 0: waits in MPI_Probe for 1 of its requests: a message from any rank of MPI_COMM_WORLD, tag 5, ",
        "1 other message unread, the oldest from rank 0 of MPI_COMM_WORLD, tag 77, 4 bytes",
        "cell 2 task 0: waits in MPI_Wait for 1 of its requests: the receipt of a message to rank 1 of half, tag 78, ",
        "cell 3 task 0: waits in MPI_Mprobe for 1 of its requests: a message from rank 1 of half, any tag, "})
    EXPECT_NE(report.reason.find(expected), std::string::npos) << expected << '\n' << report.reason;
}

}  // namespace
}  // namespace aplib
