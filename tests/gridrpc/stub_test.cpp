// SPDX-License-Identifier: MIT
// What apgen writes; gridrpc_call_test compiles and runs some of it.
#include "gridrpc/stub.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "aplib/error.hpp"
#include "calls/idl.hpp"

namespace aplib::gridrpc {
namespace {

std::string stub(const std::string& text) { return write_stub(read_interface(text, "m.idl"), "m.idl", "m.c"); }

TEST(Stub, DeclaresAndCallsFunctions) {
  const std::string text = stub("Module m; Define f(IN int n, OUT double *x, IN string s) Calls \"C\" g(s, n, x);");
  EXPECT_NE(text.find("extern void g(char *, int, double *);\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  int n = *(int *)aplib_argument[0];\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  double *x = (double *)aplib_argument[1];\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  char *s = *(char **)aplib_argument[2];\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  g(s, n, x);\n"), std::string::npos) << text;
  EXPECT_EQ(stub("Module m; Globals { #include \"g.h\"\n } Define f() Calls \"C\" g();").find("extern"),
            std::string::npos);
}

TEST(Stub, CallsFortranByReference) {
  const std::string text =
      stub("Module m; FortranFormat \"_%s__\"; Define f(IN int n, IN double a[n]) Calls \"Fortran\" dsum(n, a);");
  EXPECT_NE(text.find("extern void _dsum__(int *, double *);\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  _dsum__(&n, a);\n"), std::string::npos) << text;
  try {
    static_cast<void>(stub("Module m; Define f(IN string s) Calls \"Fortran\" g(s);"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "m.idl: f: string s: texts cannot be passed to Fortran: pass IN char s[n]");
  }
}

TEST(Stub, NamesTheLinesOfTheIdlFile) {
  const std::string text = stub("Module m;\nDefine f() {\n  error\n}\n");
  EXPECT_NE(text.find("#line 2 \"m.idl\"\n\n  error\n"), std::string::npos) << text;
  const std::size_t at = text.find("#line", text.find("error"));
  ASSERT_NE(at, std::string::npos);
  const auto line = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 2;
  EXPECT_EQ(text.substr(at, text.find('\n', at) - at), "#line " + std::to_string(line) + " \"m.c\"");
}

TEST(Stub, TheCommandSaysNothingElseToAShell) {
  const Interface interface = read_interface(
      "Module m; Compiler \"gcc -m64\"; CompileOptions \"-DA=$(id) -g\"; Library \"-lm; touch x\"; "
      "Define f() Required \"it's.o\" {}",
      "m.idl");
  EXPECT_EQ(
      build_command(interface, "my m.c", "m"),
      "gcc -m64 '-DA=$(id)' -g -o m 'my m.c' 'it'\\''s.o' '-lm;' touch x $(pkg-config --cflags --libs aplib-gridrpc)");
}

/// A look at all that came before, for each one, takes half a minute.
TEST(Stub, ManyFunctionsTakeNoMoreThanTheirNumber) {
  std::string text = "Module m;\n";
  constexpr int many = 20'000;  // an IDL has 1 MiB at most
  for (int i = 0; i < many; ++i) text += fmt::format("Define f{0}(IN int n)Required \"{0}.o\" {{}}\n", i);
  const Interface interface = read_interface(text, "m.idl");
  ASSERT_EQ(interface.functions.size(), static_cast<std::size_t>(many));
  const std::string stub = write_stub(interface, "m.idl", "m.c");
  const std::size_t at = stub.rfind("\n#line ", stub.find("aplib_idl[]"));
  const auto line = std::count(stub.begin(), stub.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 3;
  EXPECT_EQ(stub.substr(at + 7, stub.find(' ', at + 7) - at - 7), std::to_string(line));
  EXPECT_NE(build_command(interface, "m.c", "m").find(" 19999.o "), std::string::npos);
}

TEST(Stub, SaysHowItIsCompiled) {
  const Interface interface = read_interface(
      "Module m; Compiler \"gcc\"; CompileOptions \"-O3\"; Library \"-lm\"; Define f() Required \"f.o\" {} "
      "Define g() Required \"f.o\" {}",
      "m.idl");
  EXPECT_EQ(build_command(interface, "m.c", "m"),
            "gcc -O3 -o m m.c f.o -lm $(pkg-config --cflags --libs aplib-gridrpc)");
}

}  // namespace
}  // namespace aplib::gridrpc
