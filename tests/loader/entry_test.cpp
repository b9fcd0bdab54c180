// SPDX-License-Identifier: MIT
// Entries by name and type: what is allowed, what is refused and how, and calls of this program's own functions.
#include "loader/entry.hpp"

#include <gtest/gtest.h>

#include <csetjmp>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "aplib/error.hpp"
#include "checks.hpp"

namespace aplib::loader {
namespace {

using Strings = std::vector<std::string>;

/// The text of the Error(bad_option) that `action` throws.
template <class Action>
std::string error_of(Action action) {
  return testing_support::error_text(action, Errc::bad_option);
}

std::string read_back(std::string_view text) { return print_signature(parse_signature(text)); }

template <class Function>
TypedResult call(std::string_view signature, Function* function, const Strings& arguments) {
  return TypedCall(parse_signature(signature), arguments).call(reinterpret_cast<void*>(function));
}

TEST(Signature, IsReadInTheSpellingsOfC) {
  EXPECT_EQ(read_back("solve(int,double)->int"), "solve(int, double) -> int");
  EXPECT_EQ(read_back("  solve ( int , double ) -> int  "), "solve(int, double) -> int");
  EXPECT_EQ(read_back("run"), "run() -> void");
  EXPECT_EQ(read_back("run()"), "run() -> void");
  EXPECT_EQ(read_back("run(void)->void"), "run() -> void");
  EXPECT_EQ(read_back("f(const char*,char const *,char*,string)"),
            "f(char const*, char const*, char const*, char const*) -> void");
  EXPECT_EQ(read_back("f(unsigned,unsigned int,int unsigned,long,long long int,unsigned long long)"),
            "f(unsigned int, unsigned int, unsigned int, long, long, unsigned long) -> void");
  EXPECT_EQ(read_back("f(char,signed char,unsigned char,short int,unsigned short)"),
            "f(char, int8_t, uint8_t, short, unsigned short) -> void");
  EXPECT_EQ(read_back("f(size_t,std::size_t,std::uint8_t,int64_t,bool,_Bool,float)->const double"),
            "f(unsigned long, unsigned long, uint8_t, long, bool, bool, float) -> double");
  EXPECT_EQ(read_back("math::solve(int)"), "math::solve(int) -> void");
}

TEST(Signature, WhatCannotBePassedIsRefusedInWords) {
  const std::string types =
      "use bool, char, the integers from signed char to unsigned long long, int8_t to uint64_t, size_t, float, double, "
      "char const* (or string), and void as a result";
  for (const char* type : {"int*", "char**", "struct point", "long double", "long float", "unsigned double", "int int",
                           "std::string", "matrix", "", "long char", "const", "int &"}) {
    EXPECT_EQ(
        error_of([&] { read_back(std::string("f(") + type + ",int)"); }),
        std::string("entry \"f(") + type + ",int)\": \"" + type + "\" is not a type that can be passed: " + types);
  }
  EXPECT_EQ(error_of([] { read_back("f()->int[3]"); }),
            "entry \"f()->int[3]\": \"int[3]\" is not a type that can be passed: " + types);
  const std::string form = "write name(type,...)->type, for example solve(int,double)->int";
  EXPECT_EQ(error_of([] { read_back(""); }), "entry \"\" does not begin with the name of a function: " + form);
  EXPECT_EQ(error_of([] { read_back("(int)"); }),
            "entry \"(int)\" does not begin with the name of a function: " + form);
  EXPECT_EQ(error_of([] { read_back("int f(int)"); }),
            "entry \"int f(int)\" does not begin with the name of a function: " + form);
  EXPECT_EQ(error_of([] { read_back("f(int"); }), "entry \"f(int\" lacks a closing parenthesis: " + form);
  EXPECT_EQ(error_of([] { read_back("f(int):int"); }),
            "entry \"f(int):int\": \":int\" after the parameters is not understood: " + form);
  EXPECT_EQ(error_of([] { read_back("f(int,void)"); }),
            "entry \"f(int,void)\": void is the type of a result only: " + form);
}

TEST(TypedCall, PassesEveryTypeAndMoreThanRegistersHold) {
  static std::string seen;
  const auto function = +[](bool a, char b, signed char c, unsigned char d, short e, unsigned short f, int g,
                            unsigned h, long i, unsigned long long j, float k, double l, const char* m, double n) {
    seen = std::to_string(a) + b + std::to_string(c) + "," + std::to_string(d) + "," + std::to_string(e) + "," +
           std::to_string(f) + "," + std::to_string(g) + "," + std::to_string(h) + "," + std::to_string(i) + "," +
           std::to_string(j) + "," + std::to_string(k) + "," + std::to_string(l) + "," + m + "," + std::to_string(n);
    return seen.c_str();
  };
  const TypedResult result = call(
      "f(bool,char,signed char,unsigned char,short,unsigned short,int,unsigned,long,unsigned long long,float,"
      "double,string,double)->string",
      function,
      {"true", "x", "-128", "255", "-32768", "0xffff", "-2147483648", "4294967295", "-9223372036854775808",
       "18446744073709551615", "0.5", "1e-2", "a, b", "+2"});
  EXPECT_EQ(result.text,
            "1x-128,255,-32768,65535,-2147483648,4294967295,-9223372036854775808,18446744073709551615,0.500000,"
            "0.010000,a, b,2.000000");
}

TEST(TypedCall, ResultsOfEveryType) {
  EXPECT_EQ(call("f(int)->int", +[](int a) { return -a; }, {"7"}).number, -7);
  EXPECT_EQ(call("f()->bool", +[] { return true; }, {}).text, "true");
  EXPECT_EQ(call("f()->char", +[] { return 'x'; }, {}).text, "x");
  EXPECT_EQ(call("f()->int8_t", +[] { return std::int8_t{-5}; }, {}).text, "-5");
  EXPECT_EQ(call("f()->uint8_t", +[] { return std::uint8_t{200}; }, {}).text, "200");
  EXPECT_EQ(call("f()->short", +[] { return short{-300}; }, {}).text, "-300");
  EXPECT_EQ(call("f()->unsigned", +[] { return 4000000000U; }, {}).text, "4000000000");
  EXPECT_EQ(call("f()->long", +[] { return std::numeric_limits<long>::min(); }, {}).text, "-9223372036854775808");
  EXPECT_EQ(call("f()->float", +[] { return 0.1F; }, {}).text, "0.1");
  EXPECT_EQ(call("f()->double", +[] { return 1e-8; }, {}).text, "1e-08");
  EXPECT_EQ(call("f()->string", +[]() -> const char* { return nullptr; }, {}).text, "(null)");
  static int called = 0;
  EXPECT_EQ(call("f", +[] { ++called; }, {}).text, "");
  EXPECT_EQ(called, 1);
}

TEST(TypedCall, StringsBelongToTheCallAndMayBeChanged) {
  const TypedCall first(parse_signature("f(char*)->string"), Strings{"abc"});
  TypedCall second(first);
  TypedCall third(first);
  const auto capital = +[](char* text) {
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
    return static_cast<const char*>(text);
  };
  EXPECT_EQ(second.call(reinterpret_cast<void*>(capital)).text, "Abc");
  EXPECT_EQ(third.call(reinterpret_cast<void*>(capital)).text, "Abc") << "another cell's string was changed";
}

TEST(TypedCall, ExceptionsPassThrough) {
  TypedCall throwing(parse_signature("f(int)"), Strings{"1"});
  EXPECT_THROW(throwing.call(reinterpret_cast<void*>(+[](int) { throw std::runtime_error("x"); })), std::runtime_error);
}

TEST(TypedCall, BadArgumentsAreRefusedInWords) {
  const auto problem = [](const std::string& type, const std::string& argument) {
    const std::string text = error_of([&] { TypedCall(parse_signature("f(" + type + ")"), Strings{argument}); });
    const std::string subject = "entry " + read_back("f(" + type + ")") + ": argument 1, \"" + argument + "\", ";
    return text.starts_with(subject) ? text.substr(subject.size()) : text;
  };
  EXPECT_EQ(problem("int", "3x"), "is not a whole number (type int)");
  EXPECT_EQ(problem("int", ""), "is not a whole number (type int)");
  EXPECT_EQ(problem("int", "1e3"), "is not a whole number (type int)");
  EXPECT_EQ(problem("int", "- 3"), "is not a whole number (type int)");
  EXPECT_EQ(problem("int", "2147483648"), "is out of range: use -2147483648 .. 2147483647 (type int)");
  EXPECT_EQ(problem("int", "-2147483649"), "is out of range: use -2147483648 .. 2147483647 (type int)");
  EXPECT_EQ(problem("unsigned", "-1"), "is out of range: use 0 .. 4294967295 (type unsigned int)");
  EXPECT_EQ(problem("int8_t", "128"), "is out of range: use -128 .. 127 (type int8_t)");
  EXPECT_EQ(problem("uint64_t", "18446744073709551616"),
            "is out of range: use 0 .. 18446744073709551615 (type unsigned long)");
  EXPECT_EQ(problem("char", "ab"), "is not one character (type char)");
  EXPECT_EQ(problem("bool", "maybe"), "is neither true nor false (type bool)");
  EXPECT_EQ(problem("double", "1,5"), "is not a number (type double)");
  EXPECT_EQ(problem("double", "1e999"),
            "is out of range: use 0 or 4.94066e-324 .. 1.79769e+308 of either sign (type double)");
  EXPECT_EQ(problem("float", "1e40"),
            "is out of range: use 0 or 1.4013e-45 .. 3.40282e+38 of either sign (type float)");
  EXPECT_EQ(error_of([] {
              TypedCall(parse_signature("f(int)"), Strings{"1", "2"});
            }),
            "entry f(int) -> void takes 1 argument, but 2 are given: --args 1 2");
  EXPECT_EQ(error_of([] { TypedCall(parse_signature("f(int,int)"), Strings{"1"}); }),
            "entry f(int, int) -> void takes 2 arguments, but 1 is given: --args 1");
}

TEST(FindFunction, BySymbolByNameOrNotAtAll) {
  const std::vector<std::string_view> functions{"_Z4stepd",  "_Z4stepi", "_ZN4math5solveEid", "_init",
                                                "cell_main", "solve",    "solve_all"};
  const auto find = [&](std::string_view name) { return std::string(find_function(name, functions, "heat.so")); };
  EXPECT_EQ(find("solve"), "solve");
  EXPECT_EQ(find("math::solve"), "_ZN4math5solveEid");
  EXPECT_EQ(find("_Z4stepi"), "_Z4stepi");
  EXPECT_EQ(
      error_of([&] { find("step"); }),
      "heat.so has several functions step: step(double) (_Z4stepd), step(int) (_Z4stepi); name one by its symbol, "
      "in parentheses");
  EXPECT_EQ(error_of([&] { find("sovle"); }),
            "heat.so has no function sovle (did you mean solve?); it offers solve, step, solve_all, math::solve, "
            "cell_main");
  EXPECT_EQ(error_of([] { (void)find_function("f", {}, "empty.so"); }),
            "empty.so has no function f; it offers no functions at all");
}

TEST(FindFunction, LongListsAreCut) {
  Strings names;
  for (int i = 0; i < 100; ++i) names.push_back("function_" + std::to_string(i));
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string text = error_of([&] { (void)find_function("nothing_like_it_at_all", views, "large.so"); });
  EXPECT_TRUE(text.ends_with(" and 80 more")) << text;
}

}  // namespace
}  // namespace aplib::loader
