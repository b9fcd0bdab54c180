// SPDX-License-Identifier: MIT
// The module contract in C++: how frames get from one process of a machine to another. The contract itself, six
// promises and a card for each function, stands in include/aplib/comm_module.h (and comm_types.h for the upcalls):
// the functions here are those of the same name there. What stands here is what is different in C++:
//
// - A function fails by throwing Error: Errc::exhausted for APLIB_COMM_EXHAUSTED, and so on. Upcalls do not throw.
// - The module ends by its destructor, which is close(0) where it was not closed.
//
// Our own modules (shm, rdma, tcp) implement these classes, and so do `loop` (tests/support/loop, with faults) and
// the translation of plug-ins (src/comm/plugin). tests/comm/suite checks any of them against the contract.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace aplib::comm {

/// Number of a process of the machine: 0 .. processes - 1.
using Peer = std::uint32_t;

/// What a frame says about its body. A module carries labels and does not look inside.
struct Label {
  std::uint64_t key = 0;    ///< Match key, or what the kind makes of it.
  std::uint32_t cell = 0;   ///< Destination cell.
  std::uint32_t task = 0;   ///< Destination task.
  std::uint32_t kind = 0;   ///< The kernel's kinds (src/kernel/module_network.hpp).
  std::uint32_t extra = 0;  ///< Depends on the kind.
  friend bool operator==(const Label&, const Label&) = default;
};

/// Upcalls of a module: aplib_comm_receiver.
class Receiver {
 public:
  virtual ~Receiver() = default;

  virtual bool wants(Peer from) = 0;
  virtual void frame(Peer from, const Label& label, std::span<const std::byte> body) = 0;
  /// Null: refused.
  virtual std::byte* large_begin(Peer from, const Label& label, std::size_t bytes) = 0;
  virtual void large_end(Peer from, const Label& label, std::size_t bytes, bool complete) = 0;
  virtual void peer_lost(Peer peer, const std::string& why) = 0;
  virtual void memory_done(std::uint64_t /*context*/, bool /*ok*/) {}
};

/// What another process needs to reach a piece of our memory: words of the module's own, which the kernel carries
/// between processes.
struct MemoryKey {
  static constexpr std::size_t bytes_max = 60;
  std::uint32_t bytes = 0;
  std::array<std::byte, bytes_max> words{};
};

/// What a module has done so far. Counters only grow.
struct Traffic {
  std::uint64_t frames_sent = 0;
  std::uint64_t frames_received = 0;
  std::uint64_t bytes_sent = 0;      ///< Bodies.
  std::uint64_t bytes_received = 0;  ///< Bodies.
  std::uint64_t system_calls = 0;    ///< Of sending and receiving.
  std::uint64_t refused = 0;         ///< Connections of strangers that were dropped.
};

// A function that is added here also goes into the plug-in interface (include/aplib/comm_module.h, appended, minor
// version) and its translation (src/comm/plugin/), except shares_host().
class Module {
 public:
  /// APLIB_COMM_LARGE_BYTES.
  static constexpr std::size_t large_from_bytes = 16 * 1024;
  /// APLIB_COMM_BODY_BYTES_MAX.
  static constexpr std::uint64_t body_bytes_max = std::uint64_t{1} << 40;

  virtual ~Module() = default;
  Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// "tcp".
  [[nodiscard]] virtual const char* name() const noexcept = 0;

  virtual void start(Receiver& receiver) = 0;
  virtual void send(Peer to, const Label& label, std::span<const std::byte> body) = 0;
  [[nodiscard]] virtual std::size_t queued(Peer to) const noexcept = 0;
  virtual void flush() noexcept = 0;
  virtual bool poll() = 0;
  /// No timeout: for ever.
  virtual void wait(std::optional<std::chrono::nanoseconds> timeout) = 0;
  virtual void wake() noexcept = 0;

  /// The peer is a process of this host, and uses this module because they share memory: large bodies need not pass
  /// through it. Constant. [any thread]
  [[nodiscard]] virtual bool shares_host(Peer /*peer*/) const noexcept { return false; }

  // Remote memory: promise (6). A module without it leaves these alone.

  [[nodiscard]] virtual bool reaches_memory(Peer /*peer*/) const noexcept { return false; }
  virtual MemoryKey expose(Peer /*peer*/, std::span<std::byte> /*memory*/) { no_remote_memory("expose"); }
  virtual void conceal(Peer /*peer*/, const MemoryKey& /*key*/) noexcept {}
  virtual void write(Peer /*to*/, const MemoryKey& /*key*/, std::uint64_t /*address*/,
                     std::span<const std::byte> /*local*/, std::uint64_t /*context*/) {
    no_remote_memory("write");
  }
  virtual void read(Peer /*from*/, const MemoryKey& /*key*/, std::uint64_t /*address*/, std::span<std::byte> /*local*/,
                    std::uint64_t /*context*/) {
    no_remote_memory("read");
  }

  // Sleeping on several modules at once (src/comm/mixed); wait() is for one alone. A module without a descriptor leaves
  // these alone.

  [[nodiscard]] virtual int descriptor() noexcept { return -1; }
  virtual bool arm() { return true; }
  virtual void disarm() noexcept {}

  virtual void let_go() noexcept {}
  virtual bool close(std::chrono::nanoseconds linger) = 0;
  virtual bool abandon() { return false; }

  [[nodiscard]] virtual Traffic traffic() const noexcept = 0;
  [[nodiscard]] virtual std::string describe(Peer peer) const = 0;

 private:
  // Its virtual functions are all inline: the class is used on both sides of a library's border, and each has its
  // own table.
  [[noreturn]] void no_remote_memory(const char* call) const;
};

}  // namespace aplib::comm
