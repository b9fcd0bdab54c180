// SPDX-License-Identifier: MIT
// Arguments: a compiler's command line, understood as far as a wrapper must: what it makes, from what, and which
// arguments a program of cells cannot have. Options of gcc, g++, gfortran and clang.
//
// Compiler: the user's compiler behind a wrapper.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/arguments.hpp"
#include "compile/tree.hpp"

namespace aplib::compile {

/// What stands in file `path`, which a command line names as @path, as split_arguments() parts it. Empty where the file
/// cannot be read: then "@path" is an ordinary argument, as for gcc.
std::optional<std::vector<std::string>> read_response_file(const std::string& path);

/// What a program of cells cannot be made with. what() is the whole message but for the name of the wrapper:
/// subject, cause, remedy.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What an invocation makes.
enum class Output {
  information,  ///< Nothing: no inputs, or --version, -print-..., -dumpmachine and the like.
  objects,      ///< -c, -S, -E, -M, -MM, -fsyntax-only: no link.
  partial,      ///< -r: one object from several.
  library,      ///< -shared.
  program,
};

/// Of -fuse-ld.
enum class Linker { usual, gold, lld };

struct Arguments {
  std::vector<std::string>
      kept;  ///< The user's arguments, in their order, without those that a program of cells cannot have.
  Output output = Output::information;
  bool compiles = false;              ///< Some input is source (else the linker alone runs).
  bool position_independent = false;  ///< The user said -fPIC or -fpic: the code may go into a shared library.
  bool names_language = false;        ///< -x was given; it would hold for files added at the end.
  bool link_time_code = false;        ///< -flto
  Linker linker = Linker::usual;
  bool old = false;            ///< Sources are of the 1990s: --old, which is the wrapper's and not read here.
  bool mpi = false;            ///< The wrapper is MPI's: its headers and libraries are there. Not read here.
  std::string mpi_modules;     ///< The folder with the compiled module mpi, for Fortran; empty: none. Not read here.
  std::string wide_integers;   ///< The option by which a plain INTEGER of Fortran has 8 bytes; empty: none.
  bool own_libraries = false;  ///< -nostdlib, -nodefaultlibs: nothing may be added to the link.

  /// Reads `arguments` (argv without argv[0]). A response file, @file, is read to understand it, but stays one
  /// unless an argument in it must go. Throws Refused for what cannot be loaded into cells: -static, -m32,
  /// -fsanitize=address, ... What depends on the compiler is refused by command().
  static Arguments read(const std::vector<std::string>& arguments);
};

// ---------------------------------------------------------------- the compiler and its command

enum class Language { c, cxx, fortran };

/// The wrapper for `language`: "apcc", "apc++", "apfort".
std::string_view wrapper_name(Language language);
/// The variable that names the user's compiler: AP_CC, AP_CXX, AP_FC. (Not APLIB_...: those are options of the
/// machine.)
const char* compiler_variable(Language language);
/// The first of these variables that is set and not empty: the above, then those that other MPIs' wrappers look at,
/// MPICC_CC, OMPI_CC, MPICH_CC and their like. The above where none is.
const char* compiler_variable_of_mpi(Language language);

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

/// argv of the compiler, argv[0] included. `program_object`: the object from tree.hpp; used for
/// Output::program alone. Throws Refused for combinations that make no working program.
std::vector<std::string> command(Language language, const Compiler& compiler, const Arguments& arguments,
                                 const Prefix& prefix, const std::string& program_object);

/// `argv` for a shell: one line, quoted where needed.
std::string shell_text(const std::vector<std::string>& argv);

}  // namespace aplib::compile
