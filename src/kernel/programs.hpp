// SPDX-License-Identifier: MIT
// Program files on a machine: loads them, runs an instance per cell, and says where their output goes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aplib/export.hpp"
#include "aplib/machine.hpp"
#include "aplib/options.hpp"
#include "loader/cell_services.hpp"

namespace aplib {

/// Where output of loaded programs goes and input comes from. Outlives the run.
/// Call from: any processor's thread, and threads that programs make; at any time during the run.
class APLIB_API OutputSink {
 public:
  static constexpr std::uint32_t host = 0xffff'ffff;  ///< "cell" of the host program
  virtual ~OutputSink() = default;
  /// Once, when the file was loaded and before anything runs. May throw Error, for files that cannot be opened;
  /// then nothing is started.
  virtual void begin([[maybe_unused]] bool with_host) {}
  /// See loader::CellServices.
  virtual void write(std::uint32_t cell, loader::Stream stream, std::span<const char> bytes) = 0;
  virtual void flush(std::uint32_t cell, loader::Stream stream) = 0;
  /// Descriptor to read from, or -1: empty.
  virtual int input(std::uint32_t cell) = 0;
  /// A program on the cell has ended with this status. Calls come in the order of the ends.
  virtual void ended(std::uint32_t cell, int status) = 0;
  /// The machine stops, because of a failure that ends with this status and has been told. Tasks that listen unwind;
  /// others may compute for ever. Must not call the machine.
  virtual void failed([[maybe_unused]] int status) {}
  /// A line for the user.
  virtual void warn(const std::string& line) = 0;
};

/// What to run.
struct ProgramRun {
  std::string file;                    ///< Path.
  std::vector<std::string> arguments;  ///< argv, [0] is the program's name.
  std::function<std::vector<std::string>(std::uint32_t cell)>
      arguments_of;  ///< If set: argv of that cell instead; not of cells that a host program starts.
  std::function<std::string(std::uint32_t cell)> folder_of;  ///< If set: working directory of that cell.
  /// If set: more variables of that cell, also of one that runs one of `others`; not where there is a host program.
  std::function<std::vector<std::pair<std::string, std::string>>(std::uint32_t cell)> variables_of;
  std::string entry;  ///< "solve(int, double) -> int", "solve"; empty: host_main, cell_main, main or MAIN__.
  std::vector<std::string> entry_arguments;                    ///< For `entry`.
  std::vector<std::pair<std::string, std::string>> variables;  ///< Set in its environment.
  std::uint32_t first_cell = 0;                                ///< Of the cells that run it, if it is one of `others`.
  bool has_openmp_threads = true;  ///< False: a region of OpenMP has one thread, unless the program says otherwise.
  std::vector<ProgramRun> others;  ///< What the cells from their first_cell on run instead, in that order.
};

/// How many texts a call by this signature takes (ProgramRun::entry_arguments). Nothing: it has no types. Throws
/// Error(bad_option). Call from: any thread.
[[nodiscard]] APLIB_API std::optional<std::size_t> entry_arguments(std::string_view signature);

/// Loads `run.file` and runs it: as host program if it has host_main (its ccreat() then loads cell programs), else
/// on every cell that has no other program. Exit status in the Report: the first non-zero one by cell id, or the
/// failure's. Throws Error when a file cannot be loaded; then nothing was started. Call from: as Machine::run().
APLIB_API Report run_program(Machine& machine, const ProgramRun& run, OutputSink& output);

/// Gives programs that are executables a place for their thread-locals: `bytes` of the calling executable's own. They
/// must be all that it has, or the last. False: they are not, and such programs are refused. Call from: any thread,
/// before run_program().
APLIB_API bool lend_thread_locals(const void* begin, std::size_t bytes) noexcept;

/// After run_program(): threads that a program made still run. They see the program's memory, but nothing of the
/// machine; the process should end by _exit(), as a process's exit ends threads.
[[nodiscard]] APLIB_API bool programs_remain(Machine& machine);

/// Ends the machine's run with this status and text, as a failing task would. Call from: any thread, while
/// run_program() runs.
APLIB_API void stop_machine(Machine& machine, int status, const std::string& text);

/// Hands a signal that came to this process from outside (SIGUSR1, SIGUSR2, SIGTERM) to the programs of all its cells,
/// if each has a handler for it, or ignores it; of `sender`, the child of a cell, to that cell alone. False: none has
/// got it. Nothing: no cell lives here. Call from: any thread, while run_program() runs.
[[nodiscard]] APLIB_API std::optional<bool> pass_signal(Machine& machine, int signal, pid_t sender = 0);
/// The same of a process that executes its program itself: sends it the signal, if that does not end it. Call from: any
/// thread.
[[nodiscard]] APLIB_API bool signal_this_process(int signal);

/// How long the machine's threads in this process poll before they sleep, as they have decided last: "56 us",
/// "20 to 1230 us; 1 of 2 cores shared". Empty: it does not run. Call from: any thread, while the machine lives.
[[nodiscard]] APLIB_API std::string describe_waits(Machine& machine);

/// What a run of a program file would be, without running it.
struct ProgramSummary {
  struct File {
    std::string path;
    bool separate = false;  ///< Every cell has its own copy.
  };
  /// A thread and the consecutive cells that it carries first.
  struct Carrier {
    std::uint32_t first_cell = 0;
    std::uint32_t last_cell = 0;
    int core = -1;  ///< -1: not bound
  };

