// SPDX-License-Identifier: MIT
// LoopMemory: what one process of a loop net has opened to another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>

#include "comm/module.hpp"

namespace aplib::comm {

/// Thread safety: any thread. Never calls out. Copies are made under the lock, so that nobody touches memory any more once conceal() has returned.
class LoopMemory {
 public:
  /// `first`: the number of the first opening; 2^32 are this pair's.
  explicit LoopMemory(std::uint64_t first) noexcept : next_(first) {}

  /// Throws std::bad_alloc.
  [[nodiscard]] MemoryKey open(std::span<std::byte> memory);
  void conceal(const MemoryKey& key) noexcept;
  /// The process is gone, and its memory with it.
  void conceal_all() noexcept;

  /// Copy into, or out of, what `key` opens. False: it does not open `whole` bytes there, and nothing is copied.
  bool copy_in(const MemoryKey& key, std::uint64_t address, std::span<const std::byte> from,
               std::size_t whole) noexcept;
  bool copy_out(const MemoryKey& key, std::uint64_t address, std::span<std::byte> into, std::size_t whole) noexcept;

 private:
  [[nodiscard]] std::byte* find(const MemoryKey& key, std::uint64_t address, std::size_t bytes) noexcept;

  std::mutex mutex_;
  std::map<std::uint64_t, std::span<std::byte>> open_;  // By number, which no other opening ever has.
  std::uint64_t next_;
};

}  // namespace aplib::comm
