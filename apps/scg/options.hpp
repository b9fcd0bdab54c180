// SPDX-License-Identifier: MIT
// scg's command line.
#pragma once

#include <aplib/options.hpp>

#include <optional>
#include <string>

#include "job.hpp"

namespace scg {

struct CommandLine {
  aplib::Options machine;  ///< --cells, --threads and the other options that every APlib program has.
  Job job;
  std::string image;    ///< Where the picture goes; empty: none.
  std::string history;  ///< Where the residuals go, as CSV; empty: nowhere.
  bool json = false;
  bool quiet = false;
};

/// Reads the command line and the environment. Returns nothing when the program shall go on; else what main() shall
/// return, after help or a message of what is wrong was printed.
[[nodiscard]] std::optional<int> read_command_line(int argc, char** argv, CommandLine& into);

/// "300" or "400x300". Throws std::invalid_argument saying what is wrong.
[[nodiscard]] GridSize parse_grid(const std::string& text);

/// Where to stop when the tolerance is never reached: well above what CG needs on such a grid.
[[nodiscard]] int default_iterations_max(GridSize grid);

}  // namespace scg
