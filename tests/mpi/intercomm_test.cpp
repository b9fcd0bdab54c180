// SPDX-License-Identifier: MIT
// Intercommunicators of random groups against a naive model: how they are made, messages, and all collective calls.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

using Ranks = std::vector<int>;

int rank_on(MPI_Comm comm) {
  int rank = -1;
  MPI_Comm_rank(comm, &rank);
  return rank;
}

int size_on(MPI_Comm comm) {
  int size = -1;
  MPI_Comm_size(comm, &size);
  return size;
}

/// Ranks of MPI_COMM_WORLD. The group is freed.
Ranks world_ranks_in(MPI_Group group) {
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  int size = 0;
  MPI_Group_size(group, &size);
  Ranks ranks(static_cast<std::size_t>(size));
  Ranks result(ranks.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  MPI_Group_translate_ranks(group, size, ranks.data(), world, result.data());
  if (group != MPI_GROUP_EMPTY) MPI_Group_free(&group);
  MPI_Group_free(&world);
  return result;
}

Ranks own_group(MPI_Comm comm) {
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm_group(comm, &group);
  return world_ranks_in(group);
}

Ranks remote_group(MPI_Comm comm) {
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm_remote_group(comm, &group);
  return world_ranks_in(group);
}

/// What a rank of MPI_COMM_WORLD contributes in its place i.
int number_of(int world_rank, int i) { return world_rank * 1000 + i; }

/// Two groups of some ranks in random orders, the same at all ranks that have the same seed.
struct Groups {
  Ranks left;
  Ranks right;

  Groups(std::mt19937& random, int size) {
    Ranks all(static_cast<std::size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    std::ranges::shuffle(all, random);
    const int used = 2 + static_cast<int>(random() % static_cast<unsigned>(size - 1));
    const int first = 1 + static_cast<int>(random() % static_cast<unsigned>(used - 1));
    left.assign(all.begin(), all.begin() + first);
    right.assign(all.begin() + first, all.begin() + used);
  }
};

int place_in(const Ranks& ranks, int rank) {
  const auto place = std::ranges::find(ranks, rank);
  return place == ranks.end() ? -1 : static_cast<int>(place - ranks.begin());
}

/// An intercommunicator, as one of its ranks knows that it must be.
struct Known {
  MPI_Comm comm = MPI_COMM_NULL;
  Ranks own;
  Ranks remote;
  bool is_left = false;
  int rank = -1;

  [[nodiscard]] int remote_size() const { return static_cast<int>(remote.size()); }
  [[nodiscard]] int me() const { return own[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int them(int i) const { return remote[static_cast<std::size_t>(i)]; }
};

/// MPI_COMM_NULL at ranks of neither group.
Known make_known(const Groups& groups, std::mt19937& random) {
  const int me = rank_on(MPI_COMM_WORLD);
  const int left = place_in(groups.left, me);
  const int right = place_in(groups.right, me);
  Known known;
  known.is_left = left >= 0;
  known.rank = std::max(left, right);
  known.own = known.is_left ? groups.left : groups.right;
  known.remote = known.is_left ? groups.right : groups.left;
  const auto left_leader = static_cast<int>(random() % groups.left.size());
  const auto right_leader = static_cast<int>(random() % groups.right.size());
  const int tag = static_cast<int>(random() % 3);
  MPI_Comm local = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, left >= 0 ? 0 : right >= 0 ? 1 : MPI_UNDEFINED, known.rank, &local);
  if (known.rank < 0) return known;
  const int own_leader = known.is_left ? left_leader : right_leader;
  const int other = known.is_left ? groups.right[static_cast<std::size_t>(right_leader)]
                                  : groups.left[static_cast<std::size_t>(left_leader)];
  const bool leads = own_leader == known.rank;
  EXPECT_EQ(MPI_Intercomm_create(local, own_leader, leads ? MPI_COMM_WORLD : MPI_COMM_NULL, leads ? other : -7,
                                 leads ? tag : -1, &known.comm),
            MPI_SUCCESS);
  MPI_Comm_free(&local);
  return known;
}

void expect_is(const Known& known) {
  int flag = 0;
  int size = 0;
  MPI_Comm_test_inter(known.comm, &flag);
  EXPECT_EQ(flag, 1);
  MPI_Comm_remote_size(known.comm, &size);
  EXPECT_EQ(size, known.remote_size());
  EXPECT_EQ(rank_on(known.comm), known.rank);
  EXPECT_EQ(own_group(known.comm), known.own);
  EXPECT_EQ(remote_group(known.comm), known.remote);
}

/// Everyone sends to all of the other group.
void expect_messages_pass(const Known& known) {
  const int out = known.me();
  for (int i = 0; i < known.remote_size(); ++i) MPI_Send(&out, 1, MPI_INT, i, 3, known.comm);
  std::vector<bool> seen(known.remote.size());
  for (int i = 0; i < known.remote_size(); ++i) {
    int in = -1;
    MPI_Status status{};
    MPI_Probe(MPI_ANY_SOURCE, 3, known.comm, &status);
    const int probed = status.MPI_SOURCE;
    MPI_Recv(&in, 1, MPI_INT, probed, MPI_ANY_TAG, known.comm, &status);
    ASSERT_EQ(status.MPI_SOURCE, probed);
    ASSERT_LT(probed, known.remote_size());
    EXPECT_EQ(in, known.them(probed));
    EXPECT_FALSE(seen[static_cast<std::size_t>(probed)]);
    seen[static_cast<std::size_t>(probed)] = true;
  }
}

/// The root argument of a call whose root is rank `root` of the left or the right group.
int root_argument(const Known& known, bool in_left, int root) {
  if (known.is_left != in_left) return root;
  return known.rank == root ? MPI_ROOT : MPI_PROC_NULL;
}

/// x -> a * x + b, whose composition does not commute.
struct Map {
  long a;
  long b;

  static Map of(int rank) { return {rank % 7 + 2, rank + 1}; }
  bool operator==(const Map&) const = default;
};

Map composed(const Map& first, const Map& second) {
  constexpr long prime = 10007;
  return {first.a * second.a % prime, (first.a * second.b + first.b) % prime};
}

void compose(void* in, void* inout, int* length, MPI_Datatype*) {
  for (int i = 0; i < *length; ++i)
    static_cast<Map*>(inout)[i] = composed(static_cast<Map*>(in)[i], static_cast<Map*>(inout)[i]);
}

Map composed(const Ranks& ranks) {
  Map result = Map::of(ranks[0]);
  for (std::size_t i = 1; i < ranks.size(); ++i) result = composed(result, Map::of(ranks[i]));
  return result;
}

struct RandomCall {
  bool in_left;
  int root;
  int count;

  RandomCall(std::mt19937& random, const Groups& groups)
      : in_left(random() % 2 == 0),
        root(static_cast<int>(random() % (in_left ? groups.left : groups.right).size())),
        count(random() % 8 == 0 ? 3000 : static_cast<int>(random() % 5)) {}
};

void expect_moves_to_and_from_a_root(const Known& known, const RandomCall& made) {
  const int root = root_argument(known, made.in_left, made.root);
  const int count = made.count;
  const auto n = static_cast<std::size_t>(count);
  const bool is_root = root == MPI_ROOT;
  std::vector<int> one(n);
  std::vector<int> all(is_root ? n * known.remote.size() : 0);
  if (is_root) std::generate(one.begin(), one.end(), [i = 0]() mutable { return i++; });
  EXPECT_EQ(MPI_Bcast(one.data(), count, MPI_INT, root, known.comm), MPI_SUCCESS);
  for (int i = 0; i < count && root >= 0; ++i) EXPECT_EQ(one[static_cast<std::size_t>(i)], i);

  for (int i = 0; i < count; ++i) one[static_cast<std::size_t>(i)] = number_of(known.me(), i);
  EXPECT_EQ(MPI_Gather(one.data(), root >= 0 ? count : -1, root >= 0 ? MPI_INT : MPI_DATATYPE_NULL, all.data(), count,
                       MPI_INT, root, known.comm),
            MPI_SUCCESS);
  for (std::size_t i = 0; i < all.size(); ++i)
    ASSERT_EQ(all[i], number_of(known.remote[i / n], static_cast<int>(i % n)));
  EXPECT_EQ(MPI_Scatter(all.data(), count, MPI_INT, one.data(), root >= 0 ? count : -1,
                        root >= 0 ? MPI_INT : MPI_DATATYPE_NULL, root, known.comm),
            MPI_SUCCESS);
  for (int i = 0; i < count && root >= 0; ++i) ASSERT_EQ(one[static_cast<std::size_t>(i)], number_of(known.me(), i));

  // Rank r of the other group has count + r elements, with a gap behind each block.
  Ranks counts;
  Ranks places;
  int next = 0;
  for (int r = 0; r < known.remote_size(); ++r) {
    counts.push_back(count + r);
    places.push_back(next);
    next += count + r + 1;
  }
  const int own_count = count + known.rank;
  one.assign(static_cast<std::size_t>(own_count), known.me());
  all.assign(is_root ? static_cast<std::size_t>(next) : 0, -1);
  EXPECT_EQ(
      MPI_Gatherv(one.data(), own_count, MPI_INT, all.data(), counts.data(), places.data(), MPI_INT, root, known.comm),
      MPI_SUCCESS);
  for (int r = 0; r < known.remote_size() && is_root; ++r) {
    for (int i = 0; i <= count + r; ++i)
      ASSERT_EQ(all[static_cast<std::size_t>(places[static_cast<std::size_t>(r)] + i)],
                i == count + r ? -1 : known.them(r));
  }
  if (root >= 0) one.assign(one.size(), -1);
  EXPECT_EQ(
      MPI_Scatterv(all.data(), counts.data(), places.data(), MPI_INT, one.data(), own_count, MPI_INT, root, known.comm),
      MPI_SUCCESS);
  for (const int value : one) ASSERT_EQ(value, known.me());
}

void expect_moves_from_all_to_all(const Known& known, int count) {
  const auto n = static_cast<std::size_t>(count);
  const std::size_t remote = known.remote.size();
  std::vector<int> sent(n);
  for (int i = 0; i < count; ++i) sent[static_cast<std::size_t>(i)] = number_of(known.me(), i);
  std::vector<int> got(n * remote);
  EXPECT_EQ(MPI_Allgather(sent.data(), count, MPI_INT, got.data(), count, MPI_INT, known.comm), MPI_SUCCESS);
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(got[i], number_of(known.remote[i / n], static_cast<int>(i % n)));

  // Rank r sends r elements to everyone.
  Ranks counts(remote);
  Ranks places(remote);
  std::iota(counts.begin(), counts.end(), 0);
  for (std::size_t i = 0; i < remote; ++i) places[i] = static_cast<int>(i * remote);
  sent.assign(static_cast<std::size_t>(known.rank), known.me());
  got.assign(remote * remote, -1);
  EXPECT_EQ(
      MPI_Allgatherv(sent.data(), known.rank, MPI_INT, got.data(), counts.data(), places.data(), MPI_INT, known.comm),
      MPI_SUCCESS);
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(got[i], i % remote < i / remote ? known.remote[i / remote] : -1);

  sent.assign(n * remote, 0);
  for (std::size_t i = 0; i < sent.size(); ++i)
    sent[i] = number_of(known.me(), known.remote[i / n]) + static_cast<int>(i % n);
  got.assign(n * remote, -1);
  const auto expect_mine = [&] {
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(got[i], number_of(known.remote[i / n], known.me()) + static_cast<int>(i % n));
  };
  EXPECT_EQ(MPI_Alltoall(sent.data(), count, MPI_INT, got.data(), count, MPI_INT, known.comm), MPI_SUCCESS);
  expect_mine();
  counts.assign(remote, count);
  Ranks bytes(remote);
  const std::vector<MPI_Datatype> types(remote, MPI_INT);
  for (std::size_t i = 0; i < remote; ++i) {
    places[i] = static_cast<int>(i * n);
    bytes[i] = static_cast<int>(i * n * sizeof(int));
  }
  got.assign(n * remote, -1);
  EXPECT_EQ(MPI_Alltoallv(sent.data(), counts.data(), places.data(), MPI_INT, got.data(), counts.data(), places.data(),
                          MPI_INT, known.comm),
            MPI_SUCCESS);
  expect_mine();
  got.assign(n * remote, -1);
  EXPECT_EQ(MPI_Alltoallw(sent.data(), counts.data(), bytes.data(), types.data(), got.data(), counts.data(),
                          bytes.data(), types.data(), known.comm),
            MPI_SUCCESS);
  expect_mine();
}

void expect_combines(const Known& known, const RandomCall& made) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Op op = MPI_OP_NULL;
  MPI_Type_contiguous(2, MPI_LONG, &type);
  MPI_Type_commit(&type);
  MPI_Op_create(compose, 0, &op);
  const int root = root_argument(known, made.in_left, made.root);
  const auto n = static_cast<std::size_t>(made.count);
  const std::vector<Map> own(n, Map::of(known.me()));
  std::vector<Map> result(n);
  EXPECT_EQ(MPI_Reduce(own.data(), result.data(), made.count, type, op, root, known.comm), MPI_SUCCESS);
  if (root == MPI_ROOT) {
    EXPECT_EQ(result, std::vector<Map>(n, composed(known.remote)));
  }
  result.assign(n, {});
  EXPECT_EQ(MPI_Allreduce(own.data(), result.data(), made.count, type, op, known.comm), MPI_SUCCESS);
  EXPECT_EQ(result, std::vector<Map>(n, composed(known.remote)));
  MPI_Op_free(&op);
  MPI_Type_free(&type);

  // As many elements in both groups, which divide them differently.
  const int all = static_cast<int>(known.own.size() * known.remote.size()) * made.count;
  const int sum = std::accumulate(known.remote.begin(), known.remote.end(), 0);
  std::vector<int> whole(static_cast<std::size_t>(all));
  for (int i = 0; i < all; ++i) whole[static_cast<std::size_t>(i)] = known.me() + i;
  const auto expect_part = [&](const std::vector<int>& part, int first) {
    for (std::size_t i = 0; i < part.size(); ++i)
      ASSERT_EQ(part[i], sum + known.remote_size() * (first + static_cast<int>(i)));
  };
  const int each = all / static_cast<int>(known.own.size());
  std::vector<int> part(static_cast<std::size_t>(each));
  EXPECT_EQ(MPI_Reduce_scatter_block(whole.data(), part.data(), each, MPI_INT, MPI_SUM, known.comm), MPI_SUCCESS);
  expect_part(part, each * known.rank);
  Ranks counts(known.own.size(), 0);  // the last rank has all but one element for each other one
  int left = all;
  for (std::size_t i = 0; i + 1 < counts.size() && left > 0; ++i, --left) counts[i] = 1;
  counts.back() += left;
  part.assign(static_cast<std::size_t>(counts[static_cast<std::size_t>(known.rank)]), -1);
  EXPECT_EQ(MPI_Reduce_scatter(whole.data(), part.data(), counts.data(), MPI_INT, MPI_SUM, known.comm), MPI_SUCCESS);
  expect_part(part, std::accumulate(counts.begin(), counts.begin() + known.rank, 0));
}

class Intercommunicators : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(, Intercommunicators,
                         testing::Values(Shape{{2, 1}, 1}, Shape{{3, 1}, 2}, Shape{{7, 1}, 1}, Shape{{16, 1}, 2},
                                         Shape{{6, 1}, Options::threads_per_cell}),
                         shape_name);

/// Runs rounds, each with other groups.
template <class Round>
void run_rounds(const Shape& shape, const Round& round) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  run_well(shape, [seed, &round] {
    MPI_Init(nullptr, nullptr);
    std::mt19937 random(seed);  // the same for all
    const int rounds = static_cast<int>(scaled(30, 5));
    for (int i = 0; i < rounds; ++i) {
      const Groups groups(random, size_on(MPI_COMM_WORLD));
      Known known = make_known(groups, random);
      round(known, groups, random);
      if (known.comm != MPI_COMM_NULL) MPI_Comm_free(&known.comm);
    }
    MPI_Finalize();
  });
}

TEST_P(Intercommunicators, PassMessages) {
  run_rounds(GetParam(), [](const Known& known, const Groups&, std::mt19937&) {
    if (known.comm == MPI_COMM_NULL) return;
    expect_is(known);
    expect_messages_pass(known);
  });
}

TEST_P(Intercommunicators, CollectivesAgreeWithTheModel) {
  run_rounds(GetParam(), [](const Known& known, const Groups& groups, std::mt19937& random) {
    const RandomCall made(random, groups);
    if (known.comm == MPI_COMM_NULL) return;
    EXPECT_EQ(MPI_Barrier(known.comm), MPI_SUCCESS);
    expect_moves_to_and_from_a_root(known, made);
    expect_moves_from_all_to_all(known, made.count);
    expect_combines(known, made);
  });
}

TEST_P(Intercommunicators, AreDuplicatedAndCompared) {
  run_rounds(GetParam(), [](const Known& known, const Groups&, std::mt19937&) {
    if (known.comm == MPI_COMM_NULL) return;
    Known copy = known;
    EXPECT_EQ(MPI_Comm_dup(known.comm, &copy.comm), MPI_SUCCESS);
    expect_is(copy);
    // What is sent on one is not received on the other.
    const int out = 17;
    MPI_Send(&out, 1, MPI_INT, known.rank % known.remote_size(), 3, known.comm);
    expect_messages_pass(copy);
    int result = -1;
    MPI_Comm_compare(known.comm, copy.comm, &result);
    EXPECT_EQ(result, MPI_CONGRUENT);
    MPI_Comm_compare(known.comm, known.comm, &result);
    EXPECT_EQ(result, MPI_IDENT);
    MPI_Comm_compare(known.comm, MPI_COMM_WORLD, &result);
    EXPECT_EQ(result, MPI_UNEQUAL);
    // The same ranks of the own group in the other order.
    MPI_Comm turned = MPI_COMM_NULL;
    MPI_Comm_split(known.comm, 0, -known.rank, &turned);
    MPI_Comm_compare(known.comm, turned, &result);
    EXPECT_EQ(result, known.own.size() == 1 && known.remote.size() == 1 ? MPI_CONGRUENT : MPI_SIMILAR);
    MPI_Comm_free(&turned);
    MPI_Comm_free(&copy.comm);
  });
}

/// Messages of several communicators of the same ranks do not meet.
void expect_apart(const std::vector<MPI_Comm>& comms) {
  for (std::size_t i = 0; i < comms.size(); ++i) {
    const int size = size_on(comms[i]);
    const int out = rank_on(comms[i]) * 100 + static_cast<int>(i);
    MPI_Send(&out, 1, MPI_INT, (rank_on(comms[i]) + 1) % size, 0, comms[i]);
  }
  for (std::size_t i = comms.size(); i-- > 0;) {
    int in = -1;
    MPI_Status status{};
    MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comms[i], &status);
    EXPECT_EQ(in, status.MPI_SOURCE * 100 + static_cast<int>(i));
    EXPECT_EQ(status.MPI_SOURCE, (rank_on(comms[i]) + size_on(comms[i]) - 1) % size_on(comms[i]));
    EXPECT_EQ(MPI_Barrier(comms[i]), MPI_SUCCESS);
  }
}

