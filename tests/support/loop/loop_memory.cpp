// SPDX-License-Identifier: MIT
#include "loop/loop_memory.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "loop/loop_random.hpp"

namespace aplib::comm::loop {
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

std::uint64_t LoopTransfers::draw() noexcept { return loop_draw(random_); }

void LoopTransfers::delay(UnderWay& one) noexcept {
  one.due_poll = polls_ + draw() % (faults_.delay_polls_max + std::uint64_t{1});
  if (faults_.delay_time_max.count() == 0) return;
  const auto most = static_cast<std::uint64_t>(faults_.delay_time_max.count());
  one.due_time = Clock::now() + std::chrono::nanoseconds(draw() % (most + 1));
}

bool LoopTransfers::due(const UnderWay& one) const noexcept {
  return one.due_poll <= polls_ && (faults_.delay_time_max.count() == 0 || one.due_time <= Clock::now());
}

void LoopTransfers::move(UnderWay& one, std::size_t bytes) noexcept {
  const LoopTransfer& transfer = one.transfer;
  // As in hardware, the key is checked for the whole rest before a byte moves.
  std::byte* const local = transfer.local + one.moved;
  const std::uint64_t address = transfer.address + one.moved;
  const bool ok = transfer.writes ? memory_.copy_in(transfer.key, address, {local, bytes}, transfer.bytes - one.moved)
                                  : memory_.copy_out(transfer.key, address, {local, bytes}, transfer.bytes - one.moved);
  one.moved += bytes;
  if (!ok) {
    one.ok = false;
  } else if (one.moved == transfer.bytes) {
    one.ok = true;
  }
}

/// The transfer is due: moves a piece. Its caller may hear of the end later.
void LoopTransfers::step(UnderWay& one) noexcept {
  move(one, std::min(one.transfer.bytes - one.moved, loop_piece(random_, faults_.piece_bytes_max)));
  delay(one);
}

void LoopTransfers::begin(const LoopTransfer& transfer, std::uint64_t behind) {
  UnderWay& one = under_way_.emplace_back(UnderWay{.transfer = transfer, .behind = behind});
  delay(one);
  if (faults_.piece_bytes_max == 0 && faults_.delay_polls_max == 0 && due(one)) step(one);
}

void LoopTransfers::finish_writes_before(std::uint64_t end) noexcept {
  for (UnderWay& one : under_way_) {
    if (one.transfer.writes && one.behind < end && !one.ok) move(one, one.transfer.bytes - one.moved);
  }
}

void LoopTransfers::finish() noexcept {
  for (UnderWay& one : under_way_) {
    if (!one.ok) move(one, one.transfer.bytes - one.moved);
    one.due_poll = 0;
    one.due_time = {};
  }
}

void LoopTransfers::fail() noexcept {
  for (UnderWay& one : under_way_) {
    if (!one.ok) one.ok = false;
    one.due_poll = 0;
    one.due_time = {};
  }
}

std::optional<LoopTransfers::Done> LoopTransfers::poll() noexcept {
  for (auto one = under_way_.begin(); one != under_way_.end(); ++one) {
    while (!one->ok && due(*one)) step(*one);
    if (!one->ok || !due(*one)) continue;
    const Done done{one->transfer.context, *one->ok};
    under_way_.erase(one);
    return done;
  }
  return std::nullopt;
}

std::optional<LoopTransfers::Clock::time_point> LoopTransfers::next() const noexcept {
  std::optional<Clock::time_point> first;
  for (const UnderWay& one : under_way_) {
    if (!first || one.due_time < *first) first = one.due_time;
  }
  return first;
}

}  // namespace aplib::comm::loop
