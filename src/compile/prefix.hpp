// SPDX-License-Identifier: MIT
// Prefix: the installed tree, or the build tree, that a wrapper belongs to. Found from the wrapper's own place, so that the tree can be moved.
#pragma once

#include <string>

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

  /// The tree of the running wrapper.
  static Prefix own();
  /// The tree at `root`.
  static Prefix at(const std::string& root);
};

}  // namespace aplib::compile
