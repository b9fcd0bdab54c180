// SPDX-License-Identifier: MIT
// Where the file is that a host program names in ccreat.
#pragma once

#include <string>
#include <vector>

namespace aplib::cellos {

struct ProgramFile {
  std::string path;                 ///< Empty: there is none.
  std::vector<std::string> places;  ///< Where it was looked for.
};

/// `name` as given, then in the folder of `host_file`; in each place also with .so or .cell behind it, or instead of its suffix.
[[nodiscard]] ProgramFile find_program_file(const std::string& name, const std::string& host_file);

}  // namespace aplib::cellos
