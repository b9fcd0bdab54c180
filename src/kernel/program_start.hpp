// SPDX-License-Identifier: MIT
// How a machine loads a program file and where it begins: one answer for the run and for the description of a run.
#pragma once

#include "aplib/options.hpp"
#include "kernel/programs.hpp"
#include "loader/entry.hpp"
#include "loader/program.hpp"

namespace aplib {

/// What the machine's options mean for the loader.
loader::LoadOptions load_options(const Options& options);

struct ProgramStart {
  bool is_host = false;  ///< It runs as host program, not on the cells.
  loader::Entry entry;
};

/// Where `program` begins when `run` asks for it. Throws Error(bad_option), as Entry::choose().
ProgramStart choose_start(const loader::Program& program, const ProgramRun& run);

}  // namespace aplib
