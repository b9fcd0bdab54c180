/* SPDX-License-Identifier: MIT */
/* All collectives, blocking, nonblocking and persistent, with random counts, types and roots against a naive
   computation, first of all ranks, then of random groups of them. Every rank knows what every rank gives. Argument:
   seed. Rank 0 says "No Errors". */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { rounds = 40, ranks_max = 40, large = 40000, large_ranks_max = 9 };

static unsigned state;
static MPI_Comm comm;
static int size, rank, errors;
static unsigned calls;

/* The three forms of a call take turns. */
#define CALL(name, nonblocking, ...)                           \
  do {                                                         \
    MPI_Request request;                                       \
    if (calls++ % 3 == 0) {                                    \
      MPI_##name(__VA_ARGS__);                                 \
    } else if (calls % 3 == 0) {                               \
      MPI_##nonblocking(__VA_ARGS__, &request);                \
      MPI_Wait(&request, MPI_STATUS_IGNORE);                   \
    } else {                                                   \
      MPI_##name##_init(__VA_ARGS__, MPI_INFO_NULL, &request); \
      MPI_Start(&request);                                     \
      MPI_Wait(&request, MPI_STATUS_IGNORE);                   \
      MPI_Request_free(&request);                              \
    }                                                          \
  } while (0)

static unsigned next(void) {
  state = state * 1664525u + 1013904223u;
  return state >> 8;
}

/* Element i of what `from` gives to `to` in this round. */
static int value(unsigned round, int from, int to, int i) {
  unsigned x = round * 2654435761u ^ (unsigned)from * 40503u ^ (unsigned)to * 69069u ^ (unsigned)i * 2246822519u;
  return (int)((x ^ x >> 15) & 0xffff);
}

static void check(int good, const char* what, unsigned round) {
  if (good) return;
  if (errors++ < 5) fprintf(stderr, "rank %d of %d: %s is wrong in round %u\n", rank, size, what, round);
}

/* Elements are every `gap`-th int: gap 1 is MPI_INT, gap 2 a type with a hole. */
static MPI_Datatype types[3];

static int* make(int elements) {
  size_t count = (size_t)(elements > 0 ? elements : 1) * 2, i;
  int* memory = malloc(count * sizeof(int));
  for (i = 0; i < count; ++i) memory[i] = -7;
  return memory;
}

static void fill(int* buffer, int first, int count, int gap, unsigned round, int from, int to) {
  int i;
  for (i = 0; i < count; ++i) buffer[(first + i) * gap] = value(round, from, to, i);
}

static void expect(const int* buffer, int first, int count, int gap, unsigned round, int from, int to,
                   const char* what) {
  int i;
  for (i = 0; i < count; ++i) {
    check(buffer[(first + i) * gap] == value(round, from, to, i), what, round);
    if (gap == 2) check(buffer[(first + i) * gap + 1] == -7, "a hole", round);
  }
}

/* Calls whose blocks all have `count` elements. */
static void move_equal(unsigned round, int count, int give, int take, int root) {
  int i, *in = make(count * size), *out = make(count * size);
  if (rank == root) fill(in, 0, count, give, round, root, 0);
  CALL(Bcast, Ibcast, in, count, types[give], root, comm);
  expect(in, 0, count, give, round, root, 0, "MPI_Bcast");

  fill(in, 0, count, give, round, rank, 1);
  CALL(Gather, Igather, in, count, types[give], out, count, types[take], root, comm);
  if (rank == root)
    for (i = 0; i < size; ++i) expect(out, i * count, count, take, round, i, 1, "MPI_Gather");
  fill(in, 0, count, give, round, rank, 3);
  CALL(Allgather, Iallgather, in, count, types[give], out, count, types[take], comm);
  for (i = 0; i < size; ++i) expect(out, i * count, count, take, round, i, 3, "MPI_Allgather");
  for (i = 0; i < size; ++i) fill(out, i * count, count, take, round, rank, 5 + i);
  CALL(Scatter, Iscatter, out, count, types[take], in, count, types[give], root, comm);
  expect(in, 0, count, give, round, root, 5 + rank, "MPI_Scatter");
  for (i = 0; i < size; ++i) fill(in, i * count, count, give, round, rank, i);
  CALL(Alltoall, Ialltoall, in, count, types[give], out, count, types[take], comm);
  for (i = 0; i < size; ++i) expect(out, i * count, count, take, round, i, rank, "MPI_Alltoall");
  free(out);
  free(in);
}

