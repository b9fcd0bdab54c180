// SPDX-License-Identifier: MIT
// Memory of other processes, reached by the system calls that debuggers use (process_vm_readv, process_vm_writev).
// The kernel protects it: it asks whether the one process may trace the other. Keys protect from mistakes. A key names
// a place on its owner's control block; as long as the key's token stands there, the memory is open.
//
// A process that accesses memory says so on its own control block first, and then looks at the token. A process that
// conceals memory takes the token away first, and then waits for the accesses that had begun. So nobody writes where
// something else lies by now.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "comm/module.hpp"
#include "comm/shm/presence.hpp"
#include "comm/shm/segment.hpp"

namespace aplib::comm::shm {

/// Ours that is open. Thread safety: any thread.
class OpenMemory {
 public:
  explicit OpenMemory(ControlBlock& block);
  /// Throws Error(exhausted).
  [[nodiscard]] MemoryKey open(std::span<std::byte> memory);
  /// Nobody begins to access it any more. False: it was not open.
  bool conceal(const MemoryKey& key) noexcept;
  void conceal_all() noexcept;

 private:
  ControlBlock& block_;
  std::mutex mutex_;
  std::uint64_t next_token_;
  std::uint32_t used_ = 0;           // Places below this were used.
  std::vector<std::uint32_t> free_;  // Of those.
};

/// Another process's. Thread safety: any thread, but probe().
class PeerMemory {
 public:
  PeerMemory(const Endpoint& own, const Endpoint& peer, ControlBlock& own_block) noexcept
      : own_(own), peer_(peer), own_block_(own_block) {}

  /// Asks the system what reachable() then says.
  void probe() noexcept;
  [[nodiscard]] bool reachable() const noexcept { return reachable_; }

  /// The peer's control block, once we are joined: saves system calls.
  void attach(const ControlBlock* block) noexcept { block_.store(block, std::memory_order_release); }

  /// Whether all of it was done.
  [[nodiscard]] bool write(const MemoryKey& key, std::uint64_t address, std::span<const std::byte> local) noexcept;
  [[nodiscard]] bool read(const MemoryKey& key, std::uint64_t address, std::span<std::byte> local) noexcept;

  /// After OpenMemory::conceal(): returns when no access of the peer by this key is under way any more; it does not
  /// take long.
  void await_accesses(const MemoryKey& key) const noexcept;

 private:
  enum class Direction : std::uint8_t { in, out };
  bool access(Direction direction, const MemoryKey& key, std::uint64_t address, std::byte* local,
              std::size_t bytes) noexcept;
  [[nodiscard]] bool is_open(std::uint32_t place, std::uint64_t token) const noexcept;
  /// A word of the peer's control block. False: it is gone.
  bool look(std::size_t offset, std::uint64_t& word) const noexcept;

  const Endpoint own_;
  const Endpoint peer_;
  ControlBlock& own_block_;
  bool reachable_ = false;
  std::atomic<const ControlBlock*> block_{nullptr};
};

}  // namespace aplib::comm::shm
