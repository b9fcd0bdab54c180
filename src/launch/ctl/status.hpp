// SPDX-License-Identifier: MIT
// The text that apctl prints about machines.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "launch/wire/status.hpp"

namespace aplib::launch::ctl {

/// A line for each machine, after a line of titles.
[[nodiscard]] std::string job_list_text(const std::vector<std::pair<std::uint32_t, wire::MachineStatus>>& jobs);

/// One machine: lines about it, then a line for each process.
[[nodiscard]] std::string job_status_text(std::uint32_t job, const wire::MachineStatus& status);

}  // namespace aplib::launch::ctl
