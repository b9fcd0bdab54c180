// SPDX-License-Identifier: MIT
#include "loader/program_entries.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace aplib::loader {
namespace {

/// Where the table is: by its symbol, or, where a version script hides all symbols, by the note.
std::optional<std::uint64_t> find_table(const ElfFile& file) {
  if (const Symbol* table = file.find("aplib_program_entries")) return table->value;
  for (const Note& note : file.notes()) {
    std::uint64_t distance = 0;
    if (note.owner != "APlib" || note.type != 1 || note.description.size() < sizeof distance) continue;
    std::memcpy(&distance, note.description.data(), sizeof distance);
    return note.address + distance;
  }
  return std::nullopt;
}

/// The word at `address` as the file has it; 0: no such place.
std::uint64_t word_in_file(const ElfFile& file, std::uint64_t address) {
  for (const Segment& segment : file.segments()) {
    std::uint64_t word = 0;
    if (address < segment.address || segment.file_bytes < sizeof word ||
        address - segment.address > segment.file_bytes - sizeof word) {
      continue;
    }
    const auto offset = static_cast<off_t>(segment.offset + (address - segment.address));
    if (pread(file.descriptor(), &word, sizeof word, offset) == sizeof word) return word;
  }
  return 0;
}

}  // namespace

ProgramEntries::ProgramEntries(const ElfFile& file, const RelocationPlan& plan) {
  const std::optional<std::uint64_t> table = find_table(file);
  if (!table) return;
  // The words that have a relative relocation, of either kind, are addresses; the others stay null.
  const auto own = [&](std::uint64_t word) { return (word - *table) / 8 < names.size() && (word - *table) % 8 == 0; };
  for (const RelocationPlan::Store& store : plan.relative) {
    if (own(store.offset)) addresses_[(store.offset - *table) / 8] = store.value;
  }
  for (const std::uint64_t word : plan.packed) {
    if (own(word)) addresses_[(word - *table) / 8] = word_in_file(file, word);
  }
  for (std::uint64_t& address : addresses_) {
    if (address >= file.span()) address = 0;
  }
}

std::uint64_t ProgramEntries::find(std::string_view name) const noexcept {
  const auto found = std::ranges::find(names, name);
  return found == names.end() ? 0 : addresses_[static_cast<std::size_t>(found - names.begin())];
}

}  // namespace aplib::loader
