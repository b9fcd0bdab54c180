// SPDX-License-Identifier: MIT
// MixedModule: several modules as one. One module is in charge of each peer and carries all frames to and from it, so
// that the promises of the contract hold for each peer, and thereby for the mixture. Who has which peers is decided
// before (mixed_port.hpp), in the same way on both sides.
//
// Invariants: (1) modules are polled one after the other, so that upcalls do not overlap; (2) a module knows only
// the peers it is in charge of: to it the others have no endpoint; (3) the first poll() after a wait() asks every
// module, since the sleep may have ended for any of them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/os/bell.hpp"
#include "comm/module.hpp"

namespace aplib::comm::mixed {

/// A thread that sleeps in the wait() of a module without a descriptor, and rings a bell for those who sleep on several
/// modules. Such a sleep costs two more thread switches. It is for modules whose library has nothing to wait on
/// together with others. Thread safety: arm() and disarm(), any thread.
class Sleeper {
 public:
  /// Both outlive it. Throws Error(exhausted).
  Sleeper(Module& module, os::Bell& bell);
  ~Sleeper();
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  /// From now on the bell rings when the module's wait() ends.
  void arm();
  void disarm() noexcept;

 private:
  void run() noexcept;
  void end_wait() noexcept;

  Module& module_;
  os::Bell& bell_;
  std::mutex lock_;
  std::condition_variable changed_;
  std::uint32_t armed_ = 0;
  std::uint64_t orders_ = 0;  // Each arm() is one to look at the module once more.
  bool waiting_ = false;      // The thread is in the module's wait(), or on its way there or back.
  bool recalled_ = false;     // That wait() was ended by us, and tells nothing of the module.
  bool closing_ = false;
  std::thread thread_;
};

class MixedModule final : public Module {
 public:
  static constexpr std::size_t modules_max = 15;

  /// `modules`: in the order in which they are polled. A thread sleeps for each that has no descriptor().
  /// `in_charge`: by peer, the number of its module; that of the process itself is not used. Throws
  /// Error(bad_argument), Error(exhausted).
  MixedModule(Peer self, std::vector<std::unique_ptr<Module>> modules, std::vector<std::uint32_t> in_charge);

  /// "shm+tcp".
  [[nodiscard]] const char* name() const noexcept override { return name_.c_str(); }
  void start(Receiver& receiver) override;
  void send(Peer to, const Label& label, std::span<const std::byte> body) override {
    of(to, "send").send(to, label, body);
  }
  [[nodiscard]] std::size_t queued(Peer to) const noexcept override {
    return to < by_peer_.size() && by_peer_[to] != nullptr ? by_peer_[to]->queued(to) : 0;
  }
  void flush() noexcept override;
  /// A module is left out now and then, while one before it brings something: see Asked.
  bool poll() override;
  void wait(std::optional<std::chrono::nanoseconds> timeout) override;
  void wake() noexcept override { bell_.ring(); }

  [[nodiscard]] bool shares_host(Peer peer) const noexcept override {
    return peer < by_peer_.size() && by_peer_[peer] != nullptr && by_peer_[peer]->shares_host(peer);
  }
  [[nodiscard]] bool reaches_memory(Peer peer) const noexcept override {
    return peer < by_peer_.size() && by_peer_[peer] != nullptr && by_peer_[peer]->reaches_memory(peer);
  }
  MemoryKey expose(Peer peer, std::span<std::byte> memory) override { return of(peer, "expose").expose(peer, memory); }
  void conceal(Peer peer, const MemoryKey& key) noexcept override {
    if (peer < by_peer_.size() && by_peer_[peer] != nullptr) by_peer_[peer]->conceal(peer, key);
  }
  void write(Peer to, const MemoryKey& key, std::uint64_t address, std::span<const std::byte> local,
             std::uint64_t context) override {
    of(to, "write").write(to, key, address, local, context);
  }
  void read(Peer from, const MemoryKey& key, std::uint64_t address, std::span<std::byte> local,
            std::uint64_t context) override {
    of(from, "read").read(from, key, address, local, context);
  }

  void let_go() noexcept override {
    for (const Part& part : parts_) part.module->let_go();
  }
  bool close(std::chrono::nanoseconds linger) override;
  bool abandon() override;
  [[nodiscard]] Traffic traffic() const noexcept override;
  [[nodiscard]] std::string describe(Peer peer) const override { return of(peer, "describe").describe(peer); }

  /// The module that carries what goes to the peer. Throws Error(bad_argument) for a process that is not there.
  [[nodiscard]] const Module& in_charge_of(Peer peer) const { return of(peer, "in_charge_of"); }

 private:
  /// When a module was asked for frames, and what it costs to ask in vain. A poll of shared memory is some loads,
  /// one of sockets some system calls: to make them in every poll would multiply the latency of shared memory. So a
  /// module is not asked while one before it is busy, that is, has brought something within twice the time that
  /// asking costs; but then still after every 16 times that time, so that asking takes a sixteenth of the time at
  /// most. In cycles().
  struct Asked {
    static constexpr std::uint64_t busy_for = 2;
    static constexpr std::uint64_t share = 16;
    std::uint64_t cost = 0;
    std::uint64_t last = 0;
    std::uint64_t last_brought = 0;
    bool brings = false;  // It did when it was last asked.
    void learn(std::uint64_t cycles) noexcept;
  };
  struct Part {
    std::unique_ptr<Module> module;
    Asked asked{};
    std::unique_ptr<Sleeper> sleeper{};  // Null: it has a descriptor, or was not started.
  };

  [[nodiscard]] Module& of(Peer peer, const char* call) const {
    if (peer < by_peer_.size() && by_peer_[peer] != nullptr) [[likely]]
      return *by_peer_[peer];
    no_peer(peer, call);
  }
  [[noreturn]] void no_peer(Peer peer, const char* call) const;

  const Peer self_;
  std::vector<Module*> by_peer_;  // Null: oneself.
  os::Bell bell_;                 // Before the parts, whose sleepers ring it.
  std::vector<Part> parts_;
  std::atomic<bool> ask_all_{true};
  std::string name_;
  bool closed_ = false;
};

/// The same for any module. A module that is no mixture is in charge of all.
[[nodiscard]] const Module& in_charge_of(const Module& module, Peer peer);

}  // namespace aplib::comm::mixed
