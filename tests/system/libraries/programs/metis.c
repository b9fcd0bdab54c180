/* SPDX-License-Identifier: MIT */
/* METIS, whose random numbers and heap are the process's: all ranks make the same parts of the same graph. */
#include <metis.h>
#include <stdlib.h>

#include "stress.h"

enum { SIDE = 40 };
typedef idx_t Number;
#include "grid.h"

static idx_t parts[NODES];

static idx_t cut(void) {
  idx_t count = 0;
  for (int i = 0; i < NODES; ++i)
    for (idx_t j = begins[i]; j < begins[i + 1]; ++j) count += parts[i] != parts[edges[j]];
  return count / 2;
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  grid();
  for (idx_t round = 0; round < 12; ++round) {
    idx_t nodes = NODES, weights = 1, count = 2 + round, edge_cut = -1, options[METIS_NOPTIONS];
    METIS_SetDefaultOptions(options);
    options[METIS_OPTION_SEED] = round;
    const int status = round % 2 ? METIS_PartGraphKway(&nodes, &weights, begins, edges, NULL, NULL, NULL, &count, NULL,
                                                       NULL, options, &edge_cut, parts)
                                 : METIS_PartGraphRecursive(&nodes, &weights, begins, edges, NULL, NULL, NULL, &count,
                                                            NULL, NULL, options, &edge_cut, parts);
    check(status == METIS_OK && edge_cut == cut(), "the edges that are cut");
    long sums[2] = {0, 0}, all[2];
    for (int i = 0; i < NODES; ++i) sums[0] = (sums[0] * 31 + parts[i]) & 0xffffffff;
    sums[1] = -sums[0];
    MPI_Allreduce(sums, all, 2, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
    check(all[0] == -all[1], "the parts of other ranks differ");
  }
  return end();
}
