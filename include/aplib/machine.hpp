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
  int exit_status = 0;           ///< 0, else the first failure's (see ExitStatus).
  std::string reason;            ///< Empty when all went well; else the text that was also printed on stderr.
  std::vector<int> cell_status;  ///< Per cell: 0, or what cell_exit() / a failure gave.
  double seconds = 0;            ///< Wall time from the start of the first task to the end of the last.
  std::vector<double>
      cell_waiting_seconds;  ///< Per cell: time its processor spent with the cell unable to go on (idle time only).
};

/// A machine on this host. State hangs off it: a process may hold several, one run at a time each.
/// Call from: any thread that is not a task. Not thread-safe: one thread uses one Machine.
class APLIB_API Machine {
 public:
  /// Checks the options and plans the placement; threads start in run(). Throws Error(bad_option).
  explicit Machine(Options options = Options::from_environment());
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// Runs `cell_program` as task 0 of every cell and waits until all tasks have ended. Blocks the calling thread.
  /// May be called again after it returned.
  ///
  /// An exception that leaves a task ends the run: it is reported with cell and task, other tasks are stopped
  /// (their stacks unwind), and exit_status is not 0. When every task waits for something that cannot come, a
  /// deadlock report with a line per task is printed and the run ends with ExitStatus::deadlock. Ctrl-C ends with
  /// ExitStatus::interrupted.
  Report run(std::function<void()> cell_program);

  /// The same with a host program: it runs first, on the calling thread as the host cell, and starts cell tasks
  /// itself with start_cells() (CellOS: ccreat). The cells' grid may be changed by configure() (CellOS: cconfxy)
  /// before that. Its return value is the exit status unless a cell failed.
  Report run_host(std::function<int()> host_program);

  [[nodiscard]] const Options& options() const noexcept;

  struct Impl;  ///< Internal.

 private:
  friend struct MachineAccess;
  std::unique_ptr<Impl> impl_;
};

/// About the machine the calling task runs in. REQUIRES: called from a task (of any cell, or of the host program).
namespace this_machine {
[[nodiscard]] APLIB_API Grid grid();
[[nodiscard]] APLIB_API std::uint32_t cell_count();
[[nodiscard]] APLIB_API std::uint32_t processor_count();
/// Id of the host program: 4096, or the cell count where the machine has more cells than that (source: AP1000+
/// kernel, HOST_CID).
[[nodiscard]] APLIB_API CellId host_cell();

/// Host program only, before start_cells(): choose the grid. Throws Error(bad_argument) for an impossible grid, or
/// when called late.
APLIB_API void configure(Grid grid);
/// The same for all options: grid, threads, stacks, ... Throws Error(bad_option) when one is out of range.
APLIB_API void set_options(const Options& options);
/// The machine's options, as they are now. REQUIRES: called from a task.
[[nodiscard]] APLIB_API Options options();
/// Host program only: starts `program` as task `task` on every cell (CellOS: ccreat). May be called several times
/// with different ids. Throws Error(bad_argument) when a cell already has a task of that id.
APLIB_API void start_cells(std::function<void()> program, TaskId task = TaskId{0});
/// Host program only: waits until all cells have ended (CellOS: waitstable). Switches tasks: yes.
APLIB_API void wait_cells();
}  // namespace this_machine

/// About the calling task's cell. REQUIRES: called from a task.
namespace this_cell {
[[nodiscard]] APLIB_API CellId id();
[[nodiscard]] APLIB_API std::uint32_t x();
[[nodiscard]] APLIB_API std::uint32_t y();
/// Index of the processor (OS thread) that carries the cell now. It can change at any switch point while balance is on.
[[nodiscard]] APLIB_API std::uint32_t processor();
/// Seconds in which its processor found nothing to do while this cell waited (waits under about 0.4 us are not
/// counted). A share of time lost to communication where each cell has a processor of its own; other cells' work on
/// the same processor is not in it.
[[nodiscard]] APLIB_API double waiting_seconds();
}  // namespace this_cell

}  // namespace aplib
