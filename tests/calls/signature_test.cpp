// SPDX-License-Identifier: MIT
// Signatures of one line: how they may be written, and what a user is told of a mistake.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "aplib/error.hpp"
#include "calls/idl.hpp"
#include "checks.hpp"

namespace aplib::calls {
namespace {

std::string read_back(std::string_view text) { return print_signature(read_signature(text)); }

std::string complaint_of(std::string_view text) {
  return testing_support::error_text([&] { read_back(text); }, Errc::bad_option);
}

TEST(Signature, IsReadInTheSpellingsOfC) {
  EXPECT_EQ(read_back("solve(int,double)->int"), "solve(int, double) -> int");
  EXPECT_EQ(read_back("  solve ( int , double ) -> int  "), "solve(int, double) -> int");
  EXPECT_EQ(read_back("run"), "run() -> void");
  EXPECT_EQ(read_back("run()"), "run() -> void");
  EXPECT_EQ(read_back("run(void)->void"), "run() -> void");
  EXPECT_EQ(read_back("f(const char*,char const *,char*,string)->char const*"),
            "f(string, string, string, string) -> string");
  EXPECT_EQ(read_back("f(unsigned,unsigned int,int unsigned,long,long long int,unsigned long long)"),
            "f(unsigned int, unsigned int, unsigned int, long, long, unsigned long) -> void");
  EXPECT_EQ(read_back("f(char,signed char,unsigned char,short int,unsigned short)"),
            "f(char, signed char, unsigned char, short, unsigned short) -> void");
  EXPECT_EQ(read_back("f(size_t,std::size_t,std::uint8_t,int64_t,bool,_Bool,float)->const double"),
            "f(unsigned long, unsigned long, unsigned char, long, bool, bool, float) -> double");
  EXPECT_EQ(read_back("math::solve(int)"), "math::solve(int) -> void");
  EXPECT_EQ(read_back("solve(int n, double eps)->int"), "solve(int n, double eps) -> int");
}

TEST(Signature, HasArraysAsAnInterfaceHas) {
  EXPECT_EQ(read_back("dmmul(int n, double const A[n][n], IN double B[n*n], OUT double C[n][n])"),
            "dmmul(int n, double A[n][n], double B[n*n], OUT double C[n][n]) -> void");
  EXPECT_EQ(read_back("sum(double a[n:1,n,2], int n, OUT double *total)->int"),
            "sum(double a[n:1,n,2], int n, OUT double *total) -> int");
  EXPECT_EQ(read_back("f(INOUT char name[80], OUT char *c, WORK double [9], int *, double &)"),
            "f(INOUT char name[80], OUT char *c, WORK double[9], int *, double *) -> void");
  EXPECT_EQ(read_back("f(OUT string s, filename, dcomplex z)->dcomplex"),
            "f(OUT string s, filename, dcomplex z) -> dcomplex");
}

TEST(Signature, WhatCannotBePassedIsRefusedInWords) {
  const std::string types =
      "use bool, char, the integers from signed char to unsigned long long, int8_t to uint64_t, size_t, float, double, "
      "scomplex, dcomplex, string (char const*) or filename";
  for (const char* type : {"long double", "long float", "unsigned double", "int int", "long char", "short long"}) {
    const std::string word(type, std::string_view(type).find(' '));
    EXPECT_EQ(complaint_of(std::string("f(") + type + ",int)"),
              std::string("entry \"f(") + type + ",int)\", column 3: \"" + word + "\": no such type: " + types);
  }
  EXPECT_EQ(complaint_of("f(std::string)"),
            "entry \"f(std::string)\", column 8: \"string\": a type of C++ that cannot be passed: " + types);
  EXPECT_EQ(complaint_of("f(duoble)"),
            "entry \"f(duoble)\", column 3: \"duoble\": no mode or type of a parameter: did you mean double?");
  EXPECT_EQ(complaint_of("f(,int)"),
            "entry \"f(,int)\", column 3: \",\": a parameter was expected: write MODE TYPE NAME there");
  EXPECT_EQ(complaint_of("f()->double*"),
            "entry \"f()->double*\", column 6: \"*\": an address as a result: return it by an OUT parameter, as in OUT "
            "double x[n]");
  EXPECT_EQ(complaint_of("f()->int[3]"),
            "entry \"f()->int[3]\", column 9: \"[\": the signature ends before it: leave it "
            "out");
  const std::string form = "write name(type,...)->type, for example solve(int,double)->int";
  EXPECT_EQ(complaint_of(""), "entry \"\" does not begin with the name of a function: " + form);
  EXPECT_EQ(complaint_of("(int)"), "entry \"(int)\" does not begin with the name of a function: " + form);
  EXPECT_EQ(complaint_of("int f(int)"), "entry \"int f(int)\" does not begin with the name of a function: " + form);
  EXPECT_EQ(complaint_of("f(int"),
            "entry \"f(int\", column 6: \"the end\": the parameters of f do not end: write , before another one, ) "
            "behind the last");
  EXPECT_EQ(complaint_of("f(int):int"),
            "entry \"f(int):int\", column 7: \":\": a result was expected: write ->TYPE there");
  EXPECT_EQ(complaint_of("f(void,int)"),
            "entry \"f(void,int)\", column 3: \"void\": void is the type of a result only: leave it out");
  EXPECT_EQ(complaint_of("f(double a[n])"),
            "entry \"f(double a[n])\", column 12: \"n\": f has no such parameter: it has a");
}

}  // namespace
}  // namespace aplib::calls
