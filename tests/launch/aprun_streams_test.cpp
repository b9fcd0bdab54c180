// SPDX-License-Identifier: MIT
// Standard streams and descriptors of programs under aprun, and aprun's own.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "aprun.hpp"
#include "checks.hpp"
#include "process.hpp"

namespace aplib::test {
namespace {

using Strings = std::vector<std::string>;
using testing_support::contains;

/// Runs the program by a shell, which writes the status to the file with that name.
std::string status_in_shell(const Folder& folder, const std::string& command) {
  static_cast<void>(run({.arguments = {"/bin/sh", "-c", command + "; echo $? >'" + (folder / "status") + "'"}}));
  return folder.read("status");
}

TEST(AprunStreams, RunsWithClosedStandardStreams) {
  const Folder folder;
  const std::string program = folder.compile("write", R"(
#include <stdio.h>
int main(int argc, char** argv) {
  FILE* file = fopen(argv[1], "w");
  printf("for standard output\n");
  fprintf(stderr, "for standard error\n");
  fflush(stdout);
  fprintf(file, "for the file\n");
  return fclose(file);
})");
  EXPECT_EQ(status_in_shell(folder, std::string(APRUN_PROGRAM) + " -n 1 '" + program + "' '" + (folder / "file") +
                                        "' <&- >&- 2>&-"),
            "0\n");
  EXPECT_EQ(folder.read("file"), "for the file\n");
  EXPECT_EQ(
      status_in_shell(folder, std::string(APRUN_PROGRAM) + " -n 1 '" + program + "' '" + (folder / "file") + "' >&-"),
      "0\n");
  EXPECT_EQ(folder.read("file"), "for the file\n");
}

TEST(AprunStreams, WhatIsAskedOfTheInputIsAnsweredForTheCellsOwn) {
  const Folder folder;
  const std::string program = folder.compile("ask", R"(
#include <errno.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>
int main(void) {
  struct stat status;
  if (fstat(0, &status) != 0) return 1;
  char first = '-';
  const long end = S_ISREG(status.st_mode) ? lseek(0, 0, SEEK_END) : 0;
  if (lseek(0, 0, SEEK_SET) != 0 || read(0, &first, 1) < 0) return 2;
  const int refused = sendfile(1, 0, 0, 1) < 0 && errno == EINVAL;
  printf("%d %ld %ld %c %d %d\n", S_ISREG(status.st_mode), (long)(S_ISREG(status.st_mode) ? status.st_size : 0), end, first, refused, isatty(0));
  return 0;
})");
  static_cast<void>(folder.write("in.0", "abc"));
  static_cast<void>(folder.write("in.1", "defgh"));
  const Ended files = aprun({"-n", "2", "--input", folder / "in.{cid}", program});
  EXPECT_EQ(sorted_lines(files.out), (Strings{"1 3 3 a 1 0", "1 5 5 d 1 0"})) << files.error;
  static_cast<void>(status_in_shell(folder, std::string(APRUN_PROGRAM) + " -n 3 '" + program + "' <'" +
                                                (folder / "in.0") + "' >'" + (folder / "out") + "'"));
  EXPECT_EQ(sorted_lines(folder.read("out")), (Strings{"0 0 0 - 1 0", "0 0 0 - 1 0", "1 3 3 a 1 0"}));
}

TEST(AprunStreams, AFileThatIsTheInputIsOpenedAnewByItsName) {
  const Folder folder;
  const std::string program = folder.compile("anew", R"(
#include <stdio.h>
#include <unistd.h>
int main(int count, char** names) {
  char text[4] = "";
  for (int i = 0; i < count; ++i) {
    if (read(0, text, 2) != 2) return 1;
    printf("%s ", text);
    FILE* file = i > 0 ? fopen(names[i], "r") : NULL;
    if (file != NULL) printf("%s ", fgets(text, 4, file));
    if (file != NULL) fclose(file);
    text[2] = '\0';
  }
})");
  static_cast<void>(folder.write("in", "abcdefgh"));
  const Ended ended =
      aprun({"-n", "1", "--input", folder / "in", program, "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"});
  EXPECT_EQ(ended.out, "ab cd abc ef abc gh abc ") << ended.error;
}

TEST(AprunStreams, EndsAsEverWhereStandardErrorTakesNothing) {
  const Folder folder;
  const std::string fails = folder.compile("fails", "int main(void) { return 3; }");
  for (const char* nowhere : {" 2>&-", " 2>/dev/full"}) {
    EXPECT_EQ(status_in_shell(folder, std::string(APRUN_PROGRAM) + " nosuch" + nowhere), "2\n") << nowhere;
    EXPECT_EQ(status_in_shell(folder, std::string(APRUN_PROGRAM) + " --nosuch" + nowhere), "2\n") << nowhere;
    EXPECT_EQ(status_in_shell(folder, std::string(APRUN_PROGRAM) + " -n 2 '" + fails + "'" + nowhere), "3\n")
        << nowhere;
  }
}

constexpr const char* talking = R"(
#include <aplib/cellos.h>
#include <stdio.h>
int main(void) {
  printf("begin %d, ", getcid());
  fflush(stdout);
  sync(0, 0);
  printf("end %d\n", getcid());
  fprintf(stderr, "error %d\n", getcid());
  printf("rest %d", getcid());
  return 0;
})";

TEST(AprunStreams, LinesOfCellsDoNotMix) {
  const Folder folder;
  const Ended ended = aprun({"-n", "3", folder.compile("talk", talking)});
  EXPECT_EQ(sorted_lines(ended.out),
            (Strings{"begin 0, end 0", "begin 1, end 1", "begin 2, end 2", "rest 0", "rest 1", "rest 2"}));
  EXPECT_EQ(sorted_lines(ended.error), (Strings{"error 0", "error 1", "error 2"}));
}

TEST(AprunStreams, LinesSayWhoseTheyAre) {
  const Folder folder;
  const Ended ended = aprun({"-n", "2", "--tag-output", folder.compile("talk", talking)});
  EXPECT_EQ(sorted_lines(ended.out), (Strings{"[0] begin 0, end 0", "[0] rest 0", "[1] begin 1, end 1", "[1] rest 1"}));
  EXPECT_EQ(sorted_lines(ended.error), (Strings{"[0] error 0", "[1] error 1"}));
}

TEST(AprunStreams, EachCellMayHaveItsFilesAndFolder) {
  const Folder folder;
  const std::string program = folder.compile("talk", talking);
  const Ended ended = aprun({"-n", "2", "--output", folder / "out.{cid}", "--error", folder / "all", program});
  EXPECT_EQ(ended.status, 0) << ended.error;
  EXPECT_EQ(ended.out + ended.error, "");
  EXPECT_EQ(folder.read("out.1"), "begin 1, end 1\nrest 1");
  EXPECT_EQ(sorted_lines(folder.read("all")), (Strings{"error 0", "error 1"}));
  const std::string writer = folder.compile("write", R"(
#include <aplib/cellos.h>
#include <stdio.h>
int main(void) {
  FILE* file = fopen("result", "w");
  if (file == NULL) return 1;
  fprintf(file, "of cell %d\n", getcid());
  fclose(file);
  return 0;
})");
  EXPECT_EQ(aprun({"-n", "3", "--wd", folder / "run-{cid}", writer}).status, 0);
  EXPECT_EQ(folder.read("run-2/result"), "of cell 2\n");
  EXPECT_EQ(folder.read("run-0/result"), "of cell 0\n");
}

constexpr const char* reading = R"(
#include <aplib/cellos.h>
#include <stdio.h>
int main(void) {
  char line[80] = "nothing";
  if (fgets(line, sizeof line, stdin) != NULL) line[4] = 0;
  printf("cell %d read %s\n", getcid(), line);
  return 0;
})";

