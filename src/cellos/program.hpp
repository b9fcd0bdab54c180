// SPDX-License-Identifier: MIT
// A CellOS program as the tasks of a machine run it, and the ways it ends: return, cell_exit(), exit().
#pragma once

#include <string>
#include <vector>

namespace aplib::cellos {

/// What ccreat starts. Found through api::CellosState::program of the host program's task.
struct CellProgram {
  void (*entry)();
};

/// Runs a cell program on the calling task until it returns or calls exit(). Call from: outermost frame of a task.
/// Switches tasks: yes.
void run_cell(void (*entry)());

// ---- where the file is that a host program names in ccreat

struct ProgramFile {
  std::string path;                 ///< Empty: there is none.
  std::vector<std::string> places;  ///< Where it was looked for.
};

/// `name` as given, then in the folder of `host_file`; in each place also with .so or .cell behind it, or instead
/// of its suffix.
[[nodiscard]] ProgramFile find_program_file(const std::string& name, const std::string& host_file);

}  // namespace aplib::cellos
