// SPDX-License-Identifier: MIT
// aprun as users run it: what programs get, their output, and how runs end.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "aprun.hpp"
#include "checks.hpp"
#include "process.hpp"
#include "task/switch.hpp"

namespace aplib::test {
namespace {

using Strings = std::vector<std::string>;
using testing_support::contains;

constexpr const char* counting = R"(
#include <aplib/cellos.h>
#include <stdio.h>
static int counter = 100;
int main(int argc, char** argv) {
  for (int i = 0; i <= getcid(); ++i) ++counter;
  printf("cell %d of %d: %d", getcid(), getncel(), counter);
  for (int i = 1; i < argc; ++i) printf(" <%s>", argv[i]);
  printf("\n");
  return 0;
})";

TEST(Aprun, EveryCellHasItsOwnGlobals) {
  const Folder folder;
  const Ended ended = aprun({"-n", "4", folder.compile("count", counting), "-n", "a b", "--help"});
  EXPECT_EQ(ended.status, 0) << ended.error;
  EXPECT_EQ(sorted_lines(ended.out),
            (Strings{"cell 0 of 4: 101 <-n> <a b> <--help>", "cell 1 of 4: 102 <-n> <a b> <--help>",
                     "cell 2 of 4: 103 <-n> <a b> <--help>", "cell 3 of 4: 104 <-n> <a b> <--help>"}));
  EXPECT_EQ(ended.error, "");
}

TEST(Aprun, TellsWhenItsOwnOutputCannotBeWritten) {
  const Folder folder;
  const std::string program = folder.compile("count", counting);
  for (const std::string& words :
       {std::string("--help"), "--dry-run '" + program + "'", std::string("--list-modules")}) {
    const Ended ended = run({.arguments = {"/bin/sh", "-c", std::string(APRUN_PROGRAM) + " " + words + " >/dev/full"}});
    EXPECT_EQ(ended.status, 1) << words;
    EXPECT_EQ(ended.error, "aprun: cannot write standard output: No space left on device\n") << words;
  }
}

TEST(Aprun, ControlCharactersOfNamesAreSpelled) {
  const Ended ended = aprun({"./no\x1b]0;such\a"});
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(ended.error, "aprun: there is no program ./no\\x1b]0;such\\x07\n");
}

TEST(Aprun, OptionsOfTheMachineComeFromTheEnvironmentToo) {
  const Folder folder;
  const std::string program = folder.compile("count", counting);
  EXPECT_EQ(sorted_lines(aprun({program}, {.arguments = {}, .environment = {{"APLIB_CELLS", "3"}}}).out).size(), 3U);
  EXPECT_EQ(
      sorted_lines(aprun({"-g", "2x2", program}, {.arguments = {}, .environment = {{"APLIB_CELLS", "3"}}}).out).size(),
      4U);
}

TEST(Aprun, PlaceholdersInArguments) {
  const Folder folder;
  const std::string program = folder.compile("count", counting);
  const Ended ended = aprun({"-g", "2x2", "--expand", program, "in.{cid}", "{x}{y}/{ncel}"});
  EXPECT_EQ(sorted_lines(ended.out), (Strings{"cell 0 of 4: 101 <in.0> <00/4>", "cell 1 of 4: 102 <in.1> <10/4>",
                                              "cell 2 of 4: 103 <in.2> <01/4>", "cell 3 of 4: 104 <in.3> <11/4>"}));
}

TEST(Aprun, ProgramsAreFoundInTheCurrentFolderThenInPath) {
  const Folder folder;
  const Folder other;
  folder.compile("count.so", counting);
  Start start{.arguments = {}, .folder = folder.path()};
  EXPECT_EQ(aprun({"count"}, start).out, "cell 0 of 1: 101\n");
  start = {.arguments = {}, .environment = {{"PATH", "/nowhere:" + folder.path()}}, .folder = other.path()};
  EXPECT_EQ(aprun({"count.so"}, start).out, "cell 0 of 1: 101\n");
  const Ended lost = aprun({"cuont"}, start);
  EXPECT_EQ(lost.status, 2);
  EXPECT_EQ(lost.error, "aprun: there is no program \"cuont\": looked in the current folder and in PATH (/nowhere:" +
                            folder.path() + ")\n");
  EXPECT_EQ(aprun({other / "x"}).error, "aprun: there is no program " + (other / "x") + "\n");
  EXPECT_EQ(aprun({other.path()}).error, "aprun: " + other.path() + " is a folder, not a program\n");
  EXPECT_EQ(aprun({"/dev/null"}).error, "aprun: /dev/null is a device, not a program\n");
  ASSERT_EQ(::mkfifo((other / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(aprun({other / "pipe"}).error, "aprun: " + (other / "pipe") + " is a named pipe, not a program\n");
  std::filesystem::create_symlink("loop", other / "loop");
  EXPECT_EQ(aprun({other / "loop"}).error,
            "aprun: cannot look for the program " + (other / "loop") + ": Too many levels of symbolic links\n");
  const Ended here = aprun({"pipe"}, start);
  EXPECT_TRUE(contains(here.error, "; ./pipe is a named pipe, not a program\n")) << here.error;
}

TEST(Aprun, FilesThatAreNoProgramsAreRefusedInWords) {
  const Folder folder;
  for (const std::string& file : {folder.write("script", "#!/bin/sh\nexit 0\n"), std::string("/etc/passwd")}) {
    const Ended ended = aprun({"-n", "2", file});
    EXPECT_EQ(ended.status, 2);
    EXPECT_TRUE(ended.error.starts_with("aprun: " + file)) << ended.error;
  }
  const Ended empty = aprun({folder.compile("empty", "int solve(void) { return 0; }\nint others;")});
  EXPECT_EQ(empty.status, 2);
  EXPECT_TRUE(contains(empty.error, "has no cell_main, main or MAIN__ to start with; it offers solve")) << empty.error;
}

TEST(Aprun, UsageErrorsAreSaidAndNothingStarts) {
  const Folder folder;
  const std::string program = folder.compile("count", counting);
  const auto refusal = [&](const Strings& arguments) {
    const Ended ended = aprun(arguments);
    EXPECT_EQ(ended.status, 2);
    EXPECT_EQ(ended.out, "");
    return ended.error.substr(0, ended.error.find('\n'));
  };
  EXPECT_EQ(refusal({}), "aprun: no program is given");
  EXPECT_EQ(refusal({"-n", "x", program}),
            "aprun: -n: \"x\" is not a number of cells: use 1 .. 16384, or -g 4x2 for a grid");
  EXPECT_EQ(refusal({"--thread", "2", program}), "aprun: unknown option --thread; did you mean --threads?");
  EXPECT_EQ(refusal({"--n", "2", program}), "aprun: unknown option --n; did you mean -n?");
  EXPECT_EQ(refusal({"-cells", "2", program}), "aprun: unknown option -cells; did you mean --cells?");
  EXPECT_EQ(refusal({"-y", program}), "aprun: unknown option -y");
  EXPECT_EQ(refusal({"-n", "2", "-g", "2x2", program}), "aprun: -n excludes --grid");
  EXPECT_EQ(refusal({"--timeout", "0", program}),
            "aprun: --timeout: \"0\" is not a time: use seconds above 0, for example 90 or 0.5");
  EXPECT_EQ(refusal({"--args", "1", program}),
            "aprun: --args are the arguments of a function named by --entry, which must come first");
  EXPECT_EQ(refusal({"--output", "/nowhere/{cid}", program}),
            "aprun: cannot write /nowhere/0: No such file or directory");
  EXPECT_EQ(refusal({"--output", "o-{cidx}", program}), "aprun: --output: {cidx}: did you mean {cid}?");
  EXPECT_EQ(refusal({"--input", "in.{x}", program}),
            "aprun: --input: {x} is for arguments of the program (--expand); names of files know {cid} alone");
  EXPECT_EQ(refusal({"--wd", "", program}), "aprun: --wd: a name is missing");
  EXPECT_EQ(refusal({"--input", folder.path(), program}), "aprun: cannot read " + folder.path() + ": Is a directory");
  EXPECT_TRUE(refusal({"--module", "nosuch", program}).starts_with("aprun: there is no module \"nosuch\""));
  EXPECT_TRUE(
      contains(refusal({"--private", "libc.so.6", program}),
               "is wanted private, and is one that all cells share with the process; leave it out of --private"));
  EXPECT_EQ(aprun({"--help"}).status, 0);
  EXPECT_TRUE(contains(aprun({"--version"}).out, "aprun (APlib) "));
}

TEST(Aprun, TheManualShowsTheHelp) {
  std::ifstream file(APRUN_MANUAL);
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const auto plain = [](const std::string& text) {
    std::string lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
      line.erase(line.find_last_not_of(' ') + 1);
      if (!lines.empty() || !line.empty()) lines += line + "\n";
    }
    return lines.substr(0, lines.find_last_not_of('\n') + 1);
  };
  const std::string help = plain(aprun({"--help"}).out);
  EXPECT_TRUE(contains(page, "```text\n" + help + "\n```")) << "put this between the ```text lines of docs/aprun.md:\n"
                                                            << help;
}

TEST(Aprun, TheStatusIsThatOfTheCellThatFailedFirst) {
  const Folder folder;
  const std::string program = folder.compile("status", R"(
#include <aplib/cellos.h>
#include <stdlib.h>
int main(int argc, char** argv) {
  sync(0, 0);
  if (getcid() + 1 < argc) exit(atoi(argv[getcid() + 1]));
  return 0;
})");
  EXPECT_EQ(aprun({"-n", "4", program, "0", "0", "0", "0"}).error, "");
  const Ended one = aprun({"-n", "8", program, "0", "0", "0", "0", "0", "2"});
  EXPECT_EQ(one.status, 2);
  EXPECT_EQ(one.error, "aprun: cells 0-4, 6-7: status 0; cell 5: status 2\n");
  const Ended several = aprun({"-n", "4", program, "9", "0", "7", "9"});
  EXPECT_TRUE(several.status == 9 || several.status == 7) << several.status;
  EXPECT_EQ(several.error, "aprun: cells 0, 3: status 9; cell 1: status 0; cell 2: status 7\n");
}

TEST(Aprun, TheFirstFailureInTimeCounts) {
  const Folder folder;
  const std::string program = folder.compile("order", R"(
#include <aplib/cellos.h>
int main(void) {
  int go = 1;
  if (getcid() == 3) return 33;
  if (getcid() == 0) {
    while (!l_aqrecv(1, 0, 1)) continue;
    return 10;
  }
  if (getcid() == 1) l_asend(0, 0, 1, &go, sizeof go);
  return 0;
})");
  // Cell 0 ends after cell 1. One thread carries all in turn, so cell 3 has ended before cell 0 looks again.
  const Ended ended = aprun({"-n", "4", "--threads", "1", program});
  EXPECT_EQ(ended.error, "aprun: cells 1-2: status 0; cell 0: status 10; cell 3: status 33\n");
  EXPECT_EQ(ended.status, 33);
}

TEST(Aprun, ACellThatWaitsForOneThatHasFailedPassesItsStatusOn) {
  const Folder folder;
  const std::string program = folder.compile("leaving", R"(
#include <aplib/cellos.h>
#include <stdlib.h>
int main(int argc, char** argv) {
  if (getcid() == 1) exit(3);
  if (argc > 1) sync(0, 0);
  l_arecv(1, 0, 1);
  return 0;
})");
  const Ended receives = aprun({"-n", "3", program});
  EXPECT_EQ(receives.status, 3);
  EXPECT_TRUE(contains(receives.error, "l_arecv: cell 1 has ended with status 3 and left no such message"))
      << receives.error;
  EXPECT_EQ(sorted_lines(receives.error).size(), 1U) << receives.error;
  const Ended meets = aprun({"-n", "3", program, "sync"});
  EXPECT_EQ(meets.status, 3);
  EXPECT_TRUE(contains(meets.error, "sync: cell 1 has ended and takes no part any more")) << meets.error;
  EXPECT_TRUE(contains(meets.error, "its exit status is 3")) << meets.error;
}

TEST(Aprun, FunctionsAreCalledByTheirTypes) {
  const Folder folder;
  const std::string program = folder.compile("typed", R"(
#include <aplib/cellos.h>
#include <stdio.h>
int solve(int n, double t) { printf("solve %d %g\n", n, t); return n % 256; }
double half(float x) { printf("in half\n"); return x / 2 + getcid(); }
const char* greet(const char* who) { static char text[80]; snprintf(text, sizeof text, "hello %s", who); return text; }
void nothing(void) {}
)");
  const Ended solved = aprun({"--entry", "solve(int,double)->int", "--args", "300", "1e-8", program});
  EXPECT_EQ(solved.out, "solve 300 1e-08\n");
  EXPECT_EQ(solved.status, 44);
  const Ended half = aprun({"-n", "2", "--entry", "half(float)->double", "--args", "-3", program});
  EXPECT_EQ(half.status, 0) << half.error;
  EXPECT_EQ(sorted_lines(half.out), (Strings{"half = -0.5", "half = -1.5", "in half", "in half"}));
  EXPECT_EQ(aprun({"--entry", "greet(string)->string", "--args", "you", program}).out, "greet = hello you\n");
  EXPECT_EQ(aprun({"--entry", "nothing", program}).out, "");
  const Ended wrong = aprun({"--entry", "sovle(int)->int", "--args", "1", program});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_TRUE(contains(wrong.error, "has no function sovle (did you mean solve?); it offers solve")) << wrong.error;
  EXPECT_EQ(aprun({"--entry", "solve(int,double)->int", "--args", "3e9", "1", program}).error,
            "aprun: entry solve(int, double) -> int: argument 1, \"3e9\", is not a whole number (type int)\n");
}

TEST(Aprun, FunctionsAreCalledWithArraysAndByTheTypesInDebugInformation) {
  const Folder folder;
  const std::string program = folder.compile("arrays", R"(
#include <stdio.h>
int counter = 1;
void add(int n, const double* a, double* sum) { for (int i = 0; i < n; ++i) *sum += a[i] * counter; ++counter; }
int solve(int n, double t) { printf("solve %d %g\n", n, t); return n % 256; }
)",
                                             "-g");
  const Ended sums =
      aprun({"-n", "2", "--entry", "add(int n,double a[n],INOUT double sum[1])", "--args", "3", "1,2,3", "4", program});
  EXPECT_EQ(sums.out, "sum = 10\nsum = 10\n") << sums.error;
  if (aprun({"--entry", "solve", program}).status == 0) GTEST_SKIP() << "there is no libdw here: no types are known";
  const Ended solved = aprun({"--entry", "solve", "--args", "300", "1e-8", "--", program});
  EXPECT_EQ(solved.out, "solve 300 1e-08\n") << solved.error;
  EXPECT_EQ(solved.status, 44);
  EXPECT_EQ(aprun({"--entry", "solve", "--args=7", "--args=2", program}).out, "solve 7 2\n");
  EXPECT_EQ(aprun({"--entry", "solve", program}).error,
            "aprun: entry solve(int n, double t) -> int takes 2 arguments, but 0 are given: --args \n");
  const Ended wrong = aprun({"--entry", "solve(int,float)->int", "--args", "3", "1", program});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_TRUE(contains(wrong.error, "the program has solve(int n, double t) -> int (")) << wrong.error;
  EXPECT_TRUE(contains(wrong.error, ": parameter 2 is double t: write --entry 'solve(int n,double t)->int'"))
      << wrong.error;
  const Ended open = aprun({"--entry", "solve", "--args", "300", program});
  EXPECT_EQ(open.status, 2);
  EXPECT_TRUE(contains(open.error, "does not say where --args end: write -- behind them")) << open.error;
}

TEST(Aprun, ADryRunSaysWhatWouldRun) {
  const Folder folder;
  const std::string program = folder.compile("count", counting, "-Wl,--build-id=0x1234");
  const Ended ended = aprun({"-g", "4x2", "--threads", "1", "--dry-run", program, "x"});
  EXPECT_EQ(ended.status, 0) << ended.error;
  for (const std::string& line :
       {"program    " + program + "\n", std::string("build-id   1234\n"),
        std::string("entry      main(argc, argv, envp)\n"), std::string("cells      8 (4x2)\n"),
        std::string("cells 0-7, on any core\n"), std::string("libc.so.6 (shared)\n")}) {
    EXPECT_TRUE(contains(ended.out, line)) << line << ended.out;
  }
  EXPECT_FALSE(contains(ended.out, "cell 0 of")) << "it ran";
}

TEST(Aprun, ARunEndsWhenItsTimeIsOver) {
  const Folder folder;
  const std::string waiting = folder.compile("wait", R"(
#include <aplib/cellos.h>
#include <stdio.h>
#include <unistd.h>
int main(void) { printf("waiting\n"); fflush(stdout); for (;;) sleep(1000); }
)");
  const Ended ended = aprun({"-n", "4", "--timeout", "0.3", waiting});
  EXPECT_EQ(ended.status, 124) << ended.error;
  EXPECT_TRUE(contains(ended.error, "the time is over: 0.3 s (--timeout)")) << ended.error;
  const std::string busy = folder.compile("busy", "volatile int x; int main(void) { for (;;) ++x; }");
  EXPECT_EQ(aprun({"-n", "2", "--timeout", "0.3", busy}).status, 124);
}

TEST(Aprun, ControlCEndsEverything) {
  const Folder folder;
  const std::string program = folder.compile("wait", R"(
#include <aplib/cellos.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char** argv) {
  if (getcid() == 0) { printf("ready\n"); fflush(stdout); }
  if (argc > 1) for (;;) continue;
  l_arecv(0, 0, 5);
  return 0;
})");
  for (const bool listens : {true, false}) {
    Strings arguments{APRUN_PROGRAM, "-n", "2", "--deadlock-report", "off", program};
    if (!listens) arguments.push_back("busy");
    Process process({.arguments = arguments});
    ASSERT_TRUE(process.wait_for("ready"));
    process.signal(SIGINT);
    const Ended ended = process.wait();
    EXPECT_EQ(ended.status, 130);
    EXPECT_TRUE(contains(ended.error, "SIGINT")) << ended.error;
  }
}

constexpr const char* host_half = R"(
#include <aplib/cellos.h>
#include <stdio.h>
#include <string.h>
static int mine = 7;
int host_main(int argc, char** argv) {
  char line[80] = "nothing\n";
  int* answer;
  cconfxy(3, 1);
  ccreat(argv[1], 0, NULL);
  fgets(line, sizeof line, stdin);
  cbroad(0, 1, line, strlen(line) + 1);
  while ((answer = crecv()) != NULL) mine += *answer;
  waitstable();
  printf("host %s: %d\n", argv[0], mine);
  return mine == 7 + 0 + 1 + 2 + 3 ? 0 : 9;
})";
constexpr const char* cell_half = R"(
#include <aplib/cellos.h>
#include <stdio.h>
static int mine = 1;
void cell_main(void) {
  const char* word = h_recv(1);
  mine += getcid();
  printf("cell %d: %s", getcid(), word);
  h_send(1, &mine, sizeof mine);
})";

