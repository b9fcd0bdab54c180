// SPDX-License-Identifier: MIT
// apfarm --cells: programs as cells of machines that stay.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "process.hpp"

namespace aplib::test {
namespace {

/// Does what its first argument says, and says it, its number and how often it has done so.
constexpr const char* program_text = R"(
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int runs;
int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[argc - 1] : "";
  printf("%s %s %d\n", what, getenv("PARALLEL_SEQ"), ++runs);
  fprintf(stderr, "of %s\n", what);
  if (strcmp(what, "seven") == 0) exit(7);
  if (strcmp(what, "abort") == 0) { fflush(stdout); abort(); }
  if (strcmp(what, "sleep") == 0) { fflush(stdout); for (;;) sleep(1); }
  if (strcmp(what, "much") == 0) for (int i = 0; i < 100000; ++i) puts("0123456789");
  return 0;
}
)";

class Cells : public testing::Test {
 protected:
  Cells() {
    const std::string source = folder_.write("program.c", program_text);
    const std::string command = std::string(TEST_COMPILER) + " -O1 -o " + program() + " " + source;
    EXPECT_EQ(std::system(command.c_str()), 0);
  }
  [[nodiscard]] std::string program() const { return folder_ / "program"; }

  Ended apfarm(std::vector<std::string> words) const {
    words.insert(words.begin(), {APFARM_PROGRAM, "--cells", "-k"});
    return run({.arguments = words, .environment = {{"PARALLEL_SHELL", "/bin/sh"}}, .folder = folder_.path()});
  }

  Folder folder_;
};

TEST_F(Cells, RunProgramsAsIfEachWereNew) {
  const Ended ended = apfarm({"-j2", program(), ":::", "a", "b c", "seven", "d"});
  EXPECT_EQ(ended.out, "a 1 1\nb c 2 1\nseven 3 1\nd 4 1\n");
  EXPECT_EQ(sorted_lines(ended.error), sorted_lines("of a\nof b c\nof seven\nof d\n"));
  EXPECT_EQ(ended.status, 1);
  const Ended much = apfarm({"-j1", program(), ":::", "much", "a"});
  EXPECT_EQ(much.out.size(), 9 + 100'000 * 11 + 6U);
  EXPECT_EQ(much.status, 0);
}

TEST_F(Cells, AreReplacedWhenAProgramTakesThemAlong) {
  const Ended ended = apfarm({"-j1", "--joblog", "log", program(), ":::", "a", "abort", "b"});
  EXPECT_EQ(ended.out, "a 1 1\nabort 2 1\nb 3 1\n");
  EXPECT_EQ(ended.status, 1) << ended.error;
  EXPECT_NE(folder_.read("log").find("\t0\t6\t"), std::string::npos) << "signal 6: " << folder_.read("log");
}

TEST_F(Cells, EndInTime) {
  const Ended ended = apfarm({"-j1", "--timeout", "0.3", program(), ":::", "sleep", "a"});
  EXPECT_EQ(ended.out, "sleep 1 1\na 2 1\n");
  EXPECT_EQ(ended.status, 1);
  EXPECT_NE(ended.error.find("job 1 was ended, because it ran longer than --timeout"), std::string::npos);
}

TEST_F(Cells, LeaveToProcessesWhatTheyCannotLoad) {
  folder_.write("script", "#!/bin/sh\necho script $1 $PARALLEL_SEQ\n");
  EXPECT_EQ(std::system(("chmod +x " + (folder_ / "script")).c_str()), 0);
  EXPECT_EQ(apfarm({"-j1", folder_ / "script", ":::", "a", "b"}).out, "script a 1\nscript b 2\n");
  EXPECT_EQ(apfarm({"-j1", "echo {} | tr a b", ":::", "a"}).out, "b\n");
  const Ended none = apfarm({"/no/such/program", ":::", "a"});
  EXPECT_EQ(none.status, 1);
  EXPECT_NE(none.error.find("/no/such/program"), std::string::npos);
}

}  // namespace
}  // namespace aplib::test
