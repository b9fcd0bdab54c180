// SPDX-License-Identifier: MIT
// Programs whose malloc takes memory from their cell's slot.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "aplib/error.hpp"
#include "compile.hpp"
#include "loader/libc/heap.hpp"
#include "loader/resolver.hpp"
#include "memory/slot_heap.hpp"
#include "running.hpp"

namespace aplib::loader::test {
namespace {

class CellWithHeap : public RecordingHost {
 public:
  explicit CellWithHeap(std::uint32_t cell, std::string input = {})
      : RecordingHost(fmt::format("cell {} task 0", cell), std::move(input)), cell_(cell) {}
  SlotHeap* heap(bool) override { return heap_.get(cell_); }
  [[nodiscard]] const CellHeap& owner() const { return heap_; }

 private:
  std::uint32_t cell_;
  CellHeap heap_;
};

class SlotHeapOfPrograms : public testing::Test {
 protected:
  std::shared_ptr<const Program> load(const std::string& file, HeapPlace heap = HeapPlace::slot, bool counts = false) {
    LoadOptions options;
    options.heap = heap;
    options.account_heap = counts;
    return Program::load(file, options);
  }
  std::shared_ptr<const Program> c(const std::string& text) {
    return load(shop_.compile(c_prologue + text, {"-shared", "-O0", "-w", "-D_GNU_SOURCE", "-pthread"}, next_name()));
  }
  std::shared_ptr<const Program> cpp(const std::string& text, const char* optimisation = "-O2") {
    return load(shop_.compile_cpp(cpp_prologue + text, {"-shared", optimisation, "-w", "-std=c++20"}, next_name()));
  }
  /// Runs main on a cell and returns its output.
  static std::string output_of(const std::shared_ptr<const Program>& program, std::uint32_t cell,
                               const std::string& input = {}) {
    CellWithHeap host(cell, input);
    const auto outcome = run_instance(make_instance(program, host, cell), call_main);
    EXPECT_EQ(outcome.status, 0) << host.out << host.err << host.failure;
    return host.out;
  }

