// SPDX-License-Identifier: MIT
// CellOS start-up calls of the host program, identity, geometry and time.
#include <chrono>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cellos/check.hpp"
#include "cellos/program.hpp"
#include "kernel/programs.hpp"

using namespace aplib;
using namespace aplib::cellos;

namespace {

/// ccreat of a host program that was loaded: cell programs are files too.
void start_file(const char* call, const std::string& name, const std::string& host_file, TaskId task,
                const char* const* arguments) {
  ProgramFile file = find_program_file(name, host_file);
  if (file.path.empty() && api::launcher_has(name)) file.path = name;
  if (file.path.empty()) {
    // Both halves in one file: then the name is only a name, as in linked programs.
    if (!api::offers_cell_program(call, host_file)) {
      api::fail(Errc::failed, call,
                fmt::format("there is no cell program '{}': looked for {}; {} itself has no cell_main", name,
                            fmt::join(file.places, ", "), host_file));
    }
    file.path = host_file;
  }
  std::vector<std::string> argv{name};
  for (; arguments != nullptr && *arguments != nullptr; ++arguments) argv.emplace_back(*arguments);
  api::start_program(call, file.path, task, std::move(argv));
}

}  // namespace

int cconfxy(int ncelx, int ncely) {
  constexpr const char* call = "cconfxy";
  require_host(call);
  constexpr auto most = std::int64_t{cell_count_max};
  if (ncelx < 1 || ncely < 1 || std::int64_t{ncelx} * ncely > most) {
    api::fail(Errc::bad_argument, call,
              fmt::format("{}x{} is no grid; give a width and a height of at least 1 and together at most {} cells",
                          ncelx, ncely, most));
  }
  api::configure(call, {.nx = std::uint32_t(ncelx), .ny = std::uint32_t(ncely)});
  return 1;
}

int ccreat(const char* file, int tid, void* arg) {
  constexpr const char* call = "ccreat";
  require_host(call);
  if (file == nullptr) fail_null(call, "the program's file name");
  if (tid < 0 || tid > int(task_id_max)) fail_task(call, tid);
  if (const std::string host_file = api::host_file(); !host_file.empty()) {
    start_file(call, file, host_file, TaskId(tid), static_cast<const char* const*>(arg));
    return 1;
  }
  const auto* program = static_cast<const CellProgram*>(api::cellos_state().program);
  if (program == nullptr || program->entry == nullptr) {
    api::fail(
        Errc::failed, call,
        fmt::format("no cell program is known for '{}'; define cell_main() and link aplib::cellos_main, or give one to "
                    "cellos_run()",
                    file));
  }
  api::start_cells(
      call, [entry = program->entry] { run_cell(entry); }, TaskId(tid));
  return 1;
}

int initstat(int stat) {
  require_host("initstat");
  api::preset_status("initstat", stat);
  return 1;
}

int waitstable(void) {
  require_host("waitstable");
  api::wait_cells("waitstable");
  return 1;
}

int getcid(void) { return int(index(this_cell::id())); }
int gethcid(void) { return int(index(this_machine::host_cell())); }
int cellos_gettid(void) { return int(index(this_task::id())); }
int getncel(void) { return int(this_machine::cell_count()); }
int getncelx(void) { return int(this_machine::grid().nx); }
int getncely(void) { return int(this_machine::grid().ny); }

int getcidx(void) {
  require_cell("getcidx");
  return int(this_cell::x());
}

int getcidy(void) {
  require_cell("getcidy");
  return int(this_cell::y());
}

double dgettime(void) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
