// SPDX-License-Identifier: MIT
// Whole programs, each linked with aplib::cellos_main, run as processes.
#include <dlfcn.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace {

struct Outcome {
  int status = -1;
  std::string output;  // stdout and stderr
};

Outcome shell(const std::string& command) {
  Outcome outcome;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> piece{};
  while (const std::size_t bytes = std::fread(piece.data(), 1, piece.size(), pipe))
    outcome.output.append(piece.data(), bytes);
  const int status = ::pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

/// `environment`: assignments before the command.
Outcome run(const std::string& environment, const std::string& program_and_arguments) {
  return shell(environment + " " CELLOS_PROGRAMS "/" + program_and_arguments);
}

std::multiset<std::string> lines(const std::string& text) {
  std::multiset<std::string> all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) all.insert(line);
  return all;
}

class Threads : public testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] static std::string threads() { return std::string("APLIB_THREADS=") + GetParam() + " "; }
};

TEST_P(Threads, Behaviour01And22_CellsAloneAndTheirLinesStayWhole) {
  const Outcome outcome = run(threads() + "APLIB_CELLS=3x2", "lines");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  std::multiset<std::string> expected;
  for (int cid = 0; cid < 6; ++cid) {
    for (int i = 0; i < 50; ++i) {
      expected.insert("cell " + std::to_string(cid) + " of 6 in 3x2 writes line " + std::to_string(i));
    }
  }
  EXPECT_EQ(lines(outcome.output), expected);
}

TEST_P(Threads, Behaviour16_ExitReturnAndCellExitEndOneCell) {
  const Outcome outcome = run(threads(), "ends one --cells two");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output, "4 arguments, last two; rounds 200\nprocess ends\n");
}

TEST(Behaviour16, ExitOfTheHostProgramGivesTheStatus) {
  const Outcome outcome = run("", "ends fail");
  EXPECT_EQ(outcome.status, 7);
  EXPECT_EQ(outcome.output, "2 arguments, last fail; rounds 200\nprocess ends\n");
}

TEST_P(Threads, Behaviour16_ExitWorksInCxxFrames) {
  // As in any program, exit() does not destroy what is left, so a leak checker would complain.
  const Outcome outcome = run(threads() + "APLIB_CELLS=4 ASAN_OPTIONS=detect_leaks=0", "quit");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(lines(outcome.output), (std::multiset<std::string>{"cell 1 goes on", "cell 3 goes on"}));
}

TEST_P(Threads, Behaviour01And18_OldHalvesCalledMain) {
  const Outcome outcome = run(threads(), "old_halves more");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output, "host: 8 cells, sum 828\n");
}

TEST_P(Threads, ClockPattern) {
  const Outcome outcome = run(threads(), "clock");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  std::multiset<std::string> expected;
  for (int cid = 0; cid < 64; ++cid) expected.insert("cell " + std::to_string(cid) + " of 64: backwards 0");
  EXPECT_EQ(lines(outcome.output), expected);
}

TEST_P(Threads, ServiceLoopPattern) {
  const Outcome outcome = run(threads() + "SERVICE_LOOP_WORD=swordfish", "service_loop 9 ab cde");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output, "cell 0: 8 workers answered, 5 bytes of arguments\nserved 19 requests, counted 45\n");
}

TEST_P(Threads, ExchangeSortPattern) {
  for (const char* arguments : {"1 100", "4 1000", "5 40000", "8 3000"}) {
    const Outcome outcome = run(threads(), std::string("exchange_sort ") + arguments);
    EXPECT_EQ(outcome.status, 0) << arguments;
    int cells = 0;
    int keys = 0;
    std::istringstream(arguments) >> cells >> keys;
    EXPECT_EQ(outcome.output, std::to_string(cells * keys) + " keys in order, sum right\n") << arguments;
  }
}

INSTANTIATE_TEST_SUITE_P(Program, Threads, testing::Values("1", "2", "per-cell"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           const std::string text = info.param;
                           return text == "per-cell" ? std::string("per_cell") : "on_" + text;
                         });

TEST(Main, ABadOptionIsOneLineAndUsage) {
  const Outcome outcome = run("APLIB_CELLS=none", "lines");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.output.find("none"), std::string::npos) << outcome.output;
}

// A symbol that the library shares with libc replaces libc's in every program that links the library. It does so on
// purpose for those that unwinders and thread makers call, for pthread_exit, which would end a processor under its
// task, and for those that free memory, because libc's own calls of these may get blocks of a cell's heap
// (src/loader/libc/heap.cpp).
TEST(Symbols, TheLibraryReplacesOfLibcWhatItMust) {
  const std::set<std::string> replaced{"_dl_find_object", "dl_iterate_phdr",   "pthread_create", "pthread_exit", "free",
                                       "realloc",         "malloc_usable_size"};
  const Outcome outcome = shell("nm -D --defined-only " APLIB_LIBRARY " | awk '{print $NF}'");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const auto symbols = lines(outcome.output);
  ASSERT_TRUE(std::any_of(symbols.begin(), symbols.end(), [](const auto& s) { return s.starts_with("l_asend"); }));
  for (const char* library : {"libc.so.6", "libm.so.6"}) {
    void* handle = ::dlopen(library, RTLD_NOW);
    ASSERT_NE(handle, nullptr) << library;
    for (const std::string& symbol : symbols) {
      if (replaced.contains(symbol)) continue;
      EXPECT_EQ(::dlsym(handle, symbol.substr(0, symbol.find('@')).c_str()), nullptr)
          << symbol << " is also in " << library;
    }
    ::dlclose(handle);
  }
}

}  // namespace
