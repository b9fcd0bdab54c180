// SPDX-License-Identifier: MIT
// The dynamic symbols with their versions, out of tables that nobody vouches for.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "loader/elf_dynamic.hpp"
#include "loader/elf_file.hpp"
#include "loader/elf_segments.hpp"

namespace aplib::loader {

/// The string at `offset`; `strings` ends with a zero byte. Throws Error(failed), naming `what`, when there is none.
[[nodiscard]] std::string_view string_at(const std::vector<char>& strings, std::uint64_t offset, const ElfInput& input,
                                         std::string_view what);

/// How many dynamic symbols the hash tables prove; the file has no direct word on it. Relocations may name further ones.
[[nodiscard]] std::uint64_t count_hashed_symbols(const ElfSegments& segments, const ElfDynamic& dynamic);

/// Names of versions by the index that symbols carry; empty where there is none.
[[nodiscard]] std::vector<std::string_view> read_versions(const ElfSegments& segments, const ElfDynamic& dynamic,
                                                          const std::vector<char>& strings);

/// `count` symbols; their names and versions point into `strings`.
[[nodiscard]] std::vector<Symbol> read_symbols(const ElfSegments& segments, const ElfDynamic& dynamic,
                                               const std::vector<char>& strings, std::uint64_t count);

}  // namespace aplib::loader