TEST(Aprun, HostProgramsFindTheirCellsFile) {
  const Folder folder;
  const Folder elsewhere;
  const std::string host = folder.compile("host", host_half);
  folder.compile("cell.so", cell_half);
  for (const char* name : {"cell", "cell.so", "cell.cap"}) {
    const Ended ended = aprun({host, name}, {.arguments = {}, .input = "go\n", .folder = elsewhere.path()});
    EXPECT_EQ(ended.status, 0) << ended.error;
    EXPECT_EQ(sorted_lines(ended.out), (Strings{"cell 0: go", "cell 1: go", "cell 2: go", "host " + host + ": 13"}));
  }
}

TEST(Aprun, BothHalvesMayBeOneFile) {
  const Folder folder;
  const std::string program = folder.compile("both", std::string(host_half) + "\n#define mine cell_mine\n" + cell_half);
  const Ended ended = aprun({program, "any-name"}, {.arguments = {}, .input = "go\n"});
  EXPECT_EQ(ended.status, 0) << ended.error;
  EXPECT_EQ(sorted_lines(ended.out).size(), 4U) << ended.out;
}

TEST(Aprun, AMissingCellProgramIsSaidWithItsPlaces) {
  const Folder folder;
  const std::string host = folder.compile("host", host_half);
  const Ended ended = aprun({host, "lost"}, {.arguments = {}, .folder = "/"});
  EXPECT_NE(ended.status, 0);
  EXPECT_TRUE(contains(ended.error, "ccreat: there is no cell program 'lost': looked for lost, lost.so, lost.cell, " +
                                        (folder / "lost") + ", " + (folder / "lost.so") + ", " +
                                        (folder / "lost.cell")))
      << ended.error;
}

