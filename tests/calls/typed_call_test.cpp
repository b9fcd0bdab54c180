// SPDX-License-Identifier: MIT
// Calls of this program's own functions, with arguments that are text.
#include "calls/typed_call.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <complex>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "aplib/error.hpp"
#include "calls/idl.hpp"
#include "checks.hpp"

namespace aplib::calls {
namespace {

using Strings = std::vector<std::string>;

/// The text of the Error(bad_option) that `action` throws.
template <class Action>
std::string error_of(Action action) {
  return testing_support::error_text(action, Errc::bad_option);
}

template <class Called>
TypedResult call(std::string_view signature, Called* function, const Strings& arguments) {
  return TypedCall(read_signature(signature), arguments).call(reinterpret_cast<void*>(function));
}

template <class Called>
std::string value_of(std::string_view signature, Called* function, const Strings& arguments) {
  return call(signature, function, arguments).value.value_or("void");
}

/// "x=1,2;y=3"
std::string out_of(const TypedResult& result) {
  std::string text;
  for (const auto& each : result.arguments) text += (text.empty() ? "" : ";") + each.name + "=" + each.value;
  return text;
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
  EXPECT_EQ(value_of("f(bool,char,signed char,unsigned char,short,unsigned short,int,unsigned,long,unsigned long long,"
                     "float,double,string,double)->string",
                     function,
                     {"true", "x", "-128", "255", "-32768", "0xffff", "-2147483648", "4294967295",
                      "-9223372036854775808", "18446744073709551615", "0.5", "1e-2", "a, b", "+2"}),
            "1x-128,255,-32768,65535,-2147483648,4294967295,-9223372036854775808,18446744073709551615,0.500000,"
            "0.010000,a, b,2.000000");
}

TEST(TypedCall, ResultsOfEveryType) {
  EXPECT_EQ(call("f(int)->int", +[](int a) { return -a; }, {"7"}).number, -7);
  EXPECT_EQ(value_of("f()->bool", +[] { return true; }, {}), "true");
  EXPECT_EQ(value_of("f()->char", +[] { return 'x'; }, {}), "x");
  EXPECT_EQ(value_of("f()->int8_t", +[] { return std::int8_t{-5}; }, {}), "-5");
  EXPECT_EQ(value_of("f()->uint8_t", +[] { return std::uint8_t{200}; }, {}), "200");
  EXPECT_EQ(value_of("f()->short", +[] { return short{-300}; }, {}), "-300");
  EXPECT_EQ(value_of("f()->unsigned", +[] { return 4000000000U; }, {}), "4000000000");
  EXPECT_EQ(value_of("f()->long", +[] { return std::numeric_limits<long>::min(); }, {}), "-9223372036854775808");
  EXPECT_EQ(value_of("f()->float", +[] { return 0.1F; }, {}), "0.1");
  EXPECT_EQ(value_of("f()->double", +[] { return 1e-8; }, {}), "1e-08");
  EXPECT_EQ(value_of("f()->string", +[]() -> const char* { return nullptr; }, {}), "(null)");
  static int called = 0;
  EXPECT_EQ(value_of("f", +[] { ++called; }, {}), "void");
  EXPECT_EQ(called, 1);
}

TEST(TypedCall, ComplexNumbers) {
  const auto square = +[](std::complex<double> z) { return z * z; };
  EXPECT_EQ(value_of("f(dcomplex)->dcomplex", square, {"1+2i"}), "-3+4i");
  EXPECT_EQ(value_of("f(dcomplex)->dcomplex", square, {"1e+1-1e-1i"}), "99.99-2i");
  EXPECT_EQ(value_of("f(dcomplex)->dcomplex", square, {"-2i"}), "-4-0i");
  EXPECT_EQ(value_of("f(dcomplex)->dcomplex", square, {"3"}), "9+0i");
  EXPECT_EQ(value_of("f(scomplex)->scomplex", +[](std::complex<float> z) { return -z; }, {"0.5+1i"}), "-0.5-1i");
}

TEST(TypedCall, ArraysAsTheSignatureHasThem) {
  const auto multiply = +[](int n, const double* a, const double* b, double* c) {
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j)
        for (int k = 0; k < n; ++k) c[i * n + j] += a[i * n + k] * b[k * n + j];
  };
  EXPECT_EQ(out_of(call("mmul(int n,double a[n][n],double b[n][n],OUT double c[n][n])", multiply,
                        {"2", "1,2,3,4", "0 1\n1 0\n"})),
            "c=2,1,4,3");
  const auto scale = +[](double factor, int* count, float* values) {
    for (int i = 0; i < *count; ++i) values[i] *= static_cast<float>(factor);
    *count = -*count;
  };
  EXPECT_EQ(out_of(call("scale(double,INOUT int n,INOUT float x[n])", scale, {"0.5", "3", "1, 2, 3"})),
            "n=-3;x=0.5,1,1.5");
  const auto each_second = +[](int n, int* x) {
    int sum = 0;
    for (int i = 0; i < n; ++i) sum += x[i] * (i + 1);
    return sum;
  };
  EXPECT_EQ(call("f(int n,int x[n:1,n,2])->int", each_second, {"5", "10,20"}).number, 10 * 2 + 20 * 4);
  EXPECT_EQ(call("f(int,int*)->int", each_second, {"1", "7"}).number, 7);
}

TEST(TypedCall, TextsInAllModes) {
  const auto shout = +[](char* name, char** out, char** both, char** list) {
    name[std::strlen(name)] = '!';
    *out = name;
    *both = list[1];
  };
  EXPECT_EQ(out_of(call("f(INOUT char name[8],OUT string o,INOUT string b,string list[2])", shout,
                        {"you", "before", "one,two words"})),
            "name=you!;o=you!;b=two words");
}

TEST(TypedCall, AFileHasTheElementsOfAnArray) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("aplib-typed-call-" + std::to_string(::getpid()));
  std::ofstream(file) << "1 2\n3 4\n";
  const auto sum = +[](const long* x) { return x[0] + x[1] + x[2] + x[3]; };
  const TypedCall first(read_signature("f(long x[4])->long"), Strings{"@" + file.string()});
  std::filesystem::remove(file);
  TypedCall second(first);
  EXPECT_EQ(second.call(reinterpret_cast<void*>(sum)).value, "10");
  EXPECT_EQ(error_of([&] { TypedCall(read_signature("f(long x[4])->long"), Strings{"@/nowhere/x"}); }),
            "entry f(long x[4]) -> long: argument 1, \"@/nowhere/x\", cannot be read: No such file or directory");
}