/* The same with MPI_IN_PLACE. */
static void move_in_place(unsigned round, int count, int give, int take, int root) {
  int i, *in = make(count), *out = make(count * size);
  fill(in, 0, count, give, round, rank, 2);
  fill(out, rank * count, count, take, round, rank, 2);
  if (rank == root) {
    CALL(Gather, Igather, MPI_IN_PLACE, -1, MPI_DATATYPE_NULL, out, count, types[take], root, comm);
    for (i = 0; i < size; ++i) expect(out, i * count, count, take, round, i, 2, "MPI_Gather in place");
  } else {
    CALL(Gather, Igather, in, count, types[give], NULL, 0, MPI_DATATYPE_NULL, root, comm);
  }
  fill(out, rank * count, count, take, round, rank, 4);
  CALL(Allgather, Iallgather, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, count, types[take], comm);
  for (i = 0; i < size; ++i) expect(out, i * count, count, take, round, i, 4, "MPI_Allgather in place");
  for (i = 0; i < size; ++i) fill(out, i * count, count, take, round, rank, 5 + i);
  if (rank == root) {
    CALL(Scatter, Iscatter, out, count, types[take], MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, root, comm);
    expect(out, rank * count, count, take, round, root, 5 + rank, "MPI_Scatter in place");
  } else {
    CALL(Scatter, Iscatter, NULL, 0, MPI_DATATYPE_NULL, in, count, types[give], root, comm);
    expect(in, 0, count, give, round, root, 5 + rank, "MPI_Scatter in place");
  }
  for (i = 0; i < size; ++i) fill(out, i * count, count, take, round + 1, rank, i);
  CALL(Alltoall, Ialltoall, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, count, types[take], comm);
  for (i = 0; i < size; ++i) expect(out, i * count, count, take, round + 1, i, rank, "MPI_Alltoall in place");
  free(out);
  free(in);
}

/* Rank i gives (i + 2 * j + round) % 5 elements to rank j. */
static void move_matrix(unsigned round, int give, int take) {
  int counts[ranks_max], places[ranks_max], back[ranks_max], back_places[ranks_max];
  int bytes[ranks_max], back_bytes[ranks_max], total = 0, back_total = 0, i, *in, *out;
  MPI_Datatype give_types[ranks_max], take_types[ranks_max];
  for (i = 0; i < size; ++i) {
    counts[i] = (int)((unsigned)(rank + 2 * i) + round) % 5;
    back[i] = (int)((unsigned)(i + 2 * rank) + round) % 5;
    places[i] = total + 1;
    back_places[i] = back_total + i;
    total += counts[i] + 1;
    back_total += back[i] + 1;
    bytes[i] = places[i] * give * (int)sizeof(int);
    back_bytes[i] = back_places[i] * take * (int)sizeof(int);
    give_types[i] = types[give];
    take_types[i] = types[take];
  }
  in = make(total + 1);
  out = make(back_total + size);
  for (i = 0; i < size; ++i) fill(in, places[i], counts[i], give, round, rank, i);
  CALL(Alltoallv, Ialltoallv, in, counts, places, types[give], out, back, back_places, types[take], comm);
  for (i = 0; i < size; ++i) expect(out, back_places[i], back[i], take, round, i, rank, "MPI_Alltoallv");
  for (i = 0; i < (back_total + size) * 2; ++i) out[i] = -7;
  CALL(Alltoallw, Ialltoallw, in, counts, bytes, give_types, out, back, back_bytes, take_types, comm);
  for (i = 0; i < size; ++i) expect(out, back_places[i], back[i], take, round, i, rank, "MPI_Alltoallw");
  free(in);
  free(out);
}

