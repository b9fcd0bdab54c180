// SPDX-License-Identifier: MIT
// The benchmarks. Each adds its measurements to a plan.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aplib/machine.hpp"
#include "measure.hpp"

namespace apbench {

/// The machines that are measured. They are made at first use and kept, so that no figure includes building them.
class Machines {
 public:
  /// A machine of `cells` x 1 cells on `threads` processors; all other options come from APLIB_* variables.
  aplib::Machine& get(unsigned cells, unsigned threads);
  /// The same, after all other machines have ended. Only the cells of a process's first machine have slots, and so
  /// memory that other cells can name.
  aplib::Machine& only(unsigned cells, unsigned threads);

 private:
  std::map<std::pair<unsigned, unsigned>, std::unique_ptr<aplib::Machine>> machines_;
};

/// Runs `program` on all cells. Throws std::runtime_error with the machine's reason when the run fails.
void run_cells(aplib::Machine& machine, const std::function<void()>& program);

/// Runs `program` on cells 0 and 1 and checks their place: on a processor each, or both on the only one. A cell that
/// was moved to balance the load would give a figure for the other case. Throws std::runtime_error.
void run_placed(aplib::Machine& machine, const std::function<void()>& program);

/// Messages, puts or gets of a stream between two acknowledgements: 64 as in the OSU benchmarks, fewer when that would
/// be more than 16 MiB.
[[nodiscard]] std::uint64_t window_of(std::size_t bytes);

/// What the command line asks for.
struct Wishes {
  std::vector<std::size_t> bytes;       ///< Empty: each benchmark's own list.
  std::vector<std::string> case_names;  ///< Empty: all.
  bool touch = false;                   ///< The receiver reads one byte per cache line of what it got.
  double idle_seconds = 2;              ///< Length of one sample of `idle`.
  std::string module;                   ///< The module that `module` measures; empty: all that can be used.
  std::string cluster;                  ///< Cluster file for `hosts`; empty: two processes on this computer.

  [[nodiscard]] bool wants(std::string_view case_name) const;
};

/// A benchmark as listed in --help.
struct Bench {
  std::string_view name;
  std::string_view help;
  std::vector<std::string_view> case_names;
  bool takes_bytes;
  bool in_all;  ///< Part of `apbench all`.
  void (*plan)(Plan& plan, Machines& machines, const Wishes& wishes);
  std::string_view case_words = {};  ///< Instead of case_names in --help.
};

/// The cores that this process was started with, whatever it is bound to now.
[[nodiscard]] const std::vector<int>& usable_cores();

/// All benchmarks, in the order of --help and of `all`.
[[nodiscard]] const std::vector<Bench>& benches();

/// Names of modules for --module, which are also the cases of `module`.
[[nodiscard]] std::vector<std::string> module_names();
[[nodiscard]] const std::vector<std::string_view>& module_cases();

void plan_latency(Plan& plan, Machines& machines, const Wishes& wishes);
void plan_bandwidth(Plan& plan, Machines& machines, const Wishes& wishes);
void plan_rate(Plan& plan, Machines& machines, const Wishes& wishes);
void plan_put(Plan& plan, Machines& machines, const Wishes& wishes);
void plan_get(Plan& plan, Machines& machines, const Wishes& wishes);
void plan_switch(Plan& plan, Machines& machines, const Wishes& wishes);
void plan_spawn(Plan& plan, Machines& machines, const Wishes& wishes);
void plan_barrier(Plan& plan, Machines& machines, const Wishes& wishes);
void plan_reduce(Plan& plan, Machines& machines, const Wishes& wishes);
void plan_idle(Plan& plan, Machines& machines, const Wishes& wishes);
void plan_scg(Plan& plan, Machines& machines, const Wishes& wishes);
void plan_load(Plan& plan, Machines& machines, const Wishes& wishes);
void plan_hosts(Plan& plan, Machines& machines, const Wishes& wishes);
void plan_module(Plan& plan, Machines& machines, const Wishes& wishes);
void plan_floors(Plan& plan, Machines& machines, const Wishes& wishes);

}  // namespace apbench