  std::string next_name() { return fmt::format("p{}.so", count_++); }
  // in_slot(): whether the address is in the heap of the cell with these globals.
  static inline const std::string common = fmt::format(
      R"(
    static char anchor;
    static int in_slot(const void* block) {{
      const uintptr_t slot = ((uintptr_t)&anchor - {0:#x}) / {1:#x}, offset = (uintptr_t)block - {0:#x} - slot * {1:#x};
      return offset >= {2:#x} / 4 && offset < {2:#x} / 2;
    }}
    #define CHECK(what) do {{ if (!(what)) {{ printf("%d: %s\n", __LINE__, #what); exit(1); }} }} while (0)
    )",
      SlotPlan::base, SlotPlan::distance, SlotPlan::bytes);
  static inline const std::string c_prologue =
      "#include <errno.h>\n#include <malloc.h>\n#include <pthread.h>\n#include <stdint.h>\n#include <stdio.h>\n"
      "#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n#include <wchar.h>\n" +
      common;
  static inline const std::string cpp_prologue =
      "#include <cstdint>\n#include <cstdio>\n#include <cstdlib>\n#include <cstring>\n#include <functional>\n"
      "#include <map>\n#include <memory>\n#include <new>\n#include <sstream>\n#include <string>\n#include <vector>\n" +
      common;
  static constexpr const char* include = "-I" APLIB_TEST_INCLUDE;
  Workshop shop_;

 private:
  int count_ = 0;
};

TEST_F(SlotHeapOfPrograms, EveryFunctionOfMallocGivesMemoryOfTheSlot) {
  const auto program = c(R"(
    int main(void) {
      void* block[12] = {malloc(10), calloc(3, 7), realloc(NULL, 5), reallocarray(NULL, 3, 9), memalign(64, 100),
                         aligned_alloc(4096, 8192), valloc(10), pvalloc(10), strdup("text"), strndup("text", 2),
                         wcsdup(L"wide"), malloc(50000000 % (1 << 22))};
      for (int i = 0; i < 12; ++i) { CHECK(block[i] != NULL); CHECK(in_slot(block[i])); CHECK(malloc_usable_size(block[i]) > 0); }
      CHECK((uintptr_t)block[4] % 64 == 0); CHECK((uintptr_t)block[5] % 4096 == 0);
      CHECK((uintptr_t)block[6] % 4096 == 0); CHECK(malloc_usable_size(block[7]) >= 4096);
      CHECK(strcmp(block[8], "text") == 0); CHECK(strcmp(block[9], "te") == 0); CHECK(wcscmp(block[10], L"wide") == 0);
      void* made = NULL;
      CHECK(posix_memalign(&made, 256, 10) == 0); CHECK(in_slot(made)); CHECK((uintptr_t)made % 256 == 0);
      free(made); made = NULL;
      CHECK(posix_memalign(&made, 3, 10) == EINVAL); CHECK(posix_memalign(&made, 24, 10) == EINVAL); CHECK(made == NULL);
      char* text = strdup("a text that moves");
      text = realloc(text, 100000); CHECK(in_slot(text)); CHECK(strcmp(text, "a text that moves") == 0);
      text = realloc(text, 6); CHECK(in_slot(text)); CHECK(memcmp(text, "a text", 6) == 0);
      CHECK(realloc(text, 0) == NULL);
      for (int i = 0; i < 12; ++i) free(block[i]);
      free(NULL); CHECK(malloc_usable_size(NULL) == 0);
      void* empty = malloc(0); CHECK(empty != NULL); free(empty);
      return 0; })");
  for (const std::uint32_t cell : {0U, 3U}) EXPECT_EQ(output_of(program, cell), "");
}

// Slots are alike only up to alignments of a page.
TEST_F(SlotHeapOfPrograms, WhatIsAlignedBeyondPagesLiesElsewhereAndTheHeapIsAlikeInAllCells) {
  const auto program = c(R"(
    int main(void) {
      void* wide[2] = {NULL, aligned_alloc(1 << 16, 1 << 16)};
      CHECK(posix_memalign(&wide[0], 1 << 21, 10) == 0);
      for (int i = 0; i < 2; ++i) { CHECK(wide[i] != NULL); CHECK(!in_slot(wide[i])); memset(wide[i], 'x', 10); }
      CHECK((uintptr_t)wide[0] % (1 << 21) == 0); CHECK((uintptr_t)wide[1] % (1 << 16) == 0);
      printf("%td ", (char*)malloc(5000) - &anchor);
      free(wide[0]); CHECK((wide[1] = realloc(wide[1], 1 << 17)) != NULL); CHECK(*(char*)wide[1] == 'x'); free(wide[1]);
      printf("%td", (char*)aligned_alloc(4096, 5000) - &anchor);
      return 0; })");
  EXPECT_EQ(output_of(program, 0), output_of(program, 3));
}

TEST_F(SlotHeapOfPrograms, VariablesAlignedBeyondPagesAreRefusedWhereOthersNameThem) {
  const std::string file = shop_.compile("char wide[8192] __attribute__((aligned(8192))); int main(void) { return 0; }",
                                         {"-shared"}, "wide.so");
  EXPECT_EQ(load(file, HeapPlace::libc)->alignment(), 8192U);
  try {
    load(file);
    FAIL() << "loaded";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("wide.so: has variables aligned to 8192 bytes"), std::string::npos)
        << error.what();
  }
  EXPECT_NE(load(shop_.compile("int main(void) { return 0; }", {"-shared", "-Wl,-z,max-page-size=0x200000"}, "old.so")),
            nullptr)
      << "the linker's largest page is nothing that variables need";
}

TEST_F(SlotHeapOfPrograms, WhatDoesNotFitIsRefusedAsMallocDoes) {
  const auto program = c(R"(
    static size_t volatile huge = SIZE_MAX / 2, quarter = )" +
                         std::to_string(SlotPlan::heap_bytes()) + R"(;
    #define REFUSED(call) errno = 0; CHECK((call) == NULL); CHECK(errno == ENOMEM)
    int main(void) {
      char* kept = malloc(100); kept[99] = 'x';
      REFUSED(malloc(huge)); REFUSED(malloc(SIZE_MAX - quarter + quarter)); REFUSED(malloc(quarter)); REFUSED(calloc(huge, 3)); REFUSED(calloc(quarter, 1));
      REFUSED(realloc(kept, huge)); REFUSED(realloc(kept, quarter)); REFUSED(reallocarray(kept, huge, huge)); CHECK(kept[99] == 'x');
      REFUSED(aligned_alloc(4096, quarter)); REFUSED(memalign((size_t)1 << 62, 10)); REFUSED(pvalloc(SIZE_MAX - 5 + quarter - quarter));
      void* made = NULL; errno = 7; CHECK(posix_memalign(&made, 64, quarter) == ENOMEM); CHECK(errno == 7);
      for (int round = 0; round < 2; ++round) {
        void* all[100]; int count = 0;
        while ((all[count] = malloc(quarter / 10)) != NULL) ++count;
        CHECK(count == 9);
        while (count > 0) free(all[--count]);
      }
      free(kept);
      return 0; })");
  EXPECT_EQ(output_of(program, 1), "");
}

TEST_F(SlotHeapOfPrograms, MemoryOfLibcIsFreedAndResizedAsEver) {
  const auto program = c(R"(
    int main(void) {
      char* made; CHECK(asprintf(&made, "%d %s", 5, "five") == 6); CHECK(!in_slot(made)); CHECK(malloc_usable_size(made) >= 7);
      made = realloc(made, 1000); CHECK(memcmp(made, "5 five", 7) == 0); free(made);
      char* folder = realpath("/", NULL); CHECK(strcmp(folder, "/") == 0); free(folder);
      char* printed; size_t length; FILE* memory = open_memstream(&printed, &length);
      for (int i = 0; i < 1000; ++i) fprintf(memory, "%d ", i);
      fclose(memory); CHECK(length > 3000); free(printed);
      // libc resizes and frees memory that the program has allocated.
      char* line = malloc(4); size_t room = 4;
      CHECK(getline(&line, &room, stdin) == 34); CHECK(strncmp(line, "a line that is longer than 4 bytes", 33) == 0);
      CHECK(getline(&line, &room, stdin) == 6); CHECK(strcmp(line, "short\n") == 0); free(line);
      line = NULL; room = 0; CHECK(getdelim(&line, &room, 'z', stdin) > 0); free(line);
      char buffer[100]; FILE* file = fopen("/dev/null", "w"); setvbuf(file, malloc(1 << 12), _IOFBF, 1 << 12); fputs("x", file); fclose(file);
      return 0; })");
  EXPECT_EQ(output_of(program, 2, "a line that is longer than 4 byte\nshort\nthe rest z"), "");
}

TEST_F(SlotHeapOfPrograms, ObjectsAndStringsOfCxxLive) {
  const std::string text = R"(
    struct alignas(128) Wide { char bytes[128]; };
    static std::string grow(std::string text) { for (int i = 0; i < 200; ++i) text += "0123456789"; return text; }
    extern "C" int main() {
      const bool slot = )";
  const std::string rest = R"(;
      auto number = std::make_unique<int>(5); CHECK(in_slot(number.get()) == slot);
      auto wide = std::make_unique<Wide>(); CHECK(in_slot(wide.get()) == slot); CHECK((uintptr_t)wide.get() % 128 == 0);
      auto many = std::unique_ptr<Wide[]>(new Wide[3]); CHECK((uintptr_t)many.get() % 128 == 0);
      std::vector<double> field(1000, 1.5); CHECK(in_slot(field.data()) == slot); field.resize(100000); CHECK(field[999] == 1.5);
      std::map<std::string, std::vector<std::string>> table;
      for (int i = 0; i < 300; ++i) table["key number " + std::to_string(i % 50)].push_back(grow(std::to_string(i)));
      for (auto& [key, list] : table) { CHECK(list.size() == 6); for (auto& each : list) CHECK(each.size() > 2000); }
      std::stringstream stream; for (int i = 0; i < 2000; ++i) stream << i << ' ';
      std::string word, all; while (stream >> word) all.insert(0, word); CHECK(all.size() == 6890);
      std::string line; std::istringstream lines(std::string(5000, 'x') + "\n" + std::string(9000, 'y')); 
      while (std::getline(lines, line)) CHECK(line.size() % 1000 == 0);
      std::string moved = std::move(line); moved.reserve(50000); moved.shrink_to_fit(); moved = std::string(200, 'z');
      std::function<size_t()> call = [table] { return table.size(); }; CHECK(call() == 50);
      CHECK(::operator new((size_t)1 << 62, std::nothrow) == nullptr);
      try { ::operator new((size_t)1 << 50); return 3; } catch (const std::bad_alloc&) {}
      static int asked = 0;
      std::set_new_handler([] { if (++asked == 3) throw std::bad_alloc(); });
      if (slot) { try { ::operator new((size_t)1 << 50); return 4; } catch (const std::bad_alloc&) {} CHECK(asked == 3); }
      std::set_new_handler(nullptr);
      return 0;
    })";
  if (APLIB_ASAN || APLIB_TSAN) {
    EXPECT_FALSE(process_frees_slot_blocks());
    GTEST_SKIP()
        << "needs a build without sanitizers: operator new stays theirs, and ends the process when asked for too much";
  }
  EXPECT_TRUE(process_frees_slot_blocks());
  for (const char* optimisation : {"-O0", "-O2"})
    EXPECT_EQ(output_of(cpp(text + "true" + rest, optimisation), 4), "") << optimisation;
}

