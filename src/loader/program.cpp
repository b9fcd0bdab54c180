// SPDX-License-Identifier: MIT
#include "loader/program.hpp"

#include <elf.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "loader/resolver.hpp"

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

std::shared_ptr<const Program> Program::load(const std::string& path, const LoadOptions& options) {
  std::shared_ptr<Program> program(new Program);
  program->options_ = options;
  Resolver(*program, path).run();
  return program;
}

namespace {

std::string key_of(const FileIdentity& file) {
  return fmt::format("{}:{}:{}:{};", file.device, file.inode, file.bytes, file.modified_ns);
}

}  // namespace

std::shared_ptr<const Program> Program::load_plugin(const Program& main, const Surroundings& around,
                                                    std::shared_ptr<const ElfFile> file, const Requester& asked_by) {
  std::string key = key_of(file->identity());
  for (const Requester* one = &asked_by; one != nullptr; one = one->needed_by) key += key_of(one->file->identity());
  for (std::size_t i = main.images_.size(); i < around.files.size(); ++i)
    key += around.files[i] != nullptr ? key_of(around.files[i]->identity()) : ";";
  key += fmt::format("{} {}", fmt::join(around.global, ","), around.own_first);
  const std::lock_guard lock(main.plugins_mutex_);
  std::shared_ptr<const Program>& known = main.plugins_[key];
  if (known == nullptr) {
    std::shared_ptr<Program> plugin(new Program);
    plugin->options_ = main.options_;
    Resolver(*plugin, file->path()).run(main, around, file, asked_by);
    known = plugin;
  }
  return known;
}

bool Program::binds(std::string_view name) const noexcept { return std::ranges::binary_search(bound_, name); }

Program::Definition Program::find(std::string_view name) const noexcept {
  const ElfFile& file = *images_.front().file;
  if (const Symbol* symbol = file.find(name); symbol != nullptr && !symbol->absolute && symbol->type != STT_TLS)
    return {symbol->value};
  return {entries_.find(name)};  // hidden
}

std::vector<std::string_view> Program::functions() const {
  std::vector<std::string_view> names;
  for (const Symbol& symbol : images_.front().file->symbols()) {
    if (symbol.defined && symbol.type == STT_FUNC) names.push_back(symbol.name);
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace aplib::loader
