/* SPDX-License-Identifier: MIT */
/* A number made of all bits of the results of reductions whose order shows, for several sizes. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { count_max = 70000 };

static double in[count_max], out[count_max];

static unsigned long long mix(unsigned long long sum, int count) {
  unsigned long long bits;
  int i;
  for (i = 0; i < count; ++i) {
    memcpy(&bits, &out[i], sizeof bits);
    sum = (sum ^ bits) * 1099511628211u;
  }
  return sum;
}

int main(int argc, char** argv) {
  static const int counts[] = {1, 3, 250, 1000, 5000, count_max};
  unsigned long long sum = 1, sums[64];
  int rank, size, i, c;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (i = 0; i < count_max; ++i) in[i] = 1.0 / (1 + (unsigned)(i + 1) * 2654435761u % 1009 + (unsigned)rank * 7u);
  for (c = 0; c < (int)(sizeof counts / sizeof *counts); ++c) {
    int n = counts[c];
    memset(out, 0, sizeof out);
    MPI_Allreduce(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    sum = mix(sum, n);
    MPI_Scan(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    sum = mix(sum, n);
    MPI_Exscan(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (rank > 0) sum = mix(sum, n);
    MPI_Reduce_scatter_block(in, out, n / size, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    sum = mix(sum, n / size);
    MPI_Reduce(in, out, n, MPI_DOUBLE, MPI_SUM, c % size, MPI_COMM_WORLD);
    if (rank == c % size) sum = mix(sum, n);
  }
  MPI_Gather(&sum, 1, MPI_UNSIGNED_LONG_LONG, sums, 1, MPI_UNSIGNED_LONG_LONG, 0, MPI_COMM_WORLD);
  if (rank == 0)
    for (i = 0; i < size; ++i) printf("%llx\n", sums[i]);
  MPI_Finalize();
  return 0;
}
