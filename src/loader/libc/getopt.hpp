// SPDX-License-Identifier: MIT
// The getopt family on an instance's own state. libc's own re-entrant entry is private to it, hence a scanner of our
// own; a test compares the two over random arguments.
#pragma once

#include <getopt.h>

#include <array>

#include "loader/libc/state.hpp"

namespace aplib::loader::libc {

/// Which member of the family is meant.
struct GetoptCall {
  const char* short_options = "";
  const option* long_options = nullptr;  ///< Ends with a null name; null: none.
  int* long_index = nullptr;
  bool single_dash = false;      ///< getopt_long_only: "-name" is a long option too.
  bool keeps_order = false;      ///< __posix_getopt.
  bool posixly_correct = false;  ///< POSIXLY_CORRECT stands in the environment.
  Instance* instance = nullptr;  ///< Whose stderr complaints go to; null: what stderr is in the state, or libc's.
};

/// Does one call: reads and writes optind, optarg, optopt, opterr of `state`, permutes argv, writes complaints to
/// state.err.
int next_option(LibcState& state, int argc, char** argv, const GetoptCall& call);

/// Complains of the option `words[1]`, which follows the program's name, as getopt does that finds nothing behind it.
/// Leaves the program's own place and variables as they are. REQUIRES: call.instance.
void complain_of_option(std::array<char*, 2> words, const GetoptCall& call);

}  // namespace aplib::loader::libc
