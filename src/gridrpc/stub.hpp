// SPDX-License-Identifier: MIT
// The main part of a server, as C text: it turns addresses of arguments into variables, and calls the functions.
#pragma once

#include <string>

#include "calls/interface.hpp"

namespace aplib::gridrpc {

using namespace calls;

/// `idl_file` and `stub_file`: as compilers are to name them. Throws Error(bad_option): Fortran gets texts.
[[nodiscard]] std::string write_stub(const Interface& interface, const std::string& idl_file,
                                     const std::string& stub_file);
/// As one word of the shell.
[[nodiscard]] std::string shell_word(const std::string& word);
/// The command that makes `program` of it.
[[nodiscard]] std::string build_command(const Interface& interface, const std::string& stub_file,
                                        const std::string& program);

}  // namespace aplib::gridrpc
