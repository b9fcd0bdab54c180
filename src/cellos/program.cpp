// SPDX-License-Identifier: MIT
// exit() in a task. libc declares it nothrow, so a C++ caller's frame would turn an exception that leaves it into std::terminate; and by the
// language it destroys no automatic objects. So it does not unwind: it jumps to the frame below the program, which ends the task.
#include "cellos/program.hpp"

#include <csetjmp>
#include <cstdio>

#include <fmt/format.h>

#include "cellos/check.hpp"

namespace aplib::cellos {
namespace {

/// Lives in the outermost frame of a task that runs a CellOS program.
struct ExitFrame {
  std::jmp_buf place;
  int status = 0;
};

/// Runs `program(state)`; returns 0, or what it gave to exit(). Has no object with a destructor: the jump lands here.
int until_exit(void (*program)(void*), void* state) {
  ExitFrame frame;
  face::front().exit_frame = &frame;
  if (setjmp(frame.place) == 0) program(state);
  face::front().exit_frame = nullptr;
  return frame.status;
}

struct HostProgram {
  int (*entry)(int, char**);
  int argc;
  char** argv;
  CellProgram cells;
  int status = 0;  // what entry returned
};

int run_host(HostProgram& host) {
  face::front().program = &host.cells;
  const int exit_status = until_exit(
      [](void* state) {
        auto& host = *static_cast<HostProgram*>(state);
        host.status = host.entry(host.argc, host.argv);
      },
      &host);
  face::front().program = nullptr;
  return exit_status != 0 ? exit_status : host.status;
}

}  // namespace

void run_cell(void (*entry)()) {
  const int status = until_exit([](void* state) { (*static_cast<void (**)()>(state))(); }, &entry);
  if (status != 0) this_task::exit(status);
}

}  // namespace aplib::cellos

using namespace aplib;
using namespace aplib::cellos;

int cellos_run(int (*host)(int, char**), void (*cell)(void), int argc, char** argv) {
  if (cell == nullptr && host == nullptr) {
    std::fputs(
        "aplib: there is no program to run; define void cell_main(void), and int host_main(int, char**) if the program "
        "has a "
        "host half\n",
        stderr);
    return int(ExitStatus::usage);
  }
  try {
    Machine machine;
    if (host == nullptr) return machine.run([cell] { run_cell(cell); }).exit_status;
    HostProgram program{host, argc, argv, {cell}};
    return machine.run_host([&program] { return run_host(program); }).exit_status;
  } catch (const Error& error) {
    fmt::print(stderr, "aplib: {}\n", error.what());
    return int(ExitStatus::usage);
  }
}

void cellos_exit(int status) {
  if (!this_task::inside()) return;
  auto* frame = static_cast<ExitFrame*>(face::front().exit_frame);
  if (frame == nullptr) this_task::exit(status);  // a task that the program spawned itself: this unwinds
  frame->status = status;
  std::longjmp(frame->place, 1);
}

void cell_exit(int status) {
  require_cell("cell_exit");
  this_task::exit(status);
}