TEST_F(SlotHeapOfPrograms, InSanitizerBuildsCxxWorksAllTheSame) {
  if (!APLIB_ASAN && !APLIB_TSAN)
    GTEST_SKIP() << "needs a build with a sanitizer: elsewhere the test before this one does more";
  const auto program = cpp(R"(
    extern "C" int main() {
      std::map<std::string, std::vector<std::string>> table;
      for (int i = 0; i < 300; ++i) table["key number " + std::to_string(i % 50)].push_back(std::string(i, 'x') + "y");
      void* block = malloc(10); CHECK(in_slot(block)); free(block);
      return table.size() != 50; })");
  EXPECT_EQ(output_of(program, 4), "");
}

TEST_F(SlotHeapOfPrograms, CellsThatAllocateAlikeHaveTheSameLayout) {
  const auto program = c(R"(
    static unsigned state = 1;
    static unsigned below(unsigned limit) { state = state * 1664525 + 1013904223; return (state >> 8) % limit; }
    int main(void) {
      static void* held[200];
      for (int i = 0; i < 3000; ++i) {
        void** one = &held[below(200)];
        if (below(3) == 0) { *one = realloc(*one, below(5000) + 1); }
        else if (*one != NULL) { free(*one); *one = NULL; }
        else { *one = below(2) ? malloc(below(500)) : calloc(below(9), below(90)); }
        if (i % 100 == 0) printf("%lx ", *one == NULL ? 0L : (long)((char*)*one - &anchor));
      }
      return 0; })");
  const std::string first = output_of(program, 0);
  EXPECT_GT(first.size(), 100U);
  // At the same time, in other cells and threads.
  std::vector<std::string> others(3);
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < others.size(); ++i)
    threads.emplace_back([&, i] { others[i] = output_of(program, i + 1); });
  for (std::thread& each : threads) each.join();
  for (const std::string& other : others) EXPECT_EQ(other, first);
}

