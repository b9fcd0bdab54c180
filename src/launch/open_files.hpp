// SPDX-License-Identifier: MIT
// The limit on open files.
#pragma once

namespace aplib::launch {

/// Raises it as far as the system allows: all cells' files are one process's, and what a program leaves open stays open; the usual limit is meant for one program.
void allow_many_files();

}  // namespace aplib::launch
