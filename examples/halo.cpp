// SPDX-License-Identifier: MIT
// Heat spreads along a ring. Each cell has a piece of it, and computes its inner points while its neighbours' edges are
// on their way.
#include <aplib/aplib.hpp>
#include <cstdio>
#include <vector>

int main() {
  aplib::Machine machine;  // its shape comes from APLIB_CELLS
  const aplib::Report report = machine.run([] {
    constexpr std::size_t points = 16;
    constexpr std::int32_t leftwards = 1;
    constexpr std::int32_t rightwards = 2;
    const unsigned me = index(aplib::this_cell::id());
    const unsigned count = aplib::this_machine::cell_count();
    const aplib::CellId left{(me + count - 1) % count};
    const aplib::CellId right{(me + 1) % count};
    std::vector<double> heat(points + 2);  // the first and the last are copies of the neighbours' edges
    std::vector<double> next(points + 2);
    if (me == 0) heat[1] = 1000;
    for (int step = 0; step < 100; ++step) {
      const auto mean_at = [&](std::size_t i) { next[i] = (heat[i - 1] + 2 * heat[i] + heat[i + 1]) / 4; };
      aplib::Request edges[] = {
          aplib::receive_later(std::span(&heat[0], 1), {.cell = left, .type = rightwards}),
          aplib::receive_later(std::span(&heat[points + 1], 1), {.cell = right, .type = leftwards})};
      aplib::send(left, heat[1], {.type = leftwards});
      aplib::send(right, heat[points], {.type = rightwards});
      for (std::size_t i = 2; i < points; ++i) mean_at(i);
      aplib::wait_all(edges);
      mean_at(1);
      mean_at(points);
      heat.swap(next);
    }
    double own = 0;
    for (std::size_t i = 1; i <= points; ++i) own += heat[i];
    const double sum = aplib::reduce_sum(own);
    if (me == 0) std::printf("%u cells: %.3f of %.3f is left in the first\n", count, own, sum);
  });
  return report.exit_status;
}
