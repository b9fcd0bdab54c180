// SPDX-License-Identifier: MIT
// What kind of file this is: the ELF header, or why there is none.
#pragma once

#include <elf.h>

#include "loader/elf_input.hpp"

namespace aplib::loader {

/// The header of a shared object for this machine. Throws Error(failed), with the remedy for every other kind of file.
[[nodiscard]] Elf64_Ehdr read_elf_header(const ElfInput& input);

}  // namespace aplib::loader
