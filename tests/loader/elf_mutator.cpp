// SPDX-License-Identifier: MIT
#include "elf_mutator.hpp"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace aplib::loader::test {
namespace {

constexpr std::array<std::size_t, 4> widths{1, 2, 4, 8};

std::uint64_t get(const std::vector<char>& bytes, std::size_t at, std::size_t width) {
  std::uint64_t value = 0;
  if (at + width <= bytes.size()) std::memcpy(&value, bytes.data() + at, width);
  return value;
}

void put(std::vector<char>& bytes, std::size_t at, std::size_t width, std::uint64_t value) {
  if (at + width <= bytes.size()) std::memcpy(bytes.data() + at, &value, width);
}

}  // namespace

void ElfMutator::add_region(ElfBytes& file, const char* name, std::uint64_t address, std::uint64_t bytes) {
  if (bytes == 0) return;
  const auto* start = &file.at<char>(address);
  const auto offset = static_cast<std::size_t>(start - file.bytes().data());
  regions_.push_back({name, offset, std::min<std::size_t>(bytes, original_.size() - offset)});
}

void ElfMutator::find_regions(ElfBytes file) {
  regions_.push_back({"ELF header", 0, sizeof(Elf64_Ehdr)});
  const std::size_t headers = file.header().e_phnum * sizeof(Elf64_Phdr);
  // The most interesting ones several times.
  for (int i = 0; i < 3; ++i) regions_.push_back({"program headers", file.header().e_phoff, headers});
  for (int i = 0; i < 3; ++i) {
    regions_.push_back({"dynamic section", file.program_header(PT_DYNAMIC).p_offset, file.dynamic().size_bytes()});
  }
  const auto tag = [&](std::int64_t one) { return file.has_tag(one) ? file.tag(one) : 0; };
  const auto add = [&](const char* name, std::int64_t address, std::uint64_t bytes) {
    if (file.has_tag(address)) add_region(file, name, file.tag(address), bytes);
  };
  constexpr std::uint64_t some = 256;  // for tables whose size is not known
  add("names", DT_STRTAB, tag(DT_STRSZ));
  add("symbols", DT_SYMTAB, some);
  add("GNU hash", DT_GNU_HASH, some / 4);
  add("hash", DT_HASH, some / 4);
  add("relocations", DT_RELA, tag(DT_RELASZ));
  add("jump slots", DT_JMPREL, tag(DT_PLTRELSZ));
  add("packed relocations", 36, tag(35));
  add("versions of symbols", DT_VERSYM, some / 8);
  add("needed versions", DT_VERNEED, some / 4);
  add("defined versions", DT_VERDEF, some / 4);
  for (const Elf64_Phdr& one : file.program_headers()) {
    values_.insert(values_.end(), {one.p_offset, one.p_vaddr, one.p_filesz, one.p_memsz, one.p_vaddr + one.p_memsz});
  }
  for (const Elf64_Dyn& one : file.dynamic()) {
    values_.insert(values_.end(), {static_cast<std::uint64_t>(one.d_tag), one.d_un.d_val});
  }
  values_.push_back(original_.size());
}

std::uint64_t ElfMutator::interesting() {
  constexpr std::array<std::uint64_t, 14> edges{
      0,          1,          2,          0x7f,       0x8000,     0xffff,       0x7fffffff,
      0x80000000, 0xffffffff, 1ULL << 32, 1ULL << 46, 1ULL << 63, ~0ULL - 4095, ~0ULL};
  switch (below(4)) {
    case 0:
      return edges[below(edges.size())];
    case 1:
      return values_[below(values_.size())];
    case 2:
      return values_[below(values_.size())] + below(33) - 16;
    default:
      return random_() >> below(64);
  }
}

std::string ElfMutator::change_field(std::vector<char>& bytes, const Region& region) {
  const std::size_t width = widths[below(widths.size())];
  const std::size_t at = region.offset + below(region.bytes) / width * width;
  const std::uint64_t old = get(bytes, at, width);
  const std::uint64_t value = below(3) == 0 ? old + (below(2) == 0 ? 1ULL : ~0ULL) * (1ULL << below(5)) : interesting();
  put(bytes, at, width, value);
  return fmt::format("{}: {} bytes at {:#x}: {:#x} becomes {:#x}", region.name, width, at, old, value);
}

std::string ElfMutator::swap_fields(std::vector<char>& bytes, const Region& region) {
  const std::size_t width = widths[below(widths.size())];
  const std::size_t one = region.offset + below(region.bytes) / width * width;
  const std::size_t other = region.offset + below(region.bytes) / width * width;
  const std::uint64_t value = get(bytes, one, width);
  put(bytes, one, width, get(bytes, other, width));
  put(bytes, other, width, value);
  return fmt::format("{}: {} bytes at {:#x} and {:#x} swapped", region.name, width, one, other);
}

std::string ElfMutator::mutate(std::vector<char>& bytes) {
  const Region& region = regions_[below(regions_.size())];
  switch (below(8)) {
    case 0: {
      const std::size_t at = below(bytes.size());
      const unsigned bit = 1U << below(8);
      bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ bit);
      return fmt::format("bit {:#x} of the byte at {:#x} flipped", bit, at);
    }
    case 1:
      if (below(4) == 0) {
        bytes.resize(below(bytes.size()));
        return fmt::format("cut off at {}", bytes.size());
      }
      [[fallthrough]];
    case 2:
      return swap_fields(bytes, region);
    default:
      return change_field(bytes, region);
  }
}

std::vector<char> ElfMutator::next(std::string& description) {
  std::vector<char> bytes = original_;
  description.clear();
  for (std::uint64_t count = 1 + below(3); count != 0 && !bytes.empty(); --count) {
    description += mutate(bytes) + "; ";
  }
  return bytes;
}

}  // namespace aplib::loader::test
