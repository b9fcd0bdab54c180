// SPDX-License-Identifier: MIT
// MixedPort: ports of several kinds as one. Each pair of processes uses the kind of the highest rank that both have and
// that joins their endpoints. Both sides know the same endpoints, so that they choose the same kind.
//
//   MixedPort port(kinds, "auto", settings);       // or "tcp", or "rdma,tcp"
//   port.endpoint();                               // "shm=4f1c;tcp=10.0.0.1:5100": goes to the others
//   auto module = port.join({...});                // one module, or several mixed
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/kind.hpp"

namespace aplib::comm::mixed {

/// The endpoints of one process, one for each module by which it can be reached, as one text:
/// "shm=4f1c;tcp=10.0.0.1:5100".
struct NamedEndpoint {
  std::string module;
  std::string endpoint;
};

[[nodiscard]] std::string join_endpoints(const std::vector<NamedEndpoint>& endpoints);
/// What makes no sense in it is left out.
[[nodiscard]] std::vector<NamedEndpoint> split_endpoints(std::string_view list);
/// That of one module; empty: there is none.
[[nodiscard]] std::string endpoint_of(std::string_view list, std::string_view module);

class MixedPort final : public Port {
 public:
  /// A kind that is not used by this process, and why: "no RDMA device is there".
  struct LeftOut {
    std::string module;
    std::string why;
  };

  /// `wish`, option "module": "auto" opens every kind that can be used here; names with commas between them open
  /// these and no others. The kinds outlive the port and its modules. Throws Error: a kind that is named cannot be
  /// used here, or none can, or tcp, which is the way out for all others, finds no port.
  MixedPort(const std::vector<const ModuleKind*>& kinds, const std::string& wish, const PortSettings& settings);

  /// join_endpoints() of all of its kinds.
  [[nodiscard]] std::string endpoint() const override;
  /// Of tcp.
  [[nodiscard]] int listening() const override;
  /// `settings.endpoints`: what the others' endpoint() said. A module that carries to all alone is returned as it
  /// is. Throws Error also when there is no way to some process.
  [[nodiscard]] std::unique_ptr<Module> join(const JoinSettings& settings) override;

  /// By falling rank.
  [[nodiscard]] const std::vector<LeftOut>& left_out() const noexcept { return left_out_; }

 private:
  struct Opened {
    const ModuleKind* kind;
    std::unique_ptr<Port> port;
    std::string endpoint;
  };
  void open(const ModuleKind& kind, bool named, const PortSettings& settings);
  [[nodiscard]] std::size_t best_for(const JoinSettings& settings, Peer peer) const;

  std::vector<Opened> opened_;  // By falling rank.
  std::vector<LeftOut> left_out_;
};

/// The names in a wish; none: "auto".
[[nodiscard]] std::vector<std::string> wished_modules(std::string_view wish);

}  // namespace aplib::comm::mixed