TEST(Aprun, MoreTasksJoinWhileTheMachineRuns) {
  const Folder folder;
  const std::string host = folder.compile("host", R"(
#include <aplib/cellos.h>
#include <stdio.h>
int host_main(int argc, char** argv) {
  char* extra[] = {"x", "y", NULL};
  int sum = 0, *answer;
  cconfxy(2, 1);
  ccreat("first", 0, NULL);
  crecv();                       /* one cell has begun */
  ccreat("second", 1, extra);
  while ((answer = crecv()) != NULL) sum += *answer;
  printf("sum %d\n", sum);
  return 0;
})");
  folder.compile("first", R"(
#include <aplib/cellos.h>
static int mine = 1;
void cell_main(void) {
  h_send(1, &mine, sizeof mine);
  l_arecv(getcid(), 1, 9);       /* from the second program, in the same cell */
})");
  folder.compile("second", R"(
#include <aplib/cellos.h>
#include <stdio.h>
static int mine = 1;             /* not the first one's */
int main(int argc, char** argv) {
  mine += 10 * argc;
  printf("%s %s %s\n", argv[0], argv[1], argv[2]);
  l_asend(getcid(), 0, 9, &mine, sizeof mine);
  h_send(1, &mine, sizeof mine);
  return 0;
})");
  const Ended ended = aprun({host});
  EXPECT_EQ(ended.status, 0) << ended.error;
  // One of the first program's two messages was received before: 1 + 2 * (1 + 30).
  EXPECT_EQ(sorted_lines(ended.out), (Strings{"second x y", "second x y", "sum 63"}));
}

