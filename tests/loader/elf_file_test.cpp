// SPDX-License-Identifier: MIT
#include "loader/elf_file.hpp"

#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "compile.hpp"
#include "elf_bytes.hpp"

namespace aplib::loader {
namespace {

using test::ElfBytes;
using test::Workshop;

class ElfFileTest : public ::testing::Test {
 protected:
  std::shared_ptr<const ElfFile> build(std::string_view source, Workshop::Flags flags, std::string_view name = "a.so") {
    flags.insert(flags.begin(), "-shared");
    return ElfFile::open(shop_.compile(source, flags, name));
  }
  static std::size_t count(const ElfFile& file, std::uint32_t type) {
    const auto& all = file.relocations();
    return static_cast<std::size_t>(
        std::count_if(all.begin(), all.end(), [type](const Relocation& one) { return one.type == type; }));
  }
  static std::multiset<std::pair<std::uint64_t, std::uint32_t>> places(const ElfFile& file) {
    std::multiset<std::pair<std::uint64_t, std::uint32_t>> result;
    for (const Relocation& one : file.relocations()) result.emplace(one.offset, one.type);
    return result;
  }

  Workshop shop_;
};

TEST_F(ElfFileTest, DescribesASimpleObject) {
  const auto file =
      build("int counter = 3; static int spare[5000]; int* get(int i) { return i ? &counter : spare; }",
            {"-Wl,-soname,libsimple.so.1", "-Wl,--build-id=0x0123456789abcdef", "-lm", "-Wl,--no-as-needed"});
  EXPECT_EQ(file->path(), shop_.folder() + "/a.so");
  EXPECT_EQ(file->soname(), "libsimple.so.1");
  EXPECT_EQ(file->build_id(), "0123456789abcdef");
  EXPECT_NE(std::find(file->needed().begin(), file->needed().end(), "libc.so.6"), file->needed().end());
  EXPECT_EQ(file->runpath(), "");
  EXPECT_FALSE(file->is_executable());
  EXPECT_FALSE(file->tls());
  EXPECT_FALSE(file->uses_static_tls());
  EXPECT_EQ(file->span() % page_bytes, 0U);
  EXPECT_GE(file->span(), 5000 * sizeof(int));
  EXPECT_NE(file->program_headers_address(), 0U);
  EXPECT_NE(file->dynamic_address(), 0U);
  EXPECT_FALSE(file->eh_frame_header().empty());
  EXPECT_NE(file->init(), 0U);
  EXPECT_NE(file->fini(), 0U);
  EXPECT_EQ(file->init_array().bytes, sizeof(void*));

  const Symbol* counter = file->find("counter");
  ASSERT_NE(counter, nullptr);
  EXPECT_EQ(counter->type, STT_OBJECT);
  EXPECT_EQ(counter->bytes, sizeof(int));
  const auto& segments = file->segments();
  const auto home = std::find_if(segments.begin(), segments.end(), [&](const Segment& one) {
    return counter->value >= one.address && counter->value < one.address + one.memory_bytes;
  });
  ASSERT_NE(home, segments.end());
  EXPECT_EQ(home->protection, PROT_READ | PROT_WRITE);
  EXPECT_EQ(file->find("spare"), nullptr);
  EXPECT_EQ(file->find("get")->type, STT_FUNC);
  EXPECT_EQ(file->find(""), nullptr);
}

TEST_F(ElfFileTest, ReadsNotes) {
  const auto file = build(R"(
      __asm__(".section .note.test, \"a\", @note\n.balign 4\n.long 5, 8, 7\n.asciz \"Test\"\n.balign 4\n.long 1, 2\n.text");
  )",
                          {});
  const auto found =
      std::find_if(file->notes().begin(), file->notes().end(), [](const Note& one) { return one.owner == "Test"; });
  ASSERT_NE(found, file->notes().end());
  EXPECT_EQ(found->type, 7U);
  ASSERT_EQ(found->description.size(), 8U);
  EXPECT_EQ(static_cast<int>(found->description[4]), 2);
  ElfBytes bytes(file->path());
  EXPECT_EQ(bytes.at<std::uint32_t>(found->address), 1U);
}

TEST_F(ElfFileTest, KeepsItsDescriptorToItself) {
  const auto file = build("int a;", {});
  EXPECT_EQ(::fcntl(file->descriptor(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_EQ(::fcntl(file->descriptor(), F_GETFL) & O_ACCMODE, O_RDONLY);
}

TEST_F(ElfFileTest, ResolvesSymbolicLinks) {
  const std::string real = shop_.compile("int a;", {"-shared"}, "real.so");
  const std::string link = shop_.path("link.so");
  std::filesystem::create_symlink("real.so", link);
  EXPECT_EQ(ElfFile::open(link)->path(), real);
}

TEST_F(ElfFileTest, TellsKindsOfSymbols) {
  const auto file = build(R"(
      __attribute__((weak)) int soft = 1;
      extern int absent __attribute__((weak));
      int* use(void) { return &absent; }
      __attribute__((visibility("protected"))) int guarded = 2;
      __attribute__((visibility("hidden"))) int secret = 3;
      int* reveal(void) { return &secret; }
      static int chosen(void) { return 5; }
      static int (*choose(void))(void) { return chosen; }
      int picked(void) __attribute__((ifunc("choose")));
      __asm__(".pushsection .data\n.globl only\n.type only, @gnu_unique_object\n.size only, 4\nonly: .long 1\n.popsection");
      __asm__(".globl constant\nconstant = 0xffffffffff000000");
  )",
                          {});
  EXPECT_EQ(file->find("soft")->binding, STB_WEAK);
  EXPECT_EQ(file->find("only")->binding, STB_GNU_UNIQUE);
  EXPECT_EQ(file->find("guarded")->visibility, STV_PROTECTED);
  EXPECT_EQ(file->find("secret"), nullptr);
  EXPECT_EQ(file->find("picked")->type, STT_GNU_IFUNC);
  ASSERT_NE(file->find("constant"), nullptr);
  EXPECT_TRUE(file->find("constant")->absolute);
  EXPECT_EQ(file->find("constant")->value, 0xffffffffff000000U);
  EXPECT_EQ(file->find("absent"), nullptr);
  const auto& symbols = file->symbols();
  const auto absent =
      std::find_if(symbols.begin(), symbols.end(), [](const Symbol& one) { return one.name == "absent"; });
  ASSERT_NE(absent, symbols.end());
  EXPECT_FALSE(absent->defined);
  EXPECT_EQ(absent->binding, STB_WEAK);
}

TEST_F(ElfFileTest, FindsTheVersionThatAReferenceWants) {
  const std::string script = shop_.write("map", "V1 { global: f; }; V2 { global: f; g; local: *; } V1;");
  const auto file = build(R"(
      int f_old(void) { return 1; }
      int f_new(void) { return 2; }
      int g(void) { return 3; }
      __asm__(".symver f_old, f@V1");
      __asm__(".symver f_new, f@@V2");
  )",
                          {"-Wl,--version-script=" + script}, "libversions.so");
  const Symbol* standard = file->find("f");
  ASSERT_NE(standard, nullptr);
  EXPECT_EQ(standard->version, "V2");
  EXPECT_FALSE(standard->hidden_version);
  EXPECT_EQ(file->find("f", "V2"), standard);
  const Symbol* old = file->find("f", "V1");
  ASSERT_NE(old, nullptr);
  EXPECT_NE(old, standard);
  EXPECT_TRUE(old->hidden_version);
  EXPECT_EQ(file->find("f", "V3"), nullptr);
  EXPECT_EQ(file->find("g", "V1"), nullptr);

  const auto user = build("int f(void); int g(void); int call(void) { return f() + g(); }",
                          {"-L" + shop_.folder(), "-lversions"}, "user.so");
  for (const Symbol& symbol : user->symbols()) {
    if (symbol.name == "f" || symbol.name == "g") {
      EXPECT_FALSE(symbol.defined);
      EXPECT_EQ(symbol.version, "V2");
    }
  }
  // References that want a version accept a file that was linked before its symbols had versions.
  EXPECT_NE(user->find("call", "V9"), nullptr);
}

TEST_F(ElfFileTest, CountsSymbolsWithAnyHashTable) {
  constexpr auto source = "#include <stdio.h>\nint a, b, c; int f(int x) { return puts(\"x\") + a + b + c + x; }";
  std::size_t symbols = 0;
  for (const char* style : {"both", "sysv", "gnu"}) {
    const auto file = build(source, {std::string("-Wl,--hash-style=") + style}, std::string(style) + ".so");
    ASSERT_NE(file->find("a"), nullptr) << style;
    ASSERT_NE(file->find("f"), nullptr) << style;
    if (symbols == 0) symbols = file->symbols().size();
    EXPECT_EQ(file->symbols().size(), symbols) << style;
  }
}

TEST_F(ElfFileTest, CountsSymbolsThatOnlyRelocationsName) {
  // Nothing is defined, so the GNU hash table has no symbol.
  const auto file = build(
      "extern int one(void), two(void);\n"
      "__attribute__((visibility(\"hidden\"))) int call(void) { return one() + two(); }\n",
      {"-Wl,--hash-style=gnu", "-nostdlib"});
  std::set<std::string_view> names;
  for (const Relocation& one : file->relocations()) names.insert(file->symbols()[one.symbol].name);
  EXPECT_TRUE(names.contains("one"));
  EXPECT_TRUE(names.contains("two"));

  ElfBytes bytes(shop_.folder() + "/a.so");
  bytes.rename_tag(DT_GNU_HASH, 0x6ffffe00);
  const auto without = ElfFile::open(bytes.save(shop_.path("none.so")));
  EXPECT_EQ(places(*without), places(*file));
}

TEST_F(ElfFileTest, ReadsJumpSlotsInsideTheOtherRelocationsOnce) {
  const std::string path =
      shop_.compile("#include <stdlib.h>\nint* p; void f(void) { p = malloc(4); free(p); abort(); }",
                    {"-shared", "-Wl,-z,lazy"}, "a.so");
  const auto file = ElfFile::open(path);
  ASSERT_GE(count(*file, R_X86_64_JUMP_SLOT), 3U);
  ElfBytes bytes(path);
  ASSERT_EQ(bytes.tag(DT_RELA) + bytes.tag(DT_RELASZ), bytes.tag(DT_JMPREL));
  bytes.tag(DT_RELASZ) += bytes.tag(DT_PLTRELSZ);
  EXPECT_EQ(places(*ElfFile::open(bytes.save(shop_.path("inside.so")))), places(*file));
  bytes.tag(DT_RELASZ) -= sizeof(Elf64_Rela);  // partly inside
  EXPECT_EQ(places(*ElfFile::open(bytes.save(shop_.path("partly.so")))), places(*file));
}

TEST_F(ElfFileTest, ExpandsPackedRelocations) {
  // Places 0, 1, 3 and 70 words from the start; then the whole range of one bitmap.
  const std::string path = shop_.compile(
      "const unsigned long table[8] = {1};\n"
      "unsigned long words[200] __attribute__((aligned(16))) = {1};\n",
      {"-shared"}, "a.so");
  const auto plain = ElfFile::open(path);
  const std::uint64_t table = plain->find("table")->value;
  const std::uint64_t words = plain->find("words")->value;
  ElfBytes bytes(path);
  bytes.at<std::uint64_t>(table) = words;
  bytes.at<std::uint64_t>(table + 8) = 1 | (1ULL << 1) | (1ULL << 3);
  bytes.at<std::uint64_t>(table + 16) = 1 | (1ULL << 7);
  bytes.at<std::uint64_t>(table + 24) = words + 100 * 8;
  bytes.at<std::uint64_t>(table + 32) = ~0ULL;
  bytes.add_tag(36, table);
  bytes.add_tag(35, 40);
  bytes.add_tag(37, 8);
  std::vector<std::uint64_t> expected{words, words + 8, words + 24, words + 8 + 63 * 8 + 6 * 8, words + 800};
  for (std::uint64_t i = 0; i < 63; ++i) expected.push_back(words + 808 + i * 8);
  EXPECT_EQ(ElfFile::open(bytes.save(shop_.path("packed.so")))->packed_relative(), expected);
}

TEST_F(ElfFileTest, ReadsWhatTheLinkerPacked) {
  if (!shop_.knows({"-Wl,-z,pack-relative-relocs"})) GTEST_SKIP() << "needs a linker that packs relocations";
  constexpr auto source = "int x; int* table[100] = {[0 ... 99] = &x}; static int y; int* own[50] = {[0 ... 49] = &y};";
  const auto plain = build(source, {}, "plain.so");
  const auto packed = build(source, {"-Wl,-z,pack-relative-relocs"}, "packed.so");
  EXPECT_GE(packed->packed_relative().size(), 50U);
  EXPECT_EQ(packed->packed_relative().size() + count(*packed, R_X86_64_RELATIVE), count(*plain, R_X86_64_RELATIVE));
  const std::uint64_t own = packed->find("own")->value;
  const auto& places = packed->packed_relative();
  for (std::uint64_t i = 0; i < 50; ++i) EXPECT_NE(std::find(places.begin(), places.end(), own + i * 8), places.end());
}

TEST_F(ElfFileTest, DescribesThreadLocals) {
  const auto file = build(
      "__thread int a = 7; __thread char zero[100]; __thread long wide __attribute__((aligned(64)));"
      "int get(void) { return a + zero[1] + (int)wide; }",
      {});
  ASSERT_TRUE(file->tls());
  EXPECT_EQ(file->tls()->alignment, 64U);
  EXPECT_EQ(file->tls()->file_bytes, sizeof(int));
  EXPECT_GE(file->tls()->memory_bytes, 164U);
  EXPECT_EQ(file->find("a")->type, STT_TLS);
  EXPECT_EQ(file->find("a")->value, 0U);
  EXPECT_GE(count(*file, R_X86_64_DTPMOD64), 1U);
  EXPECT_FALSE(file->uses_static_tls());

  const auto initial = build("__thread int a = 7; int get(void) { return a; }", {"-ftls-model=initial-exec"}, "ie.so");
  EXPECT_TRUE(initial->uses_static_tls());
  EXPECT_GE(count(*initial, R_X86_64_TPOFF64), 1U);

  if (shop_.knows({"-mtls-dialect=gnu2"})) {
    const auto described = build("__thread int a; int get(void) { return a; }", {"-mtls-dialect=gnu2"}, "desc.so");
    EXPECT_EQ(count(*described, R_X86_64_TLSDESC), 1U);
  }
}

TEST_F(ElfFileTest, TellsPathsForLibraries) {
  const auto runpath = build("int a;", {"-Wl,-rpath,$ORIGIN/lib:/opt/x", "-Wl,--enable-new-dtags"}, "runpath.so");
  EXPECT_EQ(runpath->runpath(), "$ORIGIN/lib:/opt/x");
  EXPECT_FALSE(runpath->runpath_is_inherited());
  const auto rpath = build("int a;", {"-Wl,-rpath,/opt/y", "-Wl,--disable-new-dtags"}, "rpath.so");
  EXPECT_EQ(rpath->runpath(), "/opt/y");
  EXPECT_TRUE(rpath->runpath_is_inherited());
}

TEST_F(ElfFileTest, TellsHowTheLinkerWasAsked) {
  EXPECT_TRUE(build("int a;", {"-Wl,-Bsymbolic"}, "symbolic.so")->binds_symbolically());
  EXPECT_FALSE(build("int a;", {}, "plain.so")->binds_symbolically());
  const auto protect = build("int x; int* const p = &x;", {"-Wl,-z,relro,-z,now"}, "relro.so");
  EXPECT_FALSE(protect->relro().empty());
  EXPECT_EQ(protect->relro().address % page_bytes, 0U);
  EXPECT_EQ(protect->relro().bytes % page_bytes, 0U);
  EXPECT_TRUE(build("int x; int* const p = &x;", {"-Wl,-z,norelro"}, "norelro.so")->relro().empty());
  EXPECT_EQ(build("int a;", {"-Wl,-z,max-page-size=0x200000"}, "large.so")->alignment(), page_bytes);
  EXPECT_EQ(build("int a __attribute__((aligned(0x10000)));", {}, "aligned.so")->alignment(), 0x10000U);
  EXPECT_LT(build("int a;", {"-Wl,-z,noseparate-code"}, "joined.so")->segments().size(),
            build("int a;", {"-Wl,-z,separate-code"}, "apart.so")->segments().size());
}

TEST_F(ElfFileTest, AcceptsExecutables) {
  const std::string path =
      shop_.compile("#include <stdio.h>\n__thread int mine = 1; int main(void) { return fputs(\"x\", stdout) < mine; }",
                    {"-fPIE", "-pie"}, "program");
  const auto file = ElfFile::open(path);
  EXPECT_TRUE(file->is_executable());
  EXPECT_TRUE(file->uses_static_tls());
  EXPECT_NE(file->entry(), 0U);
  EXPECT_NE(std::find_if(file->symbols().begin(), file->symbols().end(),
                         [](const Symbol& one) { return one.name == "stdout" && one.version == "GLIBC_2.2.5"; }),
            file->symbols().end());
}

TEST_F(ElfFileTest, AnInterpreterMakesNoExecutable) {
  const auto file = build(
      "__thread int mine = 1; int get(void) { return mine; }\n"
      "const char interpreter[] __attribute__((section(\".interp\"))) = \"/lib64/ld-linux-x86-64.so.2\";",
      {});
  EXPECT_FALSE(file->is_executable());
  EXPECT_EQ(file->entry(), 0U);
  EXPECT_TRUE(file->tls());
}

// Also static ones, as long as the file has its full table of symbols.
TEST_F(ElfFileTest, NamesTheFunctionAroundAnAddress) {
  const std::string text =
      "static __attribute__((noinline)) int inner(int x) { return x * 3; }\n"
      "int outer(int x) { return inner(x) + 1; }";
  const auto name_at = [](const ElfFile& file, std::uint64_t address) {
    const auto function = file.function_around(address);
    return function ? function->name : std::string("none");
  };
  const auto file = build(text, {"-O1"}, "whole.so");
  const Symbol* const outer = file->find("outer");
  ASSERT_NE(outer, nullptr);
  EXPECT_EQ(name_at(*file, outer->value), "outer");
  EXPECT_EQ(name_at(*file, outer->value + outer->bytes - 1), "outer");
  EXPECT_EQ(name_at(*file, outer->value - 1000000), "none");
  std::uint64_t inside = 0;
  for (std::uint64_t at = outer->value - 200; inside == 0 && at < outer->value + 200; ++at) {
    if (name_at(*file, at) == "inner") inside = at;
  }
  ASSERT_NE(inside, 0U);
  EXPECT_EQ(file->function_around(inside + 1)->address, inside);
  EXPECT_EQ(name_at(*build(text, {"-O1", "-s"}, "stripped.so"), outer->value), "none");

  ElfBytes bytes(file->path());
  bytes.header().e_shoff = bytes.bytes().size() - 100;
  const std::string spoiled = shop_.path("spoiled.so");
  EXPECT_EQ(name_at(*ElfFile::open(bytes.save(spoiled)), outer->value), "none");
}

TEST_F(ElfFileTest, ReadsTheSystemsLibraries) {
  for (const char* path : {"/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/libstdc++.so.6",
                           "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/lib64/ld-linux-x86-64.so.2"}) {
    if (!std::filesystem::exists(path)) continue;
    const auto file = ElfFile::open(path);
    EXPECT_GT(file->symbols().size(), 30U) << path;
  }
}

}  // namespace
}  // namespace aplib::loader
