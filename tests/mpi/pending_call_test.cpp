// SPDX-License-Identifier: MIT
// Nonblocking and persistent collective calls, many at once on several communicators, among blocking ones and messages,
// completed in any order. Results of single calls: programs/collectives.c.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "placements.hpp"

namespace aplib {
namespace {

using testing_support::Placement;
using testing_support::placement_name;
using testing_support::placements;
using testing_support::run;
using testing_support::run_well;

int rank_in(MPI_Comm comm) {
  int rank = -1;
  MPI_Comm_rank(comm, &rank);
  return rank;
}
int size_of(MPI_Comm comm) {
  int size = -1;
  MPI_Comm_size(comm, &size);
  return size;
}

/// Element i of what `from` gives to `to` in a call.
int value_of(int call, int from, int to, int i) { return call * 131 + from * 17 + to * 5 + i; }

int sum_of(int call, int ranks, int i) {
  int sum = 0;
  for (int from = 0; from < ranks; ++from) sum += value_of(call, from, 0, i);
  return sum;
}

/// A call that is under way.
struct Begun {
  MPI_Request request = MPI_REQUEST_NULL;
  std::vector<int> sent;
  std::vector<int> received;
  std::vector<int> expected;
};

/// Random calls on some communicators, the same on all ranks.
class Calls {
 public:
  explicit Calls(std::vector<MPI_Comm> comms) : comms_(std::move(comms)) {}

  void begin(std::mt19937& random, std::vector<std::unique_ptr<Begun>>& begun) {
    const MPI_Comm comm = comms_[random() % comms_.size()];
    static constexpr std::array<int, 4> counts = {1, 3, 200, 5000};
    const auto count = static_cast<std::size_t>(counts[random() % counts.size()]);
    const int kind = static_cast<int>(random() % 9);
    const auto drawn = static_cast<int>(random() % 1024);
    begun.push_back(std::make_unique<Begun>());
    begin(*begun.back(), comm, kind, count, drawn % size_of(comm), ++calls_);
  }

  void block(std::mt19937& random) {
    const MPI_Comm comm = comms_[random() % comms_.size()];
    int one = rank_in(comm);
    int sum = -1;
    const int size = size_of(comm);
    if (random() % 2 == 0) {
      EXPECT_EQ(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm), MPI_SUCCESS);
      EXPECT_EQ(sum, size * (size - 1) / 2);
    } else {
      one = one == 0 ? ++calls_ : (++calls_, -1);
      EXPECT_EQ(MPI_Bcast(&one, 1, MPI_INT, 0, comm), MPI_SUCCESS);
      EXPECT_EQ(one, calls_);
    }
  }

