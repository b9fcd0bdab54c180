// SPDX-License-Identifier: MIT
// A number that a command prints.
#pragma once

#include <chrono>
#include <string>

namespace aplib::launch {

/// Runs `line` with sh, standard input empty, and reads the number that it writes to standard output. Blocks. Throws Error(failed), with the line and the remedy, when it fails, takes longer than
/// `time_max` (then it is killed with all that it started in its group), or writes anything but a number above 0. `subject` begins the messages.
[[nodiscard]] double command_number(const std::string& subject, const std::string& line, std::chrono::seconds time_max);

}  // namespace aplib::launch
