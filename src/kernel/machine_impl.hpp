// SPDX-License-Identifier: MIT
// Inside a Machine: the options, the plan, and the domain of the current (or last) run.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
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

/// The inside of a Machine, for the kernel's own files.
struct MachineAccess {
  static Machine::Impl& impl(Machine& machine) noexcept;
};

struct Machine::Impl {
  explicit Impl(Options chosen);
  ~Impl();

  /// A fresh domain, without processors.
  void make_domain(bool with_host);
  /// Plans the placement, makes a processor for each carrier (before the host's, if there is one), gives out cells.
  void make_carriers();
  void start_threads();
  void join_threads();
  Report report(Clock::time_point start, int host_status);

  /// Host program: starts `program` on all cells; makes and starts the carriers at the first call.
  void start_cells(TaskControl& self, std::function<void()> program, TaskId task);
  void configure(TaskControl& self, const Options& wanted);

  /// The machine whose task calls.
  static Impl& of(Domain& domain);

  Options options;
  Placement placement;
  Log log;
  std::unique_ptr<Domain> domain;  // kept after a run: messages that outlive it still own buffers
  DebuggerMachine in_debugger;
  std::vector<std::thread> threads;
  std::unique_ptr<LoadedRun> loaded;  ///< The program files of the current run, if it has any.
  std::atomic<Domain*> stoppable{
      nullptr};                  ///< The domain while other threads may stop it: not while its processors are made.
  bool programs_remain = false;  ///< Threads of programs outlived a run.
  std::size_t program_stack_bytes = 0;  ///< Of programs started from here on; 0: as for every task.
};

}  // namespace aplib
