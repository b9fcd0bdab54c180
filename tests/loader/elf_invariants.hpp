// SPDX-License-Identifier: MIT
// The promises of ElfFile::open() for every file that it accepts, checked from outside.
#pragma once

#include <string>

#include "loader/elf_file.hpp"

namespace aplib::loader::test {

/// Checks everything that `file` returns. Returns the first broken promise, or "".
std::string broken_promise(const ElfFile& file);

}  // namespace aplib::loader::test
