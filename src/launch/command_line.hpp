// SPDX-License-Identifier: MIT
// aprun's command line: its own options end at the program's name; what follows belongs to the program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "aplib/options.hpp"
#include "launch/output.hpp"

namespace aplib::launch {

struct CommandLine {
  Options machine;                           ///< Environment and options together.
  std::string program;                       ///< As given, to be looked for; empty: the cluster file has it.
  std::string program_name;                  ///< What the program sees as argv[0].
  std::vector<std::string> arguments;        ///< The program's, without its name.
  std::string entry;                         ///< Signature; empty: by name.
  std::vector<std::string> entry_arguments;  ///< Of --args.
  OutputPlan output;
  std::string folder;             ///< --wd: pattern; empty: aprun's own.
  std::optional<double> timeout;  ///< Seconds.
  bool expand = false;            ///< Placeholders in `arguments`.
  bool dry_run = false;
  bool list_modules = false;
  std::string cluster_file;  ///< Empty: all cells are on this computer, in this process.
  /// Options of the machine that stand on the command line itself, by name, with their values.
  std::vector<std::pair<std::string, std::string>> given;
  std::string node;           ///< Not empty: this is a process of a cluster's machine, and its launcher listens there.
  std::uint32_t process = 0;  ///< Its number.
  bool direct = false;        ///< The program was executed itself: `program` is its path, not to be looked for.
};

/// Reads command line and environment. Returns nothing when there is a program to run; else the exit status, after
/// help or a message was printed.
[[nodiscard]] std::optional<int> read_command_line(int argc, const char* const* argv, CommandLine& into);

/// What --help prints.
[[nodiscard]] std::string help_text();

}  // namespace aplib::launch
