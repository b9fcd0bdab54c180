// SPDX-License-Identifier: MIT
// Command: what a wrapper runs instead of what it was asked to run. A function of its inputs alone: no file is looked at.
#pragma once

#include <string>
#include <vector>

#include "compile/arguments.hpp"
#include "compile/compiler.hpp"
#include "compile/prefix.hpp"

namespace aplib::compile {

/// True where code is made for a program, so that its globals may be reached without the detour that shared libraries need. A compiler is asked for
/// its version only then.
bool tunes_for_program(const Arguments& arguments);

/// argv of the compiler, argv[0] included. `program_object`: the object from program_object.hpp; used for Output::program alone.
/// Throws Refused for combinations that make no working program.
std::vector<std::string> command(Language language, const Compiler& compiler, const Arguments& arguments,
                                 const Prefix& prefix, const std::string& program_object);

/// `argv` for a shell: one line, quoted where needed.
std::string shell_text(const std::vector<std::string>& argv);

}  // namespace aplib::compile
