// SPDX-License-Identifier: MIT
#include <aplib/aplib.hpp>
#include <cstdio>

int main() {
  aplib::Machine machine;  // its shape comes from APLIB_CELLS
  const aplib::Report report = machine.run([] {
    const unsigned me = index(aplib::this_cell::id()), count = aplib::this_machine::cell_count();
    aplib::send(aplib::CellId{(me + 1) % count}, me * me);  // to the right-hand neighbour
    const auto square = aplib::receive().as<unsigned>();    // from the left-hand one
    const double sum = aplib::reduce_sum(1.0 * square);     // the same bits on every cell
    if (me == 0) std::printf("%u cells, sum of squares %g\n", count, sum);
  });
  return report.exit_status;
}
