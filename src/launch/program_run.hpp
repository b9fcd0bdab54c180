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
#include "launch/wire/start_messages.hpp"

namespace aplib::launch {

/// A run of programs, as a command line or the launcher's message to a node describes it.
struct RunText {
  std::vector<wire::ProgramText> programs{};  ///< At least one.
  std::string entry{};                        ///< Of the first program.
  std::vector<std::string> entry_arguments{};
  bool expand = false;  ///< Arguments have placeholders.
  Grid grid{};
  std::vector<std::uint32_t> host_cells{};  ///< Of the cells' host, ascending: they are told their ranks; empty: not.
};

/// What the kernel shall run. `files` are what ProgramText::file counts. A folder's pattern is relative to the
/// process's current folder. Each cell's folder is made when the cell starts. Throws Error(failed) for a `text` that
/// makes no sense.
[[nodiscard]] ProgramRun make_run(const RunText& text, const std::vector<std::string>& files);

/// `text` for cell `cid` of `grid`, with its placeholders replaced.
[[nodiscard]] std::string expand(std::string_view text, std::uint32_t cid, Grid grid);

/// `text` with `cell` for {cid} and no other change, for names of files.
[[nodiscard]] std::string expand_cell(std::string_view text, std::string_view cell);

[[nodiscard]] inline bool names_cell(std::string_view text) { return text.find("{cid}") != text.npos; }

}  // namespace aplib::launch