 private:
  static void begin(Begun& its, MPI_Comm comm, int kind, std::size_t count, int root, int call) {
    const int rank = rank_in(comm);
    const int size = size_of(comm);
    const auto ranks = static_cast<std::size_t>(size);
    const auto n = static_cast<int>(count);
    const auto fill = [&](std::vector<int>& data, std::size_t blocks, const auto& value) {
      data.resize(count * blocks);
      for (std::size_t i = 0; i < data.size(); ++i)
        data[i] = value(static_cast<int>(i / count), static_cast<int>(i % count));
    };
    const auto own = [&](int, int i) { return value_of(call, rank, 0, i); };
    const auto sum = [&](int, int i) { return sum_of(call, size, i); };
    its.received.assign(count, -1);
    switch (kind) {
      case 0:
        its.received.clear();
        EXPECT_EQ(MPI_Ibarrier(comm, &its.request), MPI_SUCCESS);
        break;
      case 1:
        fill(its.expected, 1, [&](int, int i) { return value_of(call, root, 0, i); });
        if (rank == root) its.received = its.expected;
        EXPECT_EQ(MPI_Ibcast(its.received.data(), n, MPI_INT, root, comm, &its.request), MPI_SUCCESS);
        break;
      case 2:
        fill(its.sent, 1, own);
        if (rank == root) fill(its.expected, ranks, [&](int from, int i) { return value_of(call, from, 0, i); });
        its.received.assign(its.expected.size(), -1);
        EXPECT_EQ(MPI_Igather(its.sent.data(), n, MPI_INT, its.received.data(), n, MPI_INT, root, comm, &its.request),
                  MPI_SUCCESS);
        break;
      case 3:
        if (rank == root) fill(its.sent, ranks, [&](int to, int i) { return value_of(call, root, to, i); });
        fill(its.expected, 1, [&](int, int i) { return value_of(call, root, rank, i); });
        EXPECT_EQ(MPI_Iscatter(its.sent.data(), n, MPI_INT, its.received.data(), n, MPI_INT, root, comm, &its.request),
                  MPI_SUCCESS);
        break;
      case 4:
        fill(its.expected, ranks, [&](int from, int i) { return value_of(call, from, 0, i); });
        fill(its.received, ranks, [&](int from, int i) { return from == rank ? value_of(call, rank, 0, i) : -1; });
        EXPECT_EQ(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_INT, its.received.data(), n, MPI_INT, comm, &its.request),
                  MPI_SUCCESS);
        break;
      case 5:
        fill(its.sent, ranks, [&](int to, int i) { return value_of(call, rank, to, i); });
        fill(its.expected, ranks, [&](int from, int i) { return value_of(call, from, rank, i); });
        its.received.assign(its.expected.size(), -1);
        EXPECT_EQ(MPI_Ialltoall(its.sent.data(), n, MPI_INT, its.received.data(), n, MPI_INT, comm, &its.request),
                  MPI_SUCCESS);
        break;
      case 6:
        fill(its.sent, 1, own);
        fill(its.expected, 1, sum);
        EXPECT_EQ(MPI_Iallreduce(its.sent.data(), its.received.data(), n, MPI_INT, MPI_SUM, comm, &its.request),
                  MPI_SUCCESS);
        break;
      case 7:
        fill(its.sent, 1, own);
        if (rank == root) fill(its.expected, 1, sum);
        if (rank != root) its.received.clear();
        EXPECT_EQ(MPI_Ireduce(its.sent.data(), its.received.data(), n, MPI_INT, MPI_SUM, root, comm, &its.request),
                  MPI_SUCCESS);
        break;
      default:
        fill(its.received, 1, own);
        fill(its.expected, 1, [&](int, int i) { return sum_of(call, rank + 1, i); });
        EXPECT_EQ(MPI_Iscan(MPI_IN_PLACE, its.received.data(), n, MPI_INT, MPI_SUM, comm, &its.request), MPI_SUCCESS);
        break;
    }
  }

  std::vector<MPI_Comm> comms_;
  int calls_ = 0;
};

/// Completes some as this rank alone chooses, and looks at their results.
void complete_some(std::mt19937& random, std::vector<std::unique_ptr<Begun>>& begun) {
  if (begun.empty()) return;
  std::vector<MPI_Request> requests;
  for (const auto& each : begun) requests.push_back(each->request);
  const auto chosen = random() % begun.size();
  const auto count = static_cast<int>(requests.size());
  int index = -1;
  int flag = 0;
  switch (random() % 5) {
    case 0:
      EXPECT_EQ(MPI_Wait(&requests[chosen], MPI_STATUS_IGNORE), MPI_SUCCESS);
      break;
    case 1:
      EXPECT_EQ(MPI_Waitany(count, requests.data(), &index, MPI_STATUS_IGNORE), MPI_SUCCESS);
      EXPECT_NE(index, MPI_UNDEFINED);
      break;
    case 2:
      while (flag == 0) EXPECT_EQ(MPI_Test(&requests[chosen], &flag, MPI_STATUS_IGNORE), MPI_SUCCESS);
      break;
    case 3: {
      std::vector<int> indices(requests.size());
      EXPECT_EQ(MPI_Testsome(count, requests.data(), &index, indices.data(), MPI_STATUSES_IGNORE), MPI_SUCCESS);
      break;
    }
    default:
      EXPECT_EQ(MPI_Waitall(count, requests.data(), MPI_STATUSES_IGNORE), MPI_SUCCESS);
      break;
  }
  std::vector<std::unique_ptr<Begun>> open;
  for (std::size_t i = 0; i < begun.size(); ++i) {
    begun[i]->request = requests[i];
    if (requests[i] != MPI_REQUEST_NULL) {
      open.push_back(std::move(begun[i]));
    } else {
      EXPECT_EQ(begun[i]->received, begun[i]->expected);
    }
  }
  begun = std::move(open);
}

class PendingCalls : public testing::TestWithParam<Placement> {
 protected:
  static void run_ranks(const std::function<void()>& program) {
    testing_support::run_on(GetParam(), [&program] {
      MPI_Init(nullptr, nullptr);
      program();
      MPI_Finalize();
    });
  }
};
INSTANTIATE_TEST_SUITE_P(, PendingCalls, testing::ValuesIn(placements()), placement_name);

