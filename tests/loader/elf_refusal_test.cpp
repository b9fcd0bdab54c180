// SPDX-License-Identifier: MIT
// Files that cannot be loaded are refused with their path, the cause and the remedy.
#include <elf.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "compile.hpp"
#include "elf_bytes.hpp"
#include "loader/elf_file.hpp"
#include "refusal.hpp"

namespace aplib::loader {
namespace {

using test::contains;
using test::ElfBytes;
using test::refusal;
using test::Workshop;

constexpr auto rich_source = R"(
    #include <stdio.h>
    __thread int mine = 1;
    int table[100] = {1};
    int* pointer = &table[3];
    __attribute__((constructor)) static void begin(void) { mine = 2; }
    int call(const char* text) { return puts(text) + mine + *pointer; }
)";

class ElfRefusalTest : public ::testing::Test {
 protected:
  /// Expects a refusal of the file with a text that has its path and both parts.
  static void expect(const std::string& path, std::string_view cause, std::string_view remedy) {
    const std::string text = refusal([&] { ElfFile::open(path); });
    EXPECT_TRUE(contains(text, path));
    EXPECT_TRUE(contains(text, cause));
    EXPECT_TRUE(contains(text, remedy));
  }
  std::string rich() {
    if (rich_.empty()) rich_ = shop_.compile(rich_source, {"-shared", "-Wl,--build-id"}, "rich.so");
    return rich_;
  }
  void expect_spoiled(const std::function<void(ElfBytes&)>& spoil, std::string_view cause,
                      std::string_view remedy = "build it again") {
    ElfBytes bytes(rich());
    spoil(bytes);
    expect(bytes.save(shop_.path("spoiled.so")), cause, remedy);
  }