TEST(Aprun, CellsThatAHostProgramAddsAreLikeOthers) {
  const Folder folder;
  const std::string program = folder.compile("host", R"(
#include <aplib/cellos.h>
#include <stdio.h>
int host_main(int argc, char** argv) {
  cconfxy(3, 1);
  ccreat("host", 0, NULL);
  waitstable();
  printf("%s\n", argv[1]);
  return 0;
}
void cell_main(void) {
  FILE* file = fopen("here", "w");
  fclose(file);
  printf("begin %d, ", getcid());
  fflush(stdout);
  sync(0, 0);
  printf("end %d\n", getcid());
})");
  EXPECT_EQ(sorted_lines(aprun({"--expand", "--wd", folder / "run.{cid}", program, "{cid}"}).out),
            (Strings{"begin 0, end 0", "begin 1, end 1", "begin 2, end 2", "{cid}"}));
  EXPECT_TRUE(std::filesystem::exists(folder / "run.2/here"));
  folder.write("out.2", "of an earlier run\n");
  EXPECT_EQ(aprun({"--wd", folder / "", "--output", folder / "out.{cid}", program, "x"}).status, 0);
  EXPECT_EQ(folder.read("out.2"), "begin 2, end 2\n");
  EXPECT_EQ(folder.read("out.host"), "x\n");
}

