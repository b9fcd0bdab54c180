// SPDX-License-Identifier: MIT
// Executables as plain compilers make them, on cells: where they begin, what they hold of libraries, thread-locals at
// fixed places, and what is refused.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "aprun.hpp"
#include "checks.hpp"
#include "process.hpp"

namespace aplib::test {
namespace {

using Strings = std::vector<std::string>;
using testing_support::contains;

class Executable : public testing::Test {
 protected:
  /// Compiles and links with nothing but `options`; a name that ends in "cpp" by the C++ compiler. Returns the program.
  [[nodiscard]] std::string build(const std::string& name, const std::string& source, Strings options = {"-O1"}) const {
    const bool cpp = name.ends_with("cpp");
    const std::string file = folder_.write(cpp ? name : name + ".c", source);
    options.insert(options.begin(), {cpp ? TEST_CXX_COMPILER : TEST_COMPILER, file, "-o", file + ".out"});
    const Ended ended = run({.arguments = options});
    EXPECT_EQ(ended.status, 0) << ended.error;
    return file + ".out";
  }

  /// Of a program on four cells: what one process prints, once for each cell. All on one thread, and on several.
  void expect_as_alone(const std::string& program, const Strings& arguments = {}) const {
    Strings alone{program};
    alone.insert(alone.end(), arguments.begin(), arguments.end());
    const Ended expected = run({.arguments = alone});
    for (const char* const threads : {"1", "2", "per-cell"}) {
      Strings words{"-n", "4", "--threads", threads};
      words.insert(words.end(), alone.begin(), alone.end());
      const Ended ended = aprun(words);
      EXPECT_EQ(ended.status, expected.status) << ended.error;
      EXPECT_EQ(sorted_lines(ended.out), sorted_lines(expected.out + expected.out + expected.out + expected.out))
          << ended.error;
    }
  }

  void expect_refused(const std::string& program, const Strings& parts) const {
    const Ended ended = aprun({"-n", "2", program});
    EXPECT_EQ(ended.status, 2);
    for (const std::string& part : parts) EXPECT_TRUE(contains(ended.error, part)) << ended.error;
  }

  /// For the thread-locals of `program`. Some compilers and linkers put others of aprun's there.
  [[nodiscard]] static bool has_room(const std::string& program) {
    return !contains(aprun({"-n", "1", program}).error, "for which this process has no room");
  }