TEST(AprunStreams, InputIsForCellZero) {
  const Folder folder;
  const std::string program = folder.compile("read", reading);
  const Ended ended = aprun({"-n", "2", program}, {.arguments = {}, .input = "line\n"});
  EXPECT_EQ(sorted_lines(ended.out), (Strings{"cell 0 read line", "cell 1 read nothing"}));
  folder.write("in.0", "zero\n");
  folder.write("in.1", "one!\n");
  const Ended files = aprun({"-n", "2", "--input", folder / "in.{cid}", program}, {.arguments = {}, .input = "line\n"});
  EXPECT_EQ(sorted_lines(files.out), (Strings{"cell 0 read zero", "cell 1 read one!"}));
}

// The beginning of a daemon, as books have it. What the machine needs stays open, and so does what other cells have
// open where a program closes whatever it may have inherited.
TEST(AprunStreams, AProgramMayCloseAllDescriptors) {
  const Folder folder;
  const std::string program = folder.compile("daemon", R"(
#define _GNU_SOURCE
#include <aplib/cellos.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char** argv) {
  int own = open(argv[0], O_RDONLY), busy = 0;
  sync(0, 0);
  if (!strcmp(argv[1], "close")) for (int i = 3; i < 1000; ++i) close(i);
  if (!strcmp(argv[1], "range")) close_range(3, ~0U, 0);
  if (!strcmp(argv[1], "from")) closefrom(3);
  if (!strcmp(argv[1], "dup2")) {
    for (int i = 3; i < 1000; ++i) {
      if (i == own) continue;
      if (dup2(own, i) < 0 && errno == EBADF) ++busy; else close(i);
    }
    close(own);
  }
  sync(0, 0);
  if (fcntl(own, F_GETFD) >= 0) printf("open\n");
  int next = (getcid() + 1) % getncel(), got = -1;
  l_asend(next, 0, 0, (char*)&own, sizeof own);
  crecv();
  readmsg((char*)&got, sizeof got);
  printf("cell %d busy %d\n", getcid(), busy > 0);
  return 0;
})");
  for (const char* how : {"close", "range", "from", "dup2"}) {
    const Ended ended = aprun({"-n", "2", program, how});
    EXPECT_EQ(ended.status, 0) << how << ended.error;
    const std::string busy = how == std::string("dup2") ? "1" : "0";
    EXPECT_EQ(sorted_lines(ended.out), (Strings{"cell 0 busy " + busy, "cell 1 busy " + busy})) << how << ended.error;
    EXPECT_EQ(contains(ended.error, "dup2() to descriptor"), busy == "1") << how << ended.error;
  }
}

TEST(AprunStreams, AClosedPipeEndsItQuietly) {
  const Folder folder;
  const std::string program = folder.compile("many", R"(
#include <stdio.h>
int main(void) { for (;;) printf("line after line\n"); }
)");
  const Ended ended =
      run({.arguments = {"/bin/bash", "-c",
                         std::string("set -o pipefail; '") + APRUN_PROGRAM + "' -n 2 '" + program + "' | head -n 1"}});
  EXPECT_EQ(ended.out, "line after line\n");
  EXPECT_EQ(ended.error, "");
  EXPECT_EQ(ended.status, 141);
}

}  // namespace
}  // namespace aplib::test
