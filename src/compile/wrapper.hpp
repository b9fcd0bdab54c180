// SPDX-License-Identifier: MIT
// Wrapper: apcc, apc++ and apfort. Becomes the user's compiler, with arguments that make programs of cells.
#pragma once

#include "compile/compiler.hpp"

namespace aplib::compile {

/// main() of the wrapper for `language`. Does not return where the compiler runs: its exit status is the wrapper's. Else 0 after --aplib-show and
/// --aplib-help, 1 for what cannot be, 127 where there is no compiler; with one message on stderr.
int run_wrapper(Language language, int argc, char** argv);

}  // namespace aplib::compile
