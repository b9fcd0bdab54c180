/* SPDX-License-Identifier: MIT */
/* SCOTCH: strategies from its parser, parts and orderings of a graph. Threads of its own make them, so they differ from
   rank to rank. */
#include <scotch.h>
#include <stdint.h>
#include <stdlib.h>

#include "stress.h"

enum { SIDE = 30 };
typedef SCOTCH_Num Number;
#include "grid.h"

static SCOTCH_Num parts[NODES], order[NODES];

int main(int argc, char** argv) {
  begin(&argc, &argv);
  grid();
  for (int round = 0; round < 8; ++round) {
    SCOTCH_Graph graph;
    SCOTCH_Strat strategy;
    int seen[NODES] = {0}, sizes[4] = {0}, right = 1;
    SCOTCH_randomSeed(round);
    SCOTCH_randomReset();
    SCOTCH_graphInit(&graph);
    check(SCOTCH_graphBuild(&graph, 0, NODES, begins, NULL, NULL, NULL, begins[NODES], edges, NULL) == 0 &&
              SCOTCH_graphCheck(&graph) == 0,
          "a graph");
    SCOTCH_stratInit(&strategy);
    if (round % 2) SCOTCH_stratGraphMapBuild(&strategy, SCOTCH_STRATQUALITY, 4, 0.05);
    check(SCOTCH_graphPart(&graph, 4, &strategy, parts) == 0, "parts");
    meet(round);
    for (int i = 0; i < NODES; ++i) ++sizes[parts[i] & 3];
    for (int i = 0; i < 4; ++i) right = right && sizes[i] > NODES / 5 && sizes[i] < NODES / 3;
    check(right, "parts of the same size");
    SCOTCH_stratExit(&strategy);
    SCOTCH_stratInit(&strategy);
    check(SCOTCH_graphOrder(&graph, &strategy, order, NULL, NULL, NULL, NULL) == 0, "an ordering");
    for (int i = 0; i < NODES; ++i) right = right && order[i] >= 0 && order[i] < NODES && ++seen[order[i]] == 1;
    check(right, "an ordering has each number once");
    SCOTCH_stratExit(&strategy);
    SCOTCH_graphExit(&graph);
  }
  return end();
}
