// SPDX-License-Identifier: MIT
// The heap of programs under aprun: in the slot if they use put and get.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "aprun.hpp"
#include "checks.hpp"
#include "process.hpp"
#include "task/switch.hpp"

namespace aplib::test {
namespace {

using testing_support::contains;

// An old program, whose remote memory is an address in a table that it has allocated.
constexpr const char* putting = R"(
#include <aplib/cellos.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct entry { int key, value; char name[40]; };
int main(void) {
  const int me = getcid(), cells = getncel();
  char* before = malloc(1000);
  struct entry** table = calloc(cells, sizeof *table);
  int* arrived = calloc(1, sizeof *arrived);
  for (int i = 0; i < cells; ++i) table[i] = calloc(1, sizeof(struct entry));
  free(before);
  sync(0, 0);
  for (int i = 0; i < cells; ++i) {
    struct entry mine = {me, 100 * me + i, "put by its owner"};
    put(i, &mine, sizeof mine, table[me], arrived, NULL, 0);
  }
  amcheck(arrived, cells);
  for (int i = 0; i < cells; ++i)
    if (table[i]->key != i || table[i]->value != 100 * i + me || strcmp(table[i]->name, "put by its owner")) return 3;
  sync(0, 0);
  for (int i = 0; i < cells; ++i) free(table[i]);
  free(table);
  free(arrived);
  return 0;
})";

TEST(AprunHeap, TablesOfOldProgramsAreReachedByTheirOwnAddresses) {
  const Folder folder;
  const std::string program = folder.compile("table", putting);
  for (const char* threads : {"1", "2", "per-cell"}) {
    const Ended ended = aprun({"-n", "6", "--threads", threads, program});
    EXPECT_EQ(ended.status, 0) << ended.error;
    EXPECT_EQ(ended.error, "");
  }
  EXPECT_EQ(aprun({"-n", "6", "--heap", "slot", "--account-heap", program}).status, 0);
  const Ended shared = aprun({"-n", "2", "--heap", "libc", program});
  EXPECT_NE(shared.status, 0);
  EXPECT_TRUE(contains(shared.error, "cannot be reached")) << shared.error;
}

TEST(AprunHeap, ItIsCountedInTheSlotToo) {
  const Folder folder;
  const std::string program = folder.compile("kept", R"(
#include <stdlib.h>
static char* volatile kept;
static char* volatile freed;
int main(void) { kept = malloc(100000); freed = malloc(50); free(freed); return kept == NULL; })");
  const Ended ended = aprun({"-n", "2", "--heap", "slot", "--account-heap", program});
  EXPECT_EQ(ended.status, 0);
  EXPECT_TRUE(contains(ended.error, "aprun: cell 1: heap: at most 97.")) << ended.error;
  EXPECT_TRUE(contains(ended.error, "(calls: 2); not freed at its end: 97.")) << ended.error;
}

TEST(AprunHeap, ADoubleFreeEndsTheRunInWords) {
  const Folder folder;
  const std::string program = folder.compile("twice", R"(
#include <stdlib.h>
int main(void) { char* volatile block = malloc(50); free(block); free(block); return 0; })");
  const Ended ended = aprun({"-n", "2", "--heap", "slot", program});
  EXPECT_EQ(ended.status, 134);
  EXPECT_TRUE(contains(ended.error, "free(): 0x")) << ended.error;
  EXPECT_TRUE(contains(ended.error, "is no block of the heap, or has been freed before")) << ended.error;
}

// In messages of any size, on cells and on the host.
TEST(AprunHeap, FreeingTheBodyOfAMessageEndsTheRunInWords) {
  const Folder folder;
  const std::string program = folder.compile("body", R"(
#include <aplib/cellos.h>
#include <stdlib.h>
static char bytes[100000];
static void give_up(char* body) { if (bytes[0] == 'f') free(body); else body = realloc(body, 200000); }
int host_main(int argc, char** argv) {
  bytes[0] = argv[1][0];
  ccreat("body", 0, NULL);
  cbroad(0, 0, bytes, atoi(argv[2]));
  waitstable();
  return 0;
}
void cell_main(void) { char* body = h_recv(0); bytes[0] = body[0]; free(NULL); give_up(body); })",
                                             "-O0");
  for (const char* size : {"4", "100", "100000"}) {
    for (const char* call : {"free", "realloc"}) {
      const Ended ended = aprun({program, call, size});
      EXPECT_EQ(ended.status, 134);
      EXPECT_TRUE(contains(ended.error, std::string("cell 0 task 0: ") + call + "(): 0x")) << ended.error;
      EXPECT_TRUE(contains(ended.error, " is the body of the message received last, ")) << ended.error;
      EXPECT_TRUE(contains(ended.error, "leave this call out, or copy the body by readmsg or crecvs")) << ended.error;
    }
  }
}

