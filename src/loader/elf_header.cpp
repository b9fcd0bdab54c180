// SPDX-License-Identifier: MIT
#include "loader/elf_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace aplib::loader {
namespace {

constexpr std::string_view link_as_shared = "link it with apcc, or compile with -fPIC and link with -shared";

struct Magic {
  std::string_view bytes;
  std::string_view cause;
  std::string_view remedy;
};

constexpr std::array<Magic, 5> other_files{{
    {"#!", "is a script", "name the program file that the script starts"},
    {"!<arch>", "is an archive of object files (.a)", link_as_shared},
    {"!<thin>", "is an archive of object files (.a)", link_as_shared},
    {"MZ", "is a Windows program", "build it on this system with apcc"},
    {"BC\xC0\xDE", "is LLVM bitcode", link_as_shared},
}};

struct Machine {
  unsigned number;
  std::string_view name;
};

constexpr std::array<Machine, 8> machines{{{EM_386, "32-bit x86"},
                                           {EM_ARM, "32-bit ARM"},
                                           {EM_AARCH64, "aarch64"},
                                           {EM_RISCV, "RISC-V"},
                                           {EM_PPC64, "PowerPC"},
                                           {EM_S390, "s390x"},
                                           {EM_SPARCV9, "SPARC"},
                                           {EM_MIPS, "MIPS"}}};

std::string machine_name(unsigned number) {
  const auto found =
      std::find_if(machines.begin(), machines.end(), [number](const Machine& m) { return m.number == number; });
  return found == machines.end() ? fmt::format("machine number {}", number) : std::string(found->name);
}

void check_magic(const ElfInput& input) {
  const auto start = input.table<char>(0, std::min<std::uint64_t>(input.bytes(), 8), "start of the file");
  const std::string_view text(start.data(), start.size());
  if (text.starts_with(ELFMAG)) return;
  for (const Magic& other : other_files) {
    if (text.starts_with(other.bytes)) input.refuse(other.cause, other.remedy);
  }
  input.refuse("is not a program (no ELF file)", "name a program file made with apcc");
}

void check_machine(const ElfInput& input, const Elf64_Ehdr& header) {
  constexpr std::string_view remedy = "build it for this machine (x86-64 Linux)";
  if (header.e_ident[EI_CLASS] == ELFCLASS32) input.refuse("is a 32-bit program", remedy);
  if (header.e_ident[EI_CLASS] != ELFCLASS64) input.damaged("ELF header", "neither 32 nor 64 bits");
  if (header.e_ident[EI_DATA] == ELFDATA2MSB) input.refuse("is a program for a big-endian machine", remedy);
  if (header.e_ident[EI_DATA] != ELFDATA2LSB) input.damaged("ELF header", "neither little- nor big-endian");
  if (header.e_machine != EM_X86_64) {
    input.refuse(fmt::format("is a program for {}", machine_name(header.e_machine)), remedy);
  }
  const unsigned system = header.e_ident[EI_OSABI];
  if (system != ELFOSABI_SYSV && system != ELFOSABI_GNU) {
    input.refuse(fmt::format("is a program for another operating system (ABI number {})", system), remedy);
  }
  if (header.e_ident[EI_VERSION] != EV_CURRENT || header.e_version != EV_CURRENT) {
    input.damaged("ELF header", "unknown version of the format");
  }
}

void check_type(const ElfInput& input, unsigned type) {
  switch (type) {
    case ET_DYN:
      return;
    case ET_EXEC:
      input.refuse("is linked for one fixed address, so that it cannot be loaded several times", link_as_shared);
    case ET_REL:
      input.refuse("is an object file (.o), not yet linked", link_as_shared);
    case ET_CORE:
      input.refuse("is a core dump", "name the program that made it");
    default:
      input.damaged("ELF header", fmt::format("unknown type of file {}", type));
  }
}

}  // namespace

Elf64_Ehdr read_elf_header(const ElfInput& input) {
  check_magic(input);
  // The identification comes first: the header of a 32-bit file is shorter.
  Elf64_Ehdr header{};
  const auto start = input.table<std::byte>(0, std::min<std::uint64_t>(input.bytes(), sizeof header), "ELF header");
  std::memcpy(&header, start.data(), start.size());
  if (input.bytes() < sizeof(Elf32_Ehdr)) input.damaged("ELF header", "the file ends inside it");
  check_machine(input, header);
  if (input.bytes() < sizeof header) input.damaged("ELF header", "the file ends inside it");
  check_type(input, header.e_type);
  return header;
}

}  // namespace aplib::loader
