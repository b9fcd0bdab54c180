// SPDX-License-Identifier: MIT
// Cell: a virtual node, with its tasks. Everything here is touched only by the processor that carries the cell, except
// where said.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "aplib/message.hpp"
#include "arch/cpu.hpp"
#include "cell/buffer_pool.hpp"
#include "cell/collective.hpp"
#include "cell/condition.hpp"
#include "cell/matching.hpp"
#include "cell/mpi_state.hpp"
#include "cell/posted_queue.hpp"
#include "cell/task_table.hpp"
#include "memory/slot_heap.hpp"
#include "task/ready_queue.hpp"
#include "task/stack.hpp"
#include "task/switch.hpp"

namespace aplib {

class Baton;
class Processor;
struct Cell;
struct TaskControl;
using Clock = std::chrono::steady_clock;

/// What a task waits for: a condition, or a flag, which is an int of the user's that transfers raise by one each.
///
/// A wait cannot miss a flag, though who raises it takes no lock and knows of no list:
///
///   waiter:  cell.watcher = processor   parker.announce(): heavy fence   look at the flag   sleep
///   raiser:  raise the flag             light fence                      look at cell.watcher, then at its parker
///
/// Either the waiter sees the flag, or the raiser sees the watcher and that it sleeps (fences: parker.hpp).
struct Watch {
  const std::int32_t* flag = nullptr;
  std::int32_t count = 0;                ///< To be reached, as a signed difference.
  const Condition* condition = nullptr;  ///< Instead of a flag.
  // acquire: what was written before the flag was raised
  [[nodiscard]] std::int32_t now() const noexcept { return __atomic_load_n(flag, __ATOMIC_ACQUIRE); }
  [[nodiscard]] bool reached() const noexcept {
    return condition != nullptr ? condition->holds() : has_reached(flag, count);
  }
  [[nodiscard]] static bool has_reached(const std::int32_t* flag, std::int32_t count) noexcept {
    const auto now = static_cast<std::uint32_t>(__atomic_load_n(flag, __ATOMIC_ACQUIRE));  // acquire: as now()
    return static_cast<std::int32_t>(now - static_cast<std::uint32_t>(count)) >= 0;
  }
  [[nodiscard]] bool is_about_memory() const noexcept { return condition == nullptr || condition->is_about_memory(); }

