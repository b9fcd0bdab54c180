// SPDX-License-Identifier: MIT
// Processes of one machine, all inside this test program, connected by a provider of libfabric.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/kind.hpp"
#include "comm/rdma/rdma_module.hpp"
#include "conformance.hpp"

namespace aplib::comm::test {

struct RdmaNetOptions {
  std::string provider = "tcp";
  Secure secure = Secure::auth;
  std::chrono::milliseconds peer_timeout{10'000};
  Peer stranger = ~Peer{0};  ///< This process has another key.
  int mr_mode = 0;           ///< What a device would also require: the provider works in that mode.
};

class RdmaNet final : public Net {
 public:
  RdmaNet(std::uint32_t processes, RdmaNetOptions options);

  std::unique_ptr<Module> module(Peer process) override;

  /// With another mode: the fabric of the process's module, or one that is still free.
  [[nodiscard]] const std::shared_ptr<rdma::Fabric>& fabric(Peer process) const { return fabrics_[process]; }
  [[nodiscard]] const JobKey& key() const { return key_; }

  /// The endpoint ends without a message to others.
  void abandon(Peer process) { static_cast<void>(modules_[process]->abandon()); }

 private:
  [[nodiscard]] PortSettings settings(Peer process) const;

  RdmaNetOptions options_;
  JobKey key_;
  std::vector<std::unique_ptr<Port>> ports_;  // In another mode than the provider's own, fabrics_ instead.
  std::vector<std::string> endpoints_;
  std::vector<rdma::RdmaModule*> modules_;
  std::vector<std::shared_ptr<rdma::Fabric>>
      fabrics_;  // libfabric's shm uses the memory of others in the same process until both have ended.
};

}  // namespace aplib::comm::test