// Pointers to globals, to blocks and to bodies, small ones and large ones, go through ints and keep all their bits.
TEST(AprunHeap, PointersOfOldProgramsFitIntoInts) {
  const Folder folder;
  const std::string program =
      folder.compile("low", R"(
#include <stdio.h>
#include <stdlib.h>
static char global[100000];
static int wrong;
check(pointer, what) char *pointer, *what; {
  int kept = (int)(long)pointer;
  if ((char*)(long)kept == pointer) return;
  fprintf(stderr, "%s is at %p\n", what, pointer);
  wrong = 3;
}
bodies(next) char* (*next)(); {
  int i;
  check(global, "a global");
  check(malloc(10), "a block");
  check(malloc(200000), "a large block");
  for (i = 0; i < 3; ++i) check(next(), "a body");
  check(malloc(10), "a block");
}
char* of_host() { return h_recv(0); }
char* of_cell() { return crecv(); }
int host_main() {
  ccreat("low", 0, 0);
  cbroad(0, 0, global, 4);
  cbroad(0, 0, global, 4000);
  cbroad(0, 0, global, sizeof global);
  bodies(of_cell);
  while (crecv())
    ;
  return wrong;
}
cell_main() {
  bodies(of_host);
  h_send(0, global, 4);
  h_send(0, global, 4000);
  h_send(0, global, sizeof global);
  cell_exit(wrong);
})",
                     "-std=gnu89 -w -Wno-return-type -include " TEST_INCLUDE "/aplib/compat/old.h");
  for (const char* cells : {"1", "3", "64"}) {
    const Ended ended = aprun({"-n", cells, program});
    EXPECT_EQ(ended.status, 0) << ended.error;
    EXPECT_EQ(ended.error, "");
  }
  const Ended high = aprun({"-n", "3", "--low-memory", "off", program});
  EXPECT_EQ(high.status, 3);
  for (const char* what : {"a global", "a block", "a large block", "a body"})
    EXPECT_TRUE(contains(high.error, std::string(what) + " is at 0x")) << high.error;
}

// What a cell's share has no room for is said.
TEST(AprunHeap, GlobalsThatDoNotFitBelowTwoGibibytesAreToldOf) {
  const Folder folder;
  const std::string program =
      folder.compile("large", "char global[6 << 20];\nint main(void) { global[5] = 1; return 0; }");
  EXPECT_EQ(aprun({"-n", "4", "--low-memory", "on", program}).error, "");
  const Ended ended = aprun({"-n", "64", "--low-memory", "on", program});
  EXPECT_EQ(ended.status, 0);
  EXPECT_TRUE(contains(ended.error, " and a cell has 4096 KiB below 2 GiB: its globals lie above")) << ended.error;
}

// Programs that allocate and free large blocks again and again get their pages once.
TEST(AprunHeap, WhatProgramsFreeIsKeptForWhatTheyAllocateNext) {
  if (APLIB_ASAN || APLIB_TSAN) GTEST_SKIP() << "needs a build without sanitizers: malloc is theirs";
  const Folder folder;
  const std::string program = folder.compile("again", R"(
#include <aplib/cellos.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
enum { blocks = 8, bytes = 2 << 20, page = 4096 };
static void one_round(void) {
  char* block[blocks];
  for (int i = 0; i < blocks; ++i) memset(block[i] = malloc(bytes), i, bytes);
  for (int i = 0; i < blocks; ++i) free(block[i]);
}
static long faults(void) { struct rusage use; getrusage(RUSAGE_SELF, &use); return use.ru_minflt; }
int main(void) {
  one_round();
  one_round();
  sync(0, 0);  /* the process's faults count, also those of the other cell's first round */
  const long before = faults();
  for (int i = 0; i < 20; ++i) one_round();
  return faults() - before < blocks * (bytes / page) ? 0 : 3;
})");
  for (const char* threads : {"1", "2"}) EXPECT_EQ(aprun({"-n", "2", "--threads", threads, program}).status, 0);
}

TEST(AprunHeap, ProgramsSeeTheTunablesOfTheUser) {
  const Folder folder;
  const std::string program = folder.compile("tunables", R"(
#include <stdio.h>
#include <stdlib.h>
int main(void) {
  const char* text = getenv("GLIBC_TUNABLES");
  puts(getenv("AP_GLIBC_TUNABLES") != NULL ? "a variable of ours" : text != NULL ? text : "none");
  return 0;
})");
  EXPECT_EQ(aprun({"-n", "1", program}).out, "none\n");
  for (const char* text : {"glibc.rtld.nns=5", "glibc.malloc.hugetlb=0"}) {
    const Ended ended = aprun({"-n", "1", program}, {.arguments = {}, .environment = {{"GLIBC_TUNABLES", text}}});
    EXPECT_EQ(ended.out, std::string(text) + "\n");
  }
}

TEST(AprunHeap, AProcessForOneCellHasTheHeapOfAProcess) {
  const Folder folder;
  // What a process was executed with, whatever it has restored since.
  const std::string program = folder.compile("settings", R"(
#include <stdio.h>
#include <string.h>
int main(void) {
  char text[65536];
  FILE* file = fopen("/proc/self/environ", "r");
  const size_t bytes = fread(text, 1, sizeof text - 1, file);
  text[bytes] = 0;
  for (char* each = text; each < text + bytes; each += strlen(each) + 1)
    if (strstr(each, "glibc.malloc") != NULL) return puts("tuned"), 0;
  puts("plain");
  return 0;
})");
  EXPECT_EQ(aprun({"--direct", program, "settings"}).out, "plain\n");
  const Ended kept = aprun(
      {"-n", "2", "--processes", "/bin/sh", "-c", "tr '\\0' '\\n' </proc/$PPID/environ | grep -c glibc.malloc; true"});
  EXPECT_EQ(kept.out, "0\n0\n") << kept.error;  // what keeps a process
  const char* const together = APLIB_ASAN || APLIB_TSAN ? "plain\nplain\n" : "tuned\ntuned\n";
  EXPECT_EQ(aprun({"-n", "2", program}).out, together);
}

TEST(AprunHeap, TheOptionHasThreeValues) {
  const Ended ended = aprun({"--heap", "stack", "x"});
  EXPECT_EQ(ended.status, 2);
  EXPECT_TRUE(contains(ended.error, "\"stack\" is not a place for heaps: use auto, slot or libc")) << ended.error;
}

}  // namespace
}  // namespace aplib::test
