// SPDX-License-Identifier: MIT
// Standard streams of loaded programs: each instance has its own, through its host.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "compile.hpp"
#include "running.hpp"

namespace aplib::loader::test {
namespace {

std::string text_of(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

class StdioTest : public testing::Test {
 protected:
  std::shared_ptr<const Program> program(const std::string& source, Workshop::Flags flags = {}) {
    flags.insert(flags.begin(), {"-shared", "-w"});
    return Program::load(
        shop_.compile("#define _GNU_SOURCE\n#include <stdio.h>\n#include <stdlib.h>\n"
                      "#include <string.h>\n#include <unistd.h>\n#include <wchar.h>\n" +
                          source,
                      flags, fmt::format("p{}.so", count_++)));
  }
  Workshop shop_;

 private:
  int count_ = 0;
};

TEST_F(StdioTest, EveryWayToPrintReachesTheHost) {
  const Ran ran = run(program(R"(
    #include <stdarg.h>
    #include <sys/uio.h>
    static void v(const char* f, ...) { va_list a; va_start(a, f); vprintf(f, a); va_end(a); }
    static void vd(const char* f, ...) { va_list a; va_start(a, f); vdprintf(1, f, a); va_end(a); }
    int main() {
      printf("a%d\n", 1); v("b%s\n", "2"); puts("c"); putchar('d'); putchar_unlocked('\n');
      fputs("e\n", stdout); fprintf(stdout, "f%c\n", 'f'); fwrite("g\n", 1, 2, stdout); putc('h', stdout);
      putc_unlocked('\n', stdout);
      fflush(stdout);
      write(1, "i\n", 2); dprintf(1, "j%d\n", 10); vd("k%d\n", 11);
      struct iovec pieces[2] = {{"l", 1}, {"\n", 1}};
      if (writev(1, pieces, 2) != 2) return 1;
      FILE* named = fopen("/dev/stdout", "w"); fputs("m\n", named); fclose(named);
      FILE* again = fdopen(1, "w"); fputs("n\n", again); fclose(again);
      fprintf(stderr, "E%d\n", 1); write(2, write(1, "lost", 4) < 0 ? "F\n" : "?\n", 2);
      return 0;
    })"));
  EXPECT_EQ(ran.outcome.status, 0);
  EXPECT_EQ(ran.out, "a1\nb2\nc\nd\ne\nff\ng\nh\ni\nj10\nk11\nl\nm\nn\n");
  EXPECT_EQ(ran.err, "E1\nF\n");
}

TEST_F(StdioTest, FortifiedFunctionsPrintToo) {
  const Ran ran = run(program(R"(
    int main(int argc, char** argv) { printf("%s %d\n", argv[0], argc); fprintf(stderr, "%d\n", argc); dprintf(1, "%d\n", argc); return 0; })",
                              {"-O2", "-D_FORTIFY_SOURCE=2"}),
                      {"name"});
  EXPECT_EQ(ran.out, "1\nname 1\n");  // buffered output comes last
  EXPECT_EQ(ran.err, "1\n");
}

TEST_F(StdioTest, BytesOfTwoInstancesDoNotMeetInABuffer) {
  const auto shared = program(R"(
    void part(const char* text) { printf("%s", text); }
    void show() { fflush(stdout); })");
  RecordingHost first;
  RecordingHost second;
  auto one = make_instance(shared, first, 0);
  auto two = make_instance(shared, second, 1);
  using Part = void(const char*);
  const auto call = [](std::unique_ptr<Instance>& instance, auto&& body) {
    TaskContext context(*instance);
    current_program_context = &context;
    body();
    instance->disown(context);
    current_program_context = nullptr;
  };
  auto* part_one = function_of<Part>(*one, "part");
  auto* part_two = function_of<Part>(*two, "part");
  call(one, [&] { part_one("one, "); });
  call(two, [&] { part_two("two, "); });
  call(one, [&] { part_one("and one\n"); });
  call(two, [&] { part_two("and two\n"); });
  EXPECT_EQ(first.out, "");  // still buffered
  call(one, [&] { function_of<void()>(*one, "show")(); });
  EXPECT_EQ(first.out, "one, and one\n");
  EXPECT_EQ(second.out, "");
  run_instance(std::move(two), [](Instance&) { return 0; });
  EXPECT_EQ(second.out, "two, and two\n");  // never flushed by the program
  run_instance(std::move(one), [](Instance&) { return 0; });
  EXPECT_EQ(first.out, "one, and one\n");
}

TEST_F(StdioTest, FlushOfEverythingIsOfTheInstanceAlone) {
  const auto shared = program("void put(const char* text) { fputs(text, stdout); } int all() { return fflush(NULL); }");
  RecordingHost first;
  RecordingHost second;
  auto two = make_instance(shared, second, 1);
  Instance& other = *two;
  run_instance(make_instance(shared, first, 0), [&](Instance& one) {
    function_of<void(const char*)>(one, "put")("one");
    ProgramContext* mine = current_program_context;
    {
      TaskContext context(other);
      current_program_context = &context;
      function_of<void(const char*)>(other, "put")("two");
      other.disown(context);
    }
    current_program_context = mine;
    EXPECT_EQ(function_of<int()>(one, "all")(), 0);
    EXPECT_EQ(first.out, "one");
    EXPECT_EQ(second.out, "");
    return 0;
  });
}

TEST_F(StdioTest, StderrReachesTheHostInOnePieceACall) {
  struct Pieces : RecordingHost {
    void write(Stream stream, std::span<const char> bytes) override {
      if (stream == Stream::err) pieces.emplace_back(bytes.data(), bytes.size());
    }
    std::vector<std::string> pieces;
  } host;
  run_instance(make_instance(program(R"(int main() { fprintf(stderr, "%d and %s\n", 1, "two"); fputs("three\n", stderr);
                                               perror("four"); fwprintf(stderr, L"%d\n", 5); return 0; })"),
                             host),
               call_main);
  ASSERT_EQ(host.pieces.size(), 4U);
  EXPECT_EQ(host.pieces[0], "1 and two\n");
  EXPECT_EQ(host.pieces[1], "three\n");
  EXPECT_EQ(host.pieces[3], "5\n");
}

TEST_F(StdioTest, BufferingIsAsTheProgramAsks) {
  const Ran ran = run(program(R"(
    static char own[1000];
    int main() {
      setvbuf(stdout, NULL, _IONBF, 0);
      printf("unbuffered ");
      write(1, "- ", 2);
      setvbuf(stdout, own, _IOLBF, sizeof own);
      printf("line\nrest ");
      write(1, "- ", 2);
      fflush(stdout);
      write(1, "end\n", 4);
      printf("in the program's own memory\n partial");
      return 0;
    })"));
  EXPECT_EQ(ran.out, "unbuffered - line\n- rest end\nin the program's own memory\n partial");
}

TEST_F(StdioTest, FlushIsPassedOn) {
  struct Flushes : RecordingHost {
    void flush(Stream stream) override {
      if (stream == Stream::out) seen.push_back(out);
    }
    std::vector<std::string> seen;
  } host;
  run_instance(
      make_instance(program(R"(int main() { printf("Name: "); fflush(stdout); printf("x\n"); return 0; })"), host),
      call_main);
  ASSERT_FALSE(host.seen.empty());
  EXPECT_EQ(host.seen.front(), "Name: ");
}

TEST_F(StdioTest, EachReadsItsOwnInput) {
  const auto reader = program(R"(
    int main() {
      int a = 0, b = 0; char word[20] = "", line[40] = "", *more = NULL; size_t room = 0;
      int got = scanf("%d %d", &a, &b);
      printf("%d:%d,%d", got, a, b);
      int c = getchar();
      printf(" %d", c);
      if (fgets(line, sizeof line, stdin)) printf(" %s", line);
      if (getline(&more, &room, stdin) > 0) printf("%s", more);
      free(more);
      ungetc('!', stdin); putchar(getchar());
      if (read(0, word, 3) >= 0) printf("%s %d\n", word, getchar());
      return feof(stdin) ? 7 : 0;
    })");
  const Ran one = run(reader, {"r"}, 0, "1 2\nfirst line\nsecond line\n");
  const Ran two = run(reader, {"r"}, 1, "33 44\nother\n");
  EXPECT_EQ(one.out, "2:1,2 10 first line\nsecond line\n! -1\n");
  EXPECT_EQ(one.outcome.status, 7);
  EXPECT_EQ(two.out, "2:33,44 10 other\n! -1\n");
  const Ran none = run(reader, {"r"}, 2);  // no input at all
  EXPECT_EQ(none.out, "-1:0,0 -1! -1\n");
}

TEST_F(StdioTest, StandardStreamsCanBeReopened) {
  const std::string file = shop_.path("reopened");
  const std::string input = shop_.write("input", "42 from a file\n");
  const auto reopens = program(R"(
    int main(int argc, char** argv) {
      FILE* before = stdout;
      int number = 0; char text[20];
      printf("to the host\n");
      if (freopen(argv[1], "w", stdout) != before) return 1;
      if (fileno(stdout) != 1) return 2;
      printf("to the file\n");
      write(1, "", 0);
      fputs("also\n", before);
      if (!freopen(argv[2], "r", stdin) || scanf("%d from %s", &number, text) != 2 || fileno(stdin) != 0) return 3;
      printf("%d %s\n", number, text);
      fflush(stdout);
      write(1, "directly\n", 9);
      if (freopen("/nowhere/at/all", "w", stderr)) return 4;
      return fprintf(stderr, "lost") < 0 ? 0 : 5;
    })");
  const Ran ran = run(reopens, {"r", file, input});
  EXPECT_EQ(ran.outcome.status, 0);
  EXPECT_EQ(ran.out, "to the host\n");
  EXPECT_EQ(ran.err, "");
  EXPECT_EQ(text_of(file), "to the file\nalso\n42 a\ndirectly\n");
  // The next instance is not affected.
  const Ran next = run(program("int main() { printf(\"host\\n\"); return fileno(stdout); }"), {"r"}, 1);
  EXPECT_EQ(next.out, "host\n");
  EXPECT_EQ(next.outcome.status, 1);
}

TEST_F(StdioTest, RedirectionByDescriptorsAndBack) {
  const std::string file = shop_.path("redirected");
  const Ran ran = run(program(R"(
    #include <fcntl.h>
    int main(int argc, char** argv) {
      printf("before\n"); fflush(stdout);
      int saved = dup(1), other = open(argv[1], O_WRONLY | O_CREAT, 0600);
      if (dup2(other, 1) != 1) return 1;
      close(other);
      printf("inside\n"); fflush(stdout);
      if (dup2(saved, 1) != 1) return 2;
      close(saved);
      printf("after\n"); fflush(stdout);
      if (dup2(1, 2) != 2) return 3;
      fprintf(stderr, "joined\n");
      if (close(1) != 0 || write(1, "x", 1) != -1 || close(1) != -1) return 4;
      return 0;
    })"),
                      {"d", file});
  EXPECT_EQ(ran.outcome.status, 0);
  EXPECT_EQ(ran.out, "before\nafter\njoined\n");
  EXPECT_EQ(text_of(file), "inside\n");
}

TEST_F(StdioTest, AClosedStandardDescriptorIsTheNextToOpen) {
  const std::string file = shop_.path("lowest");
  const Ran ran = run(program(R"(
    #include <fcntl.h>
    #include <poll.h>
    #include <sys/mman.h>
    #include <sys/stat.h>
    int main(int argc, char** argv) {
      struct stat status;
      struct pollfd both[2] = {{0, POLLIN, 0}, {2, POLLOUT, 0}};
      int saved = dup(1), ends[2];
      close(1);
      if (open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600) != 1) return 1;
      printf("inside\n");
      if (fflush(stdout) != 0 || fsync(1) != 0 || fstat(1, &status) != 0 || status.st_size != 7) return 2;
      if ((fcntl(1, F_GETFL) & O_ACCMODE) != O_RDWR || ftruncate(1, 6) != 0) return 3;
      char* mapped = mmap(NULL, 6, PROT_READ, MAP_SHARED, 1, 0);
      if (mapped == MAP_FAILED || memcmp(mapped, "inside", 6) != 0) return 4;
      close(1);
      if (dup(saved) != 1) return 5;
      close(saved);
      printf("after\n");
      if (pipe(ends) != 0 || ends[0] < 3) return 6;
      close(0);
      if (dup(ends[0]) != 0 || poll(both, 1, 0) != 0 || write(ends[1], "x", 1) != 1 || poll(both, 2, -1) < 1) return 7;
      if (both[0].revents != POLLIN) return 8;
      return getchar() == 'x' && open("/dev/null", O_RDONLY) > 2 ? 0 : 9;
    })"),
                      {"d", file});
  EXPECT_EQ(ran.outcome.status, 0);
  EXPECT_EQ(ran.out, "after\n");
  EXPECT_EQ(text_of(file), "inside");
}

TEST_F(StdioTest, WhatIsLeftOpenIsWrittenAtTheEnd) {
  const std::string file = shop_.path("left-open");
  const auto leaves = program(R"(
    static char buffer[4096];
    int main(int argc, char** argv) {
      FILE* left = fopen(argv[1], "w");
      setvbuf(left, buffer, _IOFBF, sizeof buffer);
      fprintf(left, "never closed\n");
      FILE* closed = tmpfile(); fputs("x", closed); fclose(closed);
      FILE* memory = fmemopen(NULL, 10, "w"); fputs("y", memory);
      printf("no newline");
      exit(3);
    })");
  const Ran ran = run(leaves, {"l", file});
  EXPECT_EQ(ran.outcome.status, 3);
  EXPECT_EQ(ran.out, "no newline");
  EXPECT_EQ(text_of(file), "never closed\n");
}

TEST_F(StdioTest, DescriptorsAreNotLostWithInstances) {
  const auto leaves = program(
      R"(int main(int argc, char** argv) { fopen("/dev/null", "w"); freopen("/dev/null", "w", stdout); return dup(0); })");
  ::close(run(leaves).outcome.status);  // the first one opens what all use
  const int first = run(leaves).outcome.status;
  ::close(first);
  const int second = run(leaves).outcome.status;
  ::close(second);
  EXPECT_EQ(first, second);
}

TEST_F(StdioTest, PrintingAfterCloseIsAnErrorAndNoMore) {
  const Ran ran = run(program(R"(
    static void late(void) { if (printf("late") >= 0 && fflush(stdout) == 0) _exit(9); }
    int main() { atexit(late); printf("kept\n"); return fclose(stdout); })"));
  EXPECT_EQ(ran.outcome.status, 0);
  EXPECT_EQ(ran.out, "kept\n");
}

TEST_F(StdioTest, WideCharacters) {
  const auto wide = program(R"(
    int main() {
      wprintf(L"%d %ls %s\n", 1, L"two", "three"); putwchar(L'w'); fputws(L"ide\n", stdout);
      if (fwide(stdout, 0) <= 0) return 1;
      int number = 0; wchar_t text[20];
      if (wscanf(L"%d %ls", &number, text) != 2) return 2;
      wprintf(L"%d <%ls>\n", number, text);
      if (getwchar() != L'\n' || ungetwc(L'X', stdin) != L'X') return 3;
      if (!fgetws(text, 20, stdin)) return 4;
      fputws(text, stdout);
      return getwchar() == WEOF ? 0 : 5;
    })");
  const Ran ran = run(wide, {"w"}, 0, "77 word\nline\n");
  EXPECT_EQ(ran.outcome.status, 0);
  EXPECT_EQ(ran.out, "1 two three\nwide\n77 <word>\nXline\n");
}

TEST_F(StdioTest, AThousandInstancesPrint) {
  const auto prints = program(
      R"(int main(int argc, char** argv) { for (int i = 0; i < 3; ++i) printf("%s %d\n", argv[1], i); return 0; })");
  constexpr int instances = 1000;
  std::vector<std::unique_ptr<RecordingHost>> hosts;
  std::vector<std::unique_ptr<Instance>> made;
  for (int i = 0; i < instances; ++i) {
    hosts.push_back(std::make_unique<RecordingHost>());
    made.push_back(make_instance(prints, *hosts.back(), static_cast<std::uint32_t>(i), {"p", std::to_string(i)}));
  }
  std::vector<std::thread> threads;
  for (int half = 0; half < 2; ++half) {
    threads.emplace_back([&made, half] {
      for (int i = half; i < instances; i += 2) run_instance(std::move(made[static_cast<std::size_t>(i)]), call_main);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < instances; ++i) {
    const std::string name = std::to_string(i);
    EXPECT_EQ(hosts[static_cast<std::size_t>(i)]->out, name + " 0\n" + name + " 1\n" + name + " 2\n");
  }
}

}  // namespace
}  // namespace aplib::loader::test
