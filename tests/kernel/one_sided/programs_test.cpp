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
#include <string.h>
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

// Cell 1's process is stopped while cell 0 works on its heap: nothing there could carry out a request.
TEST_F(OneSidedPrograms, HeapsOfThisHostAreReachedWithoutTheirProcess) {
  const std::string program = folder_.compile("stopped", std::string(begin) + R"(
struct shared { long long word, sum; int flag, pid, pad[2]; char body[200000]; };
static char state_of(int pid) {
  char path[64], text[256] = "", *end;
  FILE* file;
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  file = fopen(path, "r");
  if (file == NULL) return 'X';
  if (fgets(text, sizeof text, file) == NULL) text[0] = 0;
  fclose(file);
  end = strrchr(text, ')');
  return end == NULL ? 'X' : end[2];
}
void cell_main(void) {
  struct shared* all = calloc(1, sizeof *all);
  long long word = 0;
  int i, pid, here = 0;
  all->word = 4711;
  all->pid = (int)syscall(SYS_getpid);
  sync(0, 0);
  if (getcid() == 1) {
    amcheck(&all->flag, 1);
    syscall(SYS_kill, all->pid, SIGSTOP);
    amcheck(&all->flag, 1002);
    if (all->sum == 1000 && all->word == 1000 && all->body[199999] == 77) printf("good\n");
    return;
  }
  get(1, &pid, sizeof pid, &all->pid, &here, 0);   /* from here on it is known where cell 1's heap is */
  amcheck(&here, 1);
  put(1, 0, 0, 0, &all->flag, 0, 0);
  while (state_of(pid) != 'T') usleep(1000);
  memset(all->body, 77, sizeof all->body);
  for (i = 1; i <= 1000; ++i) {
    get(1, &word, sizeof word, &all->word, &here, 0);
    amcheck(&here, 1 + i);
    if (word != (i == 1 ? 4711 : i - 1)) abort();
    word = i;
    put(1, &word, sizeof word, &all->word, &all->flag, 0, 1);
    amackwait();
    if (cellos_fetch_add8(1, &all->sum, 1) != i - 1) abort();
  }
  put(1, all->body, sizeof all->body, all->body, &all->flag, &here, 0);
  syscall(SYS_kill, pid, SIGCONT);
})");
  const Ended ended = in_processes(program, 2, 1);
  EXPECT_EQ(ended.status, 0) << ended.error;
  EXPECT_EQ(ended.out, "good\n") << ended.error;
}

// What is written straight into a heap wakes who sleeps there, with a flag and as a flag.
TEST_F(OneSidedPrograms, SleepersHearOfWhatIsWrittenIntoTheirHeap) {
  const std::string program = folder_.compile("sleepers", std::string(begin) + R"(
struct shared { int raised, written, added, pad; };
void cell_main(void) {
  struct shared* all = calloc(1, sizeof *all);
  int i, other = 1 - getcid();
  sync(0, 0);
  for (i = 1; i <= 60; ++i) {
    if (i % 2 == getcid()) {
      usleep(2000);
      put(other, 0, 0, 0, &all->raised, 0, 0);
      put(other, &i, sizeof i, &all->written, 0, 0, 0);
      cellos_fetch_add(other, &all->added, 1);
    } else {
      amcheck(i % 3 == 0 ? &all->raised : i % 3 == 1 ? &all->written : &all->added, i % 3 == 1 ? i : (i + 1) / 2);
    }
    if (i % 2 == 0) sync(0, 0);
  }
  if (getcid() == 0) printf("good\n");
})");
  const Ended ended = in_processes(program, 2, 1);
  EXPECT_EQ(ended.status, 0) << ended.error;
  EXPECT_EQ(ended.out, "good\n") << ended.error;
}

// No file may be as large as the heaps: then they are private, and frames carry all.
TEST_F(OneSidedPrograms, HeapsThatCannotBeSharedAreReachedByFrames) {
  const std::string program = folder_.compile("private", text_of("hash_table.c"), compat_);
  const Ended ended = run({.arguments = {"/bin/sh", "-c", "ulimit -f 1000000 && exec \"$@\"", "sh", APRUN_PROGRAM, "-f",
                                         local_cluster(folder_, 3, 2), program}});
  expect_good(ended, 6);
}

TEST_F(OneSidedPrograms, DeathOfATargetWhoseHeapIsMappedEndsClearly) {
  const std::string program = folder_.compile("death_mapped", std::string(begin) + R"(
void cell_main(void) {
  int here = 0, i;
  long long* words = calloc(2, sizeof *words);
  sync(0, 0);
  if (getcid() == 0) {
    for (i = 0; ; ++i) {
      long long word;
      get(1, &word, sizeof word, words, &here, 0);
      amcheck(&here, i + 1);
      cellos_fetch_add8(1, words + 1, 1);
    }
  }
  while (*(volatile long long*)(words + 1) < 1000) getcid();
  syscall(SYS_kill, syscall(SYS_getppid), SIGKILL);  // the process that carries the cells
})");
  const Ended ended = in_processes(program, 2, 1);
  EXPECT_EQ(ended.status, 72) << ended.error;
  EXPECT_TRUE(contains(ended.error, "(cell 1) is lost: ")) << ended.error;
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
  syscall(SYS_kill, syscall(SYS_getppid), SIGKILL);  // the process that carries the cells
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
