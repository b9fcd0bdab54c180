// SPDX-License-Identifier: MIT
// How communicators are made, told apart and freed: splits against a naive model.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <functional>
#include <random>
#include <vector>

#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

/// Passes a number round the communicator, from and to its neighbours alone.
void expect_works(MPI_Comm comm, int value) {
  int rank = -1;
  int size = -1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  const int out = value * 1000 + rank;
  int in = -1;
  MPI_Status status{};
  MPI_Sendrecv(&out, 1, MPI_INT, (rank + 1) % size, 5, &in, 1, MPI_INT, MPI_ANY_SOURCE, 5, comm, &status);
  EXPECT_EQ(in, value * 1000 + (rank + size - 1) % size);
  EXPECT_EQ(status.MPI_SOURCE, (rank + size - 1) % size);
}

std::vector<int> world_ranks_of(MPI_Comm comm) {
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Comm_group(comm, &group);
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  int size = 0;
  MPI_Group_size(group, &size);
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::vector<int> result(ranks.size());
  for (int i = 0; i < size; ++i) ranks[static_cast<std::size_t>(i)] = i;
  MPI_Group_translate_ranks(group, size, ranks.data(), world, result.data());
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  return result;
}

/// The program with its rank and the number of ranks.
void run_in_world(const Shape& shape, const std::function<void(int rank, int size)>& program) {
  run_well(shape, [&program] {
    MPI_Init(nullptr, nullptr);
    int rank = -1;
    int size = -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    program(rank, size);
    MPI_Finalize();
  });
}

class Communicators : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(, Communicators,
                         testing::Values(Shape{{1, 1}, 1}, Shape{{7, 1}, 1}, Shape{{8, 1}, 2},
                                         Shape{{5, 1}, Options::threads_per_cell}),
                         shape_name);

TEST_P(Communicators, SplitsAgreeWithTheModel) {
  const unsigned seed = std::random_device{}();
  run_in_world(GetParam(), [seed](int rank, int size) {
    std::mt19937 random(seed);  // the same for all
    for (int round = 0; round < 50; ++round) {
      std::vector<int> colors(static_cast<std::size_t>(size));
      std::vector<int> keys(colors.size());
      for (int& color : colors) color = static_cast<int>(random() % 4) - 1;
      for (int& key : keys) key = static_cast<int>(random() % 3) - 1;
      const int own = colors[static_cast<std::size_t>(rank)];
      std::vector<int> model;
      for (int i = 0; i < size; ++i) {
        if (colors[static_cast<std::size_t>(i)] == own) model.push_back(i);
      }
      std::ranges::stable_sort(model, {}, [&](int i) { return keys[static_cast<std::size_t>(i)]; });
      MPI_Comm made = MPI_COMM_NULL;
      EXPECT_EQ(
          MPI_Comm_split(MPI_COMM_WORLD, own < 0 ? MPI_UNDEFINED : own, keys[static_cast<std::size_t>(rank)], &made),
          MPI_SUCCESS);
      EXPECT_EQ(made == MPI_COMM_NULL, own < 0);
      if (own >= 0) {
        EXPECT_EQ(world_ranks_of(made), model) << "seed " << seed;
        expect_works(made, round);
        MPI_Comm_free(&made);
        EXPECT_EQ(made, MPI_COMM_NULL);
      }
    }
  });
}

// More often than there are contexts; some stay, so the ranks' contexts in use differ.
TEST_P(Communicators, ContextsAreUsedAgain) {
  run_in_world(GetParam(), [](int rank, int) {
    std::vector<MPI_Comm> kept;
    const int rounds = static_cast<int>(scaled(6000, 60));
    for (int round = 0; round < rounds; ++round) {
      MPI_Comm made = MPI_COMM_NULL;
      MPI_Comm_split(MPI_COMM_WORLD, round % 3 == 0 ? rank % 2 : 0, 0, &made);
      if (round % 100 == rank) {
        kept.push_back(made);
      } else {
        MPI_Comm_free(&made);
      }
    }
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &made);
    expect_works(made, 1);
    MPI_Comm_free(&made);
  });
}

// A message of one communicator is never received on another one, and one that was left behind is not found later.
TEST_P(Communicators, MessagesStayInTheirs) {
  run_in_world(GetParam(), [](int rank, int size) {
    std::array<MPI_Comm, 3> comms{};
    for (MPI_Comm& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    const int next = (rank + 1) % size;
    for (int i = 0; i < 3; ++i) MPI_Send(&i, 1, MPI_INT, next, 0, comms[static_cast<std::size_t>(i)]);
    for (int i = 2; i >= 0; --i) {
      int got = -1;
      MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comms[static_cast<std::size_t>(i)], MPI_STATUS_IGNORE);
      EXPECT_EQ(got, i);
    }
    int compared = -1;
    MPI_Comm_compare(comms[0], comms[1], &compared);
    EXPECT_EQ(compared, MPI_CONGRUENT);
    // A receive that is open when its communicator is freed still ends.
    MPI_Request request = MPI_REQUEST_NULL;
    int late = -1;
    MPI_Irecv(&late, 1, MPI_INT, MPI_ANY_SOURCE, 1, comms[0], &request);
    MPI_Send(&rank, 1, MPI_INT, next, 1, comms[0]);
    MPI_Comm_free(&comms[0]);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    EXPECT_EQ(late, (rank + size - 1) % size);
    MPI_Comm_free(&comms[1]);
    MPI_Comm_free(&comms[2]);
  });
}

