// SPDX-License-Identifier: MIT
// What ElfFile::open() promises of every file that it accepts, checked from outside.
#pragma once

#include <string>

#include "loader/elf_file.hpp"

namespace aplib::loader::test {

/// Walks everything that `file` tells; the first promise that it breaks, or "".
std::string broken_promise(const ElfFile& file);

}  // namespace aplib::loader::test
