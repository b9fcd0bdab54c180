// SPDX-License-Identifier: MIT
// ElfDynamic: the dynamic section's entries, as numbers. The tables they name are read and checked by others.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "loader/elf_file.hpp"
#include "loader/elf_segments.hpp"

namespace aplib::loader {

struct ElfDynamic {
  /// Throws Error(failed) when the section does not end, an element has another size than it must, or a kind of table is foreign to x86-64.
  static ElfDynamic read(const ElfSegments& segments);

  std::vector<std::uint64_t> needed;  ///< Offsets into the strings, as are soname, rpath and runpath.
  std::optional<std::uint64_t> soname;
  std::optional<std::uint64_t> rpath;
  std::optional<std::uint64_t> runpath;
  Range strings;
  std::uint64_t symbols = 0;  ///< Addresses; 0: none.
  std::uint64_t hash = 0;
  std::uint64_t gnu_hash = 0;
  std::uint64_t version_indices = 0;
  std::uint64_t version_needs = 0;
  std::uint64_t version_need_count = 0;
  std::uint64_t version_definitions = 0;
  std::uint64_t version_definition_count = 0;
  Range relocations;         ///< DT_RELA
  Range jump_slots;          ///< DT_JMPREL
  Range packed_relocations;  ///< DT_RELR
  std::uint64_t init = 0;
  std::uint64_t fini = 0;
  Range preinit_array;
  Range init_array;
  Range fini_array;
  std::uint64_t flags = 0;    ///< DF_*; the older tags DT_SYMBOLIC and DT_TEXTREL are included.
  std::uint64_t flags_1 = 0;  ///< DF_1_*
};

}  // namespace aplib::loader
