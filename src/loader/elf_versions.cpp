// SPDX-License-Identifier: MIT
// Source of the format: Drepper, "ELF Symbol Versioning". Needs and definitions are chains of records, each of which says how many bytes further the next one
// is; 0 ends a chain.
#include <elf.h>
#include <fmt/format.h>

#include <utility>

#include "loader/elf_symbols.hpp"

namespace aplib::loader {
namespace {

// Symbols have 15 bits for the index.
constexpr std::uint32_t most_versions = 1U << 15;

class VersionReader {
 public:
  VersionReader(const ElfSegments& segments, const std::vector<char>& strings)
      : segments_(segments), strings_(strings) {}

  void read_needs(std::uint64_t address, std::uint64_t count);
  void read_definitions(std::uint64_t address, std::uint64_t count);
  [[nodiscard]] std::vector<std::string_view> take() { return std::move(names_); }

 private:
  template <class Record>
  [[nodiscard]] Record record(std::uint64_t address, std::string_view what);
  void name(std::uint32_t index, std::uint32_t string, std::string_view what);

  const ElfSegments& segments_;
  const std::vector<char>& strings_;
  std::vector<std::string_view> names_;
  std::uint32_t records_ = 0;
};

template <class Record>
Record VersionReader::record(std::uint64_t address, std::string_view what) {
  // Chains inside chains, each with steps of one byte, would take for ever.
  if (++records_ > 2 * most_versions) segments_.input().damaged(what, "more records than there can be versions");
  return segments_.table<Record>(address, 1, what).front();
}

void VersionReader::name(std::uint32_t index, std::uint32_t string, std::string_view what) {
  index &= most_versions - 1;
  if (index >= names_.size()) names_.resize(index + 1);
  names_[index] = string_at(strings_, string, segments_.input(), what);
}

void VersionReader::read_needs(std::uint64_t address, std::uint64_t count) {
  constexpr std::string_view what = "table of needed versions";
  for (; count != 0; --count) {
    const auto need = record<Elf64_Verneed>(address, what);
    if (need.vn_version != VER_NEED_CURRENT) {
      segments_.input().damaged(what, fmt::format("unknown format {}", need.vn_version));
    }
    std::uint64_t one = address + need.vn_aux;
    for (unsigned i = 0; i < need.vn_cnt; ++i) {
      const auto version = record<Elf64_Vernaux>(one, what);
      name(version.vna_other, version.vna_name, what);
      if (version.vna_next == 0) break;
      one += version.vna_next;
    }
    if (need.vn_next == 0) break;
    address += need.vn_next;
  }
}

void VersionReader::read_definitions(std::uint64_t address, std::uint64_t count) {
  constexpr std::string_view what = "table of defined versions";
  for (; count != 0; --count) {
    const auto definition = record<Elf64_Verdef>(address, what);
    if (definition.vd_version != VER_DEF_CURRENT) {
      segments_.input().damaged(what, fmt::format("unknown format {}", definition.vd_version));
    }
    // The base is the file itself; its symbols have no version. Further names of a version are its ancestors.
    if ((definition.vd_flags & VER_FLG_BASE) == 0 && definition.vd_cnt != 0) {
      name(definition.vd_ndx, record<Elf64_Verdaux>(address + definition.vd_aux, what).vda_name, what);
    }
    if (definition.vd_next == 0) break;
    address += definition.vd_next;
  }
}

}  // namespace

std::vector<std::string_view> read_versions(const ElfSegments& segments, const ElfDynamic& dynamic,
                                            const std::vector<char>& strings) {
  VersionReader reader(segments, strings);
  if (dynamic.version_needs != 0) reader.read_needs(dynamic.version_needs, dynamic.version_need_count);
  if (dynamic.version_definitions != 0) {
    reader.read_definitions(dynamic.version_definitions, dynamic.version_definition_count);
  }
  return reader.take();
}

}  // namespace aplib::loader