TEST_P(Communicators, AreMadeOfGroups) {
  run_in_world(GetParam(), [](int rank, int size) {
    MPI_Group world = MPI_GROUP_NULL;
    MPI_Group odd = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    std::vector<int> odds;
    for (int i = size - 1; i >= 0; --i) {
      if (i % 2 == 1) odds.push_back(i);
    }
    MPI_Group_incl(world, static_cast<int>(odds.size()), odds.data(), &odd);
    MPI_Comm made = MPI_COMM_SELF;
    MPI_Comm_create(MPI_COMM_WORLD, odd, &made);
    EXPECT_EQ(made != MPI_COMM_NULL, rank % 2 == 1);
    if (rank % 2 == 1) {
      EXPECT_EQ(world_ranks_of(made), odds);
      expect_works(made, 3);
      MPI_Comm only = MPI_COMM_NULL;
      MPI_Comm_create_group(MPI_COMM_WORLD, odd, 11, &only);  // the others do not take part
      expect_works(only, 4);
      MPI_Comm_free(&only);
      MPI_Comm_free(&made);
    }
    MPI_Group_free(&odd);
    MPI_Group_free(&world);
  });
}

int copies = 0;  // of the only rank

int copy_twice(MPI_Comm, int, void* state, void* value, void* copied, int* flag) {
  ++copies;
  *static_cast<void**>(copied) = static_cast<char*>(value) + 1;
  *flag = state == nullptr ? 1 : 0;
  return MPI_SUCCESS;
}

TEST(Communicator, ADuplicateHasTheAttributesThatTheirFunctionsCopy) {
  run_in_world({{1, 1}, 1}, [](int, int) {
    int key = 0;
    std::array<char, 2> place{};
    MPI_Comm_create_keyval(copy_twice, MPI_COMM_NULL_DELETE_FN, &key, nullptr);
    MPI_Comm_set_attr(MPI_COMM_WORLD, key, place.data());
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &made);
    EXPECT_EQ(copies, 1);
    void* value = nullptr;
    int flag = 0;
    MPI_Comm_get_attr(made, key, static_cast<void*>(&value), &flag);
    EXPECT_EQ(flag, 1);
    EXPECT_EQ(value, &place[1]);
    MPI_Comm_free(&made);
    MPI_Comm_free_keyval(&key);
  });
}

TEST(Communicator, WrongUsesAreRefused) {
  run_in_world({{3, 1}, 2}, [](int, int) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm world = MPI_COMM_WORLD;
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Group group = MPI_GROUP_NULL;
    int size = 0;
    EXPECT_EQ(MPI_Comm_free(&world), MPI_ERR_COMM);
    EXPECT_EQ(MPI_Comm_split(MPI_COMM_WORLD, -5, 0, &made), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Comm_remote_size(MPI_COMM_WORLD, &size), MPI_ERR_COMM);
    EXPECT_EQ(MPI_Comm_remote_group(MPI_COMM_WORLD, &group), MPI_ERR_COMM);
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    EXPECT_EQ(MPI_Comm_create(MPI_COMM_SELF, group, &made), MPI_ERR_GROUP);
    MPI_Group_free(&group);
    MPI_Comm_dup(MPI_COMM_SELF, &made);
    MPI_Comm_free(&made);
    EXPECT_EQ(MPI_Comm_free(&made), MPI_ERR_COMM);
  });
}

TEST(EmptyGroups, MakeNoCommunicator) {
  run_well({{2, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    const auto make = [](MPI_Group local, MPI_Group remote) {
      MPI_Comm made = MPI_COMM_WORLD;
      EXPECT_EQ(MPI_Intercomm_create_from_groups(local, 0, remote, 0, "x", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &made),
                MPI_SUCCESS);
      return made;
    };
    MPI_Comm made = MPI_COMM_WORLD;
    EXPECT_EQ(MPI_Comm_create_from_group(MPI_GROUP_EMPTY, "x", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &made),
              MPI_SUCCESS);
    EXPECT_EQ(made, MPI_COMM_NULL);
    EXPECT_EQ(make(all, MPI_GROUP_EMPTY), MPI_COMM_NULL);
    EXPECT_EQ(make(MPI_GROUP_EMPTY, all), MPI_COMM_NULL);
    MPI_Group_free(&all);
    MPI_Finalize();
  });
}

}  // namespace
}  // namespace aplib