TEST(TypedCall, StringsBelongToTheCallAndMayBeChanged) {
  const TypedCall first(read_signature("f(char*)->string"), Strings{"abc"});
  TypedCall second(first);
  TypedCall third(first);
  const auto capital = +[](char* text) {
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
    return static_cast<const char*>(text);
  };
  EXPECT_EQ(second.call(reinterpret_cast<void*>(capital)).value, "Abc");
  EXPECT_EQ(third.call(reinterpret_cast<void*>(capital)).value, "Abc") << "another cell's string was changed";
}

TEST(TypedCall, ExceptionsPassThrough) {
  TypedCall throwing(read_signature("f(int)"), Strings{"1"});
  EXPECT_THROW(throwing.call(reinterpret_cast<void*>(+[](int) { throw std::runtime_error("x"); })), std::runtime_error);
}

TEST(TypedCall, BadArgumentsAreRefusedInWords) {
  const auto problem = [](const std::string& type, const std::string& argument) {
    const Function signature = read_signature("f(" + type + ")");
    const std::string text = error_of([&] { TypedCall(signature, Strings{argument}); });
    const std::string subject = "entry " + print_signature(signature) + ": argument 1, \"" + argument + "\", ";
    return text.starts_with(subject) ? text.substr(subject.size()) : text;
  };
  EXPECT_EQ(problem("int", "3x"), "is not a whole number (type int)");
  EXPECT_EQ(problem("int", ""), "is not a whole number (type int)");
  EXPECT_EQ(problem("int", "1e3"), "is not a whole number (type int)");
  EXPECT_EQ(problem("int", "- 3"), "is not a whole number (type int)");
  EXPECT_EQ(problem("int", "2147483648"), "is out of range: use -2147483648 .. 2147483647 (type int)");
  EXPECT_EQ(problem("int", "-2147483649"), "is out of range: use -2147483648 .. 2147483647 (type int)");
  EXPECT_EQ(problem("unsigned", "-1"), "is out of range: use 0 .. 4294967295 (type unsigned int)");
  EXPECT_EQ(problem("int8_t", "128"), "is out of range: use -128 .. 127 (type signed char)");
  EXPECT_EQ(problem("uint64_t", "18446744073709551616"),
            "is out of range: use 0 .. 18446744073709551615 (type unsigned long)");
  EXPECT_EQ(problem("char", "ab"), "is not one character (type char)");
  EXPECT_EQ(problem("bool", "maybe"), "is neither true nor false (type bool)");
  EXPECT_EQ(problem("double", "1,5"), "is not a number (type double)");
  EXPECT_EQ(problem("dcomplex", "1+i2"), "is not a number (type dcomplex)");
  EXPECT_EQ(problem("double", "1e999"),
            "is out of range: use 0 or 4.94066e-324 .. 1.79769e+308 of either sign (type double)");
  EXPECT_EQ(problem("float", "1e40"),
            "is out of range: use 0 or 1.4013e-45 .. 3.40282e+38 of either sign (type float)");
  EXPECT_EQ(problem("double x[3]", "1,2"), "has 2 elements, but IN double x[3] takes 3");
  EXPECT_EQ(problem("double x[3]", "1,two,3"),
            "entry f(double x[3]) -> void: argument 1, element 2, \"two\", is not a number (type double)");
  EXPECT_EQ(problem("char x[3]", "four"), "has 4 bytes, more than the 3 of IN char x[3]");
  EXPECT_EQ(error_of([] {
              TypedCall(read_signature("f(int n,double x[n-3])"), Strings{"2", "1"});
            }),
            "entry f: IN double x[n-3]: the size of dimension 1 is -1: use 0 or more");
  EXPECT_EQ(error_of([] {
              TypedCall(read_signature("f(int)"), Strings{"1", "2"});
            }),
            "entry f(int) -> void takes 1 argument, but 2 are given: --args 1 2");
  EXPECT_EQ(error_of([] { TypedCall(read_signature("f(int,OUT int *,int)"), Strings{"1"}); }),
            "entry f(int, OUT int *, int) -> void takes 2 arguments, but 1 is given: --args 1");
}

}  // namespace
}  // namespace aplib::calls
