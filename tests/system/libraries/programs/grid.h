/* SPDX-License-Identifier: MIT */
/* A square grid of SIDE * SIDE nodes as a graph, in arrays of the library's own `Number`: where the edges of each node
   begin, and to whom they lead. */
#pragma once

enum { NODES = SIDE * SIDE };

static Number begins[NODES + 1], edges[4 * NODES];

static void grid(void) {
  Number n = 0;
  for (int i = 0; i < NODES; ++i) {
    begins[i] = n;
    if (i >= SIDE) edges[n++] = i - SIDE;
    if (i % SIDE > 0) edges[n++] = i - 1;
    if (i % SIDE < SIDE - 1) edges[n++] = i + 1;
    if (i + SIDE < NODES) edges[n++] = i + SIDE;
  }
  begins[NODES] = n;
}
