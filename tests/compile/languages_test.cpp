// SPDX-License-Identifier: MIT
// Other languages, compilers and linkers.
#include "tree.hpp"

namespace aplib::compile::test {
namespace {

class Languages : public Tree {
 protected:
  void write_cxx() const {
    write("shapes.hpp", R"(#include <memory>
#include <stdexcept>
#include <string>
#include <vector>
struct Shape { virtual ~Shape() = default; virtual double area() const = 0; };
struct Missing : std::runtime_error { using std::runtime_error::runtime_error; };
template <class T> struct Counted { static inline int alive = 0; Counted() { ++alive; } ~Counted() { --alive; } };
std::vector<std::unique_ptr<Shape>> shapes();
[[noreturn]] void fail(const std::string& what);
)");
    write("shapes.cpp", R"(#include "shapes.hpp"
struct Square : Shape, Counted<Square> { double area() const override { return 4; } };
struct Dot : Shape { double area() const override { return 0.5; } };
std::vector<std::unique_ptr<Shape>> shapes() { std::vector<std::unique_ptr<Shape>> all; all.push_back(std::make_unique<Square>()); all.push_back(std::make_unique<Dot>()); return all; }
void fail(const std::string& what) { throw Missing(what); }
)");
    write("main.cpp", R"(#include <iostream>
#include "shapes.hpp"
thread_local int calls = 0;
int main() {
  double sum = 0;
  for (const auto& shape : shapes()) { sum += shape->area(); ++calls; }
  try { fail("caught"); } catch (const Missing& missing) { std::cout << missing.what() << ' ' << sum << ' ' << calls << std::endl; }
}
)");
  }
};

TEST_F(Languages, Cxx) {
  write_cxx();
  for (const char* options : {"-O2", "-O0 -g", "-O2 -fPIC", "-O2 -flto", "-static-libstdc++ -static-libgcc"}) {
    silent(std::string("apc++ -std=c++17 -Wall -Wextra -Werror ") + options + " main.cpp shapes.cpp -o a");
    EXPECT_EQ(output("./a"), "caught 4.5 2\n") << options;
    EXPECT_NE(output("readelf -dW a").find("libstdc++.so"), std::string::npos) << options;
  }
}

TEST_F(Languages, CxxAcrossALibraryOfTheUsers) {
  write_cxx();
  silent(
      "apc++ -std=c++17 -fPIC -shared shapes.cpp -o libshapes.so && apc++ -std=c++17 main.cpp -L. -lshapes "
      "'-Wl,-rpath,$ORIGIN' -o a");
  EXPECT_EQ(output("./a"), "caught 4.5 2\n");
}

TEST_F(Languages, Fortran) {
  if (!has("gfortran")) GTEST_SKIP() << "needs the tool gfortran";
  write("sum.f90",
        "subroutine add(x)\n  integer :: x, total\n  common /state/ total\n  integer, save :: calls = 0\n  calls = "
        "calls + 1\n  total = total + x * calls\nend\n");
  write("main.f90",
        "program p\n  integer :: total, i\n  common /state/ total\n  total = 0\n  do i = 1, 3\n    call add(i)\n  end "
        "do\n  print '(i0)', total\nend\n");
  silent("apfort -O2 -c sum.f90 && apfort -O2 main.f90 sum.o -o a");
  EXPECT_EQ(output("./a"), "14\n");
  EXPECT_EQ(output("readelf -rW a").find("state_"), std::string::npos);
  write("old.f", "      PROGRAM OLD\n      WRITE(*,*) 'OLD'\n      END\n");
  silent("apfort -static-libgfortran old.f -o old");
  EXPECT_EQ(output("./old"), " OLD\n");
}

TEST_F(Languages, Clang) {
  const char* found = nullptr;
  for (const char* name : {"clang", "clang-15", "clang-14", "clang-16", "clang-17", "clang-18"}) {
    if (found == nullptr && has(name)) found = name;
  }
  if (found == nullptr) GTEST_SKIP() << "needs the tool clang";
  write("say.c", "#include <stdio.h>\nint counter = 4;\nint main(void) { printf(\"%d\\n\", counter++); return 0; }\n");
  write("half.s", ".globl half\nhalf: ret\n.section .note.GNU-stack,\"\",@progbits\n");
  const std::string environment = std::string("export AP_CC=") + found + "; ";
  // Clang warns of options that it does not need, and build tools take that for a failure.
  for (const char* command :
       {"apcc -O2 say.c -o a", "apcc -c half.s", "apcc -c -x assembler half.s", "apcc -fPIC -c say.c",
        "apcc -c say.c && apcc say.o half.o -o a", "apcc -E say.c -o say.i", "apcc -fsyntax-only say.c",
        "apcc -x c say.c -o a", "apcc -fPIE -pie say.c -o a"}) {
    silent(environment + command);
  }
  EXPECT_EQ(output("./a"), "4\n");
  EXPECT_EQ(output("readelf -rW a").find(" counter "), std::string::npos);
}

TEST_F(Languages, OtherLinkers) {
  write("say.c",
        "#include <stdio.h>\nextern int first;\nint counter = 4;\nvoid cell_main(void) { printf(\"%d\\n\", counter++ + "
        "first); }\n");
  write("first.c", "int first = 2;\n");
  int linkers = 0;
  for (const char* name : {"gold", "lld"}) {
    if (!has(std::string("ld.") + name)) continue;
    ++linkers;
    silent(std::string("apcc -O2 -fuse-ld=") + name + " say.c first.c -o a");
    EXPECT_EQ(output("./a"), "6\n") << name;
    const std::string file = output("readelf -ldW a");
    EXPECT_NE(file.find("aplib-start]"), std::string::npos) << file;
    EXPECT_EQ(file.find("PIE"), std::string::npos) << file;
  }
  if (linkers == 0) GTEST_SKIP() << "needs the tool ld.gold or ld.lld";
}

}  // namespace
}  // namespace aplib::compile::test