TEST_F(SlotHeapOfPrograms, ThreadsOfTheProgramAllocateToo) {
  const auto program = c(R"(
    static void* work(void* seed) {
      unsigned state = (uintptr_t)seed; char* held[32] = {0};
      for (int i = 0; i < 3000; ++i) {
        state = state * 1664525 + 1013904223; char** one = &held[state >> 27];
        if (*one != NULL) { CHECK(**one == (char)(uintptr_t)seed); free(*one); }
        *one = malloc(state % 700 + 1); CHECK(in_slot(*one)); **one = (char)(uintptr_t)seed;
      }
      for (int i = 0; i < 32; ++i) free(held[i]);
      return strdup("from a thread"); }
    int main(void) {
      pthread_t id[3]; void* result;
      for (uintptr_t i = 0; i < 3; ++i) CHECK(pthread_create(&id[i], NULL, work, (void*)(i + 1)) == 0);
      free(work((void*)9));
      for (int i = 0; i < 3; ++i) { pthread_join(id[i], &result); CHECK(strcmp(result, "from a thread") == 0); free(result); }
      return 0; })");
  EXPECT_EQ(output_of(program, 1), "");
}

TEST_F(SlotHeapOfPrograms, BlocksGoFromCellToCell) {
  const auto program = c(R"(
    void* make(void) { return strdup("from another cell"); }
    int take(void* block) { if (in_slot(block) || strcmp(block, "from another cell")) return 1; block = realloc(block, 5000); free(block); return 0; }
    int reuse(void* before) { void* again = malloc(18); return 0; })");
  CellWithHeap first(0);
  CellWithHeap second(1);
  run_instance(make_instance(program, first, 0), [&](Instance& maker) {
    ProgramContext* const makers = current_program_context;
    void* block = function_of<void*()>(maker, "make")();
    run_instance(make_instance(program, second, 1), [&](Instance& taker) {
      EXPECT_EQ(function_of<int(void*)>(taker, "take")(block), 0);
      return 0;
    });
    current_program_context = makers;
    return 0;
  });
}

