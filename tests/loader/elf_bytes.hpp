// SPDX-License-Identifier: MIT
// ElfBytes: an ELF file in memory, to be damaged on purpose.
#pragma once

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace aplib::loader::test {

class ElfBytes {
 public:
  explicit ElfBytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    if (bytes_.size() < sizeof(Elf64_Ehdr)) throw std::runtime_error(path + ": no ELF file to spoil");
  }

  std::vector<char>& bytes() { return bytes_; }

  Elf64_Ehdr& header() { return *reinterpret_cast<Elf64_Ehdr*>(bytes_.data()); }
  std::span<Elf64_Phdr> program_headers() {
    return {reinterpret_cast<Elf64_Phdr*>(bytes_.data() + header().e_phoff), header().e_phnum};
  }
  Elf64_Phdr& program_header(std::uint32_t type, std::size_t skip = 0) {
    for (Elf64_Phdr& one : program_headers()) {
      if (one.p_type == type && skip-- == 0) return one;
    }
    throw std::runtime_error("no such program header");
  }
  /// The whole section, with its spare entries at the end.
  std::span<Elf64_Dyn> dynamic() {
    const Elf64_Phdr& segment = program_header(PT_DYNAMIC);
    return {reinterpret_cast<Elf64_Dyn*>(bytes_.data() + segment.p_offset), segment.p_filesz / sizeof(Elf64_Dyn)};
  }
  bool has_tag(std::int64_t tag) {
    for (const Elf64_Dyn& one : dynamic()) {
      if (one.d_tag == tag) return true;
    }
    return false;
  }
  std::uint64_t& tag(std::int64_t tag) {
    for (Elf64_Dyn& one : dynamic()) {
      if (one.d_tag == tag) return one.d_un.d_val;
    }
    throw std::runtime_error("no dynamic entry with tag " + std::to_string(tag));
  }
  void rename_tag(std::int64_t from, std::int64_t to) {
    for (Elf64_Dyn& one : dynamic()) {
      if (one.d_tag == from) one.d_tag = to;
    }
  }
  /// Uses one of the spare entries that linkers leave.
  void add_tag(std::int64_t tag, std::uint64_t value) {
    auto entries = dynamic();
    for (std::size_t i = 0; i + 1 < entries.size(); ++i) {
      if (entries[i].d_tag == DT_NULL) {
        entries[i].d_tag = tag;
        entries[i].d_un.d_val = value;
        return;
      }
    }
    throw std::runtime_error("no spare dynamic entry");
  }
  /// The bytes in the file for an address of the image.
  template <class T>
  T& at(std::uint64_t address) {
    for (const Elf64_Phdr& one : program_headers()) {
      if (one.p_type == PT_LOAD && address >= one.p_vaddr && address + sizeof(T) <= one.p_vaddr + one.p_filesz) {
        return *reinterpret_cast<T*>(bytes_.data() + one.p_offset + (address - one.p_vaddr));
      }
    }
    throw std::runtime_error("no such address in the file");
  }

  std::string save(const std::string& path) const {
    std::ofstream(path, std::ios::binary).write(bytes_.data(), static_cast<std::streamsize>(bytes_.size()));
    return path;
  }

 private:
  std::vector<char> bytes_;
};

}  // namespace aplib::loader::test
