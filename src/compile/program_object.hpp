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

/// `object` (bytes of the template) with `start` as the program's interpreter. There is room left for a longer path, for retarget(). Throws BrokenTree
/// when `object` is no such template, or `start` is too long.
std::string with_start(std::string object, const std::string& start);

/// The file to link, for programs that `start` shall start: kept beside the template, one for each path (build tools note names of inputs, so it has to be the
/// same file each time). Where that folder cannot be written, an unnamed file that the linker, a child of this process, inherits. Throws BrokenTree.
std::string program_object(const Prefix& prefix, const std::string& start);

/// Makes that file beforehand. Throws BrokenTree where it cannot be written.
void prepare_program_object(const Prefix& prefix, const std::string& start);

/// Has `start` start the finished program `file`, in place. Throws BrokenTree: no program made by apcc, no room for so long a path, not writable.
void retarget(const std::string& file, const std::string& start);

}  // namespace aplib::compile