  Workshop shop_;
  std::string rich_;
};

TEST_F(ElfRefusalTest, WhatIsNoFile) {
  expect(shop_.folder() + "/absent", "no such file", "build the program");
  expect(shop_.write("file", "x") + "/absent", "no such file", "check the name");
  expect(shop_.folder(), "is a folder", "name a program file");
  expect("/dev/null", "not a regular file", "name a program file");
  ASSERT_EQ(::mkfifo(shop_.path("pipe").c_str(), 0600), 0);
  expect(shop_.path("pipe"), "not a regular file", "name a program file");  // and does not wait for a writer
  expect(shop_.write("empty", ""), "is empty", "build the program");
  EXPECT_TRUE(contains(refusal([] { ElfFile::open(""); }), "apcc"));
}

TEST_F(ElfRefusalTest, WhatMayNotBeRead) {
  if (::geteuid() == 0) GTEST_SKIP() << "needs a user who is not root: root may read everything";
  const std::string path = rich();
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  expect(path, "may not be read", "chmod");
}

TEST_F(ElfRefusalTest, WhatIsNoProgram) {
  expect(shop_.write("script", "#!/bin/sh\nexit 0\n"), "is a script", "name the program file");
  expect(shop_.write("text", "hello"), "is not a program", "apcc");
  expect(shop_.write("short", std::string("\x7f"
                                          "ELF\2\1\1",
                                          7)),
         "ends inside", "build it again");
  expect(shop_.write("x.a", "!<arch>\n"), "archive", "-fPIC");
  expect(shop_.write("x.exe", "MZ\x90"), "Windows", "apcc");
}

TEST_F(ElfRefusalTest, OtherMachines) {
  constexpr auto remedy = "x86-64 Linux";
  expect_spoiled([](ElfBytes& file) { file.header().e_ident[EI_CLASS] = ELFCLASS32; }, "32-bit", remedy);
  expect_spoiled([](ElfBytes& file) { file.header().e_ident[EI_DATA] = ELFDATA2MSB; }, "big-endian", remedy);
  expect_spoiled([](ElfBytes& file) { file.header().e_machine = EM_AARCH64; }, "aarch64", remedy);
  expect_spoiled([](ElfBytes& file) { file.header().e_machine = 12345; }, "machine number 12345", remedy);
  expect_spoiled([](ElfBytes& file) { file.header().e_ident[EI_OSABI] = ELFOSABI_FREEBSD; }, "operating system",
                 remedy);
}

TEST_F(ElfRefusalTest, OtherTypes) {
  constexpr auto source = "int main(void) { return 0; }";
  expect(shop_.compile(source, {"-c"}, "a.o"), "object file", "apcc");
  expect(shop_.compile(source, {"-no-pie"}, "fixed"), "fixed address", "-pie");
  expect_spoiled([](ElfBytes& file) { file.header().e_type = ET_CORE; }, "core dump", "name the program");
  expect_spoiled([](ElfBytes& file) { file.header().e_type = 99; }, "unknown type");
}

TEST_F(ElfRefusalTest, StaticPrograms) {
  if (!shop_.knows({"-Wl,-Bstatic", "-lc", "-Wl,-Bdynamic"})) GTEST_SKIP() << "needs a static C library";
  expect(shop_.compile("int main(void) { return 0; }", {"-static-pie"}, "alone"), "own C library", "without -static");
}

TEST_F(ElfRefusalTest, ThreadLocalsWithWideAlignment) {
  expect(shop_.compile("__thread char wide[8192] __attribute__((aligned(8192))); char* get(void) { return wide; }",
                       {"-shared"}, "wide.so"),
         "aligned to 8192 bytes", "alignas");
}

TEST_F(ElfRefusalTest, TextRelocations) {
  const std::string path =
      shop_.compile("int x; __asm__(\".section .rodata\\n.globl pointer\\npointer: .quad x\\n.text\");",
                    {"-shared", "-Wl,-z,notext"}, "text.so");
  expect(path, "text relocations", "-fPIC");
  // Without the linker's flag, the relocation itself shows it.
  ElfBytes bytes(path);
  bytes.rename_tag(DT_TEXTREL, 0x6ffffe00);
  if (bytes.has_tag(DT_FLAGS)) bytes.tag(DT_FLAGS) &= ~std::uint64_t{DF_TEXTREL};
  expect(bytes.save(shop_.path("untold.so")), "code or constants", "-fPIC");
}

TEST_F(ElfRefusalTest, FixedStartAddress) {
  expect(shop_.compile("int a;", {"-shared", "-Wl,-Ttext-segment=0x400000"}, "base.so"), "address 0x400000",
         "-Ttext-segment");
}

TEST_F(ElfRefusalTest, TruncatedAnywhere) {
  const ElfBytes whole(rich());
  const auto needed = [&] {
    ElfBytes copy = whole;
    std::uint64_t end = 0;
    for (const Elf64_Phdr& one : copy.program_headers()) {
      if (one.p_type == PT_LOAD) end = std::max(end, one.p_offset + one.p_filesz);
    }
    return end;
  }();
  for (std::uint64_t bytes = 1; bytes < needed; bytes += 1 + bytes / 7) {
    ElfBytes cut = whole;
    cut.bytes().resize(bytes);
    const std::string path = cut.save(shop_.path("cut.so"));
    EXPECT_TRUE(contains(refusal([&] { ElfFile::open(path); }), path)) << bytes;
  }
}

TEST_F(ElfRefusalTest, DamagedHeaders) {
  expect_spoiled([](ElfBytes& file) { file.header().e_phnum = 0; }, "no program headers");
  expect_spoiled([](ElfBytes& file) { file.header().e_phoff = ~0ULL; }, "program headers");
  expect_spoiled([](ElfBytes& file) { file.header().e_phentsize = 55; }, "55 bytes");
  expect_spoiled([](ElfBytes& file) { file.program_header(PT_LOAD).p_filesz = 1ULL << 40; }, "program header");
  expect_spoiled([](ElfBytes& file) { file.program_header(PT_LOAD, 1).p_vaddr = 0; }, "before the end");
  expect_spoiled([](ElfBytes& file) { file.program_header(PT_LOAD, 1).p_vaddr = ~0ULL - 4095; }, "at address");
  expect_spoiled([](ElfBytes& file) { file.program_header(PT_LOAD, 1).p_vaddr += 8; }, "differ within a page");
  expect_spoiled([](ElfBytes& file) { file.program_header(PT_LOAD).p_align = 4097; }, "alignment");
  expect_spoiled([](ElfBytes& file) { file.program_header(PT_TLS).p_vaddr = 1ULL << 41; }, "thread-local segment");
  expect_spoiled([](ElfBytes& file) { file.program_header(PT_TLS).p_filesz = 1000; }, "thread-local segment");
  expect_spoiled([](ElfBytes& file) { file.program_header(PT_TLS).p_align = 3; }, "alignment");
  expect_spoiled(
      [](ElfBytes& file) {
        file.program_header(PT_GNU_RELRO).p_vaddr = 0;
        file.program_header(PT_GNU_RELRO).p_memsz = 2 * page_bytes;
      },
      "read-only after relocation");
  expect_spoiled([](ElfBytes& file) { file.program_header(PT_GNU_EH_FRAME).p_memsz = 1ULL << 50; }, "outside");
  expect_spoiled([](ElfBytes& file) { file.program_header(PT_DYNAMIC).p_type = PT_NULL; }, "no dynamic section",
                 "apcc");
  expect_spoiled(
      [](ElfBytes& file) { file.program_header(PT_DYNAMIC).p_filesz = file.program_header(PT_DYNAMIC).p_memsz = 64; },
      "no end");
}

TEST_F(ElfRefusalTest, DamagedTables) {
  constexpr std::uint64_t far = 1UL << 42;
  for (const std::int64_t tag : {DT_STRTAB, DT_SYMTAB, DT_RELA, DT_JMPREL, DT_GNU_HASH, DT_VERSYM, DT_VERNEED, DT_INIT,
                                 DT_FINI, DT_INIT_ARRAY, DT_FINI_ARRAY}) {
    for (const std::uint64_t value : {far, ~0UL, ~7UL, 0x7ffffffffffffff8UL}) {
      SCOPED_TRACE(tag);
      expect_spoiled([=](ElfBytes& file) { file.tag(tag) = value; }, "");
    }
  }
  for (const std::int64_t tag : {DT_STRSZ, DT_RELASZ, DT_PLTRELSZ, DT_INIT_ARRAYSZ, DT_FINI_ARRAYSZ}) {
    for (const std::uint64_t value : {far * 24, ~0UL, 24 * (~0UL / 24)}) {
      SCOPED_TRACE(tag);
      expect_spoiled([=](ElfBytes& file) { file.tag(tag) = value; }, "");
    }
  }
  expect_spoiled([](ElfBytes& file) { file.tag(DT_SYMENT) = 16; }, "size of a symbol");
  expect_spoiled([](ElfBytes& file) { file.tag(DT_RELAENT) = 23; }, "size of a relocation");
  expect_spoiled([](ElfBytes& file) { file.tag(DT_PLTREL) = DT_REL; }, "kind of jump slot");
  expect_spoiled([](ElfBytes& file) { file.tag(DT_NEEDED) = 1 << 20; }, "a name at");
  expect_spoiled([](ElfBytes& file) { file.tag(DT_RELASZ) -= 1; }, "table of relocations");
  expect_spoiled([](ElfBytes& file) { file.tag(DT_INIT_ARRAY) += 4; }, "not aligned");
  expect_spoiled([](ElfBytes& file) { file.tag(DT_INIT) = file.tag(DT_INIT_ARRAY); }, "no code");
  expect_spoiled([](ElfBytes& file) { file.at<std::uint32_t>(file.tag(DT_GNU_HASH)) = ~0U; }, "DT_GNU_HASH");
  expect_spoiled([](ElfBytes& file) { file.at<std::uint16_t>(file.tag(DT_VERSYM) + 2) = 77; }, "unknown version 77");
  expect_spoiled([](ElfBytes& file) { file.at<Elf64_Verneed>(file.tag(DT_VERNEED)).vn_version = 2; }, "format 2");
  expect_spoiled([](ElfBytes& file) { file.at<Elf64_Verneed>(file.tag(DT_VERNEED)).vn_aux = ~0U; }, "versions");
}

TEST_F(ElfRefusalTest, DamagedSymbolsAndRelocations) {
  const auto symbol_of = [](ElfBytes& file, unsigned type) -> Elf64_Sym& {
    for (std::uint64_t at = file.tag(DT_SYMTAB) + sizeof(Elf64_Sym);; at += sizeof(Elf64_Sym)) {
      auto& symbol = file.at<Elf64_Sym>(at);
      if (symbol.st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol.st_info) == type) return symbol;
    }
  };
  expect_spoiled([&](ElfBytes& file) { symbol_of(file, STT_OBJECT).st_value = 1ULL << 33; }, "outside the image");
  expect_spoiled([&](ElfBytes& file) { symbol_of(file, STT_OBJECT).st_size = ~0ULL; }, "outside the image");
  expect_spoiled([&](ElfBytes& file) { symbol_of(file, STT_TLS).st_value = 4; }, "outside the thread-locals");
  expect_spoiled([&](ElfBytes& file) { symbol_of(file, STT_OBJECT).st_name = 1 << 30; }, "a name at");