TEST(Aprun, AProgramExecutedItselfIsTheSame) {
  const Folder folder;
  const std::string program = folder.compile("count", counting);
  // The command that the stub in apcc's programs executes.
  const auto direct = [&](const Strings& arguments, const Start& start) {
    Strings all{"--direct", program, "./count"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return aprun(all, start);
  };
  EXPECT_EQ(direct({"-n", "3"}, {.arguments = {}}).out, "cell 0 of 1: 101 <-n> <3>\n");
  EXPECT_EQ(sorted_lines(
                direct({}, {.arguments = {}, .environment = {{"APLIB_CELLS", "2"}, {"APLIB_TAG_OUTPUT", "on"}}}).out),
            (Strings{"[0] cell 0 of 2: 101", "[1] cell 1 of 2: 102"}));
  const Ended wrong = direct({}, {.arguments = {}, .environment = {{"APLIB_CELL", "2"}}});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_TRUE(wrong.error.starts_with("./count: unknown variable \"APLIB_CELL\": did you mean \"APLIB_CELLS\"?"))
      << wrong.error;
}

TEST(Aprun, FortransMainProgramIsAnEntry) {
  const Folder folder;
  const std::string program = folder.compile("fortran", R"(
#include <stdio.h>
static int counter;
void MAIN__(void) { printf("%d\n", ++counter); }
)");
  EXPECT_EQ(aprun({"-n", "3", program}).out, "1\n1\n1\n");
}

TEST(Aprun, AHostProgramsStatusIsTheRuns) {
  const Folder folder;
  const std::string program =
      folder.compile("host", "#include <stdlib.h>\nint host_main(int c, char** v) { exit(atoi(v[1])); }");
  EXPECT_EQ(aprun({program, "0"}).status, 0);
  const Ended ended = aprun({program, "5"});
  EXPECT_EQ(ended.status, 5);
  EXPECT_EQ(ended.error, "aprun: host program: status 5\n") << "no cell failed";
}

// A reason is told once: executed itself, a program that has said something has said it.
TEST(Aprun, AHostProgramExecutedItselfTellsItsOwnReason) {
  const Folder folder;
  const std::string program = folder.compile("host", R"(
#include <stdio.h>
int host_main(int c, char** v) {
  if (c > 1) fprintf(stderr, "there is no such file\n");
  return 5;
})");
  const Ended told = aprun({"--direct", program, "./host", "x"});
  EXPECT_EQ(told.status, 5);
  EXPECT_EQ(told.error, "there is no such file\n");
  const Ended silent = aprun({"--direct", program, "./host"});
  EXPECT_EQ(silent.status, 5);
  EXPECT_EQ(silent.error, "host: host program: status 5\n");
}

// Where one cell fails and another computes for ever.
TEST(Aprun, AFailureEndsTheRunThoughACellNeverListens) {
  const Folder folder;
  const std::string program = folder.compile("spin", R"(
#include <aplib/cellos.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char** argv) {
  printf("cell %d\n", getcid());
  fflush(stdout);
  sync(0, 0);
  if (getcid() == 0 && argv[1][0] == 'b') l_asend(99, 0, 0, 0, 0);
  if (getcid() == 0 && argv[1][0] == 'a') abort();
  for (;;)
    ;
})");
  for (const auto& [how, status] : {std::pair("b", 1), std::pair("a", 134)}) {
    const auto begin = std::chrono::steady_clock::now();
    const Ended ended = aprun({"-n", "2", "--timeout", "100", program, how});
    EXPECT_EQ(ended.status, status) << ended.error;
    EXPECT_EQ(sorted_lines(ended.out), (Strings{"cell 0", "cell 1"}));
    EXPECT_TRUE(contains(ended.error, "cell 0 task 0")) << ended.error;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(50));
  }
}

