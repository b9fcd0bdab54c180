// SPDX-License-Identifier: MIT
// The dynamic relocations: read, each once, and checked against the segments and the symbols.
#pragma once

#include <cstdint>
#include <vector>

#include "loader/elf_dynamic.hpp"
#include "loader/elf_file.hpp"
#include "loader/elf_segments.hpp"

namespace aplib::loader {

/// DT_RELA and what of DT_JMPREL does not lie inside it, without R_X86_64_NONE. Their places and symbols are not checked yet.
[[nodiscard]] std::vector<Relocation> read_relocations(const ElfSegments& segments, const ElfDynamic& dynamic);

/// Throws Error(failed) when a relocation has an unknown kind or symbol, or changes what is not a writable part of the image.
void check_relocations(const ElfSegments& segments, const std::vector<Relocation>& relocations,
                       const std::vector<Symbol>& symbols);

/// DT_RELR: the places it stands for, all inside writable segments.
[[nodiscard]] std::vector<std::uint64_t> expand_packed_relocations(const ElfSegments& segments,
                                                                   const ElfDynamic& dynamic);

}  // namespace aplib::loader
