// SPDX-License-Identifier: MIT
// The object that apcc links into every program: it names the stub that starts the program (PT_INTERP) and lists the entries.
#pragma once

#include <stdexcept>
#include <string>

#include "compile/prefix.hpp"

namespace aplib::compile {

/// The support files of the tree cannot be used. what() says which, why, and what to do.
struct BrokenTree : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// `object` (bytes of the template) with `start` as the program's interpreter. Throws BrokenTree when `object` is no such template, or `start` is too long.
std::string with_start(std::string object, const std::string& start);

/// The file to link: kept beside the template, once for each place where the tree has been (build tools note names of inputs, so it has to be the same
/// file each time). Where that folder cannot be written, an unnamed file that the linker, a child of this process, inherits. Throws BrokenTree.
std::string program_object(const Prefix& prefix);

/// Makes that file beforehand, for a tree whose root will be `final_root` when it is used. Throws BrokenTree where it cannot be written.
void prepare_program_object(const Prefix& prefix, const std::string& final_root);

}  // namespace aplib::compile
