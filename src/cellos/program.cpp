// SPDX-License-Identifier: MIT
// exit() in a task. libc declares it nothrow, so a C++ caller's frame would turn an exception that leaves it into
// std::terminate; and by the language it destroys no automatic objects. So it does not unwind: it jumps to the
// frame below the program, which ends the task.
#include "cellos/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <filesystem>
#include <system_error>

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
  api::cellos_state().exit_frame = &frame;
  if (setjmp(frame.place) == 0) program(state);
  api::cellos_state().exit_frame = nullptr;
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
  api::cellos_state().program = &host.cells;
  const int exit_status = until_exit(
      [](void* state) {
        auto& host = *static_cast<HostProgram*>(state);
        host.status = host.entry(host.argc, host.argv);
      },
      &host);
  api::cellos_state().program = nullptr;
  return exit_status != 0 ? exit_status : host.status;
}

}  // namespace

void run_cell(void (*entry)()) {
  const int status = until_exit([](void* state) { (*static_cast<void (**)()>(state))(); }, &entry);
  if (status != 0) this_task::exit(status);
}

ProgramFile find_program_file(const std::string& name, const std::string& host_file) {
  namespace fs = std::filesystem;
  const fs::path given(name);
  std::vector<fs::path> spellings{given, fs::path(name + ".so"), fs::path(name + ".cell")};
  if (given.has_extension()) {
    for (const char* suffix : {"", ".so", ".cell"}) spellings.push_back(fs::path(given).replace_extension(suffix));
  }

  ProgramFile file;
  const auto look = [&file](const fs::path& path) {
    if (std::ranges::find(file.places, path.string()) != file.places.end()) return false;
    file.places.push_back(path.string());
    std::error_code ignored;
    if (!fs::is_regular_file(path, ignored)) return false;
    file.path = path.string();
    return true;
  };
  if (name.empty()) return file;
  if (std::ranges::any_of(spellings, look)) return file;
  if (given.is_absolute()) return file;
  const fs::path folder = fs::path(host_file).parent_path();
  for (const fs::path& spelling : spellings) {
    if (look(folder / spelling)) break;
  }
  return file;
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
  auto* frame = static_cast<ExitFrame*>(api::cellos_state().exit_frame);
  if (frame == nullptr) this_task::exit(status);  // a task that the program spawned itself: this unwinds
  frame->status = status;
  std::longjmp(frame->place, 1);
}

void cell_exit(int status) {
  require_cell("cell_exit");
  this_task::exit(status);
}
