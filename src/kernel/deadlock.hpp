// SPDX-License-Identifier: MIT
// The deadlock report: one line per task, with what it waits for.
#pragma once

#include <string>

namespace aplib {

struct Domain;

/// Call only while every processor sleeps.
[[nodiscard]] std::string describe_deadlock(Domain& domain);

}  // namespace aplib