TEST_P(PendingCalls, GoOnAtOnceAndAreCompletedInAnyOrder) {
  run_ranks([] {
    const int rank = rank_in(MPI_COMM_WORLD);
    const int size = size_of(MPI_COMM_WORLD);
    std::array<MPI_Comm, 2> made{};
    MPI_Comm_dup(MPI_COMM_WORLD, &made[0]);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &made[1]);
    Calls calls({MPI_COMM_WORLD, made[0], made[1], MPI_COMM_SELF});
    std::mt19937 same(7);  // of all ranks
    std::mt19937 own(static_cast<unsigned>(rank));
    std::vector<std::unique_ptr<Begun>> begun;
    for (int step = 0; step < 150; ++step) {
      switch (same() % 8) {
        case 0:
          calls.block(same);
          break;
        case 1: {
          int got = -1;
          MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, step, &got, 1, MPI_INT, (rank + size - 1) % size, step,
                       MPI_COMM_WORLD, MPI_STATUS_IGNORE);
          EXPECT_EQ(got, (rank + size - 1) % size);
          break;
        }
        case 2: {
          begun.push_back(std::make_unique<Begun>());
          Begun& its = *begun.back();
          its.received = {-1};
          its.expected = {(rank + 1) % size};
          MPI_Irecv(its.received.data(), 1, MPI_INT, (rank + 1) % size, step, MPI_COMM_WORLD, &its.request);
          MPI_Send(&rank, 1, MPI_INT, (rank + size - 1) % size, step, MPI_COMM_WORLD);
          break;
        }
        default:
          calls.begin(same, begun);
          break;
      }
      if (own() % 4 == 0) complete_some(own, begun);
    }
    while (!begun.empty()) complete_some(own, begun);
    for (MPI_Comm& comm : made) MPI_Comm_free(&comm);
  });
}

// Small ones, each over before the next one begins, and sometimes beside one that is not. Each rank has another way to
// complete them.
TEST_P(PendingCalls, FollowEachOtherWhenTheyAreBrief) {
  run_ranks([] {
    const int rank = rank_in(MPI_COMM_WORLD);
    const int size = size_of(MPI_COMM_WORLD);
    std::mt19937 same(11);  // of all ranks
    std::mt19937 own(static_cast<unsigned>(rank));
    const auto complete = [&](MPI_Request* request) {
      int flag = 0;
      while (own() % 2 == 0 && flag == 0) EXPECT_EQ(MPI_Test(request, &flag, MPI_STATUS_IGNORE), MPI_SUCCESS);
      EXPECT_EQ(MPI_Wait(request, MPI_STATUS_IGNORE), MPI_SUCCESS);
      EXPECT_EQ(*request, MPI_REQUEST_NULL);
    };
    for (int call = 0; call < 300; ++call) {
      const auto at_root = static_cast<int>(same() % static_cast<unsigned>(size));
      int given = value_of(call, rank, 0, 0);
      int got = -1;
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Request beside = MPI_REQUEST_NULL;
      const bool is_beside = same() % 4 == 0;
      if (is_beside) MPI_Ibarrier(MPI_COMM_WORLD, &beside);
      switch (same() % 4) {
        case 0:
          MPI_Ibarrier(MPI_COMM_WORLD, &request);
          complete(&request);
          break;
        case 1:
          MPI_Iallreduce(&given, &got, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
          complete(&request);
          EXPECT_EQ(got, sum_of(call, size, 0));
          break;
        case 2:
          MPI_Ibcast(&given, 1, MPI_INT, at_root, MPI_COMM_WORLD, &request);
          complete(&request);
          EXPECT_EQ(given, value_of(call, at_root, 0, 0));
          break;
        default:
          MPI_Ireduce(&given, &got, 1, MPI_INT, MPI_SUM, at_root, MPI_COMM_WORLD, &request);
          complete(&request);
          EXPECT_EQ(got, rank == at_root ? sum_of(call, size, 0) : -1);
      }
      if (is_beside) complete(&beside);
      if (own() % 8 == 0) this_task::yield();
    }
  });
}

// Persistent ones may start in any order, which is another one on each rank.
TEST_P(PendingCalls, StartAgainAndAgainInAnyOrder) {
  run_ranks([] {
    const int rank = rank_in(MPI_COMM_WORLD);
    const int size = size_of(MPI_COMM_WORLD);
    constexpr int calls = 4;
    std::array<std::array<int, 2>, calls> in{};
    std::array<std::array<int, 2>, calls> out{};
    std::array<MPI_Request, calls + 1> requests{};
    for (std::size_t i = 0; i < calls; ++i)
      MPI_Allreduce_init(in[i].data(), out[i].data(), 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[i]);
    MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &requests[calls]);
    std::mt19937 own(static_cast<unsigned>(rank));
    std::array<std::size_t, calls + 1> order{};
    std::iota(order.begin(), order.end(), 0);
    for (int round = 0; round < 20; ++round) {
      for (int i = 0; i < calls; ++i) in[static_cast<std::size_t>(i)] = {round * i + rank, 1};
      std::ranges::shuffle(order, own);
      for (const std::size_t i : order) EXPECT_EQ(MPI_Start(&requests[i]), MPI_SUCCESS);
      MPI_Request further = MPI_REQUEST_NULL;
      MPI_Ibarrier(MPI_COMM_WORLD, &further);
      std::ranges::shuffle(order, own);
      for (const std::size_t i : order) {
        EXPECT_EQ(MPI_Wait(&requests[i], MPI_STATUS_IGNORE), MPI_SUCCESS);
        EXPECT_NE(requests[i], MPI_REQUEST_NULL);
      }
      MPI_Wait(&further, MPI_STATUS_IGNORE);
      for (int i = 0; i < calls; ++i)
        EXPECT_EQ(out[static_cast<std::size_t>(i)],
                  (std::array<int, 2>{size * round * i + size * (size - 1) / 2, size}));
    }
    for (MPI_Request& request : requests) EXPECT_EQ(MPI_Request_free(&request), MPI_SUCCESS);
  });
}