// Cell 0 waits for what cell 1 does, and one thread carries both.
TEST(Aprun, ALoopOfLibcsClocksLetsOthersRun) {
  const Folder folder;
  const std::string program = folder.compile("clocks", R"(
#include <aplib/cellos.h>
#include <sys/time.h>
#include <time.h>
static int arrived;
int main(void) {
  volatile int* flag = &arrived;
  struct timeval now;
  sync(0, 0);
  if (getcid() == 1) put(0, &arrived, 0, &arrived, &arrived, 0, 0);
  while (getcid() == 0 && *flag == 0) gettimeofday(&now, 0);
  sync(0, 0);
  if (getcid() == 1) put(0, &arrived, 0, &arrived, &arrived, 0, 0);
  while (getcid() == 0 && *flag == 1) time(0);
  return 0;
})");
  const Ended ended = aprun({"-n", "2", "--threads", "1", "--timeout", "100", program});
  EXPECT_EQ(ended.status, 0) << ended.error;
}

TEST(Aprun, ErrorsSayWhereTheProgramCalls) {
  const Folder folder;
  const std::string program = folder.compile("wrong", R"(
#include <aplib/cellos.h>
static int deep(void) { return getmlen(); }
int solve(int how) {
  int sum;
  if (how == 's') return deep();
  if (how == 'a') l_asend(99, 0, 0, 0, 0);
  if (how == 'b') getmlen();
  if (how == 'c') put(0, &sum, 4, 0, 0, 0, 0);
  if (how == 'd') l_arecv(getcid(), 0, 7);
  if (how == 'e' && getcid() == 0) xy_isum(1, &sum);
  if (how == 'e') crecv();
  return 1;
}
int main(int argc, char** argv) { return solve(argv[1][0]); })",
                                             "-O0");
  for (const char* how : {"a", "b", "c"}) {
    const Ended ended = aprun({"-n", "1", program, how});
    EXPECT_EQ(ended.status, 1);
    EXPECT_TRUE(contains(ended.error, " (called at solve+0x")) << ended.error;
    EXPECT_TRUE(contains(ended.error, " of wrong)")) << ended.error;
  }
  const Ended in_static = aprun({"-n", "1", program, "s"});
  EXPECT_TRUE(contains(in_static.error, " (called at deep+0x")) << in_static.error;
  const Ended stuck = aprun({"-n", "1", program, "d"});
  EXPECT_EQ(stuck.status, 70);
  EXPECT_TRUE(contains(stuck.error, ", called at solve+0x")) << stuck.error;
  const Ended missing = aprun({"-n", "2", program, "e"});
  EXPECT_EQ(missing.status, 70);
  EXPECT_TRUE(contains(missing.error, "cell 0 task 0: waits in xy_isum")) << missing.error;
  EXPECT_FALSE(contains(missing.error, " s\n")) << missing.error;  // each line says where
}

TEST(Aprun, WhatIsCutOrLeftUnreadIsToldAtLevelDebug) {
  const Folder folder;
  const std::string program = folder.compile("cut", R"(
#include <aplib/cellos.h>
int main(void) {
  char buffer[4];
  int me = getcid();
  l_asend(me, 0, 1, "four and more", 14);
  l_asend(me, 0, 2, "unread", 7);
  l_asend(me, 3, 2, "lost", 5);
  l_arecv(me, 0, 1);
  readmsg(buffer, 4);
  xy_send(0, 0, 1, "four and more", 14);
  xy_recvs(0, 0, 1, buffer, 4);
  return 0;
})");
  EXPECT_EQ(aprun({"-n", "1", program}).error, "");
  const Ended ended = aprun({"-n", "1", "--log-level", "debug", program});
  EXPECT_EQ(ended.status, 0);
  for (const char* line :
       {"cell 0 task 0: readmsg: the message has 14 bytes, the buffer 4: the rest is not copied",
        "cell 0 task 0: xy_recvs: the message has 14 bytes, the buffer 4: the rest is not stored",
        "cell 0 task 0: ends; 1 other message unread, the oldest from cell 0, task 0, type 2, 7 bytes",
        "at the end, cell 0: 1 message for task 3, which does not exist, from cell 0, task 0, type 2, 5 bytes"})
    EXPECT_TRUE(contains(ended.error, line)) << line << "\n" << ended.error;
}