TEST_F(SlotHeapOfPrograms, FreeingTwiceEndsTheProgramInWords) {
  const auto program = c("int main(void) { char* block = malloc(20); free(block); free(block); return 0; }");
  CellWithHeap host(0);
  run_instance(make_instance(program, host, 0), call_main);
  EXPECT_NE(host.failed_status, 0);
  EXPECT_NE(host.failure.find("is no block of the heap, or has been freed before"), std::string::npos) << host.failure;
}

TEST_F(SlotHeapOfPrograms, ItIsCountedWhenAsked) {
  const auto program = load(shop_.compile(c_prologue + R"(
    void* held; void take() { held = malloc(5000); free(strdup("text")); } void give() { free(held); })",
                                          {"-shared", "-w"}, "counted.so"),
                            HeapPlace::slot, true);
  CellWithHeap host(0);
  run_instance(make_instance(program, host, 0), [&](Instance& instance) {
    function_of<void()>(instance, "take")();
    EXPECT_GE(libc::heap_use(instance).bytes, 5000);
    EXPECT_EQ(libc::heap_use(instance).blocks, 1);
    function_of<void()>(instance, "give")();
    EXPECT_EQ(libc::heap_use(instance).bytes, 0);
    EXPECT_EQ(libc::heap_use(instance).calls, 2U);
    return 0;
  });
}

TEST_F(SlotHeapOfPrograms, ProgramsThatUseOneSidedCallsHaveItAndOthersNot) {
  const auto compiled = [this](const std::string& text) {
    return shop_.compile(text, {"-shared", "-w", include}, next_name());
  };
  const auto chosen = [this](const std::string& file, HeapPlace asked = HeapPlace::as_needed) {
    return load(file, asked)->options().heap;
  };
  const std::string put =
      compiled("#include <aplib/cellos.h>\nint x; int main(void) { return put(0, &x, sizeof x, &x, NULL, NULL, 0); }");
  EXPECT_EQ(chosen(put), HeapPlace::slot);
  EXPECT_EQ(chosen(put, HeapPlace::libc), HeapPlace::libc);
  const std::string own = compiled(
      "int put_stride(int x) { return x; } int put(int x) { return x; } int main(void) { return put_stride(1) + "
      "put(2); }");
  EXPECT_EQ(chosen(own), HeapPlace::libc) << "functions of its own";
  EXPECT_EQ(chosen(own, HeapPlace::slot), HeapPlace::slot);
}

TEST(OneSidedCalls, AreKnownByTheBeginningsOfTheirNames) {
  for (const char* name : {"cellos_put", "cellos_put_local_flag_first", "cellos_get", "put_stride", "get_stride",
                           "amcheck", "amackwait", "cellos_fetch_add8", "cellos_swap", "cellos_compare_swap"})
    EXPECT_TRUE(is_one_sided_call(name)) << name;
  for (const char* name : {"put", "get", "puts", "getc", "cellos_sync", "l_asend", "malloc", "_ZN5aplib6detail5spawnE"})
    EXPECT_FALSE(is_one_sided_call(name)) << name;
}

