// SPDX-License-Identifier: MIT
#include "triad.hpp"

#include <aplib/cellos.h>

#include <algorithm>

#include "kernels.hpp"

namespace scg {

double measure_triad(Fields& fields) {
  constexpr double bytes_wanted = 128e6;  // about a millisecond's work per thread
  constexpr int repetitions_max = 200;
  const double bytes = 24.0 * static_cast<double>(fields.x.stride()) * fields.x.ny();
  double all_bytes = 0;
  xy_dsum(bytes, &all_bytes);
  const int repetitions = static_cast<int>(std::clamp(bytes_wanted / all_bytes, 3.0, double{repetitions_max}));

  // The three fields change places, as in the solver each is read and written.
  Field* turn[] = {&fields.x, &fields.r, &fields.p};
  double busy = 0;
  for (int i = -2; i < repetitions; ++i) {
    sync(0, 0);
    const double began = dgettime();
    kernels().triad(*turn[0], *turn[1], *turn[2], 0.5);
    if (i >= 0) busy += dgettime() - began;  // the first two only warm up
    std::rotate(turn, turn + 1, turn + 3);
  }
  double all_busy = 0;
  xy_dsum(busy, &all_busy);
  return all_bytes * repetitions / all_busy;
}

}  // namespace scg