TEST(Aprun, MastersEndIsTheEndOfWorkersThatWait) {
  const Folder folder;
  const std::string program = folder.compile("master", R"(
#include <aplib/cellos.h>
#include <stdio.h>
#include <stdlib.h>
int host_main(int argc, char** argv) {
  int job, sum = 0;
  ccreat("master", 0, NULL);
  for (job = 0; job < 20; ++job) l_asend(job % getncel(), 0, 1, &job, sizeof job);
  for (job = 0; job < 20; ++job) sum += *(int*)crecv();
  printf("%d\n", sum);
  return atoi(argv[1]);
}
void cell_main(void) {
  for (;;) {
    int* job = h_recv(1);
    int done = *job * 2;
    h_send(1, &done, sizeof done);
  }
})");
  for (const char* status : {"0", "3"}) {
    const Ended ended = aprun({"-n", "4", program, status});
    EXPECT_EQ(ended.out, "380\n");
    EXPECT_EQ(ended.status, std::stoi(status));
    EXPECT_EQ(ended.error, ended.status == 0 ? "" : "aprun: host program: status 3\n");
  }
}

TEST(Aprun, AHostProgramThatReturnsNothingEndsWell) {
  const Folder folder;
  const std::string program = folder.compile("old", R"(
#include <aplib/cellos.h>
host_main() {
  ccreat("old", 30, 0);
  while (crecv())
    ;
  waitstable();
}
cell_main() {
  h_send(0, "", 1);
})",
                                             "-std=gnu89 -w");
  const Ended ended = aprun({"-n", "3", program});
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.error, "");
}

TEST(Aprun, ADeadlockIsReported) {
  const Folder folder;
  const std::string program =
      folder.compile("stuck", "#include <aplib/cellos.h>\nint main(void) { l_arecv(0, 0, 5); return 0; }");
  const Ended ended = aprun({"-n", "2", program});
  EXPECT_EQ(ended.status, 70);
  EXPECT_TRUE(contains(ended.error, "l_arecv")) << ended.error;
}

TEST(Aprun, TheHeapOfEachCellIsToldWhenAsked) {
  if (APLIB_ASAN)
    GTEST_SKIP() << "needs a build without sanitizers: the run fails for what the program leaves on purpose";
  const Folder folder;
  const std::string program = folder.compile("heap", R"(
#include <stdlib.h>
static char* volatile kept;
static char* volatile freed;
int main(void) { kept = malloc(100000); freed = malloc(50); free(freed); return kept == NULL; })");
  const Ended ended = aprun({"-n", "2", "--account-heap", program});
  EXPECT_EQ(ended.status, 0);
  for (const char* cell : {"aprun: cell 0: heap: at most 97.", "aprun: cell 1: heap: at most 97."})
    EXPECT_TRUE(contains(ended.error, cell)) << ended.error;
  EXPECT_TRUE(contains(ended.error, "KiB at a time (calls: 2); not freed at its end: 97.")) << ended.error;
  EXPECT_TRUE(contains(ended.error, "KiB (blocks: 1)")) << ended.error;
  EXPECT_EQ(aprun({"-n", "2", program}).error, "");
}

TEST(Aprun, AStackOverflowNamesTheOptionForPrograms) {
  const Folder folder;
  const std::string program = folder.compile("deep", R"(
static int deep(int n);
static int (*volatile deeper)(int) = deep;
static int deep(int n) { volatile char room[4096]; for (int i = 0; i < 4096; ++i) room[i] = n; return n == 0 ? room[7] : deeper(n - 1) + room[9]; }
int main(int argc, char** argv) { return deep(argc > 1 ? 1000 : 100) == 1; })");
  EXPECT_EQ(aprun({"-n", "2", program, "deep"}).status, 0) << "8 MiB, as a process has";
  const Ended ended = aprun({"-n", "2", "--program-stack", "1m", program, "deep"});
  EXPECT_EQ(ended.status, 71);
  EXPECT_TRUE(contains(ended.error, "stack overflow: it used more than its 1024 KiB; raise program-stack"))
      << ended.error;
}

TEST(Aprun, StacksAreAsLargeAsTheUserAllows) {
  const Folder folder;
  const std::string program = folder.compile("large", R"(
#include <string.h>
int main() { volatile char room[32 << 20]; memset((char*)room, 1, sizeof room); return room[1] != 1; })");
  const auto status_with = [&](const std::string& limit, const Strings& options) {
    Strings words{"sh", "-c", "ulimit -s " + limit + R"( && exec "$@")", "sh", APRUN_PROGRAM, "-n", "2"};
    words.insert(words.end(), options.begin(), options.end());
    words.push_back(program);
    return run({.arguments = words}).status;
  };
  EXPECT_EQ(status_with("65536", {}), 0);
  EXPECT_NE(status_with("65536", {"--program-stack", "8m"}), 0);
  // It touches its far end, of which no guard is that large.
  const Ended ended = aprun({"-n", "1", "--program-stack", "8m", program});
  EXPECT_TRUE(contains(ended.error, "program-stack makes it larger")) << ended.error;
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_STACK, &limit), 0);
  if (limit.rlim_max != RLIM_INFINITY) return;
  EXPECT_EQ(status_with("unlimited", {}), 0);
}

/// Four cells that share a thread.
Ended run_on_one_thread(const std::string& program) {
  return aprun({"-n", "4", "--threads", "1", "--expand", program, "{cid}"});
}