/// An early persistent call and a late one, with `between` others made between; some stay. The two start in another
/// order at each rank.
void start_early_and_late(MPI_Comm comm, int root, bool is_root, int between) {
  int early = is_root ? 111 : 0;
  int late = is_root ? 222 : 0;
  int none = 0;
  std::array<MPI_Request, 2> two{};
  std::vector<MPI_Request> kept;
  MPI_Bcast_init(&early, 1, MPI_INT, root, comm, MPI_INFO_NULL, &two[0]);
  for (int i = 0; i < between; ++i) {
    MPI_Request request = MPI_REQUEST_NULL;
    ASSERT_EQ(MPI_Bcast_init(&none, 1, MPI_INT, root, comm, MPI_INFO_NULL, &request), MPI_SUCCESS);
    if (i % 100 == rank_in(MPI_COMM_WORLD)) {
      kept.push_back(request);
    } else {
      MPI_Request_free(&request);
    }
  }
  MPI_Bcast_init(&late, 1, MPI_INT, root, comm, MPI_INFO_NULL, &two[1]);
  const auto first = static_cast<std::size_t>(rank_in(MPI_COMM_WORLD) % 2);
  for (const std::size_t i : {first, 1 - first}) EXPECT_EQ(MPI_Start(&two[i]), MPI_SUCCESS);
  EXPECT_EQ(MPI_Waitall(2, two.data(), MPI_STATUSES_IGNORE), MPI_SUCCESS);
  EXPECT_EQ(early, root == MPI_PROC_NULL ? 0 : 111);
  EXPECT_EQ(late, root == MPI_PROC_NULL ? 0 : 222);
  for (MPI_Request& request : kept) MPI_Request_free(&request);
  for (MPI_Request& request : two) MPI_Request_free(&request);
}

// There are 32,768 numbers for them.
void make_more_than_there_are_numbers(const Placement& placement) {
  testing_support::run_on(placement, [] {
    MPI_Init(nullptr, nullptr);
    const int rank = rank_in(MPI_COMM_WORLD);
    start_early_and_late(MPI_COMM_WORLD, 0, rank == 0, 2 * 32'768 - 1);
    MPI_Comm half = MPI_COMM_NULL;
    MPI_Comm inter = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 0, &inter);
    const int root = rank == 0 ? MPI_ROOT : rank == 2 ? MPI_PROC_NULL : 0;
    start_early_and_late(inter, root, rank == 0, 32'767);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
    MPI_Finalize();
  });
}

TEST(PendingCall, IsToldApartHoweverManyAreMade) {
  for (const Placement& each : placements()) {
    if (each.name == "one_processor" || each.name == "parts_over_tcp") make_more_than_there_are_numbers(each);
  }
}

TEST(PendingCall, IsRefusedWhereThereAreTooMany) {
  run_well({{2, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    std::vector<MPI_Request> all(32'768);
    for (MPI_Request& each : all) ASSERT_EQ(MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &each), MPI_SUCCESS);
    MPI_Request further = MPI_REQUEST_NULL;
    int error_class = 0;
    MPI_Error_class(MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &further), &error_class);
    EXPECT_EQ(error_class, MPI_ERR_OTHER);
    MPI_Request_free(&all[7]);
    EXPECT_EQ(MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &all[7]), MPI_SUCCESS);
    for (MPI_Request& each : all) MPI_Request_free(&each);
    MPI_Finalize();
  });
}

