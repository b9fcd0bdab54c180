// SPDX-License-Identifier: MIT
// Inside a Machine: the options, the plan, and the domain of the current (or last) run.
#pragma once

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "aplib/machine.hpp"
#include "base/log.hpp"
#include "cell/domain.hpp"
#include "cell/placement.hpp"
#include "cell/processor.hpp"

namespace aplib {

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
  void configure(TaskControl& self, Grid grid);

  /// The machine whose task calls.
  static Impl& of(Domain& domain);

  Options options;
  Placement placement;
  Log log;
  std::unique_ptr<Domain> domain;  // kept after a run: messages that outlive it still own buffers
  std::vector<std::thread> threads;
};

}  // namespace aplib
