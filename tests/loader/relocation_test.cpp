// SPDX-License-Identifier: MIT
// Every kind of relocation, in two cells, each of which works on its own copy.
#include <dlfcn.h>
#include <elf.h>
#include <unistd.h>

#include <algorithm>

#include "aplib/error.hpp"
#include "loaded.hpp"

namespace aplib::loader {
namespace {

using test::Loaded;
using Results = std::vector<int>;

// It makes all kinds.
#ifdef __clang__
constexpr bool is_gcc = false;
#else
constexpr bool is_gcc = true;
#endif

class Relocations : public Loaded {
 protected:
  static bool has(const Program& program, std::uint32_t type, std::size_t image = 0) {
    return std::ranges::any_of(program.images()[image].file->relocations(),
                               [type](const Relocation& relocation) { return relocation.type == type; });
  }
};

TEST_F(Relocations, GlobalsOfAllKindsAreEachCellsOwn) {
  const auto program = load(R"(
    int initialised = 10, zero[5000];
    static int hidden = 20;
    int* to_global = &initialised;
    static int* to_static = &hidden;
    int step(int by) {
      static int local = 30;
      *to_global += by; *to_static += by; local += by; zero[4999] += by;
      return initialised + hidden + local + zero[4999];
    })");
  EXPECT_TRUE(has(*program, R_X86_64_RELATIVE));
  EXPECT_TRUE(has(*program, R_X86_64_64) || has(*program, R_X86_64_GLOB_DAT));
  EXPECT_EQ(in_turns(program, "step", {1, 100}), (Results{60 + 8, 60 + 800}));
}

TEST_F(Relocations, PackedRelativeOnes) {
  if (!shop.knows({"-Wl,-z,pack-relative-relocs"})) GTEST_SKIP() << "needs a linker that packs relocations";
  const auto program = load(R"(
    static int a = 1, b = 2, c = 3;
    static int* all[] = {&a, &b, &c, &a, &b, &c};
    int step(int by) { int sum = 0; for (int i = 0; i < 6; ++i) { *all[i] += by; sum += *all[i]; } return sum; })",
                            {"-Wl,-z,pack-relative-relocs"});
  EXPECT_FALSE(program->images()[0].plan.packed.empty());
  EXPECT_EQ(in_turns(program, "step", {1, 10}), (Results{33, 222}));
}

TEST_F(Relocations, IndirectFunctions) {
  const auto program = load(R"(
    static int calls;
    static int one(int x) { calls += x; return calls; }
    static int two(int x) { calls += 2 * x; return calls; }
    static int (*choose(void))(int) { return one; }
    static int (*choose_two(void))(int) { return two; }
    int visible(int) __attribute__((ifunc("choose")));
    static int inner(int) __attribute__((ifunc("choose_two")));
    int (*pointer)(int) = visible;
    int step(int x) { visible(x); inner(x); return pointer(x); })");
  EXPECT_TRUE(has(*program, R_X86_64_IRELATIVE) || !is_gcc);
  EXPECT_EQ(in_turns(program, "step", {1, 10}), (Results{8, 80}));
}

TEST_F(Relocations, WeakSymbolsDefinedOrNot) {
  const auto program = load(R"(
    extern int nowhere(int) __attribute__((weak));
    extern int nothing __attribute__((weak));
    __attribute__((weak)) int weak_but_here = 4;
    int step(int x) { weak_but_here += x; return nowhere || &nothing ? -1 : weak_but_here; })");
  EXPECT_EQ(in_turns(program, "step", {1, 10}), (Results{6, 24}));
}

TEST_F(Relocations, UniqueSymbolsOfCxxAreEachCellsOwn) {
  const auto program = load_cpp(R"(
    template <class T> struct Counter { static int count; };
    template <class T> int Counter<T>::count = 0;
    inline int& single() { static int value = 5; return value; }
    extern "C" int step(int by) { Counter<int>::count += by; single() += by; return Counter<int>::count + single(); })");
  const auto is_unique = [](const Symbol& symbol) { return symbol.defined && symbol.binding == STB_GNU_UNIQUE; };
  EXPECT_TRUE(std::ranges::any_of(program->images()[0].file->symbols(), is_unique) || !is_gcc);
  EXPECT_EQ(in_turns(program, "step", {1, 100}), (Results{2 + 7, 200 + 205}));
}

TEST_F(Relocations, SizesAndAbsoluteSymbols) {
  const auto program = load(R"(
    int table[33];
    __asm__(".data\n .globl size_of_table\n size_of_table: .quad table@SIZE\n .globl place\n place: .quad magic\n .globl magic\n"
            " magic = 1234\n .previous\n");
    extern long size_of_table, place;
    int step(int x) { return (int)size_of_table + (int)place + x; })");
  EXPECT_EQ(in_turns(program, "step", {1, 2}), (Results{132 + 1234 + 1, 132 + 1234 + 2}));
}

TEST_F(Relocations, ReferencesToSystemLibrariesKeepTheirVersions) {
  // memcpy has two versions; realpath has an old one that behaves differently (no NULL buffer).
  const auto program = load(R"(
    #include <stdlib.h>
    #include <string.h>
    __asm__(".symver old_memcpy, memcpy@GLIBC_2.2.5");
    void* old_memcpy(void*, const void*, unsigned long);
    void* (*volatile both[2])(void*, const void*, unsigned long) = {old_memcpy, memcpy};
    int step(int x) { int y = 0; both[0](&y, &x, sizeof y); int z; both[1](&z, &y, sizeof z); return z; })");
  EXPECT_EQ(in_turns(program, "step", {7, 8}), (Results{7, 8}));
}

TEST_F(Relocations, LibrariesOfTheUserAreEachCellsOwnAndInterpose) {
  shop.compile(
      "int state = 100; int shadowed(void) { return 1; } int from_library(int by) { state += by; return state + "
      "shadowed(); }",
      {"-shared", "-Wl,-soname,libuser.so"}, "libuser.so");
  const auto program = load(R"(
    extern int state; int from_library(int);
    int shadowed(void) { return 1000; }                 /* the program's definition comes first, also for the library */
    int step(int by) { int sum = from_library(by); return sum + state; })",
                            {"-L" + shop.folder(), "-luser", "-Wl,-rpath,$ORIGIN"});
  ASSERT_EQ(program->images().size(), 2U);
  EXPECT_EQ(in_turns(program, "step", {1, 10}), (Results{102 + 1000 + 102, 120 + 1000 + 120}));
}

