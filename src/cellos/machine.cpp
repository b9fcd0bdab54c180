// SPDX-License-Identifier: MIT
// A CellOS program as the tasks of a machine run it: how it starts and ends; identity, geometry and time.
//
// exit() in a task does not unwind: libc declares it nothrow, so a C++ caller's frame would turn an exception that
// leaves it into std::terminate; and by the language it destroys no automatic objects. It jumps to the frame below the
// program, which ends the task.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <csetjmp>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "cellos/check.hpp"
#include "kernel/programs.hpp"

using namespace aplib;
using namespace aplib::cellos;

namespace {

// ---- a program on its task

/// What ccreat starts. Found through api::CellosState::program of the host program's task.
struct CellProgram {
  void (*entry)();
};

/// Lives in the outermost frame of a task that runs a CellOS program.
struct ExitFrame {
  std::jmp_buf place;
  int status = 0;
};

/// Runs `program(state)`; returns 0, or what it gave to exit(). Has no object with a destructor: the jump lands here.
int until_exit(void (*program)(void*), void* state) {
  ExitFrame frame;
  api::cellos_state("exit").exit_frame = &frame;
  if (setjmp(frame.place) == 0) program(state);
  api::cellos_state("exit").exit_frame = nullptr;
  return frame.status;
}

/// Runs a cell program on the calling task until it returns or calls exit(). Call from: outermost frame of a task.
/// Switches tasks: yes.
void run_cell(void (*entry)()) {
  const int status = until_exit([](void* state) { (*static_cast<void (**)()>(state))(); }, &entry);
  if (status != 0) this_task::exit(status);
}

struct HostProgram {
  int (*entry)(int, char**);
  int argc;
  char** argv;
  CellProgram cells;
  int status = 0;  // what entry returned
};

int run_host(HostProgram& host) {
  api::cellos_state("host_main").program = &host.cells;
  const int exit_status = until_exit(
      [](void* state) {
        auto& host = *static_cast<HostProgram*>(state);
        host.status = host.entry(host.argc, host.argv);
      },
      &host);
  api::cellos_state("host_main").program = nullptr;
  return exit_status != 0 ? exit_status : host.status;
}

// ---- where the file is that a host program names in ccreat

struct ProgramFile {
  std::string path;                 ///< Empty: there is none.
  std::vector<std::string> places;  ///< Where it was looked for.
};

/// Looks for `name` as given, then in the folder of `host_file`; in each place also with .so or .cell behind it, or
/// instead of its suffix.
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
  const auto* program = static_cast<const CellProgram*>(api::cellos_state(call).program);
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
  const Caller caller = APLIB_CALLER("waitstable");
  require_host(caller.call);
  note(caller);
  api::wait_cells(caller.call);
  return 0;
}

int getcid(void) { return int(index(api::cell_id("getcid"))); }
int gethcid(void) { return int(index(api::host_cell("gethcid"))); }
int cellos_gettid(void) { return int(index(api::task_id("gettid"))); }
int getncel(void) { return int(api::grid("getncel").count()); }
int getncelx(void) { return int(api::grid("getncelx").nx); }
int getncely(void) { return int(api::grid("getncely").ny); }

int getcidx(void) {
  require_cell("getcidx");
  return int(this_cell::x());
}

int getcidy(void) {
  require_cell("getcidy");
  return int(this_cell::y());
}

// A program that waits for a time to come asks again and again: then others run meanwhile.
double dgettime(void) {
  if (this_task::inside() && api::cellos_state("dgettime").clock_reads.spin()) this_task::yield();
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// ---------------------------------------------------------------- a program by itself

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
  auto* frame = static_cast<ExitFrame*>(api::cellos_state("exit").exit_frame);
  if (frame == nullptr) this_task::exit(status);  // a task that the program spawned itself: this unwinds
  frame->status = status;
  std::longjmp(frame->place, 1);
}

void cell_exit(int status) {
  require_cell("cell_exit");
  this_task::exit(status);
}
