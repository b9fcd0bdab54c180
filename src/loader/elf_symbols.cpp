// SPDX-License-Identifier: MIT
#include "loader/elf_symbols.hpp"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace aplib::loader {
namespace {

constexpr std::size_t longest_name = 1 << 20;
// Linkers let names share their ends, so together they can be longer than their table, but not by much.
constexpr std::size_t most_sharing = 16;
constexpr std::uint16_t hidden_version_bit = 0x8000;

std::uint64_t count_in_sysv_hash(const ElfSegments& segments, std::uint64_t address) {
  constexpr std::string_view what = "hash table (DT_HASH)";
  const auto header = segments.table<std::uint32_t>(address, 2, what);
  const std::uint64_t words = 2 + std::uint64_t{header[0]} + header[1];
  if (words > segments.bytes_from(address) / sizeof(std::uint32_t)) {
    segments.input().damaged(what, fmt::format("{} buckets and {} symbols do not fit", header[0], header[1]));
  }
  return header[1];
}

/// The highest symbol is the last one of the chain that begins highest.
std::uint64_t count_in_gnu_hash(const ElfSegments& segments, std::uint64_t address) {
  constexpr std::string_view what = "hash table (DT_GNU_HASH)";
  const auto header = segments.table<std::uint32_t>(address, 4, what);
  const std::uint64_t bucket_count = header[0];
  const std::uint64_t first_symbol = header[1];
  const std::uint64_t filter_words = header[2];
  const std::uint64_t buckets_address = address + header.size() * 4 + filter_words * 8;
  const auto buckets = segments.table<std::uint32_t>(buckets_address, bucket_count, what);
  const std::uint64_t last_chain = buckets.empty() ? 0 : *std::max_element(buckets.begin(), buckets.end());
  if (last_chain == 0) return first_symbol;
  if (last_chain < first_symbol) segments.input().damaged(what, "a chain begins before the first symbol");

  const std::uint64_t chains_address = buckets_address + bucket_count * 4;
  std::array<std::uint32_t, 64> part{};
  for (std::uint64_t symbol = last_chain;;) {
    const std::uint64_t at = chains_address + (symbol - first_symbol) * 4;
    const std::uint64_t count = std::min<std::uint64_t>(segments.bytes_from(at) / 4, part.size());
    if (count == 0) segments.input().damaged(what, "the last chain has no end");
    for (const std::uint32_t word : segments.table<std::uint32_t>(at, count, what)) {
      ++symbol;
      if ((word & 1) != 0) return symbol;
    }
  }
}

/// Checks what a definition says of its place.
void check_place(const ElfSegments& segments, const Symbol& symbol) {
  const auto wrong = [&](const char* cause) {
    segments.input().damaged("symbol table", fmt::format("{}: {}", symbol.name, cause));
  };
  if (symbol.type == STT_TLS) {
    if (!segments.tls()) wrong("is thread-local in a file without thread-locals");
    if (!lies_in(symbol.value, symbol.bytes, segments.tls()->memory_bytes)) wrong("lies outside the thread-locals");
  } else if (!symbol.absolute && !lies_in(symbol.value, symbol.bytes, segments.span())) {
    wrong("lies outside the image");
  }
}

}  // namespace

std::string_view string_at(const std::vector<char>& strings, std::uint64_t offset, const ElfInput& input,
                           std::string_view what) {
  if (offset >= strings.size()) {
    input.damaged(what, fmt::format("a name at {} in {} bytes of names", offset, strings.size() - 1));
  }
  const std::string_view name(strings.data() + offset, ::strnlen(strings.data() + offset, longest_name + 1));
  if (name.size() > longest_name) input.damaged(what, fmt::format("a name of more than {} bytes", longest_name));
  return name;
}

std::uint64_t count_hashed_symbols(const ElfSegments& segments, const ElfDynamic& dynamic) {
  std::uint64_t count = 0;
  if (dynamic.hash != 0) count = count_in_sysv_hash(segments, dynamic.hash);
  if (dynamic.gnu_hash != 0) count = std::max(count, count_in_gnu_hash(segments, dynamic.gnu_hash));
  return count;
}

std::vector<Symbol> read_symbols(const ElfSegments& segments, const ElfDynamic& dynamic,
                                 const std::vector<char>& strings, std::uint64_t count) {
  const auto versions = read_versions(segments, dynamic, strings);
  const auto raw = segments.table<Elf64_Sym>(dynamic.symbols, count, "symbol table");
  std::vector<std::uint16_t> indices;
  if (dynamic.version_indices != 0) {
    indices = segments.table<std::uint16_t>(dynamic.version_indices, count, "versions of symbols");
  }

  std::vector<Symbol> symbols(raw.size());
  std::size_t name_bytes = 0;
  // [0] is the null symbol, whatever its bytes say.
  for (std::size_t i = 1; i < raw.size(); ++i) {
    Symbol& symbol = symbols[i];
    symbol.name = string_at(strings, raw[i].st_name, segments.input(), "symbol table");
    name_bytes += symbol.name.size();
    if (name_bytes > longest_name + most_sharing * strings.size()) {
      segments.input().damaged("symbol table", "its names are longer than their table");
    }
    symbol.bytes = raw[i].st_size;
    symbol.type = ELF64_ST_TYPE(raw[i].st_info);
    symbol.binding = ELF64_ST_BIND(raw[i].st_info);
    symbol.visibility = ELF64_ST_VISIBILITY(raw[i].st_other);
    symbol.defined = raw[i].st_shndx != SHN_UNDEF;
    symbol.absolute = raw[i].st_shndx == SHN_ABS;
    if (symbol.defined) {
      symbol.value = raw[i].st_value;
      check_place(segments, symbol);
    }
    if (!indices.empty()) {
      const std::uint16_t index = indices[i] & ~hidden_version_bit;
      symbol.hidden_version = (indices[i] & hidden_version_bit) != 0;
      // 0 and 1 mean "local" and "without version".
      if (index > VER_NDX_GLOBAL) {
        if (index >= versions.size()) {
          segments.input().damaged("versions of symbols", fmt::format("{}: unknown version {}", symbol.name, index));
        }
        symbol.version = versions[index];
      }
    }
  }
  return symbols;
}

}  // namespace aplib::loader
