// SPDX-License-Identifier: MIT
// Types of functions by debug information: what is found, what is called by it, what is refused.
#include "calls/debug_types.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "aplib/error.hpp"
#include "calls/idl.hpp"
#include "checks.hpp"
#include "compile.hpp"

#if __has_include(<elfutils/libdw.h>)

namespace aplib::calls {
namespace {

using loader::test::Workshop;

/// The only function of that name, which there must be.
DebugFunction function_of(const std::string& file, const std::string& name) {
  const std::vector<DebugFunction> found = debug_functions(file, name);
  EXPECT_EQ(found.size(), 1U) << name;
  return found.empty() ? DebugFunction{} : found.front();
}

template <class Action>
std::string error_text_of(Action action) {
  return testing_support::error_text(action, Errc::bad_option);
}

TEST(DebugTypes, AreThoseOfTheSource) {
  const Workshop shop;
  const std::string file = shop.compile(R"(
    #include <complex.h>
    #include <stdbool.h>
    #include <stddef.h>
    #include <stdint.h>
    typedef double real;
    enum colour { red, green };
    struct point { int x; };
    int solve(int n, real eps) { return n + eps; }
    double norm(int n, double const *x, float y[], const char *name, char *buffer) { return *x + *y + n + *name + *buffer; }
    const char *all(bool a, char b, signed char c, uint8_t d, short e, unsigned f, long g, size_t h, enum colour i,
                    double complex j) { return a + b + c + d + e + f + g + h + i + creal(j) > 0 ? "" : 0; }
    void odd(struct point p, struct point *q, void *r, char **s, long double t, void (*u)(void)) {}
    int more(const char *format, ...) { return *format; }
    static int hidden(void) { return 1; }
    int nothing(void) { return hidden(); })",
                                        {"-shared", "-g"}, "types.so");
  EXPECT_EQ(print_function(function_of(file, "solve")), "solve(int n, real eps) -> int");
  EXPECT_EQ(function_of(file, "solve").place, "types.so.c:9");
  EXPECT_EQ(print_function(function_of(file, "norm")),
            "norm(int n, double const *x, float *y, char const *name, char *buffer) -> double");
  EXPECT_EQ(print_function(function_of(file, "more")), "more(char const *format, ...) -> int");
  EXPECT_EQ(print_function(function_of(file, "nothing")), "nothing() -> int");
  EXPECT_TRUE(debug_functions(file, "hidden").empty()) << "nobody can call it";
  EXPECT_EQ(print_signature(signature_of(function_of(file, "solve"), "solve")), "solve(int n, double eps) -> int");
  EXPECT_EQ(print_signature(signature_of(function_of(file, "all"), "all")),
            "all(bool a, char b, signed char c, unsigned char d, short e, unsigned int f, long g, unsigned long h, "
            "unsigned int i, dcomplex j) -> string");
  EXPECT_EQ(print_function(function_of(file, "odd")),
            "odd(struct point p, struct point *q, void *r, char **s, long double t, function *u) -> void");
}

TEST(DebugTypes, OfCxxAreFoundBySymbolAndByAddress) {
  const Workshop shop;
  const std::string file = shop.compile_cpp(R"(
    namespace math {
    double step(int n, double& x, const double& y) { return x += n + y; }
    double step(double x) { return x; }
    })",
                                            {"-shared", "-g"}, "cxx.so");
  EXPECT_EQ(debug_functions(file, "step").size(), 2U);
  const DebugFunction step = function_of(file, "_ZN4math4stepEiRdRKd");
  EXPECT_EQ(print_signature(signature_of(step, "math::step")),
            "math::step(int n, INOUT double *x, double *y) -> double");
}

TEST(DebugTypes, OfFortranAreAddresses) {
  const Workshop shop;
  if (loader::test::compiler(loader::test::Language::fortran).empty()) GTEST_SKIP() << "there is no Fortran compiler";
  const std::string file = shop.compile_fortran(
      "subroutine half(n, x)\n  integer, intent(in) :: n\n  real(8) :: x\n  x = x / n\nend subroutine\n"
      "real(8) function total(n, a)\n  integer :: n\n  real(8) :: a(n)\n  total = sum(a)\nend function\n",
      {"-shared", "-g"}, "fortran.so");
  EXPECT_EQ(print_signature(signature_of(function_of(file, "half"), "half_")),
            "half_(INOUT int *n, INOUT double *x) -> void");
  const DebugFunction total = function_of(file, "total");
  EXPECT_NO_THROW(check_signature(read_signature("total_(int *n, double a[3])->double"), total));
  EXPECT_THROW(check_signature(read_signature("total_(int n, double a[3])->double"), total), Error);
}

