// SPDX-License-Identifier: MIT
// Compiler: the user's compiler behind a wrapper.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compile/arguments.hpp"
#include "compile/program_object.hpp"

namespace aplib::compile {

enum class Language { c, cxx, fortran };

/// The wrapper for `language`: "apcc", "apc++", "apfort".
std::string_view wrapper_name(Language language);
/// The variable that names the user's compiler: AP_CC, AP_CXX, AP_FC. (Not APLIB_...: those are options of the
/// machine.)
const char* compiler_variable(Language language);

struct Compiler {
  enum class Family { unknown, gnu, clang };

  std::vector<std::string> words;  ///< The command: "ccache gcc -m64" is three words.
  std::string file;  ///< The compiler proper among them, found in PATH, symbolic links followed; empty: not found.
  Family family = Family::unknown;
  int version = 0;  ///< Major version where the file's name tells it ("x86_64-linux-gnu-gcc-12"), else 0.

  /// The compiler in `command`; where that is empty, the one in the environment; else gcc, g++ or gfortran, or cc,
  /// c++ or f95 where there is no gcc.
  static Compiler find(Language language, const std::string& command);

  /// Asks the compiler for its version where its name did not tell. Runs it; gcc's only.
  void ask_version();
};

// Command: what a wrapper runs instead of what it was asked to run. A function of its inputs alone: no file is
// looked at.

/// True where code is made for a program, so that its globals may be reached without the detour that shared
/// libraries need. A compiler is asked for its version only then.
bool tunes_for_program(const Arguments& arguments);

/// argv of the compiler, argv[0] included. `program_object`: the object from program_object.hpp; used for
/// Output::program alone. Throws Refused for combinations that make no working program.
std::vector<std::string> command(Language language, const Compiler& compiler, const Arguments& arguments,
                                 const Prefix& prefix, const std::string& program_object);

/// `argv` for a shell: one line, quoted where needed.
std::string shell_text(const std::vector<std::string>& argv);

}  // namespace aplib::compile
