// SPDX-License-Identifier: MIT
#include "progress.hpp"

#include <aplib/cellos.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace scg {

bool Progress::possible() {
  const char* terminal = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

void Progress::show(int iteration, double residual) {
  if (!on_ || iteration % 32 != 0) return;
  const double now = dgettime();
  if (now < next_) return;
  next_ = now + 0.1;
  draw(iteration, residual);
}

void Progress::draw(int iteration, double residual) {
  constexpr int width = 40;
  const double way = residual > 0 ? std::log(residual) / std::log(tolerance_) : 0;
  const int done = static_cast<int>(std::clamp(way, 0.0, 1.0) * width);
  fmt::print(stderr, "\r[{:#<{}}{:.<{}}] iteration {}, residual {:.1e} ", "", done, "", width - done, iteration,
             residual);
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::clear() {
  if (!drawn_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

}  // namespace scg
