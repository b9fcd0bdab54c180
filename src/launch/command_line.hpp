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
#include "launch/wire/start_messages.hpp"

namespace aplib::launch {

struct CommandLine {
  Options machine;                           ///< Environment and options together.
  std::string program;                       ///< As given, to be searched for; empty: the cluster file has it.
  std::string program_name;                  ///< The program's argv[0].
  std::vector<std::string> arguments;        ///< The program's, without its name.
  std::vector<wire::NamedValue> variables;   ///< To be set in the program's environment.
  std::vector<wire::ProgramText> others;     ///< Of later cells, to be searched for by their names.
  std::string entry;                         ///< Signature; empty: by name.
  std::vector<std::string> entry_arguments;  ///< The arguments of --args.
  OutputPlan output;
  std::string folder;             ///< --wd: pattern; empty: aprun's own.
  std::optional<double> timeout;  ///< Seconds.
  bool expand = false;            ///< `arguments` have placeholders.
  bool dry_run = false;
  std::vector<std::string> sent;     ///< --send: PATH[:TARGET].
  std::vector<std::string> fetched;  ///< --fetch: PATTERN[:FOLDER].
  bool replace = false;              ///< What is sent replaces what is there and differs.
  bool processes = false;            ///< The program's cells are ordinary processes. `others` tell for themselves.
  bool is_mpiexec = false;           ///< The command line was mpiexec's.
  bool list_modules = false;
  std::string cluster_file;  ///< Empty: all cells are on this computer, in this process.
  std::string pool;          ///< --in: instead of a cluster file.
  std::string cluster_text;  ///< Not empty: the text of such a file, whose name is only for messages.
  /// Options of the machine on the command line itself, by name, with their values.
  std::vector<std::pair<std::string, std::string>> given;
  std::string node;           ///< Not empty: this is a node, and its launcher listens there, or is at its streams.
  std::uint32_t process = 0;  ///< Its number.
  bool direct = false;        ///< The program was executed directly: `program` is its path and is not searched for.
};

/// Reads the command line and the environment. Returns nothing if there is a program to run. Otherwise it has printed
/// help or a message, and returns the exit status.
[[nodiscard]] std::optional<int> read_command_line(int argc, const char* const* argv, CommandLine& into);

/// Of "NAME=VALUE", or of "NAME" with the value that it has here. Throws Error(bad_option), which names the option.
[[nodiscard]] wire::NamedValue named_variable(const std::string& text, std::string_view option);

/// A path and the text behind its last colon, which may be missing: "a.dat:in/a.dat".
[[nodiscard]] std::pair<std::string, std::string> split_place(const std::string& text);

/// The text of --help.
[[nodiscard]] std::string help_text();

}  // namespace aplib::launch
