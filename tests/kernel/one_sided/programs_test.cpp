// SPDX-License-Identifier: MIT
// One-sided communication in C programs that aprun runs, each cell with its own globals, in one process and in several.
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <sstream>
#include <string>

#include "memory/slot.hpp"
#include "nodes.hpp"

namespace aplib::test {
namespace {

std::string text_of(const std::string& name) {
  std::ifstream file(std::string(ONE_SIDED_PROGRAMS) + "/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class OneSidedPrograms : public ::testing::Test {
 protected:
  Ended in_one_process(const std::string& program, unsigned cells, const std::string& threads = "2") {
    return run({.arguments = {APRUN_PROGRAM, "--threads", threads, "-n", std::to_string(cells), program}});
  }
  Ended in_processes(const std::string& program, unsigned processes, unsigned cells) {
    return aprun_cluster(local_cluster(folder_, processes, cells), {program});
  }
  static void expect_good(const Ended& ended, unsigned cells) {
    EXPECT_EQ(ended.status, 0) << ended.error;
    EXPECT_EQ(ended.error, "");
    std::string expected;
    for (unsigned cell = 0; cell < cells; ++cell) expected += "cell " + std::to_string(cell) + ": good\n";
    EXPECT_EQ(sorted_lines(ended.out), sorted_lines(expected));
  }

  Folder folder_;
  const std::string compat_ = std::string("-I") + TEST_INCLUDE + "/aplib/compat";
};

TEST_F(OneSidedPrograms, HashTableOverAllCells) {
  const std::string program = folder_.compile("hash", text_of("hash_table.c"), compat_);
  expect_good(in_one_process(program, 1), 1);
  expect_good(in_one_process(program, 8), 8);
  expect_good(in_processes(program, 3, 2), 6);
}

TEST_F(OneSidedPrograms, TransfersOfAllKinds) {
  const std::string program =
      folder_.compile("transfers", text_of("transfers.c"), SlotPlan::holds_stacks ? "" : "-DSTACKS_ELSEWHERE");
  expect_good(in_one_process(program, 1), 1);
  expect_good(in_one_process(program, 5), 5);
  expect_good(in_processes(program, 2, 2), 4);
}

// put and get are common names, so a program's own functions win.
TEST_F(OneSidedPrograms, OwnFunctionsCalledPutAndGet) {
  const std::string body = R"(
static int flag, value;
const char* put(double x) { return x > 1 ? "go" : "no"; }
int get;
void cell_main(void) {
  int mine = getcid() + 5;
  cellos_sync(0, 0);
  cellos_put(getncel() - 1 - getcid(), &mine, sizeof mine, &value, &flag, 0, 0);
  amcheck(&flag, 1);
  get = value == getncel() - 1 - getcid() + 5;
  printf("cell %d: %s%s\n", getcid(), put(2.5), get ? "od" : "ne");
  sync(0, 0);
}
)";
  expect_good(
      in_one_process(
          folder_.compile("own", "#define APLIB_NO_PUT_GET\n#include <aplib/cellos.h>\n#include <stdio.h>\n" + body),
          4),
      4);
  expect_good(in_one_process(folder_.compile("old", "#include <stdio.h>\n#include <ccell.c7.h>\n" + body, compat_), 4),
              4);
}

constexpr const char* begin = R"(
#include <aplib/cellos.h>
#include <stdio.h>
#include <stdlib.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>
static int value = 1, flag;
static char large[1000000];
)";

TEST_F(OneSidedPrograms, MemoryThatIsNotThereIsNamed) {
  if (APLIB_ASAN || APLIB_TSAN)
    GTEST_SKIP() << "needs a build without sanitizers: they report a bad access in their own way";
  const std::string program = folder_.compile("nowhere", std::string(begin) + R"(
void cell_main(void) {
  sync(0, 0);
  if (getcid() == 0) {
    /* between instances and heap */
    char* nowhere = (char*)((unsigned long)&value / 0x100000000 * 0x100000000 + 0x3ff00000);
    put(1, large, getenv("SIZE") ? sizeof large : 8, nowhere, 0, 0, 0);
  }
  amcheck(&flag, 1);
})");
  const Ended local = in_one_process(program, 2);
  EXPECT_EQ(local.status, 128 + SIGSEGV);
  EXPECT_TRUE(contains(local.error, "aplib: cell 0 task 0: SIGSEGV, bad memory access at address 0x")) << local.error;
  EXPECT_TRUE(
      contains(local.error, ", which is memory of cell 1 (a put, get or atomic of what that cell does not have,"))
      << local.error;
  for (const bool is_large : {false, true}) {
    Start start{.arguments = {}};
    if (is_large) start.environment["SIZE"] = "large";
    const Ended remote = aprun_cluster(local_cluster(folder_, 2, 1), {program}, start);
    EXPECT_EQ(remote.status, 128 + SIGSEGV) << remote.error;
    EXPECT_TRUE(contains(remote.error, "aplib: cell 0: put: SIGSEGV, bad memory access at address 0x")) << remote.error;
    EXPECT_TRUE(contains(remote.error, " of cell 1, where that cell has no such memory")) << remote.error;
  }
}

TEST_F(OneSidedPrograms, DeathOfATargetDuringAPutEndsClearly) {
  const std::string program = folder_.compile("death", std::string(begin) + R"(
void cell_main(void) {
  int i;
  sync(0, 0);
  if (getcid() == 0) {
    for (i = 0; ; ++i) {
      put(1, large, sizeof large, large, i % 100 == 99 ? &flag : 0, 0, 1);
      if (i % 10 == 0) amackwait();
    }
  }
  amcheck(&flag, 1);
  syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
})");
  const Ended ended = in_processes(program, 2, 1);
  EXPECT_EQ(ended.status, 72) << ended.error;
  EXPECT_TRUE(contains(ended.error, "(cell 1) is lost: ")) << ended.error;
}

TEST_F(OneSidedPrograms, MemoryOfACellThatHasEndedStays) {
  const std::string program = folder_.compile("ended", std::string(begin) + R"(
int last = 0;
/* When its exit handlers run, a cell has nothing more to do. */
void ends(void) { put(0, 0, 0, 0, &last, 0, 0); }
void cell_main(void) {
  int i, theirs = 0;
  int* table = malloc(1000 * sizeof(int));
  value = getcid() + 7;
  table[5] = getcid() + 70;
  sync(0, 0);
  if (getcid() != 0) {
    atexit(ends);
    return;
  }
  amcheck(&last, 1);
  for (i = 0; i < 50; ++i) { put(1, large, sizeof large, large, 0, 0, 1); amackwait(); }
  get(1, &theirs, sizeof theirs, &value, &flag, 0);
  amcheck(&flag, 1);
  printf("%d", theirs);
  get(1, &theirs, sizeof theirs, &table[5], &flag, 0);
  amcheck(&flag, 2);
  printf(" %d\n", theirs);
})");
  for (const Ended& ended : {in_one_process(program, 2), in_processes(program, 2, 1)}) {
    EXPECT_EQ(ended.status, 0) << ended.error;
    EXPECT_EQ(ended.out, "8 71\n") << ended.error;
  }
}

TEST_F(OneSidedPrograms, WaitingForAFlagThatNobodyRaisesIsADeadlock) {
  const std::string program = folder_.compile("deadlock", std::string(begin) + R"(
void cell_main(void) {
  sync(0, 0);
  put(1 - getcid(), 0, 0, 0, &flag, 0, 0);
  amcheck(&flag, 2);
})");
  const Ended ended = in_processes(program, 2, 1);
  EXPECT_EQ(ended.status, 70) << ended.error;
  EXPECT_TRUE(contains(ended.error, "cell 1 task 0: waits in amcheck for flag 0x")) << ended.error;
  EXPECT_TRUE(contains(ended.error, " to reach 2, it is 1")) << ended.error;
}

}  // namespace
}  // namespace aplib::test
