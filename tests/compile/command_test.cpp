// SPDX-License-Identifier: MIT
#include "compile/command.hpp"

#include <algorithm>

#include <gtest/gtest.h>

namespace aplib::compile {
namespace {

using Words = std::vector<std::string>;

Prefix tree() {
  Prefix prefix;
  prefix.root = "/p";
  prefix.include_folder = "/p/include";
  prefix.library_folder = "/p/lib";
  prefix.support_folder = "/p/lib/aplib";
  return prefix;
}

Compiler gnu(int version) {
  Compiler compiler;
  compiler.words = {"gcc"};
  compiler.family = Compiler::Family::gnu;
  compiler.version = version;
  return compiler;
}

Words run(const Words& words, const Compiler& compiler = gnu(12), Language language = Language::c,
          const Prefix& prefix = tree()) {
  return command(language, compiler, Arguments::read(words), prefix, "/p/object.o");
}

bool has(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}
std::size_t place(const Words& words, const std::string& word) {
  return static_cast<std::size_t>(std::find(words.begin(), words.end(), word) - words.begin());
}

TEST(Command, CompilesForAProgram) {
  EXPECT_EQ(run({"-O2", "-c", "a.c"}), (Words{"gcc", "-fPIC", "-fstack-clash-protection", "-fno-semantic-interposition",
                                              "-fvisibility=protected", "-mno-direct-extern-access", "-O2", "-c", "a.c",
                                              "-isystem", "/p/include", "-isystem", "/p/include/aplib/compat"}));
}

TEST(Command, OldSourcesGetTheLanguageOfTheirTime) {
  Arguments arguments = Arguments::read({"-std=c99", "-c", "a.c"});
  arguments.old = true;
  const Words words = command(Language::c, gnu(12), arguments, tree(), "/p/object.o");
  EXPECT_LT(place(words, "-std=gnu89"), place(words, "-std=c99"));
  EXPECT_TRUE(has(words, "-fcommon"));
  EXPECT_EQ(words[place(words, "-include") + 1], "/p/include/aplib/compat/old.h");
  Arguments link = Arguments::read({"a.o"});
  link.old = true;
  EXPECT_FALSE(has(command(Language::c, gnu(12), link, tree(), "/p/object.o"), "-include"));
}

TEST(Command, LinksAProgram) {
  EXPECT_EQ(run({"a.o", "-o", "a"}),
            (Words{"gcc", "-shared", "-Wl,-z,defs,-z,now,-Bsymbolic,--hash-style=gnu,--build-id,-z,noseparate-code",
                   "/p/object.o", "a.o", "-o", "a", "/p/lib/aplib/aplib-entries.ld", "-L/p/lib",
                   "-Wl,--push-state,-Bdynamic,--as-needed", "-laplib", "-Wl,--pop-state"}));
}

TEST(Command, CodeForLibrariesKeepsTheirRules) {
  const Words object = run({"-fPIC", "-c", "a.c"});
  EXPECT_TRUE(has(object, "-fPIC"));
  EXPECT_FALSE(has(object, "-fvisibility=protected"));
  EXPECT_TRUE(has(object, "-fstack-clash-protection"));
  const Words library = run({"-shared", "a.c", "-o", "liba.so"});
  EXPECT_TRUE(has(library, "-fPIC"));
  EXPECT_FALSE(has(library, "-fvisibility=protected"));
  EXPECT_FALSE(has(library, "/p/object.o"));
  EXPECT_TRUE(has(library, "-laplib"));
}

TEST(Command, FollowsTheCompiler) {
  EXPECT_FALSE(has(run({"-c", "a.c"}, gnu(11)), "-mno-direct-extern-access"));
  Compiler clang = gnu(0);
  clang.words = {"ccache", "clang", "-m64"};
  clang.family = Compiler::Family::clang;
  const Words words = run({"-c", "a.c"}, clang);
  EXPECT_EQ(Words(words.begin(), words.begin() + 6),
            (Words{"ccache", "clang", "-m64", "-fPIC", "-fstack-clash-protection", "-fvisibility=protected"}));
  EXPECT_FALSE(has(words, "-fno-semantic-interposition"));
  clang.family = Compiler::Family::unknown;
  EXPECT_FALSE(has(run({"-c", "a.c"}, clang), "-fvisibility=protected"));
  EXPECT_FALSE(has(run({"-c", "a.c"}, clang), "-fstack-clash-protection"));
}

TEST(Command, UsersOptionsComeAfterOurs) {
  const Words words = run({"-fvisibility=hidden", "-Wl,-z,lazy", "a.c"});
  EXPECT_LT(place(words, "-fvisibility=protected"), place(words, "-fvisibility=hidden"));
  EXPECT_LT(place(words, "-shared"), place(words, "-Wl,-z,lazy"));
}

TEST(Command, QuestionsAreHandedOnAsTheyAre) {
  for (const Words& words :
       {Words{"--version"}, Words{"-v"}, Words{"-print-file-name=libc.so"}, Words{"-Wl,--version"}, Words{}}) {
    Words expected = {"gcc"};
    expected.insert(expected.end(), words.begin(), words.end());
    EXPECT_EQ(run(words), expected);
  }
}

TEST(Command, OnePartIsNoProgram) {
  EXPECT_EQ(run({"-r", "a.o", "b.o", "-o", "c.o"}), (Words{"gcc", "-r", "a.o", "b.o", "-o", "c.o"}));
}

TEST(Command, LanguageOfInputsIsNotThatOfOurObject) {
  const Words words = run({"-x", "c", "-"});
  const std::size_t none = place(words, "none");
  ASSERT_LT(none, words.size());
  EXPECT_EQ(words[none - 1], "-x");
  EXPECT_LT(none, place(words, "/p/lib/aplib/aplib-entries.ld"));
  EXPECT_LT(place(words, "/p/object.o"), place(words, "c"));
  EXPECT_FALSE(has(run({"a.c"}), "none"));
}

TEST(Command, GoldLacksAnOption) {
  const Words words = run({"-fuse-ld=gold", "a.o"});
  for (const std::string& word : words) EXPECT_EQ(word.find("noseparate-code"), std::string::npos) << word;
  EXPECT_FALSE(has(run({"-fuse-ld=gold", "a.c"}), "-mno-direct-extern-access"));  // gold warns of it
}

TEST(Command, LldHasItsOwnOption) {
  const Words words = run({"-fuse-ld=lld", "a.o"});
  EXPECT_TRUE(has(words, "-Wl,-z,defs,-z,now,-Bsymbolic,--hash-style=gnu,--build-id,--no-rosegment"));
}

TEST(Command, LinkTimeOptimizationNeedsAFittingLinker) {
  Compiler clang = gnu(0);
  clang.family = Compiler::Family::clang;
  EXPECT_THROW(run({"-flto=auto", "-fuse-ld=gold", "a.o"}), Refused);
  EXPECT_THROW(run({"-flto", "-fuse-ld=lld", "a.o"}), Refused);
  EXPECT_NO_THROW(run({"-flto", "-fuse-ld=lld", "a.o"}, clang));
  EXPECT_NO_THROW(run({"-flto", "a.o"}));
  EXPECT_NO_THROW(run({"-flto", "-c", "-fuse-ld=gold", "a.c"}));
  EXPECT_NO_THROW(run({"-flto", "-fno-lto", "-fuse-ld=gold", "a.o"}));
  EXPECT_NO_THROW(run({"-flto", "-fuse-ld=gold", "-fuse-ld=bfd", "a.o"}));
}

TEST(Command, OwnLibrariesMeanNoneOfOurs) {
  const Words words = run({"-nostdlib", "a.o"});
  EXPECT_FALSE(has(words, "-laplib"));
  EXPECT_TRUE(has(words, "/p/object.o"));
  Prefix bare = tree();
  bare.library_folder.clear();
  EXPECT_FALSE(has(run({"a.o"}, gnu(12), Language::c, bare), "-laplib"));
}

TEST(Command, HeadersAreForCAndCxx) {
  EXPECT_TRUE(has(run({"-c", "a.cpp"}, gnu(12), Language::cxx), "/p/include"));
  EXPECT_FALSE(has(run({"-c", "a.f90"}, gnu(12), Language::fortran), "/p/include"));
  Prefix system = tree();
  system.include_folder = "/usr/include";
  const Words words = run({"-c", "a.c"}, gnu(12), Language::c, system);
  EXPECT_FALSE(has(words, "/usr/include"));  // the compiler's own order of folders must not change
  EXPECT_TRUE(has(words, "/usr/include/aplib/compat"));
}

TEST(Command, ShellTextCanBePasted) {
  EXPECT_EQ(shell_text({"gcc", "-DA=\"b c\"", "it's", "", "a.c"}), "gcc '-DA=\"b c\"' 'it'\\''s' '' a.c");
}

}  // namespace
}  // namespace aplib::compile
