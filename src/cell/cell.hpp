// SPDX-License-Identifier: MIT
// Cell: a virtual node. Everything here is touched only by the processor that carries the cell, except where said.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "arch/cpu.hpp"
#include "cell/collective.hpp"
#include "cell/task_control.hpp"
#include "memory/slot_heap.hpp"
#include "task/ready_queue.hpp"
#include "task/stack.hpp"

namespace aplib {

class Processor;

/// Tasks of one cell by id. Ids are given out from 1 up; a freed id rests behind `id_rest` others before it is used
/// again, so that a late message does not reach a stranger.
class TaskTable {
 public:
  static constexpr std::size_t id_rest = 1024;

  [[nodiscard]] TaskControl* find(std::uint32_t id) const noexcept { return id < tasks_.size() ? tasks_[id] : nullptr; }
  /// A free id, or nothing when all are in use.
  std::optional<std::uint32_t> choose_id();
  /// Afterwards insert() of this id does not throw.
  void make_room(std::uint32_t id);
  void insert(std::uint32_t id, TaskControl& task);
  void erase(std::uint32_t id) noexcept;
  /// A chosen id was not used after all.
  void give_back(std::uint32_t id) noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  /// Ids 0 .. end()-1 may be in use.
  [[nodiscard]] std::uint32_t end() const noexcept { return static_cast<std::uint32_t>(tasks_.size()); }

 private:
  friend struct DebuggerAccess;
  std::vector<TaskControl*> tasks_;
  std::vector<std::uint32_t> freed_;  // a queue: read at freed_head_
  std::size_t freed_head_ = 0;
  std::size_t count_ = 0;
};

/// A cell's place in the collectives of one scope.
struct CollectivePlace {
  std::uint64_t episode = 0;  ///< Done so far; the number of the next one.
  Operand operands[2];        ///< By parity. Read by other processors once the arrival is published.
  CollectiveCall calls[2];    ///< The same, to explain a mismatch.
  BroadcastPlace shown[2];    ///< The same, of the root of a broadcast.
};

/// The collective a cell is in, if any.
struct CollectiveWait {
  bool active = false;
  bool mismatch = false;  ///< Result: the cells of the group disagreed.
  Group* group = nullptr;
  std::uint64_t episode = 0;
  TaskControl* task = nullptr;  ///< null while it has not blocked
  Operand result;
  std::uint32_t ended_cell = 0;  ///< Result, with Wake::ended: which member has ended.
};

/// A task that sleeps until a point in time.
struct Timer {
  Clock::time_point deadline;
  TaskControl* task;
  std::uint64_t order;
  /// For a heap whose top is due first.
  bool operator<(const Timer& other) const noexcept {
    return deadline != other.deadline ? deadline > other.deadline : order > other.order;
  }
};

/// What others must know of a cell that has ended.
struct CellEnd {
  std::uint64_t tasks = 0;  ///< Kernel-started tasks that have ended there so far.
  /// Collectives that it has been through, by Scope: others may still be in the last of them.
  std::uint64_t episodes[3] = {0, 0, 0};
};

struct alignas(cache_pair_bytes) Cell {
  Cell() = default;
  ~Cell();
  Cell(const Cell&) = delete;
  Cell& operator=(const Cell&) = delete;

  [[nodiscard]] CollectivePlace& place(Scope scope) noexcept { return places[static_cast<std::size_t>(scope)]; }

  [[nodiscard]] CellEnd end() const noexcept {
    return {ended_from_kernel, {places[0].episode, places[1].episode, places[2].episode}};
  }

  std::uint32_t id = 0;  ///< Index; the host program's is the cell count.
  std::uint32_t x = 0;   ///< Place in the grid.
  std::uint32_t y = 0;
  Processor* processor = nullptr;  ///< Who carries it now.
  TaskTable tasks;
  std::optional<StackPool> stacks;          ///< Made on first use, by the processor that carries the cell then. So is:
  std::optional<StackPool> program_stacks;  ///< For tasks that run a loaded program.
  /// `stack` is one of program_stacks rather than of stacks.
  [[nodiscard]] bool is_program_stack(const Stack& stack) const noexcept {
    return program_stacks && program_stacks->stack_bytes() == stack.bytes();
  }
  CellHeap heap;  ///< In the slot. Lives as long as the cell.
  std::uint32_t live_tasks = 0;
  std::uint32_t ended_from_kernel = 0;  ///< Tasks started by run() or start_cells() that have ended.
  bool ended = false;                   ///< Had tasks, and all have ended.
  int status = 0;                       ///< What cell_exit() or a failure gave.
  Clock::duration waiting{};            ///< Idle time of the processor while this cell waited.
  CollectiveWait collective;
  CollectivePlace places[3];                 ///< By Scope.
  MatchQueue<Buffer> orphans;                ///< Messages to tasks that do not exist (yet).
  Posted* offering = nullptr;                ///< The receive in `offer`, or claimed out of it.
  ReadyQueue<TaskControl> parcel;            ///< While it moves: its ready tasks,
  std::vector<Timer> parcel_timers;          ///< and its sleeping ones,
  std::vector<TaskControl*> parcel_watches;  ///< and those that wait for flags.
  std::uint32_t acknowledges_requested = 0;  ///< Puts of the cell that asked for it.

  /// Read and written by any processor: a receive that waits with its own buffer, offered to senders. A sender that
  /// takes it (exchange to null) owns it until it has committed or put it back; see Outbound::claim_offer() and
  /// Inbound::withdraw().
  alignas(cache_pair_bytes) std::atomic<Posted*> offer{nullptr};
  /// Copies of the offer's facts, for a look without claiming. May be stale; the claimed Posted decides.
  std::atomic<std::uint32_t> offer_task{0};
  /// The cell has lately received large messages into buffers of its own: worth a moment's wait for the next offer.
  std::atomic<bool> offers_lately{false};

  /// Which processor to wake when something has been written into the cell's memory from outside: its index + 1, or
  /// 0 while no task of the cell has ever waited for a flag. Stays when the wait is over, for a line that rarely
  /// changes costs its readers nothing. Read by any.
  alignas(cache_pair_bytes) std::atomic<std::uint32_t> watcher{0};

  /// Of acknowledges_requested, those that have come: a flag. Written by who polls the network.
  alignas(cache_pair_bytes) std::int32_t acknowledged = 0;

  /// The status network: the low half is the word, bit 32 says that the cell itself posted it. Read by any.
  alignas(cache_pair_bytes) std::atomic<std::uint64_t> posted_status{0};
};

}  // namespace aplib
