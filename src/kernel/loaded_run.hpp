// SPDX-License-Identifier: MIT
// LoadedRun: the programs of one run of a machine. Machine::Impl has it from the call of run_program() to its return.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <vector>

#include "aplib/options.hpp"
#include "kernel/kept_programs.hpp"
#include "kernel/placement.hpp"
#include "kernel/programs.hpp"
#include "loader/entry.hpp"
#include "loader/instance.hpp"
#include "loader/program.hpp"

namespace aplib {

struct TaskControl;

/// What the machine's options mean for the loader. This and choose_start() serve the run and the description of a run,
/// so that both say the same.
loader::LoadOptions load_options(const Options& options, const ProgramRun& run);
/// Options::threads, decided as far as it depends on the programs.
[[nodiscard]] std::uint32_t threads_for(bool has_threads, const Options& options);

struct ProgramStart {
  bool is_host = false;  ///< It runs as host program, not on the cells.
  loader::Entry entry;
};

/// Where `program` begins when `run` asks for it. Throws Error(bad_option), as Entry::choose().
ProgramStart choose_start(const loader::Program& program, const ProgramRun& run);

class LoadedRun {
 public:
  /// `kept`: null, or programs that need not be loaded.
  LoadedRun(Machine::Impl& machine, const ProgramRun& run, OutputSink& output, KeptPrograms* kept = nullptr);
  ~LoadedRun();

  /// The resolved form of a file. The first request loads it. Throws Error.
  std::shared_ptr<const loader::Program> load(const std::string& file) { return load(file, run); }
  /// The same with what `of`, which is `run` or one of its others, has for itself.
  std::shared_ptr<const loader::Program> load(const std::string& file, const ProgramRun& of);
  /// Decides what the machine's options leave to the programs that were loaded: whether each cell has a thread.
  void choose_threads();

  /// Runs an instance of a program on a cell, from the first constructor to the last destructor. Returns its status.
  /// Call from: outermost frame of a task of the cell.
  int run_instance(TaskControl& self, const std::shared_ptr<const loader::Program>& program,
                   const std::function<int(loader::Instance&)>& entry, std::vector<std::string> arguments);

  /// What the machine shall run on every cell, each its own of the run's programs. `program` and `entry` are the
  /// first's. Loads the others. Throws Error.
  std::function<void()> cell_bodies(std::shared_ptr<const loader::Program> program, const loader::Entry& entry);

  /// The same of one program, which may have joined later.
  std::function<void()> cell_body(std::shared_ptr<const loader::Program> program, const loader::Entry& entry,
                                  std::vector<std::string> arguments);

  /// The same of a host program.
  std::function<int()> host_body(std::shared_ptr<const loader::Program> program, const loader::Entry& entry);

  /// Which of the run's programs the cell was started with; 0: run, 1: run.others[0], ...
  [[nodiscard]] std::size_t program_of(std::uint32_t cell) const noexcept;
  [[nodiscard]] const ProgramRun& numbered(std::size_t number) const {
    return number == 0 ? run : run.others[number - 1];
  }

  /// Calls end(). Where threads of programs remain, it is never destroyed.
  void finish(Machine::Impl& machine);

  /// The run is over. Requests of programs' threads that still run have no effect any more. True: there are none.
  bool end();

  /// Some program has asked for low memory.
  [[nodiscard]] bool has_low_bodies() const noexcept { return low_bodies_; }

  const ProgramRun& run;
  OutputSink& output;

 private:
  class CellHost;
  CellHost& host_of(TaskControl& task);
  void use_low_bodies();

  Machine::Impl& machine_;
  KeptPrograms* const kept_;
  std::mutex mutex_;  // of programs_ and warned_
  std::shared_mutex
      life_;  // held shared while `output`, `run` and the machine are in use for a program, changed by end()
  bool over_ = false;
  std::atomic<bool> low_bodies_{false};
  std::atomic<std::uint32_t> instances_{0};
  /// By file, and what is preloaded.
  std::map<std::pair<std::string, std::vector<std::string>>, std::shared_ptr<const loader::Program>> programs_;
  std::set<std::string> warned_;
  std::vector<std::unique_ptr<CellHost>> hosts_;  // by cell; each made and used by whoever carries the cell
  std::vector<std::shared_ptr<const std::vector<std::string>>> environments_;  // by program_of()
};

}  // namespace aplib
