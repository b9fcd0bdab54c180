// SPDX-License-Identifier: MIT
// apbench farm: the finance benchmark, a command of its own.
#pragma once

namespace apbench::farm {

/// `argv[0]` is "farm". Returns the exit status. Throws aplib::Error.
int run_command(int argc, char** argv);

}  // namespace apbench::farm
