// SPDX-License-Identifier: MIT
// From the words of a command line to what the kernel runs; {cid}, {x}, {y} and {ncel} in texts that differ from
// cell to cell.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
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

/// Fills in all of `run` but its file. A folder's pattern begins at the process's current folder; each cell's is
/// made when it starts.
void complete_run(ProgramRun& run, const RunText& text);

/// `text` for cell `cid` of `grid`. What is no placeholder stays as it is.
[[nodiscard]] std::string expand(std::string_view text, std::uint32_t cid, Grid grid);

/// `text` with `cell` for {cid}, other placeholders untouched: for names of files.
[[nodiscard]] std::string expand_cell(std::string_view text, std::string_view cell);

[[nodiscard]] inline bool names_cell(std::string_view text) { return text.find("{cid}") != text.npos; }

}  // namespace aplib::launch