TEST_P(Intercommunicators, AreDuplicatedWithoutWaiting) {
  run_rounds(GetParam(), [](const Known& known, const Groups&, std::mt19937&) {
    if (known.comm == MPI_COMM_NULL) return;
    std::array<MPI_Request, 2> requests{};
    std::array<Known, 2> copies = {known, known};
    for (std::size_t i = 0; i < 2; ++i) MPI_Comm_idup(known.comm, &copies[i].comm, &requests[i]);
    EXPECT_EQ(MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE), MPI_SUCCESS);
    const int out = 17;
    MPI_Send(&out, 1, MPI_INT, known.rank % known.remote_size(), 3, copies[0].comm);
    expect_is(copies[1]);
    expect_messages_pass(copies[1]);
    EXPECT_EQ(MPI_Barrier(copies[1].comm), MPI_SUCCESS);
    for (Known& copy : copies) MPI_Comm_free(&copy.comm);
  });
}

class Duplications : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(, Duplications,
                         testing::Values(Shape{{1, 1}, 1}, Shape{{2, 1}, 1}, Shape{{5, 1}, 2}, Shape{{16, 1}, 2},
                                         Shape{{6, 1}, Options::threads_per_cell}),
                         shape_name);

// Ranks begin the duplications of two communicators in different orders, make others meanwhile, and wait in any order.
TEST_P(Duplications, OfSeveralCommunicatorsAreOpenAtOnce) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  run_well(GetParam(), [seed] {
    MPI_Init(nullptr, nullptr);
    const int rank = rank_on(MPI_COMM_WORLD);
    std::mt19937 random(seed + static_cast<unsigned>(rank));  // other numbers at each rank
    const int rounds = static_cast<int>(scaled(30, 4));
    for (int round = 0; round < rounds; ++round) {
      constexpr std::size_t each = 5;
      MPI_Comm part = MPI_COMM_NULL;
      MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &part);
      std::vector<MPI_Comm> of_world(each);
      std::vector<MPI_Comm> of_part(each);
      std::vector<MPI_Request> requests;
      std::size_t world_begun = 0;
      std::size_t part_begun = 0;
      while (world_begun < each || part_begun < each) {
        requests.push_back(MPI_REQUEST_NULL);
        if (part_begun == each || (world_begun < each && random() % 2 == 0)) {
          MPI_Comm_idup(MPI_COMM_WORLD, &of_world[world_begun++], &requests.back());
        } else {
          MPI_Comm_idup_with_info(part, MPI_INFO_NULL, &of_part[part_begun++], &requests.back());
        }
      }
      MPI_Comm meanwhile = MPI_COMM_NULL;
      MPI_Comm_dup(MPI_COMM_WORLD, &meanwhile);
      std::ranges::shuffle(requests, random);
      for (std::size_t i = 0; i < each; ++i) {
        int index = -1;
        int flag = 0;
        if (random() % 2 == 0) {
          EXPECT_EQ(MPI_Waitany(static_cast<int>(requests.size()), requests.data(), &index, MPI_STATUS_IGNORE),
                    MPI_SUCCESS);
          EXPECT_EQ(requests[static_cast<std::size_t>(index)], MPI_REQUEST_NULL);
        } else {
          while (flag == 0) MPI_Testall(static_cast<int>(i), requests.data(), &flag, MPI_STATUSES_IGNORE);
        }
      }
      EXPECT_EQ(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE), MPI_SUCCESS);
      of_world.push_back(meanwhile);
      expect_apart(of_world);
      of_part.push_back(part);
      expect_apart(of_part);
      for (std::vector<MPI_Comm>* const comms : {&of_world, &of_part}) {
        for (MPI_Comm& comm : *comms) MPI_Comm_free(&comm);
      }
    }
    MPI_Finalize();
  });
}