/* Rank i has (i + round) % 5 elements. */
static void move_ragged(unsigned round, int give, int take, int root) {
  int mine = (int)((unsigned)rank + round) % 5, all[ranks_max], places[ranks_max], end = 0, i, *whole, *part;
  for (i = 0; i < size; ++i) {
    all[i] = (int)((unsigned)i + round) % 5;
    places[i] = end + i % 2;
    end += all[i] + 1;
  }
  whole = make(end + 1);
  part = make(mine);
  fill(part, 0, mine, give, round, rank, 9);
  CALL(Gatherv, Igatherv, part, mine, types[give], whole, all, places, types[take], root, comm);
  if (rank == root)
    for (i = 0; i < size; ++i) expect(whole, places[i], all[i], take, round, i, 9, "MPI_Gatherv");
  for (i = 0; i < size; ++i) fill(whole, places[i], all[i], take, round, rank, i);
  CALL(Scatterv, Iscatterv, whole, all, places, types[take], part, mine, types[give], root, comm);
  expect(part, 0, mine, give, round, root, rank, "MPI_Scatterv");
  fill(part, 0, mine, give, round, rank, 11);
  CALL(Allgatherv, Iallgatherv, part, mine, types[give], whole, all, places, types[take], comm);
  for (i = 0; i < size; ++i) expect(whole, places[i], all[i], take, round, i, 11, "MPI_Allgatherv");
  fill(whole, places[rank], mine, take, round, rank, 12);
  CALL(Allgatherv, Iallgatherv, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, whole, all, places, types[take], comm);
  for (i = 0; i < size; ++i) expect(whole, places[i], all[i], take, round, i, 12, "MPI_Allgatherv in place");
  free(whole);
  free(part);
}

static void move(unsigned round, int count) {
  int give = 1 + (int)(next() % 2), take = 1 + (int)(next() % 2), root = (int)(next() % (unsigned)size);
  move_equal(round, count, give, take, root);
  move_in_place(round, count, give, take, root);
  move_matrix(round, give, take);
  move_ragged(round, give, take, root);
}

/* x -> a * x + b, one behind the other: associative, and does not commute. */
static void compose(void* left, void* right, int* count, MPI_Datatype* type) {
  const unsigned* a = left;
  unsigned* b = right;
  int i;
  (void)type;
  for (i = 0; i < *count; ++i, a += 2, b += 2) {
    b[1] = a[0] * b[1] + a[1];
    b[0] = a[0] * b[0];
  }
}

static unsigned give(unsigned round, int from, int i) { return (unsigned)value(round, from, 99, i) | 1u; }

/* What ranks first..last have, combined one after the other: sums, or maps. */
static void naive(unsigned round, int first, int last, int i, int is_map, unsigned result[2]) {
  unsigned more[2], *right = more;
  int from, one = 1;
  for (from = first; from <= last; ++from) {
    more[0] = give(round, from, 2 * i);
    more[1] = give(round, from, 2 * i + 1);
    if (from > first && is_map) compose(result, right, &one, NULL);
    if (from > first && !is_map) {
      more[0] += result[0];
      more[1] += result[1];
    }
    memcpy(result, more, sizeof more);
  }
}

static void expect_combined(const unsigned* buffer, int skip, int count, unsigned round, int first, int last,
                            int is_map, const char* what) {
  int i;
  unsigned wanted[2];
  for (i = 0; i < count; ++i) {
    naive(round, first, last, skip + i, is_map, wanted);
    check(memcmp(buffer + 2 * i, wanted, sizeof wanted) == 0, what, round);
  }
}

