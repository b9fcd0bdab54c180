// SPDX-License-Identifier: MIT
#include <aplib/aplib.hpp>
#include <cstdio>

int main() {
  aplib::Options options;
  options.cells = {3, 1};
  aplib::Machine machine(options);
  const auto report = machine.run([] {
    const unsigned me = index(aplib::this_cell::id());
    const unsigned count = aplib::this_machine::cell_count();
    aplib::send(aplib::CellId{(me + 1) % count}, me);
    const auto from_left = static_cast<std::int32_t>(aplib::receive().as<unsigned>());
    const std::int32_t sum = aplib::reduce_sum(from_left);
    if (me == 0) std::printf("ring of %u cells: 0 + 1 + 2 = %d\n", count, sum);
  });
  return report.exit_status;
}
