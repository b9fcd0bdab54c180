// SPDX-License-Identifier: MIT
// Ninf's IDL: what it means, and what a user is told of a mistake.
#include "calls/idl.hpp"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "aplib/error.hpp"

namespace aplib::calls {
namespace {

const std::string header = "Module m;\n";

Interface read(const std::string& text) { return read_interface(text, "m.idl"); }

std::string refusal(const std::string& text) {
  try {
    static_cast<void>(read(text));
  } catch (const Error& error) {
    return error.what();
  }
  return "(nothing is wrong)";
}

/// The size of the only parameter beside n and m, for these.
std::int64_t size(const std::string& expression, std::int64_t n, std::int64_t m) {
  const Interface interface =
      read(header + "Define f(IN int n, IN int m, IN char a[" + expression + "]) Calls \"C\" f(n, m, a);");
  return interface.functions[0].parameters[2].dimensions[0].size.value(std::array{n, m, std::int64_t{0}});
}

TEST(Idl, HasTheFunctionsOfAModule) {
  const Interface interface = read(R"(
    /* A module as Ninf-G's users write it. */
    Module sample;
    Globals { #include "mmul.h"
      static const char brace[] = "}";  // }
    }
    CompileOptions "-O2";
    Library "-lm";
    Define dmmul(IN int n, IN double A[n][n], IN double B[n*n], OUT double C[n][n])
      "C = A x B"
      Required "mmul.o"
      CalcOrder n^3
      Calls "C" dmmul(n, A, B, C);
    Define pi_trial(IN int seed, IN long times, OUT long * count) { *count = trial(seed, times); if (0) { } }
  )");
  EXPECT_EQ(interface.name, "sample");
  ASSERT_EQ(interface.functions.size(), 2U);
  const Function& dmmul = interface.functions[0];
  EXPECT_EQ(print_function(dmmul), "dmmul(IN int n, IN double A[n][n], IN double B[n*n], OUT double C[n][n])");
  EXPECT_EQ(dmmul.description, "C = A x B");
  EXPECT_EQ(dmmul.required, std::vector<std::string>{"mmul.o"});
  EXPECT_EQ(dmmul.calls, "dmmul");
  EXPECT_EQ(dmmul.language, "C");
  EXPECT_EQ(dmmul.call_arguments, (std::vector<std::uint32_t>{0, 1, 2, 3}));
  const Function& pi = interface.functions[1];
  EXPECT_EQ(print_function(pi), "pi_trial(IN int seed, IN long times, OUT long *count)");
  EXPECT_EQ(pi.body.text, " *count = trial(seed, times); if (0) { } ");
  EXPECT_EQ(pi.body.line, 14);
  ASSERT_EQ(interface.globals.size(), 1U);
  EXPECT_NE(interface.globals[0].text.find("brace[]"), std::string::npos);
  EXPECT_EQ(interface.compile_options, std::vector<std::string>{"-O2"});
  EXPECT_EQ(interface.libraries, std::vector<std::string>{"-lm"});
}

TEST(Idl, HasClassesWithMethodsAndState) {
  const Interface interface = read(R"(Module m;
    DefClass counter "counts" Required "counter.o" {
      DefState { int total; }
      DefMethod add(IN int n) { total += n; }
      DefMethod get(OUT int *n) "the sum" { *n = total; }
    })");
  ASSERT_EQ(interface.classes.size(), 1U);
  EXPECT_EQ(interface.classes[0].state.text, " int total; ");
  ASSERT_EQ(interface.classes[0].methods.size(), 2U);
  EXPECT_EQ(interface.classes[0].methods[1].name, "get");
  EXPECT_EQ(interface.classes[0].methods[1].description, "the sum");
}

TEST(Idl, KnowsAllModesAndTypes) {
  const Interface interface = read(header + R"(Define f(mode_in char a, OUT short b[1], INOUT int *c, WORK double d[9],
      IN unsigned e, IN unsigned char g, IN short int h, IN long i, long long IN j, IN unsigned long int k,
      IN float l, double mode_in o, IN scomplex p, INOUT dcomplex q[2], IN string s, OUT filename (t)) {})");
  EXPECT_EQ(print_function(interface.functions[0]),
            "f(IN char a, OUT short b[1], INOUT int *c, WORK double d[9], IN unsigned int e, IN unsigned char g, "
            "IN short h, IN long i, IN long j, IN unsigned long k, IN float l, IN double o, IN scomplex p, "
            "INOUT dcomplex q[2], IN string s, OUT filename t)");
}

TEST(Idl, ComputesSizesAsCDoes) {
  EXPECT_EQ(size("n*m+1", 6, 7), 43);
  EXPECT_EQ(size("n+m*2", 6, 7), 20);
  EXPECT_EQ(size("(n+m)*2", 6, 7), 26);
  EXPECT_EQ(size("n-m-1", 20, 7), 12);
  EXPECT_EQ(size("2^n^2", 3, 0), 512);
  EXPECT_EQ(size("-n+m", 3, 10), 7);
  EXPECT_EQ(size("n/m", 7, 2), 3);
  EXPECT_EQ(size("n%m", 7, 2), 1);
  EXPECT_EQ(size("n < m ? n : m", 3, 8), 3);
  EXPECT_EQ(size("n == 0 ? 5 : m/n", 0, 8), 5) << "the other half would divide by 0";
  EXPECT_EQ(size("n>=m", 3, 3), 1);
  EXPECT_EQ(size("n!=m", 3, 3), 0);
}

TEST(Idl, RefusesSizesThatAreNoNumbers) {
  EXPECT_THROW(static_cast<void>(size("n/m", 1, 0)), Error);
  EXPECT_THROW(static_cast<void>(size("n%m", 1, 0)), Error);
  EXPECT_THROW(static_cast<void>(size("n*m", INT64_MAX, 2)), Error);
  EXPECT_THROW(static_cast<void>(size("n-m", INT64_MIN, 1)), Error);
  EXPECT_THROW(static_cast<void>(size("n/m", INT64_MIN, -1)), Error);
  EXPECT_THROW(static_cast<void>(size("n^m", 10, 19)), Error);
  EXPECT_THROW(static_cast<void>(size("n^m", 10, -1)), Error);
  EXPECT_EQ(size("n%m", INT64_MIN, -1), 0);
}

TEST(Idl, ReadsRangesWithOneTwoAndThreeNumbers) {
  const Interface interface = read(header +
                                   "Define f(IN int n, IN int a[n:n-1], IN int b[n:1,n], IN int c[n:0,n,2])"
                                   "{}");
  EXPECT_EQ(print_function(interface.functions[0]), "f(IN int n, IN int a[n:n-1], IN int b[n:1,n], IN int c[n:0,n,2])");
}

TEST(Idl, IsTheSameWhenItHasTravelled) {
  const Interface interface = read(header + R"(
    Define f(IN int a[m*(n+1)^2 - -n], IN int n, IN int m, OUT char *x, IN char s[n > 2 ? n%3 : m:1,m,2]) "does f" {}
    DefClass c "a class" { DefState { int x; } DefMethod g() "does g" {} })");
  const std::string text = print_interface(interface);
  const Interface again = read_interface(text, "the server's", Bodies::none);
  EXPECT_EQ(print_interface(again), text);
  EXPECT_EQ(again.functions[0].parameters, interface.functions[0].parameters);
  EXPECT_EQ(again.classes[0].methods[0].description, "does g");
}

TEST(Idl, SaysFilePlaceTextCauseAndRemedyOfAMistake) {
  const auto expect = [](const std::string& text, const std::string& message) {
    EXPECT_EQ(refusal(text), "m.idl:" + message) << text;
  };
  expect("", "1:1: there is no module: begin with: Module NAME;");
  expect("Define f() {}", "1:1: \"Define\": it comes before the module: begin with: Module NAME;");
  expect("Module m\nDefine f() {}", "2:1: \"Define\": no ; follows the module's name: end the line with ;");
  expect("Module m;", "1:10: \"the end\": the module defines nothing: write Define NAME(...) or DefClass NAME { ... }");
  expect("Module m;\n  Defien f();", "2:3: \"Defien\": no declaration: did you mean Define?");
  expect(
      "Module m;\n#include <x.h>",
      "2:1: \"#\": directives of the C preprocessor stand nowhere but in C text: put it into Globals { ... }, or run "
      "the file through cpp -P");
  expect("Module m;\n/* x", "2:1: \"/*\": the comment does not end: write */ behind it");
  expect("Module m; Define f(IN itn n) {}", "1:23: \"itn\": no mode or type of a parameter: did you mean int?");
  expect("Module m; Define f(IN int) {}",
         "1:26: \")\": the parameter needs a name: names are of letters, digits and _");
  expect("Module m; Define f(IN int n IN int m) {}",
         "1:29: \"IN\": the parameters of f do not end: write , before another one, ) behind the last");
  expect("Module m; Define f(IN int n, IN int n) {}", "1:37: \"n\": f has two of that name: use another name");
  expect("Module m; Define f(IN int num, IN double a[nun]) {}",
         "1:44: \"nun\": f has no such parameter: did you mean num?");
  expect("Module m; Define f(OUT int *n, IN double a[n]) {}",
         "1:44: \"n\": a size cannot be made of OUT int: use IN parameters of an integer type that are no arrays");
  expect("Module m; Define f(IN double a[]) {}",
         "1:32: \"]\": a size of a is missing: write it between the brackets, as an expression of the integer "
         "parameters");
  expect("Module m; Define f(IN int n, IN double a[n) {}",
         "1:43: \")\": the size of a does not end: write ] there; a range is [size:low,high,stride]");
  expect("Module m; Define f(IN int n, IN double a[n+]) {}",
         "1:44: \"]\": a size was expected: use numbers, integer parameters, ( ) + - * / % ^ < > == ? :");
  expect("Module m; Define f(IN int a[99999999999999999999]) {}",
         "1:29: \"99999999999999999999\": no whole number of 64 bits: use decimal digits");
  expect("Module m; Define f()",
         "1:21: \"the end\": what f does is missing: write { C text }, or Calls \"C\" "
         "FUNCTION(PARAMETER, ...);");
  expect("Module m; Define f() { if (x) { }", "1:22: \"{\": the C text of f does not end: a } for each { is needed");
  expect("Module m; Define f(IN int n) Calls \"C\" g(m);", "1:42: \"m\": f has no such parameter: it has n");
  expect("Module m; Define f() Calls \"Cobol\" g();", "1:28: \"Cobol\": no language: use \"C\" or \"Fortran\"");
  expect("Module m; Define f() {} Define f() {}", "1:32: \"f\": it is defined twice: use another name");
  expect("Module m; Define f(WORK int n) {}",
         "1:29: \"n\": a work area without a size: write its size, as in WORK double w[n]");
  expect("Module m; Define f(IN filepointer p) {}",
         "1:23: \"filepointer\": there are no file pointers: use filename, and fopen() in the function");
  expect("Module m; Define f(IN int n, progress(IN int n[1])) {}",
         "1:30: \"progress\": call-back functions are not there: return values by OUT parameters");
  expect("Module m; Define f(IN int **p) {}",
         "1:29: \"p\": a pointer to a pointer: use an array with its size: NAME[n]");
  expect("Module m; Define f() Backend \"MPI\" {}",
         "1:30: \"MPI\": there are no such servers: leave Backend out, or write Backend \"NORMAL\"");
  expect("Module m; Define f(IN long double x) {}",
         "1:23: \"long\": no such type: use bool, char, the integers from signed char to unsigned long long, "
         "int8_t to uint64_t, size_t, float, double, scomplex, dcomplex, string (char const*) or filename");
  expect("Module m; DefClass c { }", "1:20: \"c\": the class has no methods: add DefMethod NAME(...)");
  expect("Module m; DefClass c { DefMehtod f() {} }",
         "1:24: \"DefMehtod\": no part of a class: did you mean DefMethod?");
  expect("Module m; FortranFormat \"_\";", "1:25: \"_\": it has no %s: %s stands for the name, as in \"%s_\"");
  expect(std::string("Module m;\n\0", 11), "2:1: a zero byte: save the file as text");
}

TEST(Idl, NestsNoDeeperThanTheStack) {
  const std::string deep(100'000, '(');
  EXPECT_NE(refusal(header + "Define f(IN int a[" + deep).find("nests too deep"), std::string::npos);
  EXPECT_NE(refusal(header + "Define f(IN int " + deep).find("nests too deep"), std::string::npos);
  EXPECT_NE(refusal(header + "Define f(IN int a[" + std::string(100'000, '-')).find("nests too deep"),
            std::string::npos);
  std::string powers = "2";
  for (int i = 0; i < 10'000; ++i) powers += "^2";
  EXPECT_NE(refusal(header + "Define f(IN int a[" + powers + "]) {}").find("nests too deep"), std::string::npos);
}

TEST(Idl, EndsWithAnAnswerWhateverTheTextIs) {
  const std::string good = header + R"(Globals { int x; } Define f(IN int n, OUT double a[n*2+1:0,n,2], IN string s)
    "text" Required "f.o" CalcOrder n^2 Calls "C" f(n, a, s); DefClass c { DefState { } DefMethod g(IN int k) {} })";
  ASSERT_EQ(refusal(good), "(nothing is wrong)");
  std::mt19937_64 random(17);
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    for (auto changes = 1 + random() % 4; changes != 0; --changes) {
      const std::size_t at = random() % text.size();
      if (random() % 2 == 0)
        text[at] = static_cast<char>(random());
      else
        text.erase(at, 1 + random() % 9);
    }
    const std::string answer = refusal(text);
    EXPECT_TRUE(answer == "(nothing is wrong)" || answer.starts_with("m.idl:")) << answer;
  }
}

}  // namespace
}  // namespace aplib::calls
