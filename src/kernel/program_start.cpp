// SPDX-License-Identifier: MIT
#include "kernel/program_start.hpp"

namespace aplib {

loader::LoadOptions load_options(const Options& options) {
  loader::LoadOptions load;
  load.sharing = {options.private_libraries, options.shared_libraries};
  load.account_heap = options.account_heap;
  if (options.heap != "auto") load.heap = options.heap == "slot" ? loader::HeapPlace::slot : loader::HeapPlace::libc;
  return load;
}

ProgramStart choose_start(const loader::Program& program, const ProgramRun& run) {
  const bool is_host = run.entry.empty() && loader::Entry::has_host(program);
  const auto role = is_host ? loader::Entry::Role::host : loader::Entry::Role::cell;
  return {is_host, loader::Entry::choose(program, role, run.entry, run.entry_arguments)};
}

}  // namespace aplib