  std::string path;      ///< Absolute.
  std::string build_id;  ///< Hexadecimal; empty: none.
  std::string entry;     ///< For people: "main(argc, argv, envp)".
  bool is_host = false;  ///< It runs as host program.
  std::vector<File> libraries;
  std::uint64_t shared_bytes = 0;   ///< Of the program and its separate libraries: pages that all instances share.
  std::uint64_t private_bytes = 0;  ///< Pages that an instance may write to: at most so many are its own.
  std::vector<Carrier> carriers;
};

/// Loads the file as run_program() would, and plans. Runs no code of it. Throws the same errors.
[[nodiscard]] APLIB_API ProgramSummary summarize_program(const Options& options, const ProgramRun& run);

/// Of a fault: behind the name of a file of the program.
inline constexpr const char* changed_file_text =
    " was written to while it ran: start again, and replace files of programs that run by mv, or by install";

/// Why no cell can run this file, though it may well be a program: "is a script". Empty: one can, or the file is wrong
/// in another way.
[[nodiscard]] APLIB_API std::string why_not_loaded(const std::string& file);

// What its file tells of a program: src/loader/program.hpp.
[[nodiscard]] APLIB_API std::string why_no_process(const std::string& file);
[[nodiscard]] APLIB_API bool calls_mpi(const std::string& file);
[[nodiscard]] APLIB_API bool needs_mpi(const std::string& file);
[[nodiscard]] APLIB_API bool starts_others(const std::string& file);
[[nodiscard]] APLIB_API bool needs_process(const std::string& file);
[[nodiscard]] APLIB_API bool finds_our_mpi(const std::string& file);

/// Runs the program, which apcc has made, as this process, as the system's dynamic linker would, and ends with it; no
/// cell loads it. `arguments`: argv, as of main(). Call from: the start of main(), where nothing else runs. Returns
/// only if it cannot: why.
[[nodiscard]] APLIB_API std::string run_as_this_process(const std::string& file, std::span<char* const> arguments);

namespace api {
/// Host program: loads `file` and starts it on all cells as task `task`, with these arguments (argv[0] first).
/// Throws Error like load, naming `call`.
APLIB_API void start_program(const char* call, const std::string& file, TaskId task,
                             std::vector<std::string> arguments);
/// Host program that was loaded: the path of its file. Empty: it was not.
APLIB_API std::string host_file();
/// Host program of a machine of several processes: the launcher has a program of this name, so start_program()
/// takes the name. Call from: task; may block.
APLIB_API bool launcher_has(const std::string& name);
/// Host program that was loaded: `file` has a cell_main. Throws as start_program().
APLIB_API bool offers_cell_program(const char* call, const std::string& file);
}  // namespace api

}  // namespace aplib
