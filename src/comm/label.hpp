// SPDX-License-Identifier: MIT
// Label: what a frame says about its body. A module carries labels and does not look inside.
#pragma once

#include <cstdint>

namespace aplib::comm {

/// Number of a process of the machine: 0 .. processes - 1.
using Peer = std::uint32_t;

struct Label {
  std::uint64_t key = 0;    ///< Match key, or what the kind makes of it.
  std::uint32_t cell = 0;   ///< Destination cell.
  std::uint32_t task = 0;   ///< Destination task.
  std::uint32_t kind = 0;   ///< The kernel's kinds (src/kernel/module_network.hpp).
  std::uint32_t extra = 0;  ///< Depends on the kind.
  friend bool operator==(const Label&, const Label&) = default;
};

}  // namespace aplib::comm
