// SPDX-License-Identifier: MIT
#include "compile/command.hpp"

#include <cstdlib>

#include <gtest/gtest.h>

namespace aplib::compile {
namespace {

using Words = std::vector<std::string>;

TEST(Compiler, IsGivenByOptionThenEnvironmentThenUsual) {
  ::setenv("AP_CXX", "from-environment -m64", 1);
  EXPECT_EQ(Compiler::find(Language::cxx, "from-option").words, Words{"from-option"});
  EXPECT_EQ(Compiler::find(Language::cxx, "").words, (Words{"from-environment", "-m64"}));
  ::setenv("AP_CXX", " ", 1);
  EXPECT_EQ(Compiler::find(Language::cxx, "").words, Words{"g++"});
  ::unsetenv("AP_CXX");
}

TEST(Compiler, MissingHasNoFile) {
  const Compiler compiler = Compiler::find(Language::c, "no-such-compiler-99");
  EXPECT_TRUE(compiler.file.empty());
  EXPECT_EQ(compiler.family, Compiler::Family::unknown);
}

TEST(Compiler, GccTellsItsVersion) {
  Compiler compiler = Compiler::find(Language::c, "ccache gcc -m64");
  if (compiler.file.empty()) GTEST_SKIP() << "needs the tool gcc";
  EXPECT_EQ(compiler.family, Compiler::Family::gnu) << compiler.file;
  compiler.version = 0;
  compiler.ask_version();
  EXPECT_GE(compiler.version, 4);
  EXPECT_LT(compiler.version, 100);
}

TEST(Compiler, NamesOfWrappers) {
  EXPECT_EQ(wrapper_name(Language::c), "apcc");
  EXPECT_EQ(wrapper_name(Language::cxx), "apc++");
  EXPECT_EQ(wrapper_name(Language::fortran), "apfort");
}

}  // namespace
}  // namespace aplib::compile
