// SPDX-License-Identifier: MIT
// ResponseFile: the arguments in a file that a command line names as @file.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace aplib::compile {

/// The arguments in file `path`: parted by white space; quotes of both kinds and backslashes as in gcc (libiberty's buildargv). Empty where the
/// file cannot be read: then "@path" is an ordinary argument, as for gcc.
std::optional<std::vector<std::string>> read_response_file(const std::string& path);

/// The arguments in `text`, as above.
std::vector<std::string> split_arguments(const std::string& text);

}  // namespace aplib::compile
