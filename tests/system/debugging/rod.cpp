// SPDX-License-Identifier: MIT
// A rod in pieces: every cell cools its own piece and tells its right-hand neighbour.
#include <aplib/aplib.hpp>
#include <cstdio>

double hottest = 100;
int steps;

void cool(double factor) {
  ++steps;
  hottest = 20 + (hottest - 20) * factor;
}

double tell_neighbour(unsigned me, unsigned cells) {
  aplib::send(aplib::CellId{(me + 1) % cells}, hottest);
  return aplib::receive({.cell = aplib::CellId{(me + cells - 1) % cells}}).as<double>();
}

int main() {
  const unsigned me = index(aplib::this_cell::id());
  const unsigned cells = aplib::this_machine::cell_count();
  hottest += me;
  aplib::barrier();
  for (int i = 0; i < 2; ++i) {
    cool(0.5);
    const double other = tell_neighbour(me, cells);
    if (me == 0) std::printf("step %d: %.1f here, %.1f there\n", steps, hottest, other);
  }
  return 0;
}
