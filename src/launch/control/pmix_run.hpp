// SPDX-License-Identifier: MIT
// "mpirun -np 4 aprun -f cluster.toml": another launcher has started a process for each host of the cluster file, and PMIx brings them together.
#pragma once

#include <memory>
#include <optional>

#include "launch/cluster/cluster.hpp"
#include "launch/control/coordinator.hpp"
#include "launch/start/pmix.hpp"

namespace aplib::launch {

/// This process's place in the job of another launcher. Process 0 is the launcher of the machine, and starts its node beside itself; the others are nodes.
class PmixRun {
 public:
  /// Nothing: nobody else has started this process, or only this one. Throws Error(failed).
  [[nodiscard]] static std::optional<PmixRun> find();

  [[nodiscard]] bool is_launcher() const { return pmix_->rank() == 0; }
  /// Waits for the launcher's word and becomes a node. Returns the exit status. Throws Error(failed).
  int run_node();

  /// Makes the cluster's hosts those of the job, or checks that they are. Throws Error(bad_option).
  void take_hosts(Cluster& cluster) const;
  /// Tells the nodes where to call. Waits until all of them have heard it.
  void invite(const Coordinator::Invitation& invitation, const Options& options);
  /// Tells the nodes that there will be no machine, if they were not invited yet.
  void call_off() noexcept;

 private:
  explicit PmixRun(std::unique_ptr<Pmix> pmix) : pmix_(std::move(pmix)) {}

  std::unique_ptr<Pmix> pmix_;
  bool told_ = false;
};

}  // namespace aplib::launch
