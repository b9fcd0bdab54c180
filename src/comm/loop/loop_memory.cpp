// SPDX-License-Identifier: MIT
#include "comm/loop/loop_memory.hpp"

#include <cstring>
#include <optional>

namespace aplib::comm {
namespace {

std::optional<std::uint64_t> number_of(const MemoryKey& key) noexcept {
  std::uint64_t number = 0;
  if (key.bytes != sizeof number) return std::nullopt;
  std::memcpy(&number, key.words.data(), sizeof number);
  return number;
}

}  // namespace

MemoryKey LoopMemory::open(std::span<std::byte> memory) {
  const std::lock_guard lock(mutex_);
  open_.emplace(next_, memory);
  MemoryKey key;
  key.bytes = sizeof next_;
  std::memcpy(key.words.data(), &next_, sizeof next_);
  ++next_;
  return key;
}

void LoopMemory::conceal(const MemoryKey& key) noexcept {
  const std::lock_guard lock(mutex_);
  if (const std::optional<std::uint64_t> number = number_of(key)) open_.erase(*number);
}

void LoopMemory::conceal_all() noexcept {
  const std::lock_guard lock(mutex_);
  open_.clear();
}

std::byte* LoopMemory::find(const MemoryKey& key, std::uint64_t address, std::size_t bytes) noexcept {
  const std::optional<std::uint64_t> number = number_of(key);
  const auto found = number ? open_.find(*number) : open_.end();
  if (found == open_.end()) return nullptr;
  const std::span<std::byte> memory = found->second;
  const std::uint64_t offset = address - reinterpret_cast<std::uintptr_t>(memory.data());
  if (offset > memory.size() || bytes > memory.size() - offset) return nullptr;
  return memory.data() + offset;
}

bool LoopMemory::copy_in(const MemoryKey& key, std::uint64_t address, std::span<const std::byte> from,
                         std::size_t whole) noexcept {
  const std::lock_guard lock(mutex_);
  std::byte* const into = find(key, address, whole);
  if (into == nullptr) return false;
  if (!from.empty()) std::memcpy(into, from.data(), from.size());
  return true;
}

bool LoopMemory::copy_out(const MemoryKey& key, std::uint64_t address, std::span<std::byte> into,
                          std::size_t whole) noexcept {
  const std::lock_guard lock(mutex_);
  const std::byte* const from = find(key, address, whole);
  if (from == nullptr) return false;
  if (!into.empty()) std::memcpy(into.data(), from, into.size());
  return true;
}

}  // namespace aplib::comm
