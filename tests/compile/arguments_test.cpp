// SPDX-License-Identifier: MIT
#include "compile/command.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>

namespace aplib::compile {
namespace {

using Words = std::vector<std::string>;

Output output_of(const Words& words) { return Arguments::read(words).output; }
Words kept_of(const Words& words) { return Arguments::read(words).kept; }
bool compiles(const Words& words) { return Arguments::read(words).compiles; }

std::string refusal_of(const Words& words) {
  try {
    Arguments::read(words);
  } catch (const Refused& refused) {
    return refused.what();
  }
  return "";
}

TEST(Arguments, WhatIsMade) {
  EXPECT_EQ(output_of({"a.c"}), Output::program);
  EXPECT_EQ(output_of({"a.o", "-o", "a"}), Output::program);
  EXPECT_EQ(output_of({"-lfoo"}), Output::program);
  EXPECT_EQ(output_of({"-l", "foo"}), Output::program);
  EXPECT_EQ(output_of({"-MD", "-MF", "a.d", "a.c"}), Output::program);
  EXPECT_EQ(output_of({"-v", "a.c"}), Output::program);
  EXPECT_EQ(output_of({"-###", "a.c"}), Output::program);
  EXPECT_EQ(output_of({"-x", "c", "-"}), Output::program);
  for (const char* option : {"-c", "-S", "-E", "-M", "-MM", "-fsyntax-only", "--compile"}) {
    EXPECT_EQ(output_of({option, "a.c"}), Output::objects) << option;
    EXPECT_EQ(output_of({"a.c", "-o", "x", option}), Output::objects) << option;
  }
  EXPECT_EQ(output_of({"-E", "-"}), Output::objects);
  EXPECT_EQ(output_of({"-shared", "a.o"}), Output::library);
  EXPECT_EQ(output_of({"-Wl,-shared", "a.o"}), Output::library);
  EXPECT_EQ(output_of({"-Xlinker", "-shared", "a.o"}), Output::library);
  EXPECT_EQ(output_of({"-shared", "-c", "a.c"}), Output::objects);
  EXPECT_EQ(output_of({"-r", "a.o", "b.o"}), Output::partial);
  EXPECT_EQ(output_of({"-Wl,-r", "a.o"}), Output::partial);
  EXPECT_EQ(output_of({"-nostdlib", "-Wl,--relocatable,-x", "a.o"}), Output::partial);
}

TEST(Arguments, ValuesOfOptionsAreNoInputs) {
  EXPECT_EQ(output_of({"-o", "a.c"}), Output::information);
  EXPECT_EQ(output_of({"-include", "x.c", "-MF", "y.c", "-I", "z.c", "-D", "w.c"}), Output::information);
  EXPECT_EQ(output_of({"-o", "-c", "a.c"}), Output::program);
}

TEST(Arguments, InformationIsNoProgram) {
  for (const char* option : {"--version", "-dumpmachine", "-dumpversion", "-print-search-dirs",
                             "-print-file-name=libc.so", "--print-prog-name=ld", "-v", "--help", "--help=optimizers",
                             "-Wl,--version", "-dumpspecs", "-static", "-m32"}) {
    EXPECT_EQ(output_of({option}), Output::information) << option;
    EXPECT_EQ(refusal_of({option}), "") << option;
  }
  EXPECT_EQ(output_of({}), Output::information);
  EXPECT_EQ(output_of({"-print-multi-directory", "a.c"}), Output::information);
}

TEST(Arguments, WhatIsCompiled) {
  EXPECT_TRUE(compiles({"a.c"}));
  EXPECT_TRUE(compiles({"a.o", "b.cpp"}));
  EXPECT_TRUE(compiles({"dir.o/b.F90"}));
  EXPECT_TRUE(compiles({"-x", "c", "noname"}));
  EXPECT_TRUE(compiles({"-xc++", "-"}));
  EXPECT_FALSE(compiles({"a.o", "b.a", "c.so", "-lc"}));
  EXPECT_FALSE(compiles({"noname"}));
  EXPECT_FALSE(compiles({"a.s"}));
  EXPECT_FALSE(compiles({"-x", "assembler", "a.c"}));
  EXPECT_FALSE(compiles({"-x", "c", "-x", "none", "a.o"}));
  EXPECT_TRUE(Arguments::read({"-x", "c", "a"}).names_language);
  EXPECT_FALSE(Arguments::read({"-x", "c", "a", "-x", "none"}).names_language);
}

TEST(Arguments, WhatProgramsOfCellsCannotHaveIsLeftOut) {
  EXPECT_EQ(kept_of({"-fPIE", "-O2", "-fno-pie", "a.c", "-pie", "-no-pie", "-fno-pic", "-o", "a"}),
            (Words{"-O2", "a.c", "-o", "a"}));
  EXPECT_EQ(kept_of({"-static-libgcc", "-static-libstdc++", "-static-libgfortran", "a.c"}), (Words{"a.c"}));
  EXPECT_EQ(kept_of({"-Wl,-pie,-O1,--no-pie", "a.c"}), (Words{"-Wl,-O1", "a.c"}));
  EXPECT_EQ(kept_of({"-Wl,-pie", "a.c"}), (Words{"a.c"}));
  EXPECT_EQ(kept_of({"-Xlinker", "-pie", "a.c", "-Xlinker", "-O1"}), (Words{"a.c", "-Xlinker", "-O1"}));
  EXPECT_EQ(kept_of({"a.o", "-laplib_cellos_main", "-l", "aplib_cellos_main", "/x/libaplib_cellos_main.a", "-laplib"}),
            (Words{"a.o", "-laplib"}));
  EXPECT_EQ(kept_of({"-c", "-static", "a.c"}), (Words{"-c", "a.c"}));
  EXPECT_EQ(kept_of({"-DNAME=-fPIE", "-D", "-fPIE", "a.c"}), (Words{"-DNAME=-fPIE", "-D", "-fPIE", "a.c"}));
}

TEST(Arguments, OrderAndEverythingElseStay) {
  const Words words = {"-Wl,--start-group",
                       "b.o",
                       "-lx",
                       "-Wl,--end-group",
                       "-Wl,-rpath,$ORIGIN/../lib",
                       "-Wl,-z,lazy",
                       "-z",
                       "now",
                       "-u",
                       "f",
                       "",
                       "-o",
                       "x"};
  EXPECT_EQ(kept_of(words), words);
}

TEST(Arguments, RefusalsSayWhatToDo) {
  EXPECT_NE(refusal_of({"-static", "a.c"}).find("leave -static out"), std::string::npos);
  EXPECT_NE(refusal_of({"a.o", "-static-pie"}).find("leave -static-pie out"), std::string::npos);
  EXPECT_NE(refusal_of({"-c", "-m32", "a.c"}).find("leave -m32 out"), std::string::npos);
  EXPECT_NE(refusal_of({"-mx32", "a.c"}).find("leave -mx32 out"), std::string::npos);
  EXPECT_NE(refusal_of({"-c", "-fsanitize=undefined,address", "a.c"}).find("-fsanitize=address"), std::string::npos);
  EXPECT_NE(refusal_of({"-fsanitize=thread", "a.o"}).find("-fsanitize=thread"), std::string::npos);
}

TEST(Arguments, WhatIsTakenBackIsNotRefused) {
  EXPECT_EQ(refusal_of({"-m32", "-m64", "a.c"}), "");
  EXPECT_EQ(refusal_of({"-fsanitize=address", "-fno-sanitize=all", "a.c"}), "");
  EXPECT_EQ(refusal_of({"-fsanitize=address", "-fno-sanitize=address", "a.c"}), "");
  EXPECT_EQ(refusal_of({"-fsanitize=undefined", "a.c"}), "");
  EXPECT_EQ(refusal_of({"-shared", "-static", "a.o"}), "");
}

class InFile : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/aplib-response.XXXXXX";
    const int descriptor = ::mkstemp(name);
    ASSERT_GE(descriptor, 0);
    ::close(descriptor);
    path_ = name;
  }
  void TearDown() override { std::remove(path_.c_str()); }
  std::string at(const std::string& text) {
    std::ofstream(path_) << text;
    return "@" + path_;
  }
  std::string path_;
};

TEST_F(InFile, IsUnderstoodAndStaysAFile) {
  const std::string argument = at("-c -O2 a.c\n-fPIC");
  const Arguments arguments = Arguments::read({argument, "-o", "a.o"});
  EXPECT_EQ(arguments.output, Output::objects);
  EXPECT_TRUE(arguments.position_independent);
  EXPECT_TRUE(arguments.compiles);
  EXPECT_EQ(arguments.kept, (Words{argument, "-o", "a.o"}));
}

TEST_F(InFile, IsOpenedWhereSomethingMustGo) {
  EXPECT_EQ(kept_of({"-O1", at("-fPIE 'a b.c' -pie"), "-g"}), (Words{"-O1", "a b.c", "-g"}));
}

TEST_F(InFile, MayNameItself) {
  const std::string argument = at("a.c @" + path_);
  EXPECT_EQ(output_of({argument}), Output::program);
}

TEST(Arguments, MissingResponseFileIsTheCompilersToReport) {
  EXPECT_EQ(kept_of({"@/no/such/file", "a.c"}), (Words{"@/no/such/file", "a.c"}));
}

}  // namespace
}  // namespace aplib::compile
