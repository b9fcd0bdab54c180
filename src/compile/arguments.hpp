// SPDX-License-Identifier: MIT
// Arguments: a compiler's command line, understood as far as a wrapper must: what it makes, from what, and which
// arguments a program of cells cannot have. Options of gcc, g++, gfortran and clang.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace aplib::compile {

/// What stands in file `path`, which a command line names as @path: parted by white space; quotes of both kinds and
/// backslashes as in gcc (libiberty's buildargv). Empty where the file cannot be read: then "@path" is an ordinary
/// argument, as for gcc.
std::optional<std::vector<std::string>> read_response_file(const std::string& path);

/// The arguments in `text`, as above.
std::vector<std::string> split_arguments(const std::string& text);

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
  bool own_libraries = false;  ///< -nostdlib, -nodefaultlibs: nothing may be added to the link.

  /// Reads `arguments` (argv without argv[0]). A response file, @file, is read to understand it, but stays one
  /// unless an argument in it must go. Throws Refused for what cannot be loaded into cells: -static, -m32,
  /// -fsanitize=address, ... What depends on the compiler is refused by command().
  static Arguments read(const std::vector<std::string>& arguments);
};

}  // namespace aplib::compile
