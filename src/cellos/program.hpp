// SPDX-License-Identifier: MIT
// A CellOS program as the tasks of a machine run it, and the ways it ends: return, cell_exit(), exit().
#pragma once

namespace aplib::cellos {

/// What ccreat starts. Found through face::TaskFront::program of the host program's task.
struct CellProgram {
  void (*entry)();
};

/// Runs a cell program on the calling task until it returns or calls exit(). Call from: outermost frame of a task. Switches tasks: yes.
void run_cell(void (*entry)());

}  // namespace aplib::cellos
