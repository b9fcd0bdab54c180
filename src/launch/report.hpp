// SPDX-License-Identifier: MIT
// What aprun tells about a run: how the cells ended, or what a run would be; what aprun --list-modules prints.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "aplib/options.hpp"
#include "comm/kind.hpp"
#include "kernel/programs.hpp"

namespace aplib::launch {

/// "cells 0-3,7: status 0; cell 5: status 2", by falling number of cells, then by status.
[[nodiscard]] std::string end_summary(const std::vector<int>& cell_status);

/// "0-3,7", for rising numbers.
[[nodiscard]] std::string ranges(const std::vector<std::uint32_t>& numbers);

/// The text of --dry-run, lines with ends.
[[nodiscard]] std::string plan_text(const ProgramSummary& summary, const Options& options);

/// A table of modules, the best first: what each can do, and why it cannot be used with these settings. Behind it
/// files that were refused, with the reasons.
[[nodiscard]] std::string module_table(std::span<const comm::FoundModule> found, const comm::PortSettings& settings);

}  // namespace aplib::launch
