// SPDX-License-Identifier: MIT
// KindNet: the conformance suite's net for any kind of module, made as processes make it: each has a port, then they
// exchange endpoints and join.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/kind.hpp"
#include "conformance.hpp"

namespace aplib::comm::test {

struct KindNetOptions {
  Secure secure = Secure::auth;
  std::string provider{};
};

/// Settings for a process of this host. Each call makes a new key.
PortSettings settings_of(const KindNetOptions& options);

class KindNet final : public Net {
 public:
  /// `kind` outlives the net. Throws Error.
  KindNet(const ModuleKind& kind, std::uint32_t processes, const KindNetOptions& options = {});
  std::unique_ptr<Module> module(Peer process) override;
  /// Uses Module::abandon().
  bool kill(Peer process) override { return modules_[process]->abandon(); }

 private:
  std::vector<std::unique_ptr<Port>> ports_;
  std::vector<std::string> endpoints_;
  std::vector<Module*> modules_;
};

}  // namespace aplib::comm::test
