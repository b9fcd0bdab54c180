// SPDX-License-Identifier: MIT
#include "loader/elf_dynamic.hpp"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace aplib::loader {
namespace {

constexpr std::string_view section = "dynamic section";

// Newer than the elf.h of some systems that we build on.
constexpr std::int64_t dt_relr_bytes = 35;
constexpr std::int64_t dt_relr = 36;
constexpr std::int64_t dt_relr_entry = 37;

struct Expected {
  std::int64_t tag;
  std::uint64_t value;
  std::string_view name;
};

constexpr std::array<Expected, 5> expected{{
    {DT_SYMENT, sizeof(Elf64_Sym), "size of a symbol"},
    {DT_RELAENT, sizeof(Elf64_Rela), "size of a relocation"},
    {dt_relr_entry, sizeof(std::uint64_t), "size of a packed relocation"},
    {DT_PLTREL, DT_RELA, "kind of jump slot relocations"},
    {DT_RELSZ, 0, "size of relocations without addends (x86-64 has none)"},
}};

struct Field {
  std::int64_t tag;
  std::uint64_t* value;
};

/// Where the values of the entries go that occur once.
auto fields_of(ElfDynamic& d) {
  return std::to_array<Field>({{DT_STRTAB, &d.strings.address},
                               {DT_STRSZ, &d.strings.bytes},
                               {DT_SYMTAB, &d.symbols},
                               {DT_HASH, &d.hash},
                               {DT_GNU_HASH, &d.gnu_hash},
                               {DT_VERSYM, &d.version_indices},
                               {DT_VERNEED, &d.version_needs},
                               {DT_VERNEEDNUM, &d.version_need_count},
                               {DT_VERDEF, &d.version_definitions},
                               {DT_VERDEFNUM, &d.version_definition_count},
                               {DT_RELA, &d.relocations.address},
                               {DT_RELASZ, &d.relocations.bytes},
                               {DT_JMPREL, &d.jump_slots.address},
                               {DT_PLTRELSZ, &d.jump_slots.bytes},
                               {dt_relr, &d.packed_relocations.address},
                               {dt_relr_bytes, &d.packed_relocations.bytes},
                               {DT_INIT, &d.init},
                               {DT_FINI, &d.fini},
                               {DT_PREINIT_ARRAY, &d.preinit_array.address},
                               {DT_PREINIT_ARRAYSZ, &d.preinit_array.bytes},
                               {DT_INIT_ARRAY, &d.init_array.address},
                               {DT_INIT_ARRAYSZ, &d.init_array.bytes},
                               {DT_FINI_ARRAY, &d.fini_array.address},
                               {DT_FINI_ARRAYSZ, &d.fini_array.bytes},
                               {DT_FLAGS_1, &d.flags_1}});
}

void check_expected(const ElfInput& input, const Elf64_Dyn& entry) {
  for (const Expected& one : expected) {
    if (entry.d_tag == one.tag && entry.d_un.d_val != one.value) {
      input.damaged(section, fmt::format("{}: {}, not {}", one.name, entry.d_un.d_val, one.value));
    }
  }
}

void check_sizes(const ElfInput& input, const ElfDynamic& dynamic) {
  for (const Range& range : {dynamic.relocations, dynamic.jump_slots}) {
    if (range.bytes % sizeof(Elf64_Rela) != 0) {
      input.damaged(section, fmt::format("a table of relocations of {} bytes", range.bytes));
    }
  }
  for (const Range& range :
       {dynamic.packed_relocations, dynamic.preinit_array, dynamic.init_array, dynamic.fini_array}) {
    if (range.bytes % sizeof(std::uint64_t) != 0) {
      input.damaged(section, fmt::format("a table of addresses of {} bytes", range.bytes));
    }
  }
}

}  // namespace

ElfDynamic ElfDynamic::read(const ElfSegments& segments) {
  const ElfInput& input = segments.input();
  const Range place = segments.dynamic();
  if (place.address % alignof(Elf64_Dyn) != 0) input.damaged(section, "is not aligned");

  ElfDynamic result;
  const auto fields = fields_of(result);
  for (const Elf64_Dyn& entry : segments.table<Elf64_Dyn>(place.address, place.bytes / sizeof(Elf64_Dyn), section)) {
    const std::uint64_t value = entry.d_un.d_val;
    check_expected(input, entry);
    switch (entry.d_tag) {
      case DT_NULL:
        check_sizes(input, result);
        return result;
      case DT_NEEDED:
        result.needed.push_back(value);
        break;
      case DT_SONAME:
        result.soname = value;
        break;
      case DT_RPATH:
        result.rpath = value;
        break;
      case DT_RUNPATH:
        result.runpath = value;
        break;
      case DT_SYMBOLIC:
        result.flags |= DF_SYMBOLIC;
        break;
      case DT_TEXTREL:
        result.flags |= DF_TEXTREL;
        break;
      case DT_FLAGS:
        result.flags |= value;
        break;
      default:
        for (const Field& field : fields) {
          if (entry.d_tag == field.tag) *field.value = value;
        }
    }
  }
  input.damaged(section, "has no end");  // Debuggers would walk on.
}

}  // namespace aplib::loader
