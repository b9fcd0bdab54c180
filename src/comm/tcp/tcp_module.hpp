// SPDX-License-Identifier: MIT
// TcpModule: frames over TCP. Connections are made at the first frame; data is read and written by the threads that call poll() and send(), so that no hand-over is on the way of a message; a thread of
// the module's own makes connections, and sleeps otherwise.
//
//   TcpListener listener("10.0.0.1", "5100-5120");           // tell listener.endpoint() to the others, hear theirs
//   TcpModule module({.self = 0, .listener = std::move(listener), .endpoints = {...}, .key = key, .machine = "…"});
//
// What a frame costs beside the system calls: some 50 ns to send or hold it back, some 20 ns to receive it.
#pragma once

#include <memory>

#include "comm/module.hpp"
#include "comm/tcp/settings.hpp"

namespace aplib::comm {

class TcpModule final : public Module {
 public:
  /// Answers calls from now on. Throws Error.
  explicit TcpModule(TcpSettings settings);
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
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace aplib::comm