TEST(Duplication, BeginsWithoutTheOthers) {
  run_well({{3, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    int number = 0;
    if (rank_on(MPI_COMM_WORLD) == 0) {
      for (int i = 1; i < 3; ++i) MPI_Recv(&number, 1, MPI_INT, i, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Comm_idup(MPI_COMM_WORLD, &made, &request);
    } else {
      MPI_Comm_idup(MPI_COMM_WORLD, &made, &request);
      int flag = -1;
      MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
      EXPECT_EQ(flag, 0);
      MPI_Ssend(&number, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    }
    EXPECT_EQ(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
    expect_apart({made, MPI_COMM_WORLD});
    MPI_Comm_free(&made);
    MPI_Finalize();
  });
}

TEST(Duplication, FailsWhenNoContextIsLeft) {
  run_well({{2, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    std::vector<MPI_Comm> made;
    for (int result = MPI_SUCCESS; result == MPI_SUCCESS;) {
      MPI_Comm next = MPI_COMM_NULL;
      MPI_Request request = MPI_REQUEST_NULL;
      EXPECT_EQ(MPI_Comm_idup(MPI_COMM_WORLD, &next, &request), MPI_SUCCESS);
      result = MPI_Wait(&request, MPI_STATUS_IGNORE);
      if (result == MPI_SUCCESS) {
        made.push_back(next);
      } else {
        EXPECT_EQ(result, MPI_ERR_OTHER);
      }
    }
    EXPECT_EQ(made.size(), 4094U);  // and the two predefined ones
    MPI_Comm other = MPI_COMM_NULL;
    EXPECT_EQ(MPI_Comm_dup(MPI_COMM_WORLD, &other), MPI_ERR_OTHER);
    MPI_Comm_free(&made.back());
    EXPECT_EQ(MPI_Comm_dup(MPI_COMM_WORLD, &other), MPI_SUCCESS);
    made.back() = other;
    for (MPI_Comm& comm : made) MPI_Comm_free(&comm);
    MPI_Finalize();
  });
}

TEST_P(Intercommunicators, AreMerged) {
  run_rounds(GetParam(), [](const Known& known, const Groups& groups, std::mt19937& random) {
    const int left_high = random() % 2 == 0 ? 0 : 5;  // anything but 0 is true
    const int right_high = static_cast<int>(random() % 2);
    if (known.comm == MPI_COMM_NULL) return;
    MPI_Comm merged = MPI_COMM_NULL;
    EXPECT_EQ(MPI_Intercomm_merge(known.comm, known.is_left ? left_high : right_high, &merged), MPI_SUCCESS);
    Ranks in_order = groups.left;
    in_order.insert(in_order.end(), groups.right.begin(), groups.right.end());
    Ranks other = groups.right;
    other.insert(other.end(), groups.left.begin(), groups.left.end());
    const Ranks made = own_group(merged);
    if ((left_high != 0) == (right_high != 0)) {
      EXPECT_TRUE(made == in_order || made == other);
    } else {
      EXPECT_EQ(made, left_high != 0 ? other : in_order);
    }
    int sum = 0;
    const int one = 1;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, merged);
    EXPECT_EQ(sum, static_cast<int>(in_order.size()));
    MPI_Comm_free(&merged);
  });
}

/// Of the ranks of a group those with the color, by key and then by rank.
Ranks ranks_with(const Ranks& group, const Ranks& colors, const Ranks& keys, int color) {
  Ranks result;
  std::ranges::copy_if(group, std::back_inserter(result),
                       [&](int rank) { return colors[static_cast<std::size_t>(rank)] == color; });
  std::ranges::stable_sort(result, {}, [&](int rank) { return keys[static_cast<std::size_t>(rank)]; });
  return result;
}

TEST_P(Intercommunicators, AreSplitAndMadeOfGroups) {
  run_rounds(GetParam(), [](const Known& known, const Groups&, std::mt19937& random) {
    Ranks colors(static_cast<std::size_t>(size_on(MPI_COMM_WORLD)));  // by rank of MPI_COMM_WORLD
    Ranks keys(colors.size());
    for (int& color : colors) color = static_cast<int>(random() % 4) - 1;
    for (int& key : keys) key = static_cast<int>(random() % 3) - 1;
    if (known.comm == MPI_COMM_NULL) return;
    const auto me = static_cast<std::size_t>(known.me());
    Known part;
    EXPECT_EQ(MPI_Comm_split(known.comm, colors[me] < 0 ? MPI_UNDEFINED : colors[me], keys[me], &part.comm),
              MPI_SUCCESS);
    part.own = ranks_with(known.own, colors, keys, colors[me]);
    part.remote = ranks_with(known.remote, colors, keys, colors[me]);
    part.rank = place_in(part.own, known.me());
    EXPECT_EQ(part.comm == MPI_COMM_NULL, colors[me] < 0 || part.remote.empty());
    if (part.comm != MPI_COMM_NULL) {
      expect_is(part);
      expect_messages_pass(part);
      MPI_Comm_free(&part.comm);
    }
    // Those with color 0 or 1, which may be none.
    Ranks places;
    for (int i = 0; i < static_cast<int>(known.own.size()); ++i) {
      if (colors[static_cast<std::size_t>(known.own[static_cast<std::size_t>(i)])] % 2 == 0) places.push_back(i);
    }
    part.own.clear();
    part.remote.clear();
    const auto is_even = [&](int rank) { return colors[static_cast<std::size_t>(rank)] % 2 == 0; };
    std::ranges::copy_if(known.own, std::back_inserter(part.own), is_even);
    std::ranges::copy_if(known.remote, std::back_inserter(part.remote), is_even);
    part.rank = place_in(part.own, known.me());
    MPI_Group group = MPI_GROUP_NULL;
    MPI_Group chosen = MPI_GROUP_NULL;
    MPI_Comm_group(known.comm, &group);
    MPI_Group_incl(group, static_cast<int>(places.size()), places.data(), &chosen);
    EXPECT_EQ(MPI_Comm_create(known.comm, chosen, &part.comm), MPI_SUCCESS);
    EXPECT_EQ(part.comm == MPI_COMM_NULL, part.rank < 0 || part.remote.empty());
    if (part.comm != MPI_COMM_NULL) {
      expect_is(part);
      expect_messages_pass(part);
      MPI_Comm_free(&part.comm);
    }
    MPI_Group_free(&group);
    if (chosen != MPI_GROUP_EMPTY) MPI_Group_free(&chosen);
  });
}

// The peer communicator may be an intercommunicator itself, and all groups may be there without a communicator.
TEST_P(Intercommunicators, AreMadeInOtherWays) {
  run_rounds(GetParam(), [](const Known& known, const Groups& groups, std::mt19937&) {
    if (known.comm == MPI_COMM_NULL) return;
    Known again = known;
    MPI_Group world = MPI_GROUP_NULL;
    MPI_Group own = MPI_GROUP_NULL;
    MPI_Comm local = MPI_COMM_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, static_cast<int>(known.own.size()), known.own.data(), &own);
    EXPECT_EQ(MPI_Comm_create_from_group(own, "org.aplib.test", MPI_INFO_NULL, MPI_ERRORS_RETURN, &local), MPI_SUCCESS);
    EXPECT_EQ(own_group(local), known.own);
    EXPECT_EQ(MPI_Intercomm_create(local, 0, known.comm, 0, 9, &again.comm), MPI_SUCCESS);
    expect_is(again);
    expect_messages_pass(again);
    MPI_Comm_free(&again.comm);
    MPI_Comm_free(&local);
    const Ranks& other = known.is_left ? groups.right : groups.left;
    MPI_Group remote = MPI_GROUP_NULL;
    if (known.rank == 0) MPI_Group_incl(world, static_cast<int>(other.size()), other.data(), &remote);
    EXPECT_EQ(MPI_Intercomm_create_from_groups(own, 0, remote, 0, "org.aplib.test", MPI_INFO_NULL, MPI_ERRORS_RETURN,
                                               &again.comm),
              MPI_SUCCESS);
    expect_is(again);
    expect_messages_pass(again);
    MPI_Comm_free(&again.comm);
    if (known.rank == 0) MPI_Group_free(&remote);
    MPI_Group_free(&own);
    MPI_Group_free(&world);
  });
}

int deleted = 0;  // of the only rank that has the attribute

int count_deleted(MPI_Comm, int, void*, void*) {
  ++deleted;
  return MPI_SUCCESS;
}

/// Two ranks, or more: rank 0 and the others.
MPI_Comm first_and_others(MPI_Errhandler handler) {
  MPI_Comm local = MPI_COMM_NULL;
  MPI_Comm made = MPI_COMM_NULL;
  const int rank = rank_on(MPI_COMM_WORLD);
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? 0 : 1, rank, &local);
  MPI_Comm_set_errhandler(local, handler);
  MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, rank == 0 ? 1 : 0, 0, &made);
  MPI_Comm_free(&local);
  return made;
}

TEST(Intercommunicator, HasAttributesAndAName) {
  run_well({{2, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Comm comm = first_and_others(MPI_ERRORS_ARE_FATAL);
    if (rank_on(MPI_COMM_WORLD) == 0) {
      int key = 0;
      int flag = 0;
      void* value = nullptr;
      MPI_Comm_create_keyval(MPI_COMM_DUP_FN, count_deleted, &key, nullptr);
      MPI_Comm_set_attr(comm, key, &key);
      MPI_Comm copy = MPI_COMM_NULL;
      MPI_Comm_dup(comm, &copy);
      MPI_Comm_get_attr(copy, key, static_cast<void*>(&value), &flag);
      EXPECT_EQ(flag, 1);
      EXPECT_EQ(value, &key);
      MPI_Comm_disconnect(&copy);
      EXPECT_EQ(deleted, 1);
      MPI_Comm_delete_attr(comm, key);
      EXPECT_EQ(deleted, 2);
      MPI_Comm_free_keyval(&key);
    } else {
      MPI_Comm copy = MPI_COMM_NULL;
      MPI_Comm_dup(comm, &copy);
      MPI_Comm_free(&copy);
    }
    std::array<char, MPI_MAX_OBJECT_NAME> name{};
    int length = -1;
    MPI_Comm_get_name(comm, name.data(), &length);
    EXPECT_EQ(length, 0);
    MPI_Comm_set_name(comm, "both");
    MPI_Comm_get_name(comm, name.data(), &length);
    EXPECT_STREQ(name.data(), "both");
    MPI_Comm_free(&comm);
    EXPECT_EQ(comm, MPI_COMM_NULL);
    MPI_Finalize();
  });
}

TEST(Intercommunicator, WrongArgumentsHaveTheStandardsClasses) {
  run_well({{4, 1}, 2}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm comm = first_and_others(MPI_ERRORS_RETURN);
    const bool is_first = rank_on(MPI_COMM_WORLD) == 0;
    std::array<int, 8> one{};
    std::array<int, 8> two{};
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Group group = MPI_GROUP_NULL;
    int number = 0;
    // Ranks are those of the other group.
    EXPECT_EQ(MPI_Send(one.data(), 1, MPI_INT, is_first ? 3 : 1, 0, comm), MPI_ERR_RANK);
    EXPECT_EQ(MPI_Recv(one.data(), 1, MPI_INT, is_first ? 3 : 1, 0, comm, MPI_STATUS_IGNORE), MPI_ERR_RANK);
    EXPECT_EQ(MPI_Bcast(one.data(), 1, MPI_INT, is_first ? 3 : 1, comm), MPI_ERR_ROOT);
    EXPECT_EQ(MPI_Reduce(one.data(), two.data(), 1, MPI_INT, MPI_SUM, -7, comm), MPI_ERR_ROOT);
    EXPECT_EQ(MPI_Gather(one.data(), 1, MPI_INT, two.data(), 1, MPI_INT, is_first ? 3 : 1, comm), MPI_ERR_ROOT);
    EXPECT_EQ(MPI_Bcast(MPI_IN_PLACE, 1, MPI_INT, 0, comm), MPI_ERR_BUFFER);
    EXPECT_EQ(MPI_Allreduce(MPI_IN_PLACE, two.data(), 1, MPI_INT, MPI_SUM, comm), MPI_ERR_BUFFER);
    EXPECT_EQ(MPI_Allreduce(one.data(), one.data(), 1, MPI_INT, MPI_SUM, comm), MPI_ERR_BUFFER);
    EXPECT_EQ(MPI_Allreduce(one.data(), two.data(), 1, MPI_DOUBLE, MPI_BAND, comm), MPI_ERR_OP);
    EXPECT_EQ(MPI_Allgather(MPI_IN_PLACE, 1, MPI_INT, two.data(), 1, MPI_INT, comm), MPI_ERR_BUFFER);
    EXPECT_EQ(MPI_Allgather(one.data(), -1, MPI_INT, two.data(), 1, MPI_INT, comm), MPI_ERR_COUNT);
    EXPECT_EQ(MPI_Alltoall(one.data(), 1, MPI_DATATYPE_NULL, two.data(), 1, MPI_INT, comm), MPI_ERR_TYPE);
    EXPECT_EQ(MPI_Reduce_scatter(one.data(), two.data(), nullptr, MPI_INT, MPI_SUM, comm), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Scan(one.data(), two.data(), 1, MPI_INT, MPI_SUM, comm), MPI_ERR_COMM);
    EXPECT_EQ(MPI_Exscan(one.data(), two.data(), 1, MPI_INT, MPI_SUM, comm), MPI_ERR_COMM);
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    EXPECT_EQ(MPI_Comm_create_group(comm, group, 0, &made), MPI_ERR_COMM);
    EXPECT_EQ(MPI_Comm_create(comm, group, &made), MPI_ERR_GROUP);  // it has ranks of the other group
    EXPECT_EQ(MPI_Comm_create(comm, MPI_GROUP_NULL, &made), MPI_ERR_GROUP);
    EXPECT_EQ(MPI_Intercomm_create(comm, 0, MPI_COMM_WORLD, 0, 0, &made), MPI_ERR_COMM);
    EXPECT_EQ(MPI_Intercomm_create(MPI_COMM_WORLD, 4, MPI_COMM_WORLD, 0, 0, &made), MPI_ERR_RANK);
    EXPECT_EQ(MPI_Intercomm_create(MPI_COMM_WORLD, 0, MPI_COMM_WORLD, 0, 0, nullptr), MPI_ERR_ARG);
    // What only the leader can see, all are told.
    EXPECT_EQ(MPI_Intercomm_create(MPI_COMM_WORLD, 2, MPI_COMM_WORLD, 4, 0, &made), MPI_ERR_RANK);
    EXPECT_EQ(MPI_Intercomm_create(MPI_COMM_WORLD, 2, MPI_COMM_NULL, 0, 0, &made), MPI_ERR_COMM);
    EXPECT_EQ(MPI_Intercomm_create(MPI_COMM_WORLD, 2, MPI_COMM_WORLD, 0, -1, &made), MPI_ERR_TAG);
    // The groups have ranks in common.
    EXPECT_EQ(MPI_Intercomm_create(MPI_COMM_WORLD, 1, MPI_COMM_WORLD, 1, 0, &made), MPI_ERR_COMM);
    // Ranks of a group disagree: those of the other one are told, too.
    EXPECT_EQ(MPI_Intercomm_merge(comm, rank_on(comm) == 1 ? 1 : 0, &made), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Intercomm_merge(MPI_COMM_WORLD, 0, &made), MPI_ERR_COMM);
    EXPECT_EQ(MPI_Comm_remote_size(MPI_COMM_WORLD, &number), MPI_ERR_COMM);
    EXPECT_EQ(MPI_Comm_remote_group(MPI_COMM_SELF, &group), MPI_ERR_COMM);
    const std::string long_tag(MPI_MAX_STRINGTAG_LEN, 'x');
    EXPECT_EQ(MPI_Comm_create_from_group(group, long_tag.c_str(), MPI_INFO_NULL, MPI_ERRORS_RETURN, &made),
              MPI_ERR_ARG);
    EXPECT_EQ(MPI_Intercomm_create_from_groups(group, 7, group, 0, "x", MPI_INFO_NULL, MPI_ERRORS_RETURN, &made),
              MPI_ERR_RANK);
    MPI_Group_free(&group);
    // All of that has left nothing behind.
    EXPECT_EQ(MPI_Barrier(comm), MPI_SUCCESS);
    EXPECT_EQ(MPI_Intercomm_merge(comm, is_first ? 1 : 0, &made), MPI_SUCCESS);
    EXPECT_EQ(size_on(made), 4);
    MPI_Comm_free(&made);
    MPI_Comm_free(&comm);
    MPI_Finalize();
  });
}

TEST(Intercommunicator, ErrorsSayWhatItIs) {
  const Report report = run({{3, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Comm comm = first_and_others(MPI_ERRORS_ARE_FATAL);
    int one = 1;
    if (rank_on(MPI_COMM_WORLD) == 0) {
      MPI_Send(&one, 1, MPI_INT, 2, 0, comm);
    } else {
      static_cast<void>(receive());  // ends with the machine
    }
  });
  EXPECT_EQ(report.reason,
            "cell 0 task 0: MPI_Send: dest is 2; the remote group has ranks 0..1, and there is MPI_PROC_NULL "
            "(MPI_ERR_RANK on an intercommunicator of 1 and 2 ranks)");
}

TEST(SplitByType, GivesWhatTheStandardSays) {
  run_well({{5, 1}, 2}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    const int rank = rank_on(MPI_COMM_WORLD);
    MPI_Info info = MPI_INFO_NULL;
    MPI_Info_create(&info);
    const auto expect_ranks = [&](int type, int key, MPI_Info hints, const Ranks& ranks) {
      MPI_Comm made = MPI_COMM_SELF;
      EXPECT_EQ(MPI_Comm_split_type(MPI_COMM_WORLD, type, key, hints, &made), MPI_SUCCESS);
      EXPECT_EQ(made == MPI_COMM_NULL, ranks.empty());
      if (made == MPI_COMM_NULL) return;
      EXPECT_EQ(own_group(made), ranks);
      MPI_Comm_free(&made);
    };
    // The cells of a process share its memory.
    expect_ranks(MPI_COMM_TYPE_SHARED, -rank, MPI_INFO_NULL, {4, 3, 2, 1, 0});
    expect_ranks(rank == 2 ? MPI_UNDEFINED : MPI_COMM_TYPE_SHARED, 0, info, rank == 2 ? Ranks{} : Ranks{0, 1, 3, 4});
    expect_ranks(MPI_COMM_TYPE_HW_UNGUIDED, 0, info, {});
    for (const int type : {MPI_COMM_TYPE_HW_GUIDED, MPI_COMM_TYPE_RESOURCE_GUIDED}) {
      expect_ranks(type, 0, MPI_INFO_NULL, {});
      MPI_Info_set(info, "other", "mpi_shared_memory");
      expect_ranks(type, 0, info, {});
      MPI_Info_set(info, "mpi_hw_resource_type", "L3Cache");
      expect_ranks(type, 0, info, {});
      MPI_Info_set(info, "mpi_hw_resource_type", "mpi_shared_memory");
      expect_ranks(type, 0, info, {0, 1, 2, 3, 4});
      MPI_Info_delete(info, "mpi_hw_resource_type");
    }
    MPI_Info_set(info, "mpi_pset_name", "mpi://SELF");
    expect_ranks(MPI_COMM_TYPE_RESOURCE_GUIDED, 0, info, {rank});
    MPI_Info_set(info, "mpi_pset_name", "mpi://WORLD");
    expect_ranks(MPI_COMM_TYPE_RESOURCE_GUIDED, rank % 2, info, {0, 2, 4, 1, 3});
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Info_set(info, "mpi_hw_resource_type", "mpi_shared_memory");
    EXPECT_EQ(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_RESOURCE_GUIDED, 0, info, &made), MPI_ERR_INFO);
    EXPECT_EQ(MPI_Comm_split_type(MPI_COMM_WORLD, 2, 0, MPI_INFO_NULL, &made), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Comm_split_type(MPI_COMM_WORLD, rank == 1 ? MPI_COMM_TYPE_HW_GUIDED : MPI_COMM_TYPE_SHARED, 0,
                                  MPI_INFO_NULL, &made),
              MPI_ERR_ARG);
    MPI_Info_free(&info);
    MPI_Finalize();
  });
}

