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

/// A program's run, as a command line or the launcher's message to a node describes it, without its file.
struct RunText {
  std::string program_name{};  ///< argv[0]
  std::vector<std::string> arguments{};
  std::string entry{};
  std::vector<std::string> entry_arguments{};
  bool expand = false;   ///< `arguments` have placeholders.
  std::string folder{};  ///< --wd: a pattern; empty: the process's folder.
  Grid grid{};
};

/// Fills in everything of `run` except its file. A folder's pattern is relative to the process's current folder. Each
/// cell's folder is made when the cell starts.
void complete_run(ProgramRun& run, const RunText& text);

/// `text` for cell `cid` of `grid`, with its placeholders replaced.
[[nodiscard]] std::string expand(std::string_view text, std::uint32_t cid, Grid grid);

/// `text` with `cell` for {cid} and no other change, for names of files.
[[nodiscard]] std::string expand_cell(std::string_view text, std::string_view cell);

[[nodiscard]] inline bool names_cell(std::string_view text) { return text.find("{cid}") != text.npos; }

}  // namespace aplib::launch
