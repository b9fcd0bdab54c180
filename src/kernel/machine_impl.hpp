// SPDX-License-Identifier: MIT
// Inside a Machine: the options, the plan, and the domain of the current (or last) run; the task behind a call of the
// API, and how a call is refused in that task's name; reports of what tasks wait for.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "aplib/error.hpp"
#include "aplib/machine.hpp"
#include "base/log.hpp"
#include "cell/domain.hpp"
#include "cell/processor.hpp"
#include "kernel/api.hpp"
#include "kernel/debugger.hpp"
#include "kernel/placement.hpp"
#include "kernel/spin_watch.hpp"

namespace aplib {

class LoadedRun;
class ProcessRun;
struct StartNote;

/// The inside of a Machine, for the kernel's own files.
struct MachineAccess {
  static Machine::Impl& impl(Machine& machine) noexcept;
};

/// Programs that joined a machine while it ran, by their tasks. Thread safety: any thread.
class JoinedPrograms {
 public:
  void add(std::uint32_t task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(task);
  }
  [[nodiscard]] bool has(std::uint32_t task) const {
    const std::lock_guard lock(mutex_);
    return std::ranges::find(tasks_, task) != tasks_.end();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::uint32_t> tasks_;
};

struct Machine::Impl {
  explicit Impl(Options chosen);
  ~Impl();

  /// Makes a fresh domain. It has no processors yet, except the host's where the host program runs.
  void make_domain(bool with_host, const StartNote* start = nullptr);
  /// Ends the process of a machine that adopts and has failed: nobody could unwind the program.
  [[noreturn]] static void end_adopted(int status);
  /// Plans the placement, makes a processor for each carrier (in front of the host's), and gives out the cells.
  void make_carriers();
  void start_threads();
  void watch_for_spins();
  void join_threads();
  Report report(Clock::time_point start, int host_status);
  /// One run: `first` on every cell, or a host program on the calling thread. `start` is what the host program in
  /// another process has asked for.
  Report run_cells(CellProgram first, const StartNote* start = nullptr);
  Report run_host(const std::function<int()>& host_program);
  /// What a run is in a wrong environment.
  Report refused_environment();
  /// The host program runs in this process.
  [[nodiscard]] bool hosts_here() const noexcept;

  /// Host program: starts `program` on all cells. The first call makes and starts the carriers. `file` and `arguments`
  /// are for the other processes.
  void start_cells(TaskControl& self, std::function<void()> program, TaskId task, const std::string& file = {},
                   const std::vector<std::string>& arguments = {});
  void configure(TaskControl& self, const Options& wanted);

  /// The machine whose task calls.
  static Impl& of(Domain& domain);