TEST(Aprun, WhatLongDoublesHaveSignalledIsEachCellsOwn) {
  const Folder folder;
  const Ended ended = run_on_one_thread(folder.compile("flags", R"(
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char** argv) {
  const int divides = atoi(argv[1]) % 2, divided = 4;
  volatile long double zero = 0, one = 1, result;
  unsigned short status, control;
  __asm__ volatile("fnclex; fnstcw %0" : "=m"(control));
  if (!divides) control &= ~divided;  // it would end by SIGFPE
  __asm__ volatile("fldcw %0" : : "m"(control));
  for (int i = 0; i < 100; ++i) {
    if (divides) result = one / zero;
    usleep(10);
    __asm__ volatile("fnstsw %0" : "=m"(status));
    if (((status & divided) != 0) != divides) return 1;
    if (!divides) result = one + zero;
  }
  return 0;
})"));
  EXPECT_EQ(ended.status, 0) << ended.error;
}

// longjmp() calls what libc's list of cleanups says, as of pthread_once().
TEST(Aprun, CleanupsAreThoseOfTheirCell) {
  const Folder folder;
  const Ended ended = run_on_one_thread(folder.compile("once", R"(
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int id, times;
static jmp_buf place;
static void begin(void) { ++times; usleep(20000 + id * 5000); }
__attribute__((noinline)) static void use(void) { pthread_once(&once, begin); }
__attribute__((noinline)) static void parse(void) {
  volatile char line[16384];
  memset((char*)line, id, sizeof line);
  longjmp(place, 1);
}
int main(int argc, char** argv) {
  id = atoi(argv[1]);
  use();
  usleep(200000);
  if (setjmp(place) == 0) parse();
  use();
  return times - 1;
})"));
  EXPECT_EQ(ended.status, 0) << ended.error;
}

TEST(Aprun, ThreadsWorkInTheFolderOfTheirCell) {
  const Folder folder;
  const Ended ended = run_on_one_thread(folder.compile("folders", R"(
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static char folder[4096];
static void* look(void* in) { return getcwd(in, 4096); }
int main(int argc, char** argv) {
  char now[4096];
  pthread_t thread;
  if (atoi(argv[1]) % 2 && chdir("/") != 0) return 77;
  if (getcwd(folder, sizeof folder) == NULL) return 2;
  for (int i = 0; i < 200; ++i) {
    if (pthread_create(&thread, NULL, look, now) != 0 || pthread_join(thread, NULL) != 0) return 3;
    if (strcmp(now, folder) != 0) return 4;
    usleep(20);
  }
  return 0;
})",
                                                       "-pthread"));
  if (ended.status == 77) GTEST_SKIP() << "needs a working directory for each thread (unshare)";
  EXPECT_EQ(ended.status, 0) << ended.error;
}

TEST(Aprun, ErrnoStaysWhereCallsSucceed) {
  const Folder folder;
  const Ended ended = run_on_one_thread(folder.compile("numbers", R"(
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static void* nap(void* nothing) { usleep(2000); return nothing; }
static int ends;
static void check(const char* call, int good) {
  if (!good || errno != 77) { printf("%s: %d, errno is %d\n", call, good, errno); ends = 1; }
  errno = 77;
}
int main(int argc, char** argv) {
  const struct timespec time = {0, 100000};
  char text[100], *const words[] = {"sh", "-c", "exit 3", NULL};
  int ends_of_pipe[2];
  pthread_t thread;
  pid_t child;
  if (pipe(ends_of_pipe) != 0) return 2;
  errno = 77;
  for (int i = 0; i < 10; ++i) {
    FILE* lines = NULL;
    check("system", system("exit 3") == 3 << 8);
    check("popen", (lines = popen("sleep 0.01; echo x", "r")) != NULL && fgets(text, 100, lines) != NULL);
    check("pclose", pclose(lines) == 0);
    check("spawn", posix_spawn(&child, "/bin/sh", NULL, NULL, words, NULL) == 0 && waitpid(child, NULL, 0) == child);
    check("usleep", usleep(200) == 0);
    check("nanosleep", nanosleep(&time, NULL) == 0);
    check("yield", sched_yield() == 0);
    check("poll", poll(NULL, 0, 1) == 0);
    check("join", pthread_create(&thread, NULL, nap, NULL) == 0 && pthread_join(thread, NULL) == 0);
    check("pipe", write(ends_of_pipe[1], "a", 1) == 1 && read(ends_of_pipe[0], text, 1) == 1);
  }
  return ends;
})",
                                                       "-pthread"));
  EXPECT_EQ(ended.status, 0) << ended.out << ended.error;
}

TEST(Aprun, ThreadsThatAProgramLeavesBehindDoNotOutliveTheRun) {
  if (APLIB_TSAN)
    GTEST_SKIP() << "needs a build without ThreadSanitizer: it does not see the lock that libc holds on a stream";
  const Folder folder;
  const Ended ended = aprun({"-n", "3", folder.compile("threads", R"(
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void* work(void* nothing) { for (;;) { printf("x\n"); usleep(50); } return nothing; }
int main(void) { pthread_t thread; puts("before"); pthread_create(&thread, NULL, work, NULL); return 0; })")});
  EXPECT_EQ(ended.status, 0) << ended.error;
  EXPECT_EQ(std::ranges::count(sorted_lines(ended.out), "before"), 3);
  EXPECT_EQ(ended.error, "");
}

}  // namespace
}  // namespace aplib::test
