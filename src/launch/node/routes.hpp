// SPDX-License-Identifier: MIT
// By which module a process reaches which others, for people: one line for each pair in a small machine, one for
// each module in a large one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/module.hpp"
#include "launch/wire/status.hpp"

namespace aplib::launch::node {

/// In machines of so many processes each pair is described; in larger ones those that a module reaches are counted up.
inline constexpr std::uint32_t described_processes_max = 4;

/// In the order of the first process that is reached. Any thread, as long as the module is there.
[[nodiscard]] std::vector<wire::Route> routes_of(const comm::Module& module, std::uint32_t self,
                                                 std::uint32_t processes);

}  // namespace aplib::launch::node
