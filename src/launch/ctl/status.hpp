// SPDX-License-Identifier: MIT
// What apctl prints about machines.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "launch/ctl/registry.hpp"

namespace aplib::launch::ctl {

/// A line for each machine, below a line of titles.
[[nodiscard]] std::string job_list_text(const std::vector<std::pair<std::uint32_t, JobStatus>>& jobs);

/// One machine: lines about it, then a line for each process.
[[nodiscard]] std::string job_status_text(std::uint32_t job, const JobStatus& status);

}  // namespace aplib::launch::ctl