static void combine(unsigned round, int count, MPI_Op op, MPI_Datatype type, int is_map) {
  int root = (int)(next() % (unsigned)size), i, counts[ranks_max], before = 0;
  size_t bytes = ((size_t)count * (size_t)size + 64) * 2 * sizeof(unsigned);
  unsigned *in = malloc(bytes), *out = malloc(bytes);
  int units = is_map ? 1 : 2; /* elements of `type` in a pair */
  for (i = 0; i < (int)(bytes / sizeof *in); ++i) in[i] = give(round, rank, i);
  for (i = 0; i < size; ++i) {
    counts[i] = (int)((unsigned)i + round) % 3;
    if (i < rank) before += counts[i];
    counts[i] *= units;
  }
  CALL(Reduce, Ireduce, in, rank == root ? out : NULL, count * units, type, op, root, comm);
  if (rank == root) expect_combined(out, 0, count, round, 0, size - 1, is_map, "MPI_Reduce");
  memcpy(out, in, bytes);
  CALL(Reduce, Ireduce, rank == root ? MPI_IN_PLACE : out, out, count * units, type, op, root, comm);
  if (rank == root) expect_combined(out, 0, count, round, 0, size - 1, is_map, "MPI_Reduce in place");
  CALL(Allreduce, Iallreduce, in, out, count * units, type, op, comm);
  expect_combined(out, 0, count, round, 0, size - 1, is_map, "MPI_Allreduce");
  memcpy(out, in, bytes);
  CALL(Allreduce, Iallreduce, MPI_IN_PLACE, out, count * units, type, op, comm);
  expect_combined(out, 0, count, round, 0, size - 1, is_map, "MPI_Allreduce in place");
  CALL(Scan, Iscan, in, out, count * units, type, op, comm);
  expect_combined(out, 0, count, round, 0, rank, is_map, "MPI_Scan");
  memcpy(out, in, bytes);
  CALL(Scan, Iscan, MPI_IN_PLACE, out, count * units, type, op, comm);
  expect_combined(out, 0, count, round, 0, rank, is_map, "MPI_Scan in place");
  CALL(Exscan, Iexscan, in, rank == 0 ? NULL : out, count * units, type, op, comm);
  if (rank > 0) expect_combined(out, 0, count, round, 0, rank - 1, is_map, "MPI_Exscan");
  memcpy(out, in, bytes);
  CALL(Exscan, Iexscan, MPI_IN_PLACE, out, count * units, type, op, comm);
  if (rank > 0) expect_combined(out, 0, count, round, 0, rank - 1, is_map, "MPI_Exscan in place");
  CALL(Reduce_scatter_block, Ireduce_scatter_block, in, out, count * units, type, op, comm);
  expect_combined(out, rank * count, count, round, 0, size - 1, is_map, "MPI_Reduce_scatter_block");
  memcpy(out, in, bytes);
  CALL(Reduce_scatter_block, Ireduce_scatter_block, MPI_IN_PLACE, out, count * units, type, op, comm);
  expect_combined(out, rank * count, count, round, 0, size - 1, is_map, "MPI_Reduce_scatter_block in place");
  CALL(Reduce_scatter, Ireduce_scatter, in, out, counts, type, op, comm);
  expect_combined(out, before, counts[rank] / units, round, 0, size - 1, is_map, "MPI_Reduce_scatter");
  memcpy(out, in, bytes);
  CALL(Reduce_scatter, Ireduce_scatter, MPI_IN_PLACE, out, counts, type, op, comm);
  expect_combined(out, before, counts[rank] / units, round, 0, size - 1, is_map, "MPI_Reduce_scatter in place");
  free(in);
  free(out);
}

static MPI_Datatype map;
static MPI_Op maps;

static void run(MPI_Comm whose, unsigned first, unsigned end) {
  unsigned round;
  comm = whose;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  for (round = first; round < end; ++round) {
    int most = round % 8 == 7 ? 3000 : round % 8 == 3 ? 700 : 20, count = (int)(next() % (unsigned)most);
    move(round, count);
    combine(round, count, MPI_SUM, MPI_UNSIGNED, 0);
    combine(round, count, maps, map, 1);
    CALL(Barrier, Ibarrier, comm);
  }
}

int main(int argc, char** argv) {
  int all = 0, group, world;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &world);
  state = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
  types[1] = MPI_INT;
  MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &types[2]);
  MPI_Type_commit(&types[2]);
  MPI_Type_contiguous(2, MPI_UNSIGNED, &map);
  MPI_Type_commit(&map);
  MPI_Op_create(compose, 0, &maps);
  run(MPI_COMM_WORLD, 0, rounds);
  if (size <= large_ranks_max) {
    combine(rounds, large, MPI_SUM, MPI_UNSIGNED, 0);
    combine(rounds, large, maps, map, 1);
    move(rounds, large);
  }
  for (group = 0; group < 4; ++group) {
    MPI_Comm part;
    unsigned seed = next();
    int color = value(seed, world, 1, group) % 3, key = value(seed, world, 2, group) % 5;
    MPI_Comm_split(MPI_COMM_WORLD, color, key, &part);
    run(part, rounds, rounds + 8);
    MPI_Comm_free(&part);
  }
  MPI_Op_free(&maps);
  MPI_Type_free(&map);
  MPI_Type_free(&types[2]);
  MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (world == 0 && all == 0) printf("No Errors\n");
  MPI_Finalize();
  return all != 0;
}