void add_ints(void* in, void* inout, int* count, MPI_Datatype*) {
  for (int i = 0; i < *count; ++i) static_cast<int*>(inout)[2 * i] += static_cast<int*>(in)[2 * i];
}

// Handles that the program frees meanwhile.
TEST_P(PendingCalls, KeepWhatTheirArgumentsName) {
  run_ranks([] {
    const int rank = rank_in(MPI_COMM_WORLD);
    const int size = size_of(MPI_COMM_WORLD);
    for (int round = 0; round < 3; ++round) {
      MPI_Comm comm = MPI_COMM_NULL;
      MPI_Datatype type = MPI_DATATYPE_NULL;
      MPI_Op op = MPI_OP_NULL;
      MPI_Comm_dup(MPI_COMM_WORLD, &comm);
      MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &type);
      MPI_Type_commit(&type);
      MPI_Op_create(add_ints, 1, &op);
      std::vector<MPI_Datatype> types(static_cast<std::size_t>(size), type);
      const std::vector<int> ones(static_cast<std::size_t>(size), 1);
      std::vector<int> places(static_cast<std::size_t>(size));
      for (int i = 0; i < size; ++i) places[static_cast<std::size_t>(i)] = i * 8;
      std::vector<int> sent(static_cast<std::size_t>(2 * size), rank);
      std::vector<int> received(static_cast<std::size_t>(2 * size), -1);
      std::array<int, 4> sum = {rank, -1, 1, -1};
      std::array<MPI_Request, 3> requests{};
      if (round > 0) {  // then the next call is brief
        MPI_Ibarrier(comm, &requests[0]);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
      }
      MPI_Iallreduce(MPI_IN_PLACE, sum.data(), 2, type, op, comm, &requests[0]);
      MPI_Ialltoallw(sent.data(), ones.data(), places.data(), types.data(), received.data(), ones.data(), places.data(),
                     types.data(), comm, &requests[1]);
      MPI_Ibarrier(comm, &requests[2]);
      MPI_Op_free(&op);
      MPI_Type_free(&type);
      MPI_Comm_free(&comm);
      EXPECT_EQ(MPI_Waitall(3, requests.data(), MPI_STATUSES_IGNORE), MPI_SUCCESS);
      EXPECT_EQ(sum, (std::array<int, 4>{size * (size - 1) / 2, -1, size, -1}));
      for (int i = 0; i < size; ++i) {
        EXPECT_EQ(received[static_cast<std::size_t>(2 * i)], i);
        EXPECT_EQ(received[static_cast<std::size_t>(2 * i + 1)], -1);
      }
    }
  });
}

// Programs should let them be until the call is over; mpi4py 4.1 does not.
TEST_P(PendingCalls, MayOutliveTheNumbersOfTheirBlocks) {
  run_ranks([] {
    const int size = size_of(MPI_COMM_WORLD);
    const int rank = rank_in(MPI_COMM_WORLD);
    const auto blocks = static_cast<std::size_t>(size);
    for (int turn = 0; turn < 5; ++turn) {
      std::vector<int> counts(blocks, 2);
      std::vector<int> places(blocks);
      for (int i = 0; i < size; ++i) places[static_cast<std::size_t>(i)] = 2 * i;
      const std::vector<int> own(2 * blocks, rank);
      std::vector<int> gathered(2 * blocks, -1);
      std::vector<int> exchanged(2 * blocks, -1);
      std::array<int, 2> sums{};
      std::array<MPI_Request, 3> requests{};
      MPI_Iallgatherv(own.data(), 2, MPI_INT, gathered.data(), counts.data(), places.data(), MPI_INT, MPI_COMM_WORLD,
                      &requests[0]);
      MPI_Ialltoallv(own.data(), counts.data(), places.data(), MPI_INT, exchanged.data(), counts.data(), places.data(),
                     MPI_INT, MPI_COMM_WORLD, &requests[1]);
      MPI_Ireduce_scatter(own.data(), sums.data(), counts.data(), MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[2]);
      counts.assign(blocks, 1'000'000);
      places.assign(blocks, -1'000'000);
      MPI_Waitall(3, requests.data(), MPI_STATUSES_IGNORE);
      for (std::size_t i = 0; i < gathered.size(); ++i) {
        EXPECT_EQ(gathered[i], static_cast<int>(i / 2));
        EXPECT_EQ(exchanged[i], static_cast<int>(i / 2));
      }
      EXPECT_EQ(sums, (std::array<int, 2>{size * (size - 1) / 2, size * (size - 1) / 2}));
    }
  });
}

