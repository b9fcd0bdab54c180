// SPDX-License-Identifier: MIT
// CellOS start-up calls of the host program, identity, geometry and time.
#include <chrono>

#include <fmt/format.h>

#include "cellos/check.hpp"
#include "cellos/program.hpp"

using namespace aplib;
using namespace aplib::cellos;

int cconfxy(int ncelx, int ncely) {
  constexpr const char* call = "cconfxy";
  require_host(call);
  constexpr auto most = std::int64_t{cell_count_max};
  if (ncelx < 1 || ncely < 1 || std::int64_t{ncelx} * ncely > most) {
    face::fail(Errc::bad_argument, call,
               fmt::format("{}x{} is no grid; give a width and a height of at least 1 and together at most {} cells",
                           ncelx, ncely, most));
  }
  face::configure(call, {.nx = std::uint32_t(ncelx), .ny = std::uint32_t(ncely)});
  return 1;
}

int ccreat(const char* file, int tid, void* /*arg*/) {
  constexpr const char* call = "ccreat";
  require_host(call);
  if (file == nullptr) fail_null(call, "the program's file name");
  if (tid < 0 || tid > int(task_id_max)) fail_task(call, tid);
  const auto* program = static_cast<const CellProgram*>(face::front().program);
  if (program == nullptr || program->entry == nullptr) {
    face::fail(
        Errc::failed, call,
        fmt::format("no cell program is known for '{}'; define cell_main() and link aplib::cellos_main, or give one to "
                    "cellos_run()",
                    file));
  }
  face::start_cells(
      call, [entry = program->entry] { run_cell(entry); }, TaskId(tid));
  return 1;
}

int initstat(int stat) {
  require_host("initstat");
  face::preset_status("initstat", stat);
  return 1;
}

int waitstable(void) {
  require_host("waitstable");
  face::wait_cells("waitstable");
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
