// SPDX-License-Identifier: MIT
// Speed of this computer, for cells = "auto".
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "launch/cluster/cluster.hpp"

namespace aplib::launch {

/// How long a run of Speed::Kind::memory and ::compute takes; three times as long where a CPU quota stops threads now and then.
constexpr std::chrono::milliseconds speed_run_time{400};
/// A command of Speed::Kind::command that takes longer is ended.
constexpr std::chrono::seconds speed_command_time_max{60};

/// Work per second of so many threads together: grid points (memory), multiply-adds (compute), or what a number or a command says. Blocks for `time` and keeps the threads busy.
/// Throws Error(failed) when a command gives no number or memory is short, saying which. Call from: any thread.
[[nodiscard]] double measure_speed(const Speed& speed, std::uint32_t threads,
                                   std::chrono::milliseconds time = speed_run_time);

/// Threads that will carry a host's cells, when it has enough of them: a number, or as many as usable cores. `threads` as the option of that name.
[[nodiscard]] std::uint32_t speed_threads(const std::string& threads);

/// Both for this host, as share_cells() wants them. `needed`: whether anybody asks for the speed; else it is 0 and costs no time.
[[nodiscard]] HostSpeed measure_host(const Speed& speed, const std::string& threads, bool needed);

}  // namespace aplib::launch