  const auto relocation = [](ElfBytes& file) -> Elf64_Rela& { return file.at<Elf64_Rela>(file.tag(DT_RELA)); };
  expect_spoiled([&](ElfBytes& file) { relocation(file).r_offset = 1ULL << 33; }, "outside the loaded segments");
  expect_spoiled([&](ElfBytes& file) { relocation(file).r_offset = ~0ULL - 3; }, "outside the loaded segments");
  expect_spoiled([&](ElfBytes& file) { relocation(file).r_offset = 0; }, "code or constants", "-fPIC");
  expect_spoiled([&](ElfBytes& file) { relocation(file).r_info = ELF64_R_INFO(1 << 24, R_X86_64_64); }, "symbol table");
  expect_spoiled([&](ElfBytes& file) { relocation(file).r_info = R_X86_64_PC32; }, "type 2", "-fPIC");
}

TEST_F(ElfRefusalTest, DamagedPackedRelocations) {
  const auto packed = [](ElfBytes& file, std::uint64_t first) {
    // The table lies where the address of a constructor was.
    const std::uint64_t table = file.tag(DT_INIT_ARRAY);
    file.at<std::uint64_t>(table) = first;
    file.add_tag(36, table);
    file.add_tag(35, 8);
  };
  expect_spoiled([&](ElfBytes& file) { packed(file, 3); }, "begin with a bitmap");
  expect_spoiled([&](ElfBytes& file) { packed(file, 1ULL << 40); }, "outside the loaded segments");
  expect_spoiled([&](ElfBytes& file) { packed(file, 0); }, "code or constants", "-fPIC");
  expect_spoiled([&](ElfBytes& file) { file.add_tag(35, 7); }, "table of addresses");
  expect_spoiled([&](ElfBytes& file) { file.add_tag(37, 4); }, "packed relocation");
}

