/* SPDX-License-Identifier: MIT */
/* Collective calls, operations, communicators, groups and topologies. */
#include "check.h"

static MPI_Datatype expected_type;
static void add(void* in, void* inout, int* count, MPI_Datatype* type) {
  int i;
  if (*type != expected_type) ++errors;
  for (i = 0; i < *count; ++i) ((int*)inout)[i] += ((int*)in)[i];
}

static void reductions(void) {
  const int sum = size * (size - 1) / 2;
  int value = rank, got = -1, all[64], i;
  double real = rank, largest = -1;
  struct {
    double value;
    int index;
  } pair = {(double)rank, rank}, best;
  MPI_Op op;
  MPI_Request request;
  MPI_Allreduce(&value, &got, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  CHECK(got == sum);
  got = rank;
  MPI_Allreduce(MPI_IN_PLACE, &got, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  CHECK(got == size - 1);
  MPI_Reduce(rank == 0 ? MPI_IN_PLACE : &real, rank == 0 ? &real : &largest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) CHECK(real == size - 1);
  MPI_Allreduce(&pair, &best, 1, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
  CHECK(best.index == size - 1);
  MPI_Op_create(add, 1, &op);
  expected_type = MPI_INT;
  MPI_Allreduce(&value, &got, 1, MPI_INT, op, MPI_COMM_WORLD);
  CHECK(got == sum);
  MPI_Type_contiguous(1, MPI_INT, &expected_type);
  MPI_Type_commit(&expected_type);
  MPI_Iallreduce(&value, &got, 1, expected_type, op, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  CHECK(got == sum);
  MPI_Type_free(&expected_type);
  CHECK(expected_type == MPI_DATATYPE_NULL);
  MPI_Op_free(&op);
  CHECK(op == MPI_OP_NULL);
  MPI_Allgather(&value, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
  for (i = 0; i < size; ++i) CHECK(all[i] == i);
  MPI_Scan(&value, &got, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  CHECK(got == rank * (rank + 1) / 2);
}

static void types_of_each(void) {
  int counts[64], places[64], sent[64], got[64], i;
  MPI_Datatype types[64];
  MPI_Request request;
  for (i = 0; i < size; ++i) {
    counts[i] = 1;
    places[i] = (int)sizeof(int) * i;
    types[i] = MPI_INT;
    sent[i] = 100 * rank + i;
    got[i] = -1;
  }
  MPI_Alltoallw(sent, counts, places, types, got, counts, places, types, MPI_COMM_WORLD);
  for (i = 0; i < size; ++i) CHECK(got[i] == 100 * i + rank);
  MPI_Ialltoallw(sent, counts, places, types, got, counts, places, types, MPI_COMM_WORLD, &request);
  for (i = 0; i < size; ++i) types[i] = MPI_DATATYPE_NULL;
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  for (i = 0; i < size; ++i) CHECK(got[i] == 100 * i + rank);
}

static void communicators(void) {
  MPI_Comm half, copy, none, shared;
  MPI_Group world, odd, nobody;
  MPI_Request request;
  int result = -1, part = -1, inside = -1, first = 0, length = 0, is_inter = 1;
  int ranks[3] = {0, MPI_PROC_NULL, 0}, translated[3] = {7, 7, 7};
  char name[MPI_MAX_OBJECT_NAME], long_name[2 * MPI_MAX_OBJECT_NAME];
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Comm_rank(half, &part);
  CHECK(part == rank / 2);
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? 0 : MPI_UNDEFINED, 0, &none);
  CHECK((none == MPI_COMM_NULL) == (rank != 0));
  if (rank == 0) {
    MPI_Comm_compare(MPI_COMM_SELF, none, &result);
    CHECK(result == MPI_CONGRUENT);
    MPI_Comm_free(&none);
  }
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MPI_Comm_compare(MPI_COMM_WORLD, copy, &result);
  CHECK(result == MPI_CONGRUENT);
  MPI_Comm_compare(MPI_COMM_WORLD, MPI_COMM_WORLD, &result);
  CHECK(result == MPI_IDENT);
  MPI_Comm_compare(MPI_COMM_SELF, MPI_COMM_WORLD, &result);
  CHECK(result == (size == 1 ? MPI_CONGRUENT : MPI_UNEQUAL));
  MPI_Comm_test_inter(copy, &is_inter);
  CHECK(!is_inter);
  MPI_Comm_set_name(copy, "a name");
  MPI_Comm_get_name(copy, name, &length);
  CHECK(strcmp(name, "a name") == 0 && length == 6);
  memset(long_name, 'x', sizeof long_name);
  long_name[sizeof long_name - 1] = 0;
  MPI_Comm_set_name(copy, long_name);
  MPI_Comm_get_name(copy, name, &length);
  CHECK(strlen(name) == MPI_MAX_OBJECT_NAME - 1 && length == MPI_MAX_OBJECT_NAME - 1);
  MPI_Comm_free(&copy);
  CHECK(copy == MPI_COMM_NULL);
  MPI_Comm_idup(half, &copy, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Barrier(copy);
  MPI_Comm_free(&copy);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &shared);
  MPI_Barrier(shared);
  MPI_Comm_free(&shared);

  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, 1, &first, &odd);
  MPI_Group_rank(odd, &inside);
  CHECK(inside == (rank == 0 ? 0 : MPI_UNDEFINED));
  MPI_Group_translate_ranks(odd, 2, ranks, world, translated);
  CHECK(translated[0] == 0 && translated[1] == MPI_PROC_NULL);
  MPI_Group_difference(odd, world, &nobody);
  MPI_Group_compare(nobody, MPI_GROUP_EMPTY, &result);
  CHECK(result == MPI_IDENT);
  MPI_Group_compare(world, odd, &result);
  CHECK(result == (size == 1 ? MPI_IDENT : MPI_UNEQUAL));
  MPI_Comm_create(MPI_COMM_WORLD, odd, &copy);
  CHECK((copy == MPI_COMM_NULL) == (rank != 0));
  if (copy != MPI_COMM_NULL) MPI_Comm_free(&copy);
  MPI_Group_free(&odd);
  MPI_Group_free(&world);
  CHECK(world == MPI_GROUP_NULL);
  MPI_Comm_free(&half);
  CHECK(MPI_Comm_f2c(MPI_Comm_c2f(MPI_COMM_WORLD)) == MPI_COMM_WORLD);
  CHECK(MPI_Type_f2c(MPI_Type_c2f(MPI_DOUBLE)) == MPI_DOUBLE);
}

static void topologies(void) {
  int dims = size, periods = 0, kind = -1, source = 99, dest = 99, degrees[2], weighted = -1;
  int before = rank - 1, after = rank + 1, sources[1], dests[1];
  MPI_Comm line, ring;
  MPI_Topo_test(MPI_COMM_WORLD, &kind);
  CHECK(kind == MPI_UNDEFINED);
  MPI_Cart_create(MPI_COMM_WORLD, 1, &dims, &periods, 0, &line);
  MPI_Topo_test(line, &kind);
  CHECK(kind == MPI_CART);
  MPI_Cart_shift(line, 0, 1, &source, &dest);
  CHECK(source == (rank == 0 ? MPI_PROC_NULL : before) && dest == (after == size ? MPI_PROC_NULL : after));
  {
    int sent[2] = {rank, rank}, got[2] = {-1, -1}, counts[2] = {1, 1};
    MPI_Aint places[2] = {0, sizeof(int)};
    MPI_Datatype types[2] = {MPI_INT, MPI_INT};
    MPI_Neighbor_alltoallw(sent, counts, places, types, got, counts, places, types, line);
    CHECK(got[0] == (rank == 0 ? -1 : before) && got[1] == (after == size ? -1 : after));
  }
  MPI_Comm_free(&line);
  before = (rank + size - 1) % size;
  after = (rank + 1) % size;
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &before, MPI_UNWEIGHTED, 1, &after, MPI_UNWEIGHTED, MPI_INFO_NULL,
                                 0, &ring);
  MPI_Topo_test(ring, &kind);
  CHECK(kind == MPI_DIST_GRAPH);
  MPI_Dist_graph_neighbors_count(ring, degrees, degrees + 1, &weighted);
  CHECK(degrees[0] == 1 && degrees[1] == 1 && !weighted);
  MPI_Dist_graph_neighbors(ring, 1, sources, MPI_UNWEIGHTED, 1, dests, MPI_UNWEIGHTED);
  CHECK(sources[0] == before && dests[0] == after);
  MPI_Comm_free(&ring);
}

static void intercommunicators(void) {
  MPI_Comm half, between, all;
  int is_inter = 0, got = -1, sum = 0, count = 0;
  if (size < 2) return;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 5, &between);
  MPI_Comm_test_inter(between, &is_inter);
  CHECK(is_inter);
  got = rank == 0 ? 42 : -1;
  MPI_Bcast(&got, 1, MPI_INT, rank == 0 ? MPI_ROOT : rank % 2 == 0 ? MPI_PROC_NULL : 0, between);
  CHECK(got == (rank == 0 || rank % 2 == 1 ? 42 : -1));
  MPI_Intercomm_merge(between, rank % 2, &all);
  count = 1;
  MPI_Allreduce(&count, &sum, 1, MPI_INT, MPI_SUM, all);
  CHECK(sum == size);
  MPI_Comm_free(&all);
  MPI_Comm_free(&between);
  MPI_Comm_free(&half);
}

int main(int argc, char** argv) {
  start(&argc, &argv);
  reductions();
  types_of_each();
  communicators();
  topologies();
  intercommunicators();
  return finish();
}