TEST(DebugTypes, AreUnknownWithoutDebugInformation) {
  const Workshop shop;
  const std::string file = shop.compile("int solve(int n) { return n; }", {"-shared"}, "bare.so");
  EXPECT_TRUE(debug_functions(file, "solve").empty());
  EXPECT_FALSE(debug_function(file, 0x1000));
  EXPECT_FALSE(debug_function("/nowhere/x.so", 0x1000));
  EXPECT_FALSE(debug_function(shop.write("text.so", "no ELF file"), 0x1000));
}

TEST(DebugTypes, WhatTheySayNothingOfIsRefusedInWords) {
  const Workshop shop;
  const std::string file = shop.compile(
      "struct point { int x; };\n"
      "double norm(int n, double const *x, float *y) { return n + *x + *y; }\n"
      "int first(struct point p) { return p.x; }\n",
      {"-shared", "-g"}, "arrays.so");
  EXPECT_EQ(error_text_of([&] { (void)signature_of(function_of(file, "norm"), "norm"); }),
            "entry norm: the program has norm(int n, double const *x, float *y) -> double (arrays.so.c:2): how many "
            "elements double const *x has is not known: write the sizes, --entry 'norm(int n,IN double x[...],INOUT "
            "float y[...])->double'");
  EXPECT_EQ(error_text_of([&] { (void)signature_of(function_of(file, "first"), "first"); }),
            "entry first: the program has first(struct point p) -> int (arrays.so.c:3): struct point p cannot be "
            "passed: call a function that makes it");
}

TEST(DebugTypes, CallsThatPassSomethingElseAreRefused) {
  const Workshop shop;
  const std::string file = shop.compile(
      "int solve(int n, double eps, const char *name) { return n + eps + *name; }\n"
      "void fill(int n, double *x, void *y) {}\n",
      {"-shared", "-g"}, "checked.so");
  const auto check = [&](const std::string& signature) {
    const Function function = read_signature(signature);
    check_signature(function, function_of(file, function.name));
  };
  for (const char* right :
       {"solve(int,double,string)->int", "solve(unsigned,double,char const*)->unsigned", "solve(int,double,string)",
        "fill(int n,OUT double x[n],OUT int y[n])", "fill(int,INOUT double *,string)"})
    EXPECT_NO_THROW(check(right)) << right;
  const std::string has = ": the program has solve(int n, double eps, char const *name) -> int (checked.so.c:1): ";
  const std::string remedy = ": write --entry 'solve(int n,double eps,string name)->int'";
  EXPECT_EQ(error_text_of([&] { check("solve(int,double)->int"); }),
            "entry solve(int, double) -> int" + has + "it takes 3 arguments, not 2" + remedy);
  EXPECT_EQ(error_text_of([&] { check("solve(int,float,string)->int"); }),
            "entry solve(int, float, string) -> int" + has + "parameter 2 is double eps" + remedy);
  EXPECT_EQ(error_text_of([&] { check("solve(long,double,string)->int"); }),
            "entry solve(long, double, string) -> int" + has + "parameter 1 is int n" + remedy);
  EXPECT_EQ(error_text_of([&] { check("solve(int,double,long)->int"); }),
            "entry solve(int, double, long) -> int" + has + "parameter 3 is char const *name" + remedy);
  EXPECT_EQ(error_text_of([&] { check("solve(int,double,string)->double"); }),
            "entry solve(int, double, string) -> double" + has + "it returns int" + remedy);
  for (const char* wrong : {"fill(int n,OUT float x[n],OUT int y[n])", "fill(int,double,string)",
                            "fill(int n,OUT double x[n],OUT int y[n])->int"})
    EXPECT_THROW(check(wrong), Error) << wrong;
}

}  // namespace
}  // namespace aplib::calls

#endif
