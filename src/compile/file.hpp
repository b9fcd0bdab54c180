// SPDX-License-Identifier: MIT
// Whole files, and the parts of their names. Plain system calls: the wrapper runs thousands of times under a
// configure script.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace aplib::compile {

/// The contents of `path`; empty where it cannot be read, errno says why.
std::optional<std::string> read_file(const std::string& path);

/// Writes all of `bytes` to an open file. False: errno says why.
bool write_all(int descriptor, std::string_view bytes);

/// True where `path` names something.
bool exists(const std::string& path);

/// "/a/b" of "/a/b/c"; "." of "c".
std::string folder_of(std::string_view path);

/// "c" of "/a/b/c".
std::string_view name_of(std::string_view path);

/// `path` with all symbolic links followed; `path` itself where that fails.
std::string real_path(const std::string& path);

/// The file that the shell would run for `command`: looked up in PATH where it has no slash. Empty: none.
std::string find_command(const std::string& command);

}  // namespace aplib::compile
