/* SPDX-License-Identifier: MIT */
/* A halo exchange on a split communicator, with persistent requests and a derived datatype; then a farm, whose master
 * takes answers as they come. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { width = 6, steps = 20, jobs = 60 };

static void halo(MPI_Comm comm) {
  double field[width][width];
  int rank, size, i, j, step;
  MPI_Datatype column;
  MPI_Request requests[4];
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  MPI_Type_vector(width, 1, width, MPI_DOUBLE, &column);
  MPI_Type_commit(&column);
  for (i = 0; i < width; ++i) {
    for (j = 0; j < width; ++j) field[i][j] = rank;
  }
  MPI_Send_init(&field[0][1], 1, column, (rank + size - 1) % size, 1, comm, &requests[0]);
  MPI_Send_init(&field[0][width - 2], 1, column, (rank + 1) % size, 2, comm, &requests[1]);
  MPI_Recv_init(&field[0][width - 1], 1, column, (rank + 1) % size, 1, comm, &requests[2]);
  MPI_Recv_init(&field[0][0], 1, column, (rank + size - 1) % size, 2, comm, &requests[3]);
  for (step = 0; step < steps; ++step) {
    MPI_Startall(4, requests);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    for (i = 0; i < width; ++i) {
      if (field[i][0] != (rank + size - 1) % size + step || field[i][width - 1] != (rank + 1) % size + step) {
        printf("rank %d, step %d: the halo is wrong\n", rank, step);
        MPI_Abort(comm, 2);
      }
      field[i][1] += 1;
      field[i][width - 2] += 1;
    }
  }
  for (i = 0; i < 4; ++i) MPI_Request_free(&requests[i]);
  MPI_Type_free(&column);
}

static void farm(MPI_Comm comm) {
  int rank, size, job, answer, sum = 0, next = 0, working;
  MPI_Status status;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  if (rank != 0) {
    for (;;) {
      MPI_Recv(&job, 1, MPI_INT, 0, MPI_ANY_TAG, comm, &status);
      if (status.MPI_TAG == 0) return;
      answer = job * 2;
      MPI_Send(&answer, 1, MPI_INT, 0, status.MPI_TAG, comm);
    }
  }
  working = size - 1;
  for (job = 1; job < size; ++job) MPI_Send(&next, 1, MPI_INT, job, 1 + next, comm), ++next;
  while (working > 0) {
    int flag = 0;
    while (!flag) MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &status);
    MPI_Recv(&answer, 1, MPI_INT, status.MPI_SOURCE, status.MPI_TAG, comm, MPI_STATUS_IGNORE);
    sum += answer;
    if (next < jobs) {
      MPI_Send(&next, 1, MPI_INT, status.MPI_SOURCE, 1 + next, comm);
      ++next;
    } else {
      MPI_Send(NULL, 0, MPI_INT, status.MPI_SOURCE, 0, comm);
      --working;
    }
  }
  printf("sum %d\n", sum);
}

int main(int argc, char** argv) {
  int rank;
  MPI_Comm half, copy;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
  halo(half);
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  farm(copy);
  MPI_Comm_free(&copy);
  MPI_Comm_free(&half);
  MPI_Finalize();
  return 0;
}
