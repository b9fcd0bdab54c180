// SPDX-License-Identifier: MIT
// TcpModule: frames over TCP. Connections are made at the first frame. The threads that call poll() and send() read
// and write the data, so that no hand-over lies on the path of a message; a thread of the module's own makes
// connections, and sleeps otherwise.
//
//   Listener listener("10.0.0.1", "5100-5120");           // tell listener.endpoint() to the others, hear theirs
//   TcpModule module({port_settings, join_settings, std::move(listener)});
//
// What a frame costs beside the system calls: some 50 ns to send or hold it back, some 20 ns to receive it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "comm/kind.hpp"
#include "comm/module.hpp"
#include "comm/tcp/address.hpp"

namespace aplib::comm::tcp {

/// What a TcpModule is made of: what its port was opened with, what is known of the others, and where it is reached.
/// endpoints: "10.0.0.1:5103", "[::1]:5103". streams: connections per pair; 0: one, and where the round trip is long as
/// many as help. resume_time: a long link that was cut is lost when it does not come back so soon.
struct Settings : PortSettings, JoinSettings {
  Listener listener;
};

class TcpModule final : public Module {
 public:
  /// Answers calls from now on. Throws Error.
  explicit TcpModule(Settings settings);
  ~TcpModule() override;

  [[nodiscard]] const char* name() const noexcept override { return "tcp"; }
  void start(Receiver& receiver) override;
  void send(Peer to, const Label& label, std::span<const std::byte> body) override;
  [[nodiscard]] std::size_t queued(Peer to) const noexcept override;
  void flush() noexcept override;
  bool poll() override;
  void wait(std::optional<std::chrono::nanoseconds> timeout) override;
  void wake() noexcept override;
  [[nodiscard]] int descriptor() noexcept override;
  bool arm() override;
  void disarm() noexcept override;
  bool close(std::chrono::nanoseconds linger) override;
  bool abandon() override;
  [[nodiscard]] Traffic traffic() const noexcept override;
  [[nodiscard]] std::string describe(Peer peer) const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace aplib::comm::tcp
