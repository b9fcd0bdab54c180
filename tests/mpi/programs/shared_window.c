/* SPDX-License-Identifier: MIT */
/* Memory that the ranks of a host share: each stores there, all count there, and all see what all have done. With an
 * argument, the rank of that number is killed in the middle. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { counted = 1000 };

int main(int argc, char** argv) {
  int rank, size, ranks;
  MPI_Comm host;
  MPI_Win win;
  MPI_Aint bytes;
  int unit;
  long *own, *all, sum = 0, before;
  const long one = 1;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  MPI_Comm_size(host, &ranks);
  MPI_Win_allocate_shared(rank == 0 ? (size + 1) * (MPI_Aint)sizeof(long) : 0, sizeof(long), MPI_INFO_NULL, host, &own,
                          &win);
  MPI_Win_shared_query(win, 0, &bytes, &unit, &all);
  MPI_Win_fence(0, win);
  all[rank] = 100 + rank;
  for (int i = 0; i < counted; ++i) MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, size, MPI_SUM, win);
  if (argc > 1 && rank == atoi(argv[1])) kill(getpid(), SIGKILL);
  MPI_Win_fence(0, win);
  for (int i = 0; i < size; ++i) sum += all[i];
  if (rank == 0) printf("%d of %d ranks, sum %ld, counted %ld\n", ranks, size, sum, all[size]);
  MPI_Win_free(&win);
  MPI_Comm_free(&host);
  MPI_Finalize();
  return 0;
}
