// SPDX-License-Identifier: MIT
// From the words of a command line to what the kernel runs.
#pragma once

#include <string>
#include <vector>

#include "aplib/options.hpp"
#include "kernel/programs.hpp"

namespace aplib::launch {

/// What a command line, or the launcher's message to a node, says about a program's run. All but its file.
struct RunText {
  std::string program_name{};  ///< argv[0]
  std::vector<std::string> arguments{};
  std::string entry{};
  std::vector<std::string> entry_arguments{};
  bool expand = false;   ///< Placeholders in `arguments`.
  std::string folder{};  ///< --wd: pattern; empty: that of the process.
  Grid grid{};
};

/// Fills in all of `run` but its file. A folder's pattern begins at the process's current folder; each cell's is made when it starts.
void complete_run(ProgramRun& run, const RunText& text);

}  // namespace aplib::launch
