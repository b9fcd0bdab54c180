// SPDX-License-Identifier: MIT
#include "loader/elf_relocations.hpp"

#include <elf.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace aplib::loader {
namespace {

constexpr std::string_view what = "relocations";
constexpr std::uint64_t word_bytes = 8;
constexpr std::uint32_t r_x86_64_relative64 = 38;

/// Bytes that a relocation of this kind changes; 0: no kind that a position-independent file may have. COPY depends on its symbol.
constexpr std::uint64_t bytes_changed(std::uint32_t type) {
  switch (type) {
    case R_X86_64_64:
    case R_X86_64_GLOB_DAT:
    case R_X86_64_JUMP_SLOT:
    case R_X86_64_RELATIVE:
    case R_X86_64_DTPMOD64:
    case R_X86_64_DTPOFF64:
    case R_X86_64_TPOFF64:
    case R_X86_64_SIZE64:
    case R_X86_64_IRELATIVE:
    case r_x86_64_relative64:
      return word_bytes;
    case R_X86_64_TLSDESC:
      return 2 * word_bytes;
    default:
      return 0;
  }
}

[[noreturn]] void refuse_text_relocations(const ElfInput& input, std::uint64_t address) {
  input.refuse(fmt::format("relocations change its code or constants (at address {:#x})", address),
               "compile all its parts with -fPIC (apcc does) and link it with -Wl,-z,text to see which are not");
}

void append(std::vector<Relocation>& relocations, const std::vector<Elf64_Rela>& entries) {
  for (const Elf64_Rela& entry : entries) {
    const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(entry.r_info));
    if (type == R_X86_64_NONE) continue;
    relocations.push_back({.offset = entry.r_offset,
                           .type = type,
                           .symbol = static_cast<std::uint32_t>(ELF64_R_SYM(entry.r_info)),
                           .addend = entry.r_addend});
  }
}

/// Finds writable places; remembers the last segment, for neighbours mostly share it.
class WritablePlaces {
 public:
  explicit WritablePlaces(const ElfSegments& segments) : segments_(segments) {}

  void check(Range range) {
    if (last_ == nullptr || range.address < last_->address ||
        !lies_in(range.address - last_->address, range.bytes, last_->memory_bytes)) {
      last_ = segments_.holding(range);
      if (last_ == nullptr) {
        segments_.input().damaged(
            what, fmt::format("{} bytes at address {:#x} lie outside the loaded segments", range.bytes, range.address));
      }
    }
    if ((last_->protection & PROT_WRITE) == 0) refuse_text_relocations(segments_.input(), range.address);
  }

 private:
  const ElfSegments& segments_;
  const Segment* last_ = nullptr;
};

}  // namespace

std::vector<Relocation> read_relocations(const ElfSegments& segments, const ElfDynamic& dynamic) {
  constexpr std::uint64_t entry = sizeof(Elf64_Rela);
  const Range& all = dynamic.relocations;
  const Range& jumps = dynamic.jump_slots;
  std::vector<Relocation> relocations;
  if (!all.empty()) append(relocations, segments.table<Elf64_Rela>(all.address, all.bytes / entry, what));
  if (jumps.empty()) return relocations;

  // Some linkers count the jump slots among DT_RELA too, at its end.
  auto slots = segments.table<Elf64_Rela>(jumps.address, jumps.bytes / entry, "relocations of jump slots");
  if (!all.empty() && jumps.address < all.end() && all.address < jumps.end()) {
    if (jumps.address < all.address || (jumps.address - all.address) % entry != 0) {
      segments.input().damaged(what, "the tables of relocations overlap");
    }
    const std::uint64_t common = (all.end() - jumps.address) / entry;
    slots.erase(slots.begin(), slots.begin() + static_cast<std::ptrdiff_t>(std::min(common, slots.size())));
  }
  append(relocations, slots);
  return relocations;
}

void check_relocations(const ElfSegments& segments, const std::vector<Relocation>& relocations,
                       const std::vector<Symbol>& symbols) {
  WritablePlaces places(segments);
  for (const Relocation& relocation : relocations) {
    if (relocation.symbol >= symbols.size()) {
      segments.input().damaged(what, fmt::format("symbol {} of {}", relocation.symbol, symbols.size()));
    }
    std::uint64_t bytes = bytes_changed(relocation.type);
    if (relocation.type == R_X86_64_COPY) {
      bytes = symbols[relocation.symbol].bytes;
    } else if (bytes == 0) {
      segments.input().refuse(
          fmt::format("needs a relocation of type {} at address {:#x}, which only code for a fixed address has",
                      relocation.type, relocation.offset),
          "compile all its parts with -fPIC (apcc does)");
    }
    places.check({relocation.offset, bytes});
  }
}

std::vector<std::uint64_t> expand_packed_relocations(const ElfSegments& segments, const ElfDynamic& dynamic) {
  constexpr std::string_view packed = "packed relocations (DT_RELR)";
  constexpr unsigned places_per_bitmap = 63;
  const Range& table = dynamic.packed_relocations;
  std::vector<std::uint64_t> result;
  if (table.empty()) return result;
  // Each stands for a word of the file.
  const std::uint64_t most = segments.input().bytes() / word_bytes;
  WritablePlaces places(segments);
  const auto add = [&](std::uint64_t address) {
    if (result.size() >= most) segments.input().damaged(packed, "stand for more words than the file has");
    places.check({address, word_bytes});
    result.push_back(address);
  };

  // An even entry is an address; an odd one a bitmap of which of the words that follow are meant. Source: gABI, "Relative Relocation Table".
  std::uint64_t next = 0;
  for (const std::uint64_t entry : segments.table<std::uint64_t>(table.address, table.bytes / word_bytes, packed)) {
    if ((entry & 1) == 0) {
      add(entry);
      next = entry + word_bytes;
      continue;
    }
    if (next == 0) segments.input().damaged(packed, "begin with a bitmap");
    for (unsigned i = 0; i < places_per_bitmap; ++i) {
      if ((entry >> (i + 1) & 1) != 0) add(next + i * word_bytes);
    }
    next += places_per_bitmap * word_bytes;
  }
  return result;
}

}  // namespace aplib::loader