TEST_F(ElfRefusalTest, EndlessChains) {
  const std::string path = shop_.compile("int a, b, c, d;", {"-shared", "-Wl,--hash-style=sysv"}, "sysv.so");
  ElfBytes sysv(path);
  sysv.at<std::uint32_t>(sysv.tag(DT_HASH) + 4) = ~0U;
  expect(sysv.save(shop_.path("many.so")), "DT_HASH", "build it again");
  // Steps of one byte from record to record, each with 65535 parts.
  ElfBytes bytes(rich());
  auto& need = bytes.at<Elf64_Verneed>(bytes.tag(DT_VERNEED));
  need.vn_cnt = 0xffff;
  need.vn_aux = 0;
  bytes.tag(DT_VERNEEDNUM) = ~0ULL;
  expect(bytes.save(shop_.path("chain.so")), "versions", "build it again");
}

TEST_F(ElfRefusalTest, NamesThatTakeForEver) {
  const auto with_name_of = [this](std::size_t bytes) {
    std::string source = "int " + std::string(bytes, 'x') + ";\n";
    for (int i = 0; i < 300; ++i) source += "int a" + std::to_string(i) + ";\n";
    return shop_.compile(source, {"-shared"}, "long.so");
  };
  expect(with_name_of((1 << 20) + 1), "a name of more than", "build it again");
  // Every symbol has the long name.
  ElfBytes bytes(with_name_of(200'000));
  std::uint32_t longest = 0;
  for (std::uint64_t at = bytes.tag(DT_SYMTAB); at < bytes.tag(DT_STRTAB); at += sizeof(Elf64_Sym)) {
    const std::uint32_t name = bytes.at<Elf64_Sym>(at).st_name;
    if (std::strlen(&bytes.at<char>(bytes.tag(DT_STRTAB) + name)) > 1000) longest = name;
  }
  ASSERT_NE(longest, 0U);
  for (std::uint64_t at = bytes.tag(DT_SYMTAB) + sizeof(Elf64_Sym); at < bytes.tag(DT_STRTAB);
       at += sizeof(Elf64_Sym)) {
    bytes.at<Elf64_Sym>(at).st_name = longest;
  }
  expect(bytes.save(shop_.path("same.so")), "longer than their table", "build it again");
}

TEST_F(ElfRefusalTest, FilesThatChangedSince) {
  const std::string path = rich();
  const auto file = ElfFile::open(path);
  file->check_unchanged();
  // As linkers do: a new file with the same name.
  ElfBytes(path).save(shop_.path("new.so"));
  std::filesystem::rename(shop_.path("new.so"), path);
  const std::string replaced = refusal([&] { file->check_unchanged(); });
  EXPECT_TRUE(contains(replaced, path));
  EXPECT_TRUE(contains(replaced, "replaced"));
  EXPECT_TRUE(contains(replaced, "start again"));

  const auto second = ElfFile::open(path);
  std::filesystem::resize_file(path, second->identity().bytes - 1);
  EXPECT_TRUE(contains(refusal([&] { second->check_unchanged(); }), "was changed"));
  std::filesystem::resize_file(path, second->identity().bytes);
  const auto third = ElfFile::open(path);
  std::filesystem::remove(path);
  EXPECT_TRUE(contains(refusal([&] { third->check_unchanged(); }), "no such file"));
}

}  // namespace
}  // namespace aplib::loader
