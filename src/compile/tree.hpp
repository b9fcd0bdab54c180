// SPDX-License-Identifier: MIT
// Prefix: the installed tree, or the build tree, that a wrapper belongs to. The wrapper finds it from its own place, so
// the tree can be moved. The tree has the object that makes a shared object a program.
//
// Whole files, and the parts of their names. Plain system calls: the wrapper runs thousands of times under a
// configure script.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace aplib::compile {

struct Prefix {
  std::string root;            ///< .../bin/apcc is in it.
  std::string include_folder;  ///< aplib/ is in it.
  std::string library_folder;  ///< Holds libaplib.so; empty: there is none yet (a build tree).
  std::string support_folder;  ///< lib/aplib: what programs are linked with and started by.

  /// The stub that the kernel enters when a program is executed.
  [[nodiscard]] std::string start() const { return support_folder + "/aplib-start"; }
  /// The object that makes a shared object a program, with room for the stub's name.
  [[nodiscard]] std::string program_template() const { return support_folder + "/aplib-program.o"; }
  /// The linker script that lets a program lack some of the entries.
  [[nodiscard]] std::string entries_script() const { return support_folder + "/aplib-entries.ld"; }

  /// mpi.h is in it.
  [[nodiscard]] std::string mpi_include() const { return support_folder + "/mpi/include"; }

  /// The tree of the running wrapper.
  static Prefix own();
  /// The tree at `root`.
  static Prefix at(const std::string& root);
};

// The object that apcc links into every program: it names the stub that starts the program (PT_INTERP) and lists
// the entries.

/// The support files of the tree cannot be used. what() says which, why, and what to do.
struct BrokenTree : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// `object` (bytes of the template) with `start` as the program's interpreter. There is room left for a longer
/// path, for retarget(). Throws BrokenTree when `object` is no such template, or `start` is too long.
std::string with_start(std::string object, const std::string& start);

/// The file to link, for programs that `start` shall start: kept beside the template, one for each path (build
/// tools note names of inputs, so it has to be the same file each time). Where that folder cannot be written, an
/// unnamed file that the linker, a child of this process, inherits. Throws BrokenTree.
std::string program_object(const Prefix& prefix, const std::string& start);

/// Makes that file beforehand. Throws BrokenTree where it cannot be written.
void prepare_program_object(const Prefix& prefix, const std::string& start);

/// Has `start` start the finished program `file`, in place. Throws BrokenTree: no program made by apcc, no room for
/// so long a path, not writable.
void retarget(const std::string& file, const std::string& start);

// The module mpi of Fortran: its compiled form depends on the compiler.

/// The folder with mpi.mod for the compiler that `words` run; `name` tells its kind and version. Made at the first use,
/// beside the other files of MPI or, where nobody may write there, in the user's cache. Empty: it cannot be made.
std::string mpi_module_folder(const Prefix& prefix, const std::vector<std::string>& words, const std::string& name);

// ---------------------------------------------------------------- files

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