  Options options;
  std::string environment_problem;  ///< Empty: none.
  Placement placement;
  Log log;
  std::unique_ptr<Domain> domain;  // kept after a run: messages that outlive it still own buffers
  DebuggerMachine in_debugger;
  std::vector<std::thread> threads;
  std::optional<SpinWatch> spin_watch;  ///< While the threads run, if some carry several cells.
  std::shared_ptr<void> receiver;  ///< Of the module of the last run as a process: that may call it until it is closed.
  ProcessRun* process = nullptr;   ///< Of a machine of several processes, while it runs.
  std::mutex notes_mutex;          ///< Of `process` and early_notes, for who brings notes.
  std::vector<std::vector<std::byte>> early_notes;
  JoinedPrograms joined;
  std::unique_ptr<LoadedRun> loaded;  ///< The program files of the current run, if it has any.
  std::atomic<Domain*> stoppable{
      nullptr};                      ///< The domain while other threads may stop it: not while its processors are made.
  std::atomic<bool> running{false};  ///< Between begin and end of run() or run_host().
  bool adopts = false;               ///< The calling thread carries the one cell, and never comes back (adoption.cpp).
  bool programs_remain = false;      ///< Threads of programs outlived a run.
  ProgramThreads program_threads = ProgramThreads::none;
  std::size_t program_stack_bytes = 0;  ///< Of programs started from here on; 0: as for every task.
};

// ---------------------------------------------------------------- who calls

[[noreturn, gnu::cold, gnu::noinline]] inline void outside_task(const char* call) {
  throw Error(Errc::bad_argument,
              fmt::format("{}: called outside a task; it works only inside a program that a Machine runs", call));
}

[[gnu::always_inline]] inline TaskControl& self_or_throw(const char* call) {
  TaskControl* const self = running_task();
  if (self == nullptr) [[unlikely]]
    outside_task(call);
  return *self;
}

/// Makes the calling thread a task, the one of a machine with one cell (adoption.cpp). Throws Error: the process has a
/// machine already, whose tasks alone may call; or APLIB_* variables are wrong. REQUIRES: the thread is no task.
void adopt_thread_as_cell(const char* call);
/// The task that such a thread has become: its frames are the process's own.
[[nodiscard]] bool is_adopted(const TaskControl& task) noexcept;
/// The cell that this process is, if its main thread was adopted; null: it is none, or a fork of it. [any thread]
[[nodiscard]] Cell* adopted_cell() noexcept;

/// running_task(), also in the code of a program whose threads take turns at the processor: there on its main thread.
[[nodiscard]] const TaskControl* task_of_thread() noexcept;
/// The program of the running task is about to run on several threads. True: it has a baton from here on, which the
/// caller has.
bool begin_threads(TaskControl& self, bool ask);

/// The end of a wait of this length that begins now. A wait that no clock can count takes some hundred years.
[[nodiscard]] inline Clock::time_point deadline_after(std::chrono::nanoseconds duration) noexcept {
  constexpr std::chrono::nanoseconds longest = std::chrono::seconds(3'000'000'000);
  return Clock::now() + std::min(duration, longest);
}

// ---------------------------------------------------------------- messages

/// A buffer that its pool has lent. Call from: any thread.
void give_back(Buffer* buffer) noexcept;
[[nodiscard]] Envelope envelope_of(const Domain& domain, std::uint64_t key, std::size_t bytes) noexcept;
/// What a receive asks for. Throws Error(bad_argument) for what cannot be received.
[[nodiscard]] MatchWish check_receive(const TaskControl& self, const char* call, std::span<const std::byte> buffer,
                                      From from, api::Space space);
/// The cell that the wish names has ended.
[[noreturn, gnu::cold]] void refuse_left_nothing(const TaskControl& self, const char* call, const MatchWish& wish);
[[noreturn, gnu::cold]] void refuse_too_long(const TaskControl& self, const char* call, std::uint64_t key,
                                             std::size_t bytes, std::size_t capacity);

// ---------------------------------------------------------------- reports

/// Where the calling task's program calls the library from: "solve+0x1c of prog"; empty: it runs no loaded program.
[[nodiscard]] std::string place_of_call();

/// "; 2 other messages unread, the oldest from cell 1, task 0, type 5, 8 bytes", kind by kind; empty: there are none.
/// Call where the task's cell is carried, or while every processor sleeps.
[[nodiscard]] std::string describe_unread(const TaskControl& task);
/// "cell 2: 1 message for task 5, which does not exist, from ...", a line for each such task.
[[nodiscard]] std::vector<std::string> describe_orphans(const Domain& domain, const Cell& cell);
/// "; 2 open requests, the oldest for a message from cell 1, any task, type 7"; empty: the task has none.
[[nodiscard]] std::string describe_requests(const TaskControl& task);
/// "cell 1, any task, type 7"; of a rank of MPI "rank 1 of MPI_COMM_WORLD, tag 7". `cell`: whose wish it is.
[[nodiscard]] std::string describe_wish(const Cell& cell, const MatchWish& wish);

/// A line per task of this process, with what it waits for, each after a line end. Call only while every processor
/// sleeps;
[[nodiscard]] std::string describe_tasks(Domain& domain);
/// of one processor's cells: call on its thread.
[[nodiscard]] std::string describe_tasks(Domain& domain, const Processor& processor);

/// Call only while every processor sleeps.
[[nodiscard]] std::string describe_deadlock(Domain& domain);

/// How the carriers wait: "56 us", "20 to 1230 us; 1 of 2 cores shared"; empty: there are none. Call from: any thread.
[[nodiscard]] std::string describe_waits(const Domain& domain);

}  // namespace aplib
