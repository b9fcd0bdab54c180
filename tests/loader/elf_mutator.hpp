// SPDX-License-Identifier: MIT
// Damages ELF files at random, mostly in headers, the dynamic section and the tables that it names.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "elf_bytes.hpp"

namespace aplib::loader::test {

class ElfMutator {
 public:
  /// The same seed gives the same mutations of the same file on every computer.
  ElfMutator(const std::string& path, std::uint64_t seed) : original_(ElfBytes(path).bytes()), random_(seed) {
    find_regions(ElfBytes(path));
  }

  /// The next mutation, which `description` describes.
  std::vector<char> next(std::string& description);

 private:
  struct Region {
    const char* name;
    std::size_t offset;
    std::size_t bytes;
  };

  void find_regions(ElfBytes file);
  void add_region(ElfBytes& file, const char* name, std::uint64_t address, std::uint64_t bytes);
  /// A number below `limit`. std::uniform_int_distribution differs between libraries.
  std::uint64_t below(std::uint64_t limit) { return limit == 0 ? 0 : random_() % limit; }
  std::uint64_t interesting();
  std::string mutate(std::vector<char>& bytes);
  std::string change_field(std::vector<char>& bytes, const Region& region);
  std::string swap_fields(std::vector<char>& bytes, const Region& region);

  std::vector<char> original_;
  std::vector<Region> regions_;
  std::vector<std::uint64_t> values_;  // Addresses and sizes that occur in this file.
  std::mt19937_64 random_;
};

}  // namespace aplib::loader::test
