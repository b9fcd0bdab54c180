// SPDX-License-Identifier: MIT
// How a task of a farm ends.
#pragma once

#include <cstdint>

namespace aplib::farm {

enum class Outcome : std::uint8_t {
  done,
  failed,     ///< It threw.
  timed_out,  ///< It ran longer than it may.
  crashed,    ///< Its workers died, as often as the limit allows.
  cancelled,
  last = cancelled,
};

}  // namespace aplib::farm