  /// Raises a flag by one, behind what was written before; null: none. Who waits must be woken: see wake_watcher().
  static void raise(std::int32_t* flag) noexcept {
    if (flag != nullptr) __atomic_fetch_add(flag, 1, __ATOMIC_RELEASE);  // release: the data before it
  }
};

/// What a task waits for; the deadlock report prints it.
enum class WaitFor : std::uint8_t {
  nothing,     ///< Running or ready.
  message,     ///< posted says which.
  requests,    ///< those posted receives that say so (Posted::awaited).
  collective,  ///< cell->collective says which.
  task_end,    ///< join: wait_task says which.
  time,        ///< sleep_for.
  cells_end,   ///< Host program: until all cells have ended.
  flag,        ///< watch says which, and how far.
  condition,   ///< watch says which.
  room,        ///< A send: until some messages have been received.
};

/// How a wait ended.
enum class Wake : std::uint8_t {
  done,      ///< What it waited for happened.
  stopping,  ///< The machine stops: unwind.
  ended,     ///< The cell it waited for has ended (a receive that names it, a collective it takes part in).
};

/// A receive that waits for its message. The one that a task blocks in is TaskControl::posted. Those that it waits for
/// later, its requests, are in TaskControl::requests. Arriving messages find either by Inbound::give().
struct Posted {
  MatchWish wish;
  Message* message = nullptr;    ///< Pointer-style receive: where to put the message; else:
  char* buffer = nullptr;        ///< the caller's own buffer,
  std::size_t capacity = 0;      ///< and its size.
  const Form* form = nullptr;    ///< Where `capacity` bytes of a lease go (lease.hpp), instead of all that.
  std::uint64_t key = 0;         ///< Result: key of the message.
  std::size_t bytes = 0;         ///< Result: its length; of an own buffer, min(bytes, capacity) were stored.
  TaskControl* task = nullptr;   ///< Who waits for it; while nobody does, its owner.
  TaskControl* owner = nullptr;  ///< Whose mailbox its message comes to.
  bool open = false;             ///< Waiting for a match.
  bool offered = false;          ///< Also offered in cell->offer, where a sender on another processor may claim it.
  bool closed_when_cells_end = false;  ///< Host: end with Wake::ended when all cells have ended.
  bool queued = false;                 ///< In owner->requests; a claimed one may be out of it.
  bool awaited = false;                ///< `task` waits for it, and counts it in TaskControl::awaited.
  bool looks = false;                  ///< It is over when its message is there, which goes on to the next receive.
  bool gives_receipt = false;          ///< To the sender of a message that asks for it (ContextKey).
  Wake how = Wake::done;               ///< Result: a message, or why there is none.
  std::uint8_t lane = 0;               ///< For PostedQueue, as all that follow but the last.
  std::uint64_t order = 0;
  Posted* next = nullptr;
  Posted* previous = nullptr;
  Posted* bucket_next = nullptr;
  Posted* bucket_previous = nullptr;
  Transfer<> transfer;      ///< For a claimed one.
  Buffer* lease = nullptr;  ///< Not null: no receive, but a send that is over when its lease has been taken.
};

/// A receive that waits with its own buffer, offered to senders of other processors. A sender that takes it (exchange
/// to null) owns the rest until it has committed or put it back; see Outbound::claim_offer() and Inbound::withdraw().
/// All that a sender looks at lies in this one line.
struct alignas(cache_pair_bytes) Offer {
  std::atomic<Posted*> posted{nullptr};
  std::atomic<bool> committed{false};  ///< The sender that has taken it is going to fill the buffer.
  /// The cell has lately received large messages into buffers of its own: the next one may be worth a moment's wait.
  std::atomic<bool> lately{false};
  std::atomic<std::uint32_t> task{0};  ///< Whose mailbox it receives from; for a look without taking it.
  MatchWish wish;
  char* buffer = nullptr;
  std::size_t capacity = 0;
};

/// Everything the runtime keeps of one task. It lies at the top of the task's own stack, so that a task costs one
/// page. Only the processor that carries the task's cell touches it, except where said.
struct alignas(cache_line_bytes) TaskControl : Flow {
  TaskControl* next = nullptr;  ///< Ready queue, or list of whoever holds it.
  Cell* cell = nullptr;
  std::uint32_t id = 0;
  WaitFor waits = WaitFor::nothing;
  Wake wake = Wake::done;
  bool ready = false;  ///< In the ready queue.
  bool ended = false;  ///< Ran to its end; kept for join.
  bool detached = false;
  bool from_kernel = false;  ///< Started by run() or start_cells(), not by spawn().
  bool is_guest = false;     ///< A thread of the program's, see Baton.
  std::uint8_t probe_misses = 0;
  const char* call = "";  ///< The library call it waits in.
  Clock::time_point wait_since{};
  std::uint32_t wait_task = 0;
  TaskControl* joiner = nullptr;
  void (*entry)(void*) = nullptr;
  void* entry_state = nullptr;
  Posted posted;
  Watch watch;
  MatchQueue<Buffer> mailbox;    ///< Messages that nobody has asked for yet.
  PostedQueue<Posted> requests;  ///< Open receives that are waited for later. An open `posted` is older than these.
  Posted* lent = nullptr;        ///< The first of its open sends, linked by `next` and `previous`.
  std::size_t awaited = 0;       ///< So many requests must complete before it goes on.
  Stack stack;
  const Stack* aside = nullptr;                ///< It stands on this one, a coroutine's (kernel/coroutine.hpp).
  void* cellos_state = nullptr;                ///< State of the CellOS API (kernel/api.hpp), made at first use,
  void (*free_cellos_state)(void*) = nullptr;  ///< and freed with the task.

