// SPDX-License-Identifier: MIT
// TaskControl: everything the runtime keeps of one task. It lies at the top of the task's own stack, so that a task
// costs one page. Only the processor that carries the task's cell touches it, except where said.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "aplib/message.hpp"
#include "cell/buffer_pool.hpp"
#include "cell/match_queue.hpp"
#include "cell/watch.hpp"
#include "task/stack.hpp"
#include "task/switch.hpp"

namespace aplib {

struct Cell;
struct TaskControl;
using Clock = std::chrono::steady_clock;

/// What a task waits for; the deadlock report prints it.
enum class WaitFor : std::uint8_t {
  nothing,     ///< Running or ready.
  message,     ///< posted says which.
  collective,  ///< cell->collective says which.
  task_end,    ///< join: wait_task says which.
  time,        ///< sleep_for.
  cells_end,   ///< Host program: until all cells have ended.
  flag,        ///< watch says which, and how far.
};

/// How a wait ended.
enum class Wake : std::uint8_t {
  done,      ///< What it waited for happened.
  stopping,  ///< The machine stops: unwind.
  ended,     ///< The cell it waited for has ended (a receive that names it, a collective it takes part in).
};

/// A receive that waits. At most one per task (receives block), found by arriving messages.
struct Posted {
  MatchWish wish;
  Message* message = nullptr;  ///< Pointer-style receive: where to put the message; else:
  char* buffer = nullptr;      ///< the caller's own buffer,
  std::size_t capacity = 0;    ///< and its size.
  std::uint64_t key = 0;       ///< Result: key of the message.
  std::size_t bytes = 0;       ///< Result: its length; of an own buffer, min(bytes, capacity) were stored.
  TaskControl* task = nullptr;
  bool open = false;     ///< Waiting for a match.
  bool offered = false;  ///< Also offered in cell->offer, where a sender on another processor may claim it.
  std::atomic<bool> committed{false};  ///< Written by such a sender: it is going to fill the buffer.
  bool closed_when_cells_end = false;  ///< Host: end with Wake::ended when all cells have ended.
  Transfer<> transfer;                 ///< For a claimed one.
};

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
  std::uint8_t probe_misses = 0;
  const char* call = "";  ///< The library call it waits in.
  Clock::time_point wait_since{};
  std::uint32_t wait_task = 0;
  TaskControl* joiner = nullptr;
  void (*entry)(void*) = nullptr;
  void* entry_state = nullptr;
  Posted posted;
  Watch watch;
  MatchQueue<Buffer> mailbox;  ///< Messages that nobody has asked for yet.
  Stack stack;
  void* cellos_state = nullptr;                ///< State of the CellOS API (kernel/api.hpp), made at first use,
  void (*free_cellos_state)(void*) = nullptr;  ///< and freed with the task.

  TaskControl() = default;
  ~TaskControl() {
    if (free_cellos_state != nullptr) free_cellos_state(cellos_state);
  }
  TaskControl(const TaskControl&) = delete;
  TaskControl& operator=(const TaskControl&) = delete;
};

/// The running task `self` goes on as part of a loaded program (null: of none). Out of line: callers have switched
/// and must not reuse the address of a thread-local.
void enter_program(TaskControl& self, ProgramContext* program) noexcept;

}  // namespace aplib