  const Folder folder_;
};

TEST_F(Executable, BeginsOnceWithItsArgumentsAndEndsAsEver) {
  const std::string program = build("begin", R"(
#include <stdio.h>
#include <stdlib.h>
static int constructed;
__attribute__((constructor)) static void construct(int argc, char** argv, char** envp) {
  constructed += argc == 3 && argv[3] == 0 && envp[0] != 0;
}
__attribute__((destructor)) static void destroy(void) { puts("destroyed"); }
static void at_exit(void) { puts("at exit"); }
int main(int argc, char** argv, char** envp) {
  atexit(at_exit);
  printf("%d %d %s %s %d\n", constructed, argc, argv[1], argv[2], envp[0] != 0 && getenv("PATH") != 0);
  if (argv[1][0] == 'e') exit(7);
  return argv[1][0] == 'r' ? 3 : 0;
})");
  expect_as_alone(program, {"nothing", "b c"});
  expect_as_alone(program, {"return", "--help"});
  expect_as_alone(program, {"exit", ""});
}

TEST_F(Executable, SeesVariablesOfLibcWhereItHoldsThem) {
  const std::string program = build("variables", R"(
#define _GNU_SOURCE
#include <errno.h>
#include <error.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
int main(int argc, char** argv) {
  int option;
  while ((option = getopt(argc, argv, "a:b")) != -1) printf("%c %s %d; ", option, optarg ? optarg : "-", optind);
  for (; optind < argc; ++optind) printf("%s; ", argv[optind]);
  setenv("HOUSE", "green", 1);
  char** entry = environ;
  while (*entry && strncmp(*entry, "HOUSE=", 6) != 0) ++entry;
  printf("%s; ", *entry ? *entry : "no house");
  static char* other[] = {"HOUSE=red", 0};
  environ = other;
  putenv("TZ=UTC+3");
  tzset();
  printf("%s %ld %s; ", getenv("HOUSE"), timezone, tzname[0]);
  volatile double x = -0.5;
  printf("%d %s; ", (lgamma(x), signgam), program_invocation_short_name);
  fflush(stdout);
  error(0, 0, "to be counted");
  fprintf(stdout, "%u\n", error_message_count);
  return 0;
})",
                                    {"-O1", "-lm"});
  const Ended header = run({.arguments = {"/bin/sh", "-c", "readelf -rW '" + program + "' | grep -c _COPY"}});
  if (header.out == "0\n") GTEST_SKIP() << "needs a compiler that makes copies of objects";
  expect_as_alone(program, {"-a", "one", "two", "-b", "three"});
}

TEST_F(Executable, WritesAndReadsByStreamsOfItsOwn) {
  const std::string program = build("streams.cpp", R"(
#include <clocale>
#include <ctime>
#include <iomanip>
#include <iostream>
#include <locale>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>
struct Base { virtual ~Base() = default; virtual int value() const { return 1; } };
struct Derived : Base, std::runtime_error {
  Derived() : std::runtime_error("derived") {}
  int value() const override { return 2; }
};
int main() {
  std::cout << std::hex << std::setfill('.') << std::setw(8) << 255 << '\n';
  std::clog << "log" << std::endl;
  std::cerr << "err" << std::endl;
  std::wcout << L"wide" << std::endl;
  std::string line;
  std::cout << bool(std::getline(std::cin, line)) << std::cin.eof() << std::endl;
  std::cout << (std::cin.tie() == &std::cout) << std::use_facet<std::ctype<char>>(std::locale()).toupper('a') << '\n';
  std::unique_ptr<Base> base = std::make_unique<Derived>();
  std::cout << base->value() << (dynamic_cast<std::exception*>(base.get()) != nullptr) << '\n';
  std::shared_ptr<std::vector<int>> shared(new std::vector<int>(3)), same = shared;
  std::ostringstream text;
  const std::time_t zero = 0;
  text << std::put_time(std::gmtime(&zero), "%Y") << shared.use_count();
  std::cout << text.str() << '\n';
  try {
    std::vector<int>().at(1);
  } catch (const std::logic_error& error) {
    std::cout << error.what() << '\n';
  }
  try {
    throw Derived();
  } catch (const std::exception& error) {
    std::cout << error.what() << std::endl;
  }
})");
  expect_as_alone(program);
}

TEST_F(Executable, AnExceptionThatNobodyCatchesIsToldInWords) {
  const Ended ended = aprun({"-n", "2", build("throws.cpp", R"(
#include <stdexcept>
int main() { throw std::runtime_error("no bread"); })")});
  EXPECT_EQ(ended.status, 134);
  EXPECT_TRUE(contains(ended.error, "no bread")) << ended.error;
}

constexpr const char* thread_locals = R"(
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
struct Pair { int* target; long number; };
static int global = 7;
static _Thread_local struct Pair first = {&global, 40};
_Thread_local int zero[30];
static _Thread_local _Alignas(64) char aligned[64] = "here";
static void* in_thread(void* unused) {
  for (int i = 0; i < 100; ++i) { first.number += 1; zero[29] += 2; sched_yield(); }
  *(long*)unused = first.number + zero[29] + (aligned[0] == 'h') + (first.target == &global);
  return 0;
}
int main(void) {
  long* place = &first.number;
  int* last = &zero[29];
  for (int i = 0; i < 1000; ++i) {
    first.number += 1;
    *last += 1;
    if (place != &first.number || *place != 41 + i || zero[29] != 1 + i || *first.target != 7) return 1;
    aligned[1] = (char)('a' + i % 26);
    sched_yield();
    if (aligned[1] != (char)('a' + i % 26) || (unsigned long)aligned % 64 != 0) return 2;
  }
  pthread_t thread;
  long result = 0;
  if (pthread_create(&thread, 0, in_thread, &result) != 0) return 3;
  pthread_join(thread, 0);
  printf("%ld %ld %d\n", result, first.number, zero[29]);
  return 0;
})";

constexpr const char* needs_room = "needs thread-locals of aprun's right below the thread pointer";

// Collectors and interpreters look for the ends of their stack.
TEST_F(Executable, IsToldWhereItsStackLies) {
  expect_as_alone(build("stack", R"(
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
extern void* __libc_stack_end;
int main(void) {
  pthread_attr_t mine;
  void* low;
  size_t bytes;
  char here;
  pthread_getattr_np(pthread_self(), &mine);
  pthread_attr_getstack(&mine, &low, &bytes);
  pthread_attr_destroy(&mine);
  puts(&here >= (char*)low && &here < (char*)low + bytes ? "inside" : "outside");
  puts(&here < (char*)__libc_stack_end && (char*)__libc_stack_end <= (char*)low + bytes ? "below" : "above");
})",
                        {"-O1", "-pthread"}));
}

TEST_F(Executable, TellsThatItsThreadHasOverflowedItsStack) {
  const Ended ended = aprun({"-n", "1",
                             build("deep", R"(
#include <pthread.h>
static int deep(int n) { volatile char page[2048]; page[0] = (char)n; return n ? deep(n - 1) + page[0] : 0; }
static void* work(void* x) { return deep(1000000) ? x : 0; }
int main(void) { pthread_t t; pthread_create(&t, 0, work, 0); pthread_join(t, 0); })",
                                   {"-O0", "-pthread"})});
  EXPECT_EQ(ended.status, 71) << ended.error;
  EXPECT_TRUE(contains(ended.error, "a thread that the program made: stack overflow")) << ended.error;
}