  TaskControl() noexcept { posted.task = posted.owner = this; }
  ~TaskControl() {
    if (free_cellos_state != nullptr) free_cellos_state(cellos_state);
  }
  TaskControl(const TaskControl&) = delete;
  TaskControl& operator=(const TaskControl&) = delete;
};

/// The running task `self` goes on as part of a loaded program (null: of none). Out of line: callers have switched
/// and must not reuse the address of a thread-local.
void enter_program(TaskControl& self, ProgramContext* program) noexcept;

/// A cell's place in the collectives of one scope.
struct CollectivePlace {
  std::uint64_t episode = 0;  ///< Done so far; the number of the next one.
  Operand operands[2]{};      ///< By parity. Read by other processors once the arrival is published.
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
  Operand result{};
  std::uint32_t ended_cell = 0;  ///< Result, with Wake::ended: which member has ended.
};

/// A task that sleeps until a point in time.
struct Timer {
  Clock::time_point deadline;
  TaskControl* task;
  std::uint64_t order;
  bool operator<(const Timer& other) const noexcept {  // for a heap whose top is due first
    return deadline != other.deadline ? deadline > other.deadline : order > other.order;
  }
};

/// What others must know of a cell that has ended.
struct CellEnd {
  /// Kernel-started tasks that have ended there so far. Of the host program: the programs that it has started.
  std::uint64_t tasks = 0;
  /// Collectives that it has been through, by Scope: others may still be in the last of them.
  std::uint64_t episodes[3] = {0, 0, 0};
  std::int32_t status = 0;  ///< Its exit status so far.
};

struct alignas(cache_pair_bytes) Cell {
  Cell() = default;
  ~Cell();
  Cell(const Cell&) = delete;
  Cell& operator=(const Cell&) = delete;

  [[nodiscard]] CollectivePlace& place(Scope scope) noexcept { return places[static_cast<std::size_t>(scope)]; }

  [[nodiscard]] CellEnd end() const noexcept {
    return {ended_from_kernel, {places[0].episode, places[1].episode, places[2].episode}, status};
  }

  std::uint32_t id = 0;            ///< Index; the host program's is the cell count.
  std::uint32_t number = 0;        ///< What users call it; the host program: Domain::host_id.
  Processor* processor = nullptr;  ///< Who carries it now.
  TaskTable tasks;
  std::optional<StackPool> stacks;          ///< Made on first use, by the processor that carries the cell then. So is:
  std::optional<StackPool> program_stacks;  ///< For tasks that run a loaded program.
  /// `stack` is one of program_stacks rather than of stacks.
  [[nodiscard]] bool is_program_stack(const Stack& stack) const noexcept {
    return program_stacks && program_stacks->stack_bytes() == stack.bytes();
  }
  std::uint32_t x = 0;  ///< Place in the grid.
  std::uint32_t y = 0;
  CellHeap heap;  ///< In the slot. Lives as long as the cell.
  std::uint32_t live_tasks = 0;
  std::uint32_t ended_from_kernel = 0;          ///< Tasks started by run() or start_cells() that have ended.
  bool ended = false;                           ///< Had tasks, and all have ended.
  bool stays = false, keeps_thread = false;     ///< ProgramContext::stays; while its program holds locks of the thread.
  bool has_begun = false, interrupted = false;  ///< In Domain::begun_cells. By Processor::give_way().
  std::atomic<std::int64_t> computed{0};        ///< ns of CPU time, as SpinWatch's samples say. [any thread]
  int status = 0;                               ///< What cell_exit() or a failure gave.
  Clock::duration waiting{};                    ///< Idle time of the processor while this cell waited.
  CollectiveWait collective;
  CollectivePlace places[3];                 ///< By Scope.
  MatchQueue<Buffer> orphans;                ///< Messages to tasks that do not exist (yet).
  Posted* offering = nullptr;                ///< The receive in `offer`, or claimed out of it.
  ReadyQueue<TaskControl> parcel;            ///< While it moves: its ready tasks,
  std::vector<Timer> parcel_timers;          ///< and its sleeping ones,
  std::vector<TaskControl*> parcel_watches;  ///< and those that wait for flags.
  MpiState mpi;
  std::uint32_t acknowledges_requested = 0;                   ///< Puts of the cell that asked for it.
  bool has_threads = false;                                   ///< Its program makes threads,
  bool threads_call = false, has_decided_on_threads = false;  ///< which may call. MPI has begun.
  std::uint32_t callbacks = 0;         ///< Functions of the program that calls have called, and that run.
  std::atomic<Baton*> baton{nullptr};  ///< Once both are so, until the cell's end. Its main thread writes.

  Offer offer;  ///< Read and written by any processor.
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