// Every function that the headers declare, and nothing of libc.
TEST(CellosCalls, AreKnownByTheBeginningsOfTheirNames) {
  const std::regex declared("APLIB_C_API [a-z *]*[* ]([a-z_0-9]+)\\(");
  std::size_t functions = 0;
  for (const char* header : {"cellos.h", "cellos_one_sided.h", "cellos_reductions.h"}) {
    std::ifstream file(std::string(APLIB_TEST_INCLUDE "/aplib/") + header);
    for (std::string line; std::getline(file, line);) {
      std::smatch found;
      if (!std::regex_search(line, found, declared)) continue;
      const std::string name = found[1];
      if (name == "put" || name == "get") continue;  // of C++, where templates call what is below
      EXPECT_TRUE(is_cellos_call(name) || is_one_sided_call(name)) << name;
      ++functions;
    }
  }
  EXPECT_GT(functions, 110U);
  for (const char* name : {"malloc", "getc", "getchar", "read", "hypot", "lrint", "_ZN5aplib7receiveENS_4FromE"})
    EXPECT_FALSE(is_cellos_call(name)) << name;
}

TEST_F(SlotHeapOfPrograms, ProgramsOfCellosHaveTheirsThere) {
  const std::string file = shop_.compile("#include <aplib/cellos.h>\nvoid cell_main(void) { h_send(0, 0, getcid()); }",
                                         {"-shared", include}, "cell.so");
  const auto program = Program::load(file);
  EXPECT_TRUE(program->has_slot_heap());
  EXPECT_FALSE(program->is_reached()) << "nobody names its memory, which goes with the instance";
  EXPECT_TRUE(load(file, HeapPlace::slot)->is_reached());
}

TEST_F(SlotHeapOfPrograms, OldProgramsAskForLowMemory) {
  const auto compiled = [this](const std::string& body) {
    return shop_.compile("#include <aplib/compat/old.h>\n#include <aplib/cellos_one_sided.h>\nint x;\n" + body,
                         {"-shared", include}, next_name());
  };
  const std::string old = compiled("int main(void) { return 0; }");
  const std::string putting = compiled("int main(void) { return cellos_put(1, &x, 4, &x, 0, 0, 0); }");
  EXPECT_TRUE(Program::load(old)->has_low_memory());
  EXPECT_TRUE(Program::load(old)->has_slot_heap());
  EXPECT_FALSE(Program::load(putting)->has_low_memory()) << "others name its memory by addresses of slots";
  LoadOptions options;
  options.low_memory = false;
  EXPECT_FALSE(Program::load(old, options)->has_low_memory());
  options.low_memory = true;
  EXPECT_TRUE(Program::load(putting, options)->has_low_memory());
}

TEST_F(SlotHeapOfPrograms, CxxAndLibrariesOfTheProgramCount) {
  const auto typed =
      Program::load(shop_.compile_cpp("#include <aplib/one_sided.hpp>\nint x; extern \"C\" int main() { "
                                      "aplib::put(aplib::CellId{0}, x, &x); return 0; }",
                                      {"-shared", "-std=c++20", include}, "typed.so"));
  EXPECT_TRUE(typed->has_slot_heap());
  const std::string library =
      shop_.compile("#include <aplib/cellos.h>\nint fetch(int* to, int* from) { return get(0, to, 4, from, 0, 0); }",
                    {"-shared", include}, "libfetch.so");
  const auto user = Program::load(
      shop_.compile("int x, y; int fetch(int*, int*); int main(void) { return fetch(&x, &y); }",
                    {"-shared", library, "-Wl,-rpath," + library.substr(0, library.rfind('/'))}, "user.so"));
  EXPECT_TRUE(user->has_slot_heap());
}

TEST_F(SlotHeapOfPrograms, ACellThatAllocatesNothingHasNone) {
  const auto program = c("int main(void) { return 0; }");
  CellWithHeap host(0);
  run_instance(make_instance(program, host, 0), call_main);
  EXPECT_EQ(host.owner().made(), nullptr);
}

TEST_F(SlotHeapOfPrograms, WhereThereIsNoHeapMallocFails) {
  const auto program =
      c("int main(void) { errno = 0; CHECK(malloc(10) == NULL); CHECK(errno == ENOMEM); CHECK(calloc(1, 1) == NULL); "
        "return 0; }");
  RecordingHost host;  // has none
  EXPECT_EQ(run_instance(make_instance(program, host), call_main).status, 0) << host.out;
}

}  // namespace
}  // namespace aplib::loader::test
