// SPDX-License-Identifier: MIT
// The verb exec of apctl: a program on a host of a pool, with the standard streams of this process.
#pragma once

#include <string>
#include <vector>

namespace aplib::launch::ctl {

/// `words`: POOL or POOL:HOST, the program, and its arguments. Without a host, `number` says which one, in turn.
/// Returns the program's status, 128 + number after a signal. Throws Error.
[[nodiscard]] int exec_in_pool(const std::vector<std::string>& words, unsigned number);

}  // namespace aplib::launch::ctl