TEST_F(Executable, HasThreadLocalsOfItsOwnWhereverItRuns) {
  const std::string program = build("locals", thread_locals);
  if (!has_room(program)) GTEST_SKIP() << needs_room;
  expect_as_alone(program);
}

TEST_F(Executable, WithTooManyThreadLocalsIsAProcess) {
  if (!has_room(build("locals", thread_locals))) GTEST_SKIP() << needs_room;
  const Ended ended =
      aprun({"-n", "2", build("much", "_Thread_local char much[8192] = {7}; int main(void) { return much[0]; }")});
  EXPECT_EQ(ended.status, 7) << ended.error;
  EXPECT_TRUE(contains(ended.error, "8192 bytes of thread-locals")) << ended.error;
  EXPECT_TRUE(contains(ended.error, "--processes")) << ended.error;
}

// libc and libstdc++, which cells share, would free what it allocates, and it what they do.
TEST_F(Executable, WithAnAllocatorOfItsOwnIsAProcess) {
  const std::string own_new = build("new.cpp", R"(
#include <cstdio>
#include <cstdlib>
#include <new>
#include <sstream>
#include <string>
static int foreign;
void* operator new(std::size_t bytes) {
  auto* const block = static_cast<std::size_t*>(std::malloc(bytes + 16));
  block[0] = 0x600d;
  return block + 2;
}
void operator delete(void* block) noexcept {
  if (block == nullptr) return;
  auto* const begin = static_cast<std::size_t*>(block) - 2;
  if (begin[0] != 0x600d) ++foreign; else std::free(begin);
}
void operator delete(void* block, std::size_t) noexcept { operator delete(block); }
int main() {
  for (int i = 0; i < 100; ++i) {
    std::ostringstream text;
    text << "a number that is too long for a short string: " << i;
    std::string copy = text.str() + text.str();
  }
  std::puts(foreign == 0 ? "fine" : "foreign");
})");
  const Ended ended = aprun({"-n", "2", own_new});
  EXPECT_EQ(ended.out, "fine\nfine\n") << ended.error;
  EXPECT_EQ(ended.error, "") << "libstdc++ is the cell's, and uses it too";
}

TEST_F(Executable, IsAProcessWhereItCannotBeLoadedSeveralTimes) {
  const Ended ended = aprun({"-n", "2", build("fixed", "int main(void) { return 7; }", {"-no-pie"})});
  EXPECT_EQ(ended.status, 7);
  EXPECT_TRUE(contains(ended.error, "one fixed address")) << ended.error;
  EXPECT_TRUE(contains(ended.error, "each of its cells is a process")) << ended.error;
}

TEST_F(Executable, IsAProcessWhereCellsCannotHaveWhatItHolds) {
  struct Case {
    std::string name, source;
    Strings options;
    std::string why;
  };
  const std::string ends = " int main(void) { return 7; }";
  const Case cases[] = {
      {"getdate",
       "#include <time.h>\nint main(void) { return 7 + getdate_err; }",
       {"-D_GNU_SOURCE"},
       "a copy of 'getdate_err'"},
      {"text", "__asm__(\".text\\nword: .quad main\");" + ends, {"-Wl,-z,notext"}, "text relocations"},
      {"profile", ends, {"-pg"}, "is built with -pg"},
  };
  for (const auto& [name, source, options, why] : cases) {
    Strings all{"-O1", "-fPIE", "-pie"};
    all.insert(all.end(), options.begin(), options.end());
    const Ended ended = aprun({"-n", "2", build(name, source, all)}, {.arguments = {}, .folder = folder_.path()});
    EXPECT_EQ(ended.status, 7) << name;
    EXPECT_TRUE(contains(ended.error, why) && contains(ended.error, "each of its cells is a process")) << ended.error;
    EXPECT_EQ(std::ranges::count(ended.error, '\n'), 2) << ended.error << "with that of the status";
  }
  EXPECT_GT(std::filesystem::file_size(folder_ / "gmon.out"), 0U);
}

TEST_F(Executable, WithoutMainIsRefused) {
  expect_refused(build("bare", "void _start(void) { for (;;) {} }", {"-nostartfiles", "-pie"}),
                 {"has no cell_main, main or MAIN__"});
}

TEST_F(Executable, ThatGivesRightsIsAProcess) {
  const std::string program = build("rights", "int main(void) { return 0; }");
  ASSERT_EQ(::chmod(program.c_str(), S_ISGID | S_IRWXU | S_IXGRP), 0);
  struct stat status {};
  ASSERT_EQ(::stat(program.c_str(), &status), 0);
  if ((status.st_mode & S_ISGID) == 0) GTEST_SKIP() << "needs temporary files that may be set-user-ID";
  const Ended ended = aprun({"-n", "2", program});
  EXPECT_EQ(ended.status, 0);
  EXPECT_TRUE(contains(ended.error, "set-group-ID") && contains(ended.error, "is a process")) << ended.error;
}

}  // namespace
}  // namespace aplib::test
