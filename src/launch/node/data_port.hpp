// SPDX-License-Identifier: MIT
// DataPort: where other processes reach this one with frames, by every module that the options allow and this host has.
// Once all addresses are known, it becomes a module.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "aplib/options.hpp"
#include "comm/job_key.hpp"
#include "comm/kind.hpp"
#include "comm/mixed/mixed_port.hpp"
#include "launch/node/prober.hpp"
#include "launch/wire/start_messages.hpp"
#include "launch/wire/status.hpp"

namespace aplib::launch::node {

class DataPort {
 public:
  /// Listens on `address`, on a port that the options allow. Throws Error.
  DataPort(const Options& options, const std::string& address, const comm::JobKey& key);

  /// What the coordinator hears of it: its address for other processes, and the modules that could not be used.
  [[nodiscard]] wire::Prepared offer() const;
  /// Finds out which others this process reaches, and answers theirs until the module is made. Takes as long as a
  /// connection may take. Throws Error.
  [[nodiscard]] wire::Probed probe(const wire::Probe& what, std::uint32_t self);
  /// The module of process `self`. Call once. REQUIRES: the port outlives the module. Throws Error.
  [[nodiscard]] std::unique_ptr<comm::Module> make_module(const wire::Plan& plan, std::uint32_t self);

 private:
  std::vector<comm::FoundModule> found_;
  std::unique_ptr<comm::mixed::MixedPort> port_;
  const comm::JobKey key_;
  std::unique_ptr<Prober> prober_;
};

/// In machines of up to this many processes each pair is described. In larger ones, the processes that a module reaches
/// are listed together.
inline constexpr std::uint32_t described_processes_max = 4;

/// The module by which a process reaches each other process, for people; in the order of the first process that is
/// reached. Any thread, while the module exists.
[[nodiscard]] std::vector<wire::Route> routes_of(const comm::Module& module, std::uint32_t self,
                                                 std::uint32_t processes, std::span<const wire::PlannedWay> ways);

/// What a process tells of its module.
[[nodiscard]] wire::NodeState state_of(const comm::Module& module, std::uint32_t self, std::uint32_t processes,
                                       std::span<const wire::PlannedWay> ways);

}  // namespace aplib::launch::node