// Whatever a rank waits for, others need not wait for it.
TEST_P(PendingCalls, GoOnWhileTheRankWaitsForSomethingElse) {
  run_ranks([] {
    const int rank = rank_in(MPI_COMM_WORLD);
    const int size = size_of(MPI_COMM_WORLD);
    for (int what = 0; what < 6 && size > 1; ++what) {
      std::vector<int> data(20'000, rank);
      std::vector<int> sum(data.size(), -1);
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Iallreduce(data.data(), sum.data(), static_cast<int>(data.size()), MPI_INT, MPI_SUM, MPI_COMM_WORLD,
                     &request);
      int got = -1;
      if (rank != 0) {  // which the others wait for, and who waits for the end of the call first
        switch (what) {
          case 0:
            MPI_Recv(&got, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            break;
          case 1:
            MPI_Probe(0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            break;
          case 2: {
            MPI_Request received = MPI_REQUEST_NULL;
            MPI_Irecv(&got, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, &received);
            MPI_Wait(&received, MPI_STATUS_IGNORE);
            break;
          }
          case 3:
            for (int flag = 0; flag == 0;) MPI_Iprobe(0, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
            MPI_Recv(&got, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            break;
          case 4:
            MPI_Ssend(&rank, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
            got = 0;
            break;
          default:
            MPI_Barrier(MPI_COMM_WORLD);
            got = 0;
            break;
        }
        EXPECT_EQ(got, 0);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
      } else {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int to = 1; to < size && what < 4; ++to) MPI_Send(&rank, 1, MPI_INT, to, 0, MPI_COMM_WORLD);
        for (int from = 1; from < size && what == 4; ++from)
          MPI_Recv(&got, 1, MPI_INT, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (what == 5) MPI_Barrier(MPI_COMM_WORLD);
      }
      EXPECT_EQ(sum, std::vector<int>(sum.size(), size * (size - 1) / 2));
    }
  });
}

TEST_P(PendingCalls, WorkOnIntercommunicatorsAndAmongNeighbours) {
  run_ranks([] {
    const int rank = rank_in(MPI_COMM_WORLD);
    const int size = size_of(MPI_COMM_WORLD);
    MPI_Comm ring = MPI_COMM_NULL;
    const int periodic = 1;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, &ring);
    std::array<int, 2> around = {-1, -1};
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Request again = MPI_REQUEST_NULL;
    MPI_Neighbor_allgather_init(&rank, 1, MPI_INT, around.data(), 1, MPI_INT, ring, MPI_INFO_NULL, &again);
    for (int round = 0; round < 3; ++round) {
      std::array<int, 2> both = {-1, -1};
      MPI_Ineighbor_allgather(&rank, 1, MPI_INT, both.data(), 1, MPI_INT, ring, &request);
      around.fill(-1);
      MPI_Start(&again);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      MPI_Wait(&again, MPI_STATUS_IGNORE);
      EXPECT_EQ(both, (std::array<int, 2>{(rank + size - 1) % size, (rank + 1) % size}));
      EXPECT_EQ(around, both);
    }
    MPI_Request_free(&again);
    MPI_Comm_free(&ring);
    if (size == 1) return;
    MPI_Comm half = MPI_COMM_NULL;
    MPI_Comm inter = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 9, &inter);
    int sum = -1;
    std::array<MPI_Request, 3> requests{};
    MPI_Ibarrier(inter, &requests[0]);
    MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, inter, &requests[1]);
    int told = rank == 0 ? 77 : -1;
    MPI_Ibcast(&told, 1, MPI_INT, rank % 2 == 1 ? 0 : rank == 0 ? MPI_ROOT : MPI_PROC_NULL, inter, &requests[2]);
    MPI_Waitall(3, requests.data(), MPI_STATUSES_IGNORE);
    int expected = 0;
    for (int other = 1 - rank % 2; other < size; other += 2) expected += other;
    EXPECT_EQ(sum, expected);
    EXPECT_EQ(told, rank % 2 == 1 || rank == 0 ? 77 : -1);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
  });
}

// ---------------------------------------------------------------- errors

void begin_world() {
  MPI_Init(nullptr, nullptr);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

TEST(PendingCall, IsRefusedAtItsBeginWhereItsArgumentsAreWrong) {
  run_well({{2, 1}, 1}, [] {
    begin_world();
    int one = 1;
    int two = 2;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Request before = MPI_REQUEST_NULL;
    const MPI_Comm world = MPI_COMM_WORLD;
    MPI_Ibarrier(world, &before);  // what comes behind it is looked at, too
    EXPECT_EQ(MPI_Ibcast(&one, 1, MPI_INT, 2, world, &request), MPI_ERR_ROOT);
    EXPECT_EQ(MPI_Ibcast(MPI_IN_PLACE, 1, MPI_INT, 0, world, &request), MPI_ERR_BUFFER);
    EXPECT_EQ(MPI_Iallreduce(&one, &one, 1, MPI_INT, MPI_SUM, world, &request), MPI_ERR_BUFFER);
    EXPECT_EQ(MPI_Igather(&one, 1, MPI_DATATYPE_NULL, &two, 1, MPI_INT, 0, world, &request), MPI_ERR_TYPE);
    EXPECT_EQ(MPI_Reduce_init(&one, &two, 1, MPI_DOUBLE, MPI_BAND, 0, world, MPI_INFO_NULL, &request), MPI_ERR_OP);
    EXPECT_EQ(MPI_Gather_init(&one, -1, MPI_INT, &two, 1, MPI_INT, 0, world, MPI_INFO_NULL, &request), MPI_ERR_COUNT);
    EXPECT_EQ(request, MPI_REQUEST_NULL);
    EXPECT_EQ(MPI_Wait(&before, MPI_STATUS_IGNORE), MPI_SUCCESS);
    EXPECT_EQ(MPI_Iallreduce(&one, &two, 1, MPI_INT, MPI_SUM, world, &request), MPI_SUCCESS);
    EXPECT_EQ(MPI_Cancel(&request), MPI_ERR_REQUEST);
    EXPECT_EQ(MPI_Request_free(&request), MPI_ERR_REQUEST);
    EXPECT_EQ(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
    EXPECT_EQ(two, 2);
    MPI_Finalize();
  });
}

// A persistent call is only looked at when it is made.
TEST(PendingCall, WritesNothingBeforeItStarts) {
  run_well({{2, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    int in = 1;
    std::array<int, 2> out = {-1, -1};
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Gather_init(&in, 1, MPI_INT, out.data(), 1, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    in = 2;
    EXPECT_EQ(out, (std::array<int, 2>{-1, -1}));
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    const int expected = rank_in(MPI_COMM_WORLD) == 0 ? 2 : -1;
    EXPECT_EQ(out, (std::array<int, 2>{expected, expected}));
    MPI_Request_free(&request);
    MPI_Finalize();
  });
}

TEST(PendingCall, TellsAtItsEndWhatOthersHaveDoneWrong) {
  run_well({{2, 1}, 2}, [] {
    begin_world();
    std::array<int, 4> data{};
    MPI_Request request = MPI_REQUEST_NULL;
    const bool is_root = rank_in(MPI_COMM_WORLD) == 0;
    for (int i = 0; i < 3; ++i) {
      int result = MPI_Ibcast(data.data(), is_root ? 2 : 1, MPI_INT, 0, MPI_COMM_WORLD, &request);
      if (result == MPI_SUCCESS) result = MPI_Wait(&request, MPI_STATUS_IGNORE);
      EXPECT_EQ(result, is_root ? MPI_SUCCESS : MPI_ERR_TRUNCATE);
      MPI_Ibarrier(MPI_COMM_WORLD, &request);
      EXPECT_EQ(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
    }
    MPI_Finalize();
  });
}

/// The report of two ranks, of which one runs each function.
Report report_of(const std::function<void()>& first, const std::function<void()>& second) {
  return run({{2, 1}, 1}, [&] {
    MPI_Init(nullptr, nullptr);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    rank_in(MPI_COMM_WORLD) == 0 ? first() : second();
  });
}

void expect_in(const Report& report, const std::string& text) {
  EXPECT_NE(report.reason.find(text), std::string::npos) << report.reason;
}

TEST(PendingCall, NamesItselfWhereRanksDisagree) {
  int one = 1;
  int sum = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  const Report report = report_of(
      [&] {
        MPI_Ibcast(&one, 1, MPI_INT, 0, MPI_COMM_WORLD, &request);
        static_cast<void>(receive());  // ends with the machine
      },
      [&] {
        MPI_Request other = MPI_REQUEST_NULL;
        MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &other);
        MPI_Wait(&other, MPI_STATUS_IGNORE);
      });
  EXPECT_EQ(report.exit_status, 1);
  expect_in(report, "rank 0 is in MPI_Ibcast (call 1 of the communicator");
  expect_in(report, "this rank in MPI_Iallreduce");
}

TEST(PendingCall, IsNamedInReportsOfDeadlocks) {
  const Report report = report_of([] { static_cast<void>(receive()); },
                                  [] {
                                    MPI_Request request = MPI_REQUEST_NULL;
                                    MPI_Ibarrier(MPI_COMM_WORLD, &request);
                                    MPI_Wait(&request, MPI_STATUS_IGNORE);
                                  });
  EXPECT_EQ(report.exit_status, static_cast<int>(ExitStatus::deadlock));
  expect_in(report, "waits in MPI_Wait for rank 0 of MPI_COMM_WORLD, in MPI_Ibarrier");
}

TEST(PendingCall, FailsWhenARankHasEndedWithoutIt) {
  for (int turn = 0; turn < 4; ++turn) {
    const bool tests = turn % 2 == 0;
    const int count = turn < 2 ? 10'000 : 1;
    const Report report =
        report_of([] {},
                  [=] {
                    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
                    std::vector<int> data(10'000, 1);
                    MPI_Request request = MPI_REQUEST_NULL;
                    MPI_Iallreduce(MPI_IN_PLACE, data.data(), count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
                    int result = MPI_SUCCESS;
                    int flag = 0;
                    while (tests && flag == 0) result = MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
                    if (!tests) result = MPI_Wait(&request, MPI_STATUS_IGNORE);
                    EXPECT_EQ(result, MPI_ERR_PROC_ABORTED);
                  });
    EXPECT_EQ(report.exit_status, 0) << report.reason;
  }
}

// Each in another way to wait.
TEST(CollectiveCall, WithARankThatHasFailedEndsTheRunWithItsStatus) {
  const std::vector<std::function<void()>> calls{
      [] { MPI_Barrier(MPI_COMM_WORLD); },
      [] {
        int word = 0;
        MPI_Bcast(&word, 1, MPI_INT, 1, MPI_COMM_WORLD);
      },
      [] {
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Ibarrier(MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
      },
      [] {
        MPI_Comm made = MPI_COMM_NULL;
        MPI_Comm_dup(MPI_COMM_WORLD, &made);
      },
      [] {
        MPI_Group world = MPI_GROUP_NULL;
        MPI_Comm_group(MPI_COMM_WORLD, &world);
        MPI_Comm made = MPI_COMM_NULL;
        MPI_Comm_create_group(MPI_COMM_WORLD, world, 0, &made);
      },
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    for (const int status : {3, 0}) {  // with 0, the error is that of the ranks that wait
      const auto program = [&calls, i, status] {
        MPI_Init(nullptr, nullptr);
        if (rank_in(MPI_COMM_WORLD) == 1) this_task::exit(status);
        calls[i]();
      };
      const int expected = status != 0 ? status : 1;
      const std::string named = status != 0 ? "cell 1 failed first, with status 3" : "MPI_ERR_PROC_ABORTED";
      const Report report = run({{3, 1}, 2}, program);
      EXPECT_EQ(report.exit_status, expected) << i;
      EXPECT_NE(report.reason.find(named), std::string::npos) << i << ": " << report.reason;
      testing_support::Processes processes({3, 1}, {1, 1, 1});
      const testing_support::ProcessesOutcome outcome = processes.run(program);
      EXPECT_EQ(outcome.status, expected) << i;
      EXPECT_NE(outcome.failure().find(named), std::string::npos) << i << ": " << outcome.failure();
    }
  }
}

TEST(PendingCall, IsCompletedBeforeTheEnd) {
  const Report report = report_of(
      [] {
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Ibarrier(MPI_COMM_WORLD, &request);
        MPI_Finalize();
      },
      [] { static_cast<void>(receive()); });
  EXPECT_EQ(report.exit_status, 1);
  expect_in(report, "MPI_Finalize: MPI_Ibarrier on MPI_COMM_WORLD is not over");
}

// What it has shown to others lies in memory that goes with the task.
TEST(PendingCall, EndsWithItsTask) {
  const Report report = report_of(
      [] {
        std::vector<int> data(10'000, 1);
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Ibcast(data.data(), 10'000, MPI_INT, 0, MPI_COMM_WORLD, &request);
      },
      [] {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        this_task::sleep_for(std::chrono::milliseconds(1));
        std::vector<int> data(10'000, 2);
        MPI_Request request = MPI_REQUEST_NULL;
        int result = MPI_Ibcast(data.data(), 10'000, MPI_INT, 0, MPI_COMM_WORLD, &request);
        if (result == MPI_SUCCESS) result = MPI_Wait(&request, MPI_STATUS_IGNORE);
        EXPECT_EQ(result, MPI_ERR_PROC_ABORTED);
      });
  EXPECT_EQ(report.exit_status, 0) << report.reason;
}

}  // namespace
}  // namespace aplib
