// SPDX-License-Identifier: MIT
// Machine: a grid of cells on this host, and a way to run programs on it.
//
//   int main() {
//     aplib::Options options;
//     options.cells = {2, 2};
//     aplib::Machine machine(options);
//     return machine.run([] { printf("cell %u\n", aplib::index(aplib::this_cell::id())); }).exit_status;
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "aplib/export.hpp"
#include "aplib/ids.hpp"
#include "aplib/options.hpp"

namespace aplib {

/// How a run ended.
struct Report {
  int exit_status = 0;           ///< 0, or that of the first failure (see ExitStatus).
  std::string reason;            ///< Empty after success; otherwise the text that was also printed on stderr.
  std::vector<int> cell_status;  ///< Per cell: 0, or the status of this_task::exit() or of a failure.
  double seconds = 0;            ///< Wall time from the start of the first task to the end of the last.
  std::vector<double>
      cell_waiting_seconds;  ///< Per cell: seconds in which its processor was idle while the cell waited.
};

/// A machine on this host. It owns all its state, so a process may have several, each with one run at a time.
/// Call from: any thread that is not a task. Not thread-safe: only one thread may use a Machine.
class APLIB_API Machine {
 public:
  /// The options are those of the environment. When one of these is wrong, each run tells so on stderr, starts nothing
  /// and returns ExitStatus::usage; options() are the defaults.
  Machine();
  /// Checks the options and plans the placement. The threads start in run(). Throws Error(bad_option).
  explicit Machine(Options options);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// Runs `cell_program` as task 0 of every cell and waits until all tasks have ended. Blocks the calling thread.
  /// It may be called again after it has returned.
  /// An exception that leaves a task ends the run: it is reported with its cell and task, the other tasks are stopped
  /// (their stacks unwind), and exit_status is not 0. When every task waits for something that cannot come, the run
  /// ends with ExitStatus::deadlock and prints a report with a line per task. Ctrl-C ends the run with
  /// ExitStatus::interrupted.
  Report run(std::function<void()> cell_program);

  /// The same with a host program. It runs first, on the calling thread as the host cell, and starts cell tasks with
  /// start_cells() (CellOS: ccreat). Before that it may change the grid by configure() (CellOS: cconfxy). Its return
  /// value is the exit status if it is not 0; otherwise a failed cell's is.
  Report run_host(std::function<int()> host_program);

  [[nodiscard]] const Options& options() const noexcept;

  struct Impl;  ///< Internal.

 private:
  friend struct MachineAccess;
  std::unique_ptr<Impl> impl_;
};

/// About the machine that the calling task runs in. REQUIRES: called from a task of a cell or of the host program.
namespace this_machine {
[[nodiscard]] APLIB_API Grid grid();
[[nodiscard]] APLIB_API std::uint32_t cell_count();
[[nodiscard]] APLIB_API std::uint32_t processor_count();
/// Id of the host program: 4096, or the number of cells if the machine has more than that (source: AP1000+ kernel,
/// HOST_CID).
[[nodiscard]] APLIB_API CellId host_cell();

/// Chooses the grid. REQUIRES: called from the host program, before start_cells(). Throws Error(bad_argument) for an
/// impossible grid, or when called too late.
APLIB_API void configure(Grid grid);
/// The same for all options: grid, threads, stacks, ... Throws Error(bad_option) if one is out of range.
APLIB_API void set_options(const Options& options);
/// The machine's current options.
[[nodiscard]] APLIB_API Options options();
/// Starts `program` as task `task` on every cell (CellOS: ccreat). May be called several times with different ids.
/// REQUIRES: called from the host program. Throws Error(bad_argument) when a cell already has a task with that id.
APLIB_API void start_cells(std::function<void()> program, TaskId task = TaskId{0});
/// Waits until all cells have ended (CellOS: waitstable). REQUIRES: called from the host program. Switches tasks: yes.
APLIB_API void wait_cells();
}  // namespace this_machine

/// About the calling task's cell. REQUIRES: called from a task.
namespace this_cell {
[[nodiscard]] APLIB_API CellId id();
[[nodiscard]] APLIB_API std::uint32_t x();
[[nodiscard]] APLIB_API std::uint32_t y();
/// Index of the processor that carries the cell now. While the option balance is on, it can change at any call that
/// switches tasks.
[[nodiscard]] APLIB_API std::uint32_t processor();
/// Seconds in which the cell's processor found nothing to do while this cell waited. Waits under about 0.4 us are not
/// counted. Where each cell has its own processor, this is the time lost to communication. Other cells' work on the
/// same processor is not included.
[[nodiscard]] APLIB_API double waiting_seconds();
}  // namespace this_cell

}  // namespace aplib
