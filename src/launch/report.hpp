// SPDX-License-Identifier: MIT
// What aprun tells about a run: how the cells ended, or what a run would be.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "aplib/options.hpp"
#include "kernel/program_summary.hpp"

namespace aplib::launch {

/// "cells 0-3,7: status 0; cell 5: status 2", by falling number of cells, then by status.
[[nodiscard]] std::string end_summary(const std::vector<int>& cell_status);

/// "0-3,7". `cells` rises.
[[nodiscard]] std::string ranges(const std::vector<std::uint32_t>& cells);

/// The text of --dry-run, lines with ends.
[[nodiscard]] std::string plan_text(const ProgramSummary& summary, const Options& options);

}  // namespace aplib::launch
