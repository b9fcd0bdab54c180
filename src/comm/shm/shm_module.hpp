// SPDX-License-Identifier: MIT
// ShmModule: frames between processes of one host, through memory that they share. A small frame is one cache line;
// no system call is on its way, unless the other process sleeps. A thread of the module's own joins processes at
// their first frame, and sleeps otherwise.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "comm/kind.hpp"
#include "comm/shm/presence.hpp"

namespace aplib::comm::shm {

/// What an ShmModule is made of: what its port was opened with, what is known of the others, and where it is reached.
struct Settings : PortSettings, JoinSettings {
  Presence presence;
};

class ShmModule final : public Module {
 public:
  /// Answers calls from now on. Throws Error.
  explicit ShmModule(Settings settings);
  ~ShmModule() override;

  [[nodiscard]] const char* name() const noexcept override { return "shm"; }
  void start(Receiver& receiver) override;
  void send(Peer to, const Label& label, std::span<const std::byte> body) override;
  [[nodiscard]] std::size_t queued(Peer to) const noexcept override;
  void flush() noexcept override;
  bool poll() override;
  void wait(std::optional<std::chrono::nanoseconds> timeout) override;
  void wake() noexcept override;
  [[nodiscard]] bool shares_host(Peer peer) const noexcept override;
  [[nodiscard]] bool reaches_memory(Peer peer) const noexcept override;
  MemoryKey expose(Peer peer, std::span<std::byte> memory) override;
  void conceal(Peer peer, const MemoryKey& key) noexcept override;
  /// Done when it returns; memory_done() comes by poll() all the same.
  void write(Peer to, const MemoryKey& key, std::uint64_t address, std::span<const std::byte> local,
             std::uint64_t context) override;
  void read(Peer from, const MemoryKey& key, std::uint64_t address, std::span<std::byte> local,
            std::uint64_t context) override;
  [[nodiscard]] int descriptor() noexcept override;
  bool arm() override;
  void disarm() noexcept override;
  bool close(std::chrono::nanoseconds linger) override;
  [[nodiscard]] Traffic traffic() const noexcept override;
  [[nodiscard]] std::string describe(Peer peer) const override;
  bool abandon() override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace aplib::comm::shm
