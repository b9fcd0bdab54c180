// SPDX-License-Identifier: MIT
// tcp as a kind of module: what goes everywhere.
#include <utility>

#include "aplib/version.hpp"
#include "comm/kinds.hpp"
#include "comm/tcp/tcp_module.hpp"

namespace aplib::comm {
namespace {

class TcpPort final : public Port {
 public:
  explicit TcpPort(const PortSettings& settings) : settings_(settings), listener_(settings.address, settings.ports) {}

  std::string endpoint() const override { return listener_.endpoint(); }

  std::unique_ptr<Module> join(const JoinSettings& settings) override {
    return std::make_unique<TcpModule>(TcpSettings{.self = settings.self,
                                                   .listener = std::move(listener_),
                                                   .endpoints = settings.endpoints,
                                                   .key = settings_.key,
                                                   .machine = settings.machine,
                                                   .secure = settings_.secure,
                                                   .streams = settings_.streams,
                                                   .peer_timeout = settings_.peer_timeout,
                                                   .names = settings.names});
  }

 private:
  const PortSettings settings_;
  TcpListener listener_;
};

class TcpKind final : public ModuleKind {
 public:
  std::string name() const override { return "tcp"; }
  std::string version() const override { return aplib::version; }
  std::string description() const override { return "frames over TCP, between any hosts"; }
  int rank() const override { return tcp_rank; }
  bool has_remote_memory() const override { return false; }
  bool keeps(Secure) const override { return true; }
  std::optional<std::string> unusable(const PortSettings&) const override { return std::nullopt; }
  std::unique_ptr<Port> open(const PortSettings& settings) const override {
    return std::make_unique<TcpPort>(settings);
  }
  bool joins(const std::string& endpoint, const std::string& other) const override {
    return !endpoint.empty() && !other.empty();
  }

 private:
  static constexpr int tcp_rank = 100;
};

}  // namespace

std::unique_ptr<ModuleKind> tcp_kind() { return std::make_unique<TcpKind>(); }

}  // namespace aplib::comm
