// SPDX-License-Identifier: MIT
// Processes of one machine, all inside this test program, connected by shared memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/shm/shm_module.hpp"
#include "conformance.hpp"

namespace aplib::comm::test {

class ShmNet final : public Net {
 public:
  explicit ShmNet(std::uint32_t processes, Secure secure = Secure::auth);

  std::unique_ptr<Module> module(Peer process) override;
  bool kill(Peer process) override;

  /// The settings for module(process). Once per process.
  shm::Settings settings(Peer process);
  [[nodiscard]] const shm::Endpoint& endpoint(Peer process) const { return own_[process]; }
  [[nodiscard]] const JobKey& key() const { return key_; }

 private:
  Secure secure_;
  JobKey key_ = JobKey::make();
  std::vector<shm::Presence> presences_;
  std::vector<shm::Endpoint> own_;
  std::vector<std::string> endpoints_;
  std::vector<shm::ShmModule*> modules_;
};

}  // namespace aplib::comm::test