TEST(CommunicatorHints, AreKept) {
  run_well({{1, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Info info = MPI_INFO_NULL;
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_assert_no_any_tag", "true");
    MPI_Info_set(info, "mpi_assert_exact_length", "perhaps");
    MPI_Info_set(info, "unknown", "true");
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &made);
    const auto expect_hint = [&](const char* key, const char* value) {
      MPI_Info used = MPI_INFO_NULL;
      MPI_Comm_get_info(made, &used);
      std::array<char, 8> text{};
      int length = static_cast<int>(text.size());
      int flag = -1;
      MPI_Info_get_string(used, key, &length, text.data(), &flag);
      EXPECT_EQ(flag, value != nullptr ? 1 : 0) << key;
      if (value != nullptr) {
        EXPECT_STREQ(text.data(), value) << key;
      }
      MPI_Info_free(&used);
    };
    expect_hint("mpi_assert_no_any_tag", "true");
    expect_hint("mpi_assert_exact_length", "false");
    expect_hint("unknown", nullptr);
    MPI_Info_set(info, "mpi_assert_no_any_tag", "false");
    MPI_Comm_set_info(made, info);
    expect_hint("mpi_assert_no_any_tag", "false");
    MPI_Info_free(&info);
    MPI_Comm_free(&made);
    MPI_Finalize();
  });
}

}  // namespace
}  // namespace aplib
