// SPDX-License-Identifier: MIT
// What an RdmaModule is made of.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "comm/kind.hpp"
#include "comm/rdma/fabric.hpp"

namespace aplib::comm::rdma {

struct Settings : PortSettings, JoinSettings {
  /// Open: others know its name already. The module's alone; who holds on to it keeps it open.
  std::shared_ptr<Fabric> fabric;
  /// By process: their fabrics' names. Empty: not reached by us.
  std::vector<std::vector<std::byte>> addresses;
};

// RdmaModule: frames and remote memory over libfabric's reliable datagrams. Small bodies travel in packets, into
// memory that waits for them; large ones stay with the sender until the receiver reads them (rendezvous), without a
// thread of the module's own. docs/rdma.md says what was run where.

class RdmaModule final : public Module {
 public:
  /// Throws Error.
  explicit RdmaModule(Settings settings);
  ~RdmaModule() override;

  [[nodiscard]] const char* name() const noexcept override { return "rdma"; }
  void start(Receiver& receiver) override;
  void send(Peer to, const Label& label, std::span<const std::byte> body) override;
  [[nodiscard]] std::size_t queued(Peer to) const noexcept override;
  void flush() noexcept override;
  bool poll() override;
  void wait(std::optional<std::chrono::nanoseconds> timeout) override;
  void wake() noexcept override;
  [[nodiscard]] bool reaches_memory(Peer peer) const noexcept override;
  MemoryKey expose(Peer peer, std::span<std::byte> memory) override;
  void conceal(Peer peer, const MemoryKey& key) noexcept override;
  void write(Peer to, const MemoryKey& key, std::uint64_t address, std::span<const std::byte> local,
             std::uint64_t context) override;
  void read(Peer from, const MemoryKey& key, std::uint64_t address, std::span<std::byte> local,
            std::uint64_t context) override;
  [[nodiscard]] int descriptor() noexcept override;
  bool arm() override;
  void disarm() noexcept override;
  /// Closes all connections where transfers are under way.
  void let_go() noexcept override;
  bool close(std::chrono::nanoseconds linger) override;
  [[nodiscard]] Traffic traffic() const noexcept override;
  [[nodiscard]] std::string describe(Peer peer) const override;

  /// Always false: the providers do not tell the others, who hear of it from the launcher, or when they send.
  bool abandon() override;

  /// For tests.
  [[nodiscard]] std::shared_ptr<Fabric> fabric() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace aplib::comm::rdma
