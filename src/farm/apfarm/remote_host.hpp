// SPDX-License-Identifier: MIT
// Hosts of a pool (launch/pool) that run jobs. The keeper of each one starts a worker for this apfarm
// (host_worker.hpp), with which this side speaks host_messages.hpp. A host that is lost is tried again.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "farm/apfarm/job_host.hpp"

namespace aplib::farm {

struct PoolSettings {
  std::string pool{};
  std::string jobs{};                ///< On each host, as of -j.
  std::string folder{};              ///< In which jobs run; empty: the current one, where a host has it.
  bool cells = false;                ///< As of JobRunner,
  int nice = 0;                      ///< this,
  std::string entry{};               ///< and this, too.
  std::vector<std::string> files{};  ///< Of this computer, which all jobs find below that folder.
};

/// Throws Error(bad_option) if there is no such pool, or no such file.
[[nodiscard]] std::vector<std::unique_ptr<JobHost>> hosts_of_pool(const PoolSettings& settings);

}  // namespace aplib::farm
