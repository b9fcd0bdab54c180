// SPDX-License-Identifier: MIT
// Process: the share of a machine that one process carries. Processes number from 0; a CellMap says which cells each
// carries, and process 0 carries the host program, if there is one. Frames between processes go through a module.
// Notes about the machine as a whole (its start and end, failures, ended cells, quiet processes) go to the Overseer
// and back, by whatever the launcher has.
//
//   process 0               process 1               process 2
//   Process  <--frames-->   Process  <--frames-->   Process           comm::Module
//       \_ notes _____________|____________ notes _/                 Supervisor
//                           Overseer                                  beside the launcher
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aplib/machine.hpp"
#include "base/cell_map.hpp"
#include "comm/module.hpp"
#include "kernel/programs.hpp"

namespace aplib {

/// A process's way to the rest of the launcher. Outlives the run.
class APLIB_API Supervisor {
 public:
  virtual ~Supervisor() = default;
  /// Called once, when everything is loaded and made and nothing runs yet; blocks until all processes are that far.
  /// False: the start is called off, and the run returns at once.
  virtual bool ready() = 0;
  /// Brings a note to the overseer, in order. Any thread, tasks included: must not wait for the network. The bytes
  /// are the caller's.
  virtual void send_note(std::span<const std::byte> note) = 0;
  /// An absolute path, on this host, of a program that the machine shall run here. `file` is as the process that
  /// asked for it named it. Called when a further program is loaded into a running machine; may block. Throws
  /// Error.
  virtual std::string program_file(const std::string& file) { return file; }
};

struct Process {
  std::uint32_t self = 0;          ///< This process.
  CellMap cells;                   ///< Which process carries which cell.
  std::vector<std::string> names;  ///< Of the processes, for messages: "ws1".
  comm::Module* module = nullptr;  ///< Not started yet; outlives the run, but not the Machine; the caller closes it.
  Supervisor* supervisor = nullptr;
  int node = 0;  ///< The process that ends this one by SIGTERM, and tells the user why; 0: none.
  std::vector<std::uint32_t> first_cells{};  ///< Of the machine's programs, if none is loaded here; empty: one.

  [[nodiscard]] std::uint32_t processes() const noexcept { return static_cast<std::uint32_t>(names.size()); }
};

/// Which library places blocks in the heaps of cells here, as a number (SlotHeap::layout()). Where processes of a
/// machine differ in it, an address of one's own may be another object's there.
[[nodiscard]] APLIB_API std::uint32_t heap_layout() noexcept;

/// The place that a launcher keeps for an ordinary process in its machine, for one cell. Call from: the thread that
/// carries the cell.
class APLIB_API Membership {
 public:
  virtual ~Membership() = default;
  [[nodiscard]] virtual const Options& options() const noexcept = 0;
  [[nodiscard]] virtual const Process& process() const noexcept = 0;
  /// Brings notes to the machine from here on. If the launcher has gone, it ends this process.
  virtual void begin(Machine& machine) = 0;
  /// All cells have ended, and nothing more is sent: the launcher does not mind how the process ends from here on.
  virtual void leave() noexcept = 0;
};

/// The variable of the environment that says where the launcher keeps the place.
inline constexpr const char* join_variable = "AP_JOIN";

/// run_program() for one process of a machine of several processes. Machine::options().cells is the whole grid.
/// `output` gets this process's cells only. The Report's cell_status has this process's cells only; its reason is
/// empty unless the failure came from here. Returns when the whole machine has ended. Throws Error as
/// run_program(): then this process cannot start, and the caller tells the launcher. Call from: as Machine::run().
APLIB_API Report run_process(Machine& machine, const ProgramRun& run, OutputSink& output, const Process& process);

/// The same for bodies in this process, for tests: every cell of the process runs `cell_program`. `with_host`: only
/// once the host program of process 0, `host_program`, has called start_cells(), whose own program is for the cells
/// of process 0.
APLIB_API Report run_process(Machine& machine, std::function<void()> cell_program, const Process& process,
                             bool with_host = false, std::function<int()> host_program = {});

/// A note of the overseer for the process that `machine` runs (or ran, or is about to run: it is kept until then).
/// Any thread, one at a time. May block for as long as a program takes to load.
APLIB_API void receive_note(Machine& machine, std::span<const std::byte> note);

/// Whether a process that runs tasks writes such a line on stderr when a fault of one ends it. A program may write the
/// same.
[[nodiscard]] APLIB_API bool reports_fault(std::string_view line) noexcept;

}  // namespace aplib

/// Takes the place that the variable names. It lies in lib/aplib/join.so, which libaplib opens when it needs it. Blocks
/// until every process has come. The result is the caller's. `is_program`: the process executes the program itself, so
/// its handlers of signals are the program's. Throws Error.
extern "C" APLIB_API aplib::Membership* aplib_join(const char* invitation, bool is_program);
