/* SPDX-License-Identifier: MIT */
/* Small collective calls at random, which all check, while one rank now and then comes so late that the others sleep.
 * With "ends", rank 1 ends before the last two, and the others print what these return; with "disagree", ranks 0 and 1
 * make calls that do not belong together, and right ones after each. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { rounds = 1500, of_rank = 1000003, of_place = 17 };

static long value_of(int rank, int place, int round) { return (long)rank * of_rank + (long)place * of_place + round; }

static long sum_of(int ranks, int place, int round) {
  return (long)of_rank * (ranks * (ranks - 1) / 2) + ranks * value_of(0, place, round);
}

/* Whether the ranks got what they should, `count` each. */
static int is_right(MPI_Comm comm, int call, int count, int round, long* own, long* got) {
  int ranks = 0, rank = 0, right = 1;
  MPI_Comm_size(comm, &ranks);
  MPI_Comm_rank(comm, &rank);
  for (int i = 0; i < count * ranks; ++i) own[i] = value_of(rank, i, round);
  switch (call) {
    case 0:
      MPI_Barrier(comm);
      break;
    case 1:
      MPI_Allreduce(own, got, count, MPI_LONG, MPI_SUM, comm);
      for (int i = 0; i < count; ++i) right &= got[i] == sum_of(ranks, i, round);
      break;
    case 2:
      MPI_Allgather(own, count, MPI_LONG, got, count, MPI_LONG, comm);
      for (int i = 0; i < count * ranks; ++i) right &= got[i] == value_of(i / count, i % count, round);
      break;
    case 3:
      MPI_Alltoall(own, count, MPI_LONG, got, count, MPI_LONG, comm);
      for (int i = 0; i < count * ranks; ++i) right &= got[i] == value_of(i / count, rank * count + i % count, round);
      break;
    case 4:
      MPI_Reduce_scatter_block(own, got, count, MPI_LONG, MPI_SUM, comm);
      for (int i = 0; i < count; ++i) right &= got[i] == sum_of(ranks, rank * count + i, round);
      break;
    case 5:
      MPI_Bcast(own, count, MPI_LONG, round % ranks, comm);
      for (int i = 0; i < count; ++i) right &= own[i] == value_of(round % ranks, i, round);
      break;
    case 6: /* a root that is far ahead */
      for (int word = 0; word < 150; ++word) {
        got[0] = value_of(rank, word, round);
        MPI_Bcast(got, 1, MPI_LONG, round % ranks, comm);
        right &= got[0] == value_of(round % ranks, word, round);
      }
      break;
    default: {
      MPI_Request request;
      MPI_Ibarrier(comm, &request);
      MPI_Allgather(MPI_IN_PLACE, 0, MPI_LONG, own, count, MPI_LONG, comm);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      for (int i = 0; i < count * ranks; ++i) right &= own[i] == value_of(i / count, i, round);
    }
  }
  return right;
}

/* The same at all ranks. */
static unsigned random_below(unsigned end) {
  static unsigned state = 1;
  state = state * 1664525U + 1013904223U;
  return (state >> 8) % end;
}

static int class_of(int code) {
  int result = MPI_SUCCESS;
  MPI_Error_class(code, &result);
  return result;
}

/* Rank 1 has other counts than rank 0, on the other side of what goes by the board; at last it is in another call. */
static void disagree(int rank) {
  static char own[20000], got[40000];
  const int counts[][2] = {{2000, 1000}, {200, 100}, {3000, 100}, {300, 100}};
  for (int i = 0; i < 4; ++i) {
    const int count = counts[i][rank];
    const int code = i < 2 ? MPI_Bcast(own, count, MPI_CHAR, 0, MPI_COMM_WORLD)
                           : MPI_Allreduce(own, got, count, MPI_CHAR, MPI_MAX, MPI_COMM_WORLD);
    const int is_told = class_of(code) == MPI_ERR_TRUNCATE || class_of(code) == MPI_ERR_COUNT;
    int word = rank == 0 ? 42 + i : 0, sum = 0;
    MPI_Bcast(&word, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Allreduce(&word, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    const int is_root = i < 2 && rank == 0;
    if (is_told == is_root || word != 42 + i || sum != 2 * word) printf("rank %d: %d is wrong\n", rank, i);
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  if (rank == 0) MPI_Barrier(MPI_COMM_WORLD);
  MPI_Bcast(own, 1, MPI_CHAR, 0, MPI_COMM_WORLD);
}

static void end_without_one(int rank) {
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 1) {
    MPI_Finalize();
    exit(0);
  }
  for (int i = 0; i < 2; ++i) {
    const int code = MPI_Barrier(MPI_COMM_WORLD);
    printf("%s\n", class_of(code) == MPI_ERR_PROC_ABORTED ? "ended" : "wrong");
  }
  MPI_Finalize();
  exit(0);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int ranks = 0, rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm part;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &part);
  long* const own = malloc(600 * ranks * sizeof *own);
  long* const got = malloc(600 * ranks * sizeof *got);
  for (int round = 0; round < rounds; ++round) {
    const int call = (int)random_below(8);
    const MPI_Comm comm = random_below(4) == 0 ? part : MPI_COMM_WORLD;
    const int count = 1 + (int)random_below(random_below(4) == 0 ? 600 : 8);
    if (random_below(97) == 0 && (int)random_below((unsigned)ranks) == rank) usleep(3000);
    if (!is_right(comm, call, count, round, own, got)) {
      printf("rank %d: call %d of %d in round %d has a wrong result\n", rank, call, count, round);
      MPI_Abort(MPI_COMM_WORLD, 3);
    }
  }
  free(own);
  free(got);
  MPI_Comm_free(&part);
  if (argc > 1) MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (argc > 1 && argv[1][0] == 'e') end_without_one(rank);
  if (argc > 1 && argv[1][0] == 'd') disagree(rank);
  if (rank == 0) puts("No Errors");
  MPI_Finalize();
  return 0;
}
