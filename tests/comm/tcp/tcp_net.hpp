// SPDX-License-Identifier: MIT
// Processes of one machine, all inside this test program, connected over the loopback interface.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/tcp/tcp_module.hpp"
#include "conformance.hpp"

namespace aplib::comm::test {

struct TcpNetOptions {
  Secure secure = Secure::auth;
  std::uint32_t streams = 1;
  std::string address = "127.0.0.1";
  std::chrono::milliseconds peer_timeout{10'000};
  std::chrono::milliseconds resume_time{30'000};
  std::function<Way(Peer self, Peer peer)> way{};  ///< Empty: all direct.
  std::function<bool(Peer, Peer)> joins{};  ///< Whether tcp carries frames between these two. Empty: between all.
};

class TcpNet final : public Net {
 public:
  TcpNet(std::uint32_t processes, TcpNetOptions options);

  std::unique_ptr<Module> module(Peer process) override;
  bool kill(Peer process) override;

  /// The settings for module(process). Once per process.
  tcp::Settings settings(Peer process);
  [[nodiscard]] const std::string& endpoint(Peer process) const { return endpoints_[process]; }
  [[nodiscard]] const JobKey& key() const { return key_; }
  [[nodiscard]] static std::string machine() { return "machine-of-the-test"; }

 private:
  TcpNetOptions options_;
  JobKey key_ = JobKey::make();
  std::vector<tcp::Listener> listeners_;
  std::vector<std::string> endpoints_;
  std::vector<tcp::TcpModule*> modules_;
};

/// Whether this host has ::1.
[[nodiscard]] bool has_ipv6();

}  // namespace aplib::comm::test
