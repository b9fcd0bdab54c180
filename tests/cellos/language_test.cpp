// SPDX-License-Identifier: MIT
// The header in several versions of C, its order with <unistd.h>, and exceptions through C frames. The C half is in
// c_program.c.
#include <dlfcn.h>

#include <cmath>

#include "c_program.h"
#include "support.hpp"

// As MPE, UtiLisp and the ANU sort declare it.
double dgettime();

using namespace cellos_test;

namespace {

struct Program {
  const char* name;
  int (*run)();
};

void PrintTo(const Program& program, std::ostream* out) { *out << program.name; }

class Behaviours17To19 : public testing::TestWithParam<Program> {};

TEST_P(Behaviours17To19, CProgramsCompileAndRun) {
  expect_cells({{2, 1}, 2}, [] { EXPECT_EQ(GetParam().run(), 0) << "line of c_program.c"; });
}

INSTANTIATE_TEST_SUITE_P(C, Behaviours17To19,
                         testing::Values(Program{"UnistdFirst", c_unistd_first}, Program{"UnistdLast", c_unistd_last},
                                         Program{"Gnu89", c_gnu89}, Program{"CompatCell", c_compat_cell},
                                         Program{"CompatHost", c_compat_host}, Program{"CompatCap2", c_compat_cap2}),
                         [](const testing::TestParamInfo<Program>& info) { return info.param.name; });

TEST(Cxx, SyncIsAnOverload) {
  void (*libc)() = ::sync;
  int (*cellos)(int, int) = ::sync;
  EXPECT_EQ(reinterpret_cast<void*>(libc), dlsym(RTLD_NEXT, "sync"));
  EXPECT_NE(reinterpret_cast<void*>(libc), reinterpret_cast<void*>(cellos));
}

TEST(Cxx, TheResultsTypeDecidesNotTheLetter) {
  expect_cells({{2, 1}, 2}, [] {
    const double third = 1.0 / 3;
    double total = 0;
    int who = -1;
    EXPECT_EQ(xy_fsum(third, &total), 1);
    EXPECT_EQ(total, third * 2);
    EXPECT_EQ(x_fmax(third + getcid(), getcid(), &total, &who), 1);
    EXPECT_EQ(total, third + 1);
    EXPECT_EQ(who, 1);
  });
}

TEST(CFrames, AnErrorPassesThrough) {
  expect_cells({{1, 1}, 1}, [] { EXPECT_THROW(c_call([] { l_asend(9, 0, 0, nullptr, 0); }), aplib::Error); });
}

struct Mark {
  bool* gone;
  ~Mark() { *gone = true; }
};

TEST(CFrames, CellExitUnwindsThrough) {
  bool gone = false;
  const aplib::Report report = run_cells({{1, 1}, 1}, [&] {
    const Mark mark{&gone};
    c_call([] { cell_exit(4); });
  });
  EXPECT_TRUE(gone);
  EXPECT_EQ(report.cell_status.at(0), 4);
}

TEST(CFrames, ExitDoesNotUnwind) {
  static bool gone;
  gone = false;
  run_program(
      {{1, 1}, 1},
      [](int, char**) {
        ccreat("program", 0, nullptr);
        waitstable();
        return 0;
      },
      [] {
        const Mark mark{&gone};
        c_call([] { cellos_exit(0); });
      });
  EXPECT_FALSE(gone);
}

}  // namespace
