// SPDX-License-Identifier: MIT
// apfarm --cells: programs as cells of machines that stay.
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>
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

class Functions : public Cells {
 protected:
  Functions() {
    const std::string source = folder_.write("f.c", R"(
#include <stdlib.h>
static int calls;
double mean(double a, double b) { ++calls; return calls == 1 ? (a + b) / 2 : -1; }
int sign(int value) { if (value == 9) abort(); return value < 0; }
char* twice(const char* text) { static char all[100]; char* end = all; for (int i = 0; i < 2; ++i) for (const char* c = text; *c; ++c) *end++ = *c; return all; }
)");
    const std::string command = std::string(TEST_COMPILER) + " -shared -fPIC -O1 -o " + library() + " " + source;
    EXPECT_EQ(std::system(command.c_str()), 0);
  }
  [[nodiscard]] std::string library() const { return folder_ / "libf.so"; }

  Ended call(const std::string& signature, std::vector<std::string> words) const {
    words.insert(words.begin(), {"-j1", "-q", "--joblog", "log", "--entry", signature, library()});
    return apfarm(words);
  }
};

TEST_F(Functions, OfAnyProgramFileAreCalledAsIfEachCallWereTheFirst) {
  const Ended ended = call("mean(double,double)->double", {":::", "1", "5", ":::", "2", "0.5"});
  EXPECT_EQ(ended.out, "mean = 1.5\nmean = 0.75\nmean = 3.5\nmean = 2.75\n") << ended.error;
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(call("twice(char*)->char*", {":::", "a b", "$x"}).out, "twice = a ba b\ntwice = $x$x\n");
}

TEST_F(Functions, HaveTheirResultAsStatusAndTakeOnlyTheirCallAlong) {
  const Ended ended = call("sign(int)->int", {":::", "4", "-4", "9", "5"});
  EXPECT_EQ(ended.status, 2) << ended.error;
  std::vector<std::string> ends;
  std::istringstream log(folder_.read("log"));
  for (std::string line; std::getline(log, line);) {
    std::istringstream words(line);
    std::vector<std::string> fields;
    for (std::string word; std::getline(words, word, '\t');) fields.push_back(word);
    ends.push_back(fields.at(6) + " " + fields.at(7));
  }
  EXPECT_EQ(ends, (std::vector<std::string>{"Exitval Signal", "0 0", "1 0", "134 0", "0 0"}));
}

TEST_F(Functions, ThatCannotBeCalledAreNamed) {
  const auto error = [&](const char* signature, std::vector<std::string> words) {
    const Ended ended = call(signature, std::move(words));
    EXPECT_EQ(ended.status, 1) << ended.error;
    return ended.error;
  };
  EXPECT_NE(error("men(double,double)->double", {":::", "1"}).find("has no function men (did you mean mean?)"),
            std::string::npos);
  EXPECT_NE(error("sign(int)->int", {":::", "x"}).find("apfarm: --entry sign(int)->int: "), std::string::npos);
  const Ended shell = apfarm({"--entry", "sign(int)->int", library() + " {} >nowhere", ":::", "1"});
  EXPECT_NE(shell.error.find("-q takes the command's words"), std::string::npos) << shell.error;
  const Ended none = apfarm({"--entry", "f()", "./nothing.so", ":::", "1"});
  EXPECT_NE(none.error.find("./nothing.so: there is no such file"), std::string::npos) << none.error;
  folder_.write("script", "#!/bin/sh\n");
  const Ended script = apfarm({"--entry", "f()", "./script", ":::", "1"});
  EXPECT_NE(script.error.find("./script: it is a script"), std::string::npos) << script.error;
}

}  // namespace
}  // namespace aplib::test
