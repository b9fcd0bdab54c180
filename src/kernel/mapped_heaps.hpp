// SPDX-License-Identifier: MIT
// MappedHeaps: the heaps (memory/slot_heap.hpp) of cells of other processes of this host, mapped here at their own
// addresses. A one-sided call there is then what it is within a process: loads, stores and atomics of the caller. It is
// a part of OneSidedNetwork.
//
// The first call to a cell's heap asks where it is, and goes by frames. The answer names the process's HeapFile, which
// the system lets processes of the same user open. Where it does not (another user, another process namespace, no
// /proc), frames stay.
//
// What a peer says is checked: what is opened is the heaps' memory, which it cannot shorten under our eyes. It may
// write there what it likes, as it may by frames, so nothing there is trusted but data.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "cell/cell.hpp"
#include "comm/module.hpp"
#include "memory/slot_heap.hpp"

namespace aplib {

class ModuleNetwork;
struct Domain;

/// Body of a frame that says where a cell's heap is; empty: it cannot be mapped.
struct HeapPlace {
  SharedFilePlace file;
  std::uint64_t offset = 0;
};

class MappedHeaps {
 public:
  MappedHeaps(ModuleNetwork& network, Domain& domain);
  ~MappedHeaps();
  MappedHeaps(const MappedHeaps&) = delete;
  MappedHeaps& operator=(const MappedHeaps&) = delete;

  /// All of these bytes lie in the cell's heap, which is mapped here. If that is not known yet, it is asked.
  [[nodiscard]] bool holds(const TaskControl& self, std::uint32_t cell, const void* address, std::size_t bytes) {
    const std::uintptr_t offset =
        reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(SlotPlan::heap_of(cell));
    if (offset >= SlotPlan::heap_bytes()) return false;
    const State state = states_[cell].load(std::memory_order_acquire);  // pairs with take(): the mapping
    if (state != State::mapped) [[unlikely]] {
      if (state == State::unknown) ask(self, cell);
      return false;
    }
    const std::size_t mapped = of(cell).mapped_bytes();
    return mapped <= SlotPlan::heap_bytes() && offset < mapped && bytes <= mapped - offset;
  }
  /// The cell's heap is mapped here, or will be soon.
  [[nodiscard]] bool may_hold(std::uint32_t cell) const noexcept {
    const State state = states_[cell].load(std::memory_order_relaxed);  // relaxed: a hint
    return state == State::asked || state == State::mapped;
  }
  /// The heap that holds() has found.
  [[nodiscard]] static const SlotHeap& of(std::uint32_t cell) noexcept {
    return *reinterpret_cast<const SlotHeap*>(SlotPlan::heap_of(cell));
  }

  // While the network is polled.
  void answer_request(comm::Peer from, const comm::Label& label);
  /// False: the frame made no sense.
  bool take(comm::Peer from, const comm::Label& label, std::span<const std::byte> body);

  /// Maps the cell's heap. False: there is none at that place, or something else lies where it goes.
  [[nodiscard]] static bool map(const HeapPlace& place, std::uint32_t cell);
  static void unmap(std::uint32_t cell) noexcept;

 private:
  enum class State : std::uint8_t { unknown, asked, mapped, refused };

  void ask(const TaskControl& self, std::uint32_t cell);

  ModuleNetwork& network_;
  Domain& domain_;
  const std::uint32_t cells_;
  std::unique_ptr<std::atomic<State>[]> states_;  // by cell
};

}  // namespace aplib
