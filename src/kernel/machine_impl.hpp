// SPDX-License-Identifier: MIT
// Inside a Machine: the options, the plan, and the domain of the current (or last) run.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "aplib/machine.hpp"
#include "base/log.hpp"
#include "cell/domain.hpp"
#include "cell/placement.hpp"
#include "cell/processor.hpp"
#include "kernel/debugger.hpp"

namespace aplib {

class LoadedRun;
class ProcessRun;
struct StartNote;

/// The inside of a Machine, for the kernel's own files.
struct MachineAccess {
  static Machine::Impl& impl(Machine& machine) noexcept;
};

struct Machine::Impl {
  explicit Impl(Options chosen);
  ~Impl();

  /// A fresh domain, without processors (but the host's, where it runs).
  void make_domain(bool with_host, const StartNote* start = nullptr);
  /// Plans the placement, makes a processor for each carrier (before the host's, if there is one), gives out cells.
  void make_carriers();
  void start_threads();
  void join_threads();
  Report report(Clock::time_point start, int host_status);
  /// One run: `first` on every cell, or a host program on the calling thread. `start`: what the host program in
  /// another process asked for.
  Report run_cells(CellProgram first, const StartNote* start = nullptr);
  Report run_host(const std::function<int()>& host_program);
  /// The host program runs in this process.
  [[nodiscard]] bool hosts_here() const noexcept;

  /// Host program: starts `program` on all cells; makes and starts the carriers at the first call.
  /// `file` and `arguments` are for the other processes.
  void start_cells(TaskControl& self, std::function<void()> program, TaskId task, const std::string& file = {},
                   const std::vector<std::string>& arguments = {});
  void configure(TaskControl& self, const Options& wanted);

  /// The machine whose task calls.
  static Impl& of(Domain& domain);

  Options options;
  Placement placement;
  Log log;
  std::unique_ptr<Domain> domain;  // kept after a run: messages that outlive it still own buffers
  DebuggerMachine in_debugger;
  std::vector<std::thread> threads;
  std::shared_ptr<void> receiver;  ///< Of the module of the last run as a process: that may call it until it is closed.
  ProcessRun* process = nullptr;   ///< Of a machine of several processes, while it runs.
  std::mutex notes_mutex;          ///< Of `process` and early_notes, for who brings notes.
  std::vector<std::vector<std::byte>> early_notes;
  std::unique_ptr<LoadedRun> loaded;  ///< The program files of the current run, if it has any.
  std::atomic<Domain*> stoppable{
      nullptr};                      ///< The domain while other threads may stop it: not while its processors are made.
  std::atomic<bool> running{false};  ///< Between begin and end of run() or run_host().
  bool programs_remain = false;      ///< Threads of programs outlived a run.
  std::size_t program_stack_bytes = 0;  ///< Of programs started from here on; 0: as for every task.
};

}  // namespace aplib