TEST_F(Relocations, ThreadLocalsOfSystemLibrariesWork) {
  // std::call_once passes its callable through thread-locals of libstdc++; errno is libc's.
  const auto program = load_cpp(R"(
    #include <mutex>
    #include <cerrno>
    #include <cstdlib>
    static std::once_flag once; static int runs;
    extern "C" int step(int by) {
      std::call_once(once, [by] { runs += by; });
      errno = 0; std::strtol("99999999999999999999999", nullptr, 10);
      return runs + (errno == ERANGE ? 1000 : 0);
    })");
  EXPECT_EQ(in_turns(program, "step", {1, 2}), (Results{1001, 1002}));
}

TEST_F(Relocations, ExecutablesWithoutCopiesAreTaken) {
  const std::string file = shop.compile(R"(
    int counter = 5; int step(int by) { counter += by; return counter; } int main(void) { return step(1); })",
                                        {"-pie", "-rdynamic"}, "pie");
  EXPECT_EQ(in_turns(Program::load(file), "step", {1, 10}), (Results{7, 25}));
}

class ExecutableRelocations : public Relocations {
 protected:
  /// A program as compilers make it by default, but that it exports its functions.
  std::string build(std::string_view source, std::vector<std::string> flags = {}) {
    const std::string file = shop.write("executable.cpp", source);
    flags.insert(flags.begin(), {APLIB_TEST_CXX, "-O1", "-fPIE", "-pie", "-rdynamic", file, "-o", file + ".out"});
    const auto made = test::run_command(flags);
    if (made.status != 0) throw std::runtime_error(made.output);
    return file + ".out";
  }
};

