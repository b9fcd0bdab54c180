// SPDX-License-Identifier: MIT
// Doorbell: what a process of a loop net sleeps on.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/os/bell.hpp"
#include "comm/frame.hpp"
#include "comm/module.hpp"
#include "loop/loop_net.hpp"
#include "loop/loop_pipe.hpp"

namespace aplib::comm::loop {
/// Thread safety: any thread. Use: ticket(), look whether there is something to do, sleep(ticket). Any ring after the
/// ticket was drawn ends the sleep.
class Doorbell {
 public:
  /// Rings: ends every sleep with an older ticket. Costs an atomic increment while nobody sleeps. Async-signal-safe.
  void ring() noexcept;
  /// The same. If nobody sleeps now, the next sleep also ends at once. Async-signal-safe.
  void call() noexcept;

  /// Draws a ticket. Nothing: a call() is pending, which this ends.
  [[nodiscard]] std::optional<std::uint32_t> ticket() noexcept;
  /// Sleeps until the bell rings or the time is over (none: for ever). May return early.
  void sleep(std::uint32_t ticket, std::optional<std::chrono::nanoseconds> timeout) noexcept;

  // The same for sleepers in poll(2): arm(), look whether there is something to do, sleep on the descriptor, disarm().

  /// -1: there are no descriptors left.
  [[nodiscard]] int descriptor() noexcept;
  /// False: a call() is pending.
  bool arm() noexcept;
  /// The last one ends a call().
  void disarm() noexcept;

 private:
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "signal handlers call");
  std::atomic<std::uint32_t> rings_{0};
  std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<bool> called_{false};
  std::once_flag made_;
  std::unique_ptr<os::Bell> made_bell_;
  std::atomic<os::Bell*> bell_{nullptr};  // Null: the descriptor is not in use.
};

// LoopModule: one process's end of a loop net.

/// The state that the modules of a net share.
struct LoopNet::State {
  struct Process {
    Doorbell bell;
    std::atomic<bool> taken{false};  ///< Its module was handed out.
    std::atomic<bool> killed{false};
    std::atomic<bool> frozen{false};
  };

  State(std::uint32_t count, const LoopFaults& chosen, std::uint64_t seed);

  [[nodiscard]] LoopPipe& pipe(Peer from, Peer to) const { return *pipes[std::size_t{from} * processes + to]; }
  [[nodiscard]] Process& process(Peer peer) const { return process_list[peer]; }
  /// Throws Error for a process that does not exist.
  void check(Peer peer, const char* what) const;

  const std::uint32_t processes;
  const LoopFaults faults;
  const std::uint64_t first_seed;
  std::unique_ptr<Process[]> process_list;
  std::vector<std::unique_ptr<LoopPipe>> pipes;
};

class LoopModule final : public Module {
 public:
  LoopModule(std::shared_ptr<LoopNet::State> net, Peer self);
  ~LoopModule() override;

  [[nodiscard]] const char* name() const noexcept override { return "loop"; }
  void start(Receiver& receiver) override;
  void send(Peer to, const Label& label, std::span<const std::byte> body) override;
  [[nodiscard]] std::size_t queued(Peer to) const noexcept override;
  void flush() noexcept override;
  bool poll() override;
  void wait(std::optional<std::chrono::nanoseconds> timeout) override;
  void wake() noexcept override { process().bell.call(); }
  [[nodiscard]] int descriptor() noexcept override { return process().bell.descriptor(); }
  bool arm() override;
  void disarm() noexcept override { process().bell.disarm(); }
  [[nodiscard]] bool shares_host(Peer peer) const noexcept override {
    return net_->faults.shares_host && peer != self_ && peer < net_->processes;
  }
  [[nodiscard]] bool reaches_memory(Peer peer) const noexcept override {
    return peer != self_ && peer < net_->processes;
  }
  MemoryKey expose(Peer peer, std::span<std::byte> memory) override;
  void conceal(Peer peer, const MemoryKey& key) noexcept override;
  void write(Peer to, const MemoryKey& key, std::uint64_t address, std::span<const std::byte> local,
             std::uint64_t context) override;
  void read(Peer from, const MemoryKey& key, std::uint64_t address, std::span<std::byte> local,
            std::uint64_t context) override;
  bool close(std::chrono::nanoseconds linger) override;
  [[nodiscard]] Traffic traffic() const noexcept override;
  [[nodiscard]] std::string describe(Peer peer) const override;

 private:
  struct Connection {
    std::unique_ptr<FrameReader> reader;  // Null for oneself.
    std::atomic<bool> over{false};        // Lost, or ended in order: nothing more is read.
    std::atomic<bool> unwanted{false};    // The receiver did not want the frames.
  };

  [[nodiscard]] LoopNet::State::Process& process() const { return net_->process(self_); }
  [[nodiscard]] bool stopped() const { return closed_.load() || process().killed.load() || process().frozen.load(); }
  void check_other(Peer peer, const char* call) const;
  void begin(Peer peer, const LoopTransfer& transfer, const char* call);
  bool tell_done(Peer peer);
  bool poll_peer(Peer peer);
  bool read(Peer peer);
  void lose(Peer peer, const std::string& why);
  bool push(Peer peer) noexcept;
  [[nodiscard]] bool anything_queued() const noexcept;
  [[nodiscard]] std::optional<std::chrono::nanoseconds> time_to_sleep(
      std::optional<std::chrono::nanoseconds> timeout) const;

  const std::shared_ptr<LoopNet::State> net_;
  const Peer self_;
  Receiver* receiver_ = nullptr;
  std::unique_ptr<Connection[]> connections_;
  std::atomic<bool> closed_{false};
  std::uint32_t first_ = 0;  // The peer with which the next poll begins.
  std::vector<Peer> order_;  // The order of the peers in shuffled polls.
  std::uint64_t random_;

  std::atomic<std::uint64_t> frames_sent_{0};
  std::atomic<std::uint64_t> bytes_sent_{0};
  std::atomic<std::uint64_t> frames_received_{0};
  std::atomic<std::uint64_t> bytes_received_{0};
  std::atomic<std::uint64_t> system_calls_{0};  // Writes and reads, which would be system calls.
};

}  // namespace aplib::comm::loop