TEST_F(ExecutableRelocations, WhatWeBindLiesInTheProgram) {
  const auto program = Program::load(build(R"(
    #include <cstdlib>
    #include <iostream>
    #include <unistd.h>
    extern "C" int step(int by) {
      optind += by;
      static char name[] = "x", first[] = "-a", second[] = "-b";
      char* words[] = {name, first, second, nullptr};
      if (optind == 1 + by) { optind = 1; while (getopt(3, words, "ab") != -1) {} }
      setenv("A", "1", 1);
      std::cout.width(by);
      return optind * 100 + (*environ != nullptr) + (std::cin.tie() == &std::cout) + (int)std::cout.width();
    }
    int main() { return step(1); })"));
  if (!has(*program, R_X86_64_COPY)) GTEST_SKIP() << "needs a compiler that makes copies of objects";
  EXPECT_GE(program->images()[0].plan.rooms.size(), 2U);
  EXPECT_EQ(in_turns(program, "step", {1, 10}), (Results{403, 1312}));
}

TEST_F(ExecutableRelocations, LibrariesFindTheirVariablesInTheProgram) {
  shop.compile("int number = 5; int* const pointer = &number; int add(int by) { return number += by; }",
               {"-shared", "-Wl,-soname,libheld.so"}, "libheld.so");
  const auto program = Program::load(build(R"(
    extern "C" { extern int number; extern int* const pointer; int add(int); }
    extern "C" int step(int by) { add(by); number += by; return pointer == &number ? add(0) : -1; }
    int main() { return step(1); })",
                                           {"-L" + shop.folder(), "-lheld", "-Wl,-rpath,$ORIGIN"}));
  if (!has(*program, R_X86_64_COPY)) GTEST_SKIP() << "needs a compiler that makes copies of objects";
  EXPECT_EQ(in_turns(program, "step", {1, 10}), (Results{9, 45}));
}

TEST_F(ExecutableRelocations, LibrariesThatTheProcessHasAreSeparate) {
  const std::string below = shop.compile("int number = 5; int add(int by) { return number += by; }",
                                         {"-shared", "-Wl,-soname,libaplibbelow.so"}, "libaplibbelow.so");
  const std::string above = shop.compile(
      "int add(int); int twice(int by) { return add(by) + add(by); }",
      {"-shared", "-Wl,-soname,libaplibabove.so", "-L" + shop.folder(), "-laplibbelow", "-Wl,-rpath," + shop.folder()},
      "libaplibabove.so");
  // The process has them, as if the system owned them.
  ASSERT_NE(::dlopen(below.c_str(), RTLD_NOW), nullptr);
  ASSERT_NE(::dlopen(above.c_str(), RTLD_NOW), nullptr);
  const std::vector<std::string> flags{"-L" + shop.folder(), "-laplibabove", "-laplibbelow"};
  const auto program = Program::load(build(R"(
    extern "C" { extern int number; int twice(int); }
    extern "C" int step(int by) { twice(by); return number; }
    int main() { return step(1); })",
                                           flags));
  EXPECT_EQ(program->images().size(), 3U);
  EXPECT_EQ(in_turns(program, "step", {1, 10}), (Results{9, 45}));
}

TEST_F(ExecutableRelocations, VariablesOfSharedLibrariesThatAreNotKnownAreRefused) {
  const std::string file = build(R"(
    extern "C" unsigned long re_syntax_options;
    int main() { return re_syntax_options != 0; })");
  try {
    const auto program = Program::load(file);
    if (!has(*program, R_X86_64_COPY)) GTEST_SKIP() << "needs a compiler that makes copies of objects";
    FAIL() << "a copy of a variable of libc was taken";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(file), text.npos) << text;
    EXPECT_NE(text.find("re_syntax_options"), text.npos) << text;
    EXPECT_NE(text.find("apcc"), text.npos) << text;
  }
}

TEST_F(Relocations, WhatIsMissingIsNamedAllAtOnce) {
  try {
    load("int nowhere(void); int neither(void); int main(void) { return nowhere() + neither(); }");
    FAIL() << "undefined functions were accepted";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("'nowhere'"), text.npos) << text;
    EXPECT_NE(text.find("'neither'"), text.npos) << text;
    EXPECT_NE(text.find("link the library"), text.npos) << text;
  }
}

}  // namespace
}  // namespace aplib::loader
