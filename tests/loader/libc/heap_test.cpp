// SPDX-License-Identifier: MIT
// The heap of loaded programs, counted per instance, and memory at addresses that they choose.
#include "loader/libc/heap.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "compile.hpp"
#include "running.hpp"

namespace aplib::loader::test {
namespace {

class HeapTest : public testing::Test {
 protected:
  std::shared_ptr<const Program> program(const std::string& source, bool accounts = true) {
    LoadOptions options;
    options.account_heap = accounts;
    return Program::load(shop_.compile_cpp("#include <cstdio>\n#include <cstdlib>\n#include <cstring>\n#include <new>\n"
                                           "#include <string>\n#include <vector>\nextern \"C\" {\n" +
                                               source + "}\n",
                                           {"-shared", "-w", "-O0"}, fmt::format("p{}.so", count_++)),
                         options);
  }
  /// Calls the functions of a fresh instance in order, and returns its heap use after each, without what libstdc++ has
  /// taken before.
  std::vector<libc::HeapUse> uses(const std::shared_ptr<const Program>& program,
                                  const std::vector<std::string>& names) {
    RecordingHost host;
    std::vector<libc::HeapUse> seen;
    run_instance(make_instance(program, host), [&](Instance& instance) {
      const libc::HeapUse before = libc::heap_use(instance);
      for (const std::string& name : names) {
        function_of<void()>(instance, name)();
        const libc::HeapUse now = libc::heap_use(instance);
        seen.push_back(
            {now.bytes - before.bytes, now.blocks - before.blocks, now.peak - before.peak, now.calls - before.calls});
      }
      return 0;
    });
    return seen;
  }

 private:
  Workshop shop_;
  int count_ = 0;
};

TEST_F(HeapTest, EveryWayToTakeMemoryIsCountedAndGivenBack) {
  const auto all = program(R"(
    void* held[16];
    struct alignas(64) Wide { char bytes[64]; };
    void take() {
      held[0] = malloc(1000); held[1] = calloc(10, 100); held[2] = realloc(nullptr, 1000); held[3] = reallocarray(nullptr, 10, 100);
      posix_memalign(&held[4], 64, 1000); held[5] = aligned_alloc(64, 1024);
      held[6] = strdup("text"); held[7] = strndup("text", 2); char* made; asprintf(&made, "%d", 5); held[8] = made;
      held[9] = new char[1000]; held[10] = new (std::nothrow) char[1000]; held[11] = new Wide;
    }
    void give() {
      for (int i = 0; i < 9; ++i) free(held[i]);
      delete[] (char*)held[9]; delete[] (char*)held[10]; delete (Wide*)held[11];
    })");
  const auto seen = uses(all, {"take", "give"});
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].blocks, 12);
  EXPECT_EQ(seen[0].calls, 12U);
  EXPECT_GE(seen[0].bytes, 8 * 1000);
  EXPECT_LT(seen[0].bytes, 16 * 1000);
  EXPECT_EQ(seen[1].blocks, 0);
  EXPECT_EQ(seen[1].bytes, 0);
  EXPECT_EQ(seen[1].peak, seen[0].peak);
}

TEST_F(HeapTest, ResizedBlocksAreOne) {
  if (APLIB_ASAN || APLIB_TSAN)
    GTEST_SKIP() << "needs a build without sanitizers: they end the process when asked for too much memory";
  const auto grows = program(R"(
    char* block;
    void start() { block = (char*)malloc(100); memset(block, 'x', 100); }
    void grow() { block = (char*)realloc(block, 100000); if (block[99] != 'x') abort(); }
    void refuse() { if (realloc(block, (size_t)-1 / 2)) abort(); }
    void end() { free(block); free(nullptr); })");
  const auto seen = uses(grows, {"start", "grow", "refuse", "end"});
  ASSERT_EQ(seen.size(), 4U);
  EXPECT_EQ(seen[1].blocks, 1);
  EXPECT_GE(seen[1].bytes, 100000);
  EXPECT_EQ(seen[2].blocks, 1);
  EXPECT_EQ(seen[2].bytes, seen[1].bytes);
  EXPECT_EQ(seen[3].bytes, 0);
}

TEST_F(HeapTest, SharedLibrariesDoNotMakeItNegative) {
  const auto strings = program(R"(
    void churn() { std::string text; std::vector<std::string> all;
      for (int i = 0; i < 1000; ++i) { text += "some text of the program"; all.push_back(text.substr(0, i)); } })");
  const auto seen = uses(strings, {"churn"});
  EXPECT_GE(seen[0].bytes, 0);
  EXPECT_GT(seen[0].calls, 0U);
}

TEST_F(HeapTest, OneInstanceDoesNotCountForAnother) {
  const auto takes =
      program("void* kept; void take() { kept = malloc(5000); } void give() { free(kept); } void nothing() {}");
  EXPECT_GE(uses(takes, {"take", "give"})[0].bytes, 5000);
  EXPECT_EQ(uses(takes, {"nothing"})[0].calls, 0U);
}

TEST_F(HeapTest, NothingIsCountedUnlessAsked) {
  const auto takes = program("void take() { free(malloc(5000)); }", false);
  EXPECT_EQ(uses(takes, {"take"})[0].calls, 0U);
}

/// Programs that map memory where they choose.
class ChosenAddress : public testing::Test {
 protected:
  std::shared_ptr<const Program> load() {
    return Program::load(shop_.compile(R"(
      #define _GNU_SOURCE
      #include <errno.h>
      #include <stdlib.h>
      #include <sys/mman.h>
      #include <sys/shm.h>
      enum { page = 4096, flags = MAP_PRIVATE | MAP_ANONYMOUS };
      static int* mapped;
      static int map_at(char* place, int how) {
        char* got = mmap(place, page, PROT_READ | PROT_WRITE, flags | how, -1, 0);
        return got == place ? 0 : got == MAP_FAILED ? errno : -1;
      }
      int take(char* place) {
        const int error = map_at(place, MAP_FIXED);
        if (error == 0) *(mapped = (int*)place) = 7;
        return error;
      }
      int take_free(char* place) { return map_at(place, MAP_FIXED_NOREPLACE); }
      int give(char* place) { return munmap(place, page); }
      int move_to(char* place) {
        char* from = mmap(NULL, page, PROT_READ | PROT_WRITE, flags, -1, 0);
        return mremap(from, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place ? 0 : errno;
      }
      int attach(char* place) {
        const int segment = shmget(IPC_PRIVATE, page, IPC_CREAT | 0600);
        char* const got = shmat(segment, place, SHM_REMAP);
        const int error = errno;
        shmctl(segment, IPC_RMID, 0);
        return got == place ? 0 : error;
      }
      int detach(char* place) { return shmdt(place); }
      int protect(char* place) { return mprotect(place, page, PROT_NONE) == 0 ? 0 : errno; }
      int advise(char* place) { return madvise(place, page, MADV_DONTNEED) == 0 ? 0 : errno; }
      int grow(char* place) { return mremap(place, page, 2 * page, MREMAP_MAYMOVE) != MAP_FAILED ? 0 : errno; }
      int kept(void) { return *mapped == 7 ? 0 : 1; }
      int refill(void) {
        char* range = mmap(NULL, 8 * page, PROT_NONE, flags, -1, 0);
        void* block;
        if (map_at(range + page, MAP_FIXED) != 0) return 1;
        range[page] = 1;
        if (map_at(range + page, MAP_FIXED) != 0 || range[page] != 0) return 2;
        if (posix_memalign(&block, page, 2 * page) != 0 || map_at(block, MAP_FIXED) != 0) return 3;
        free(block);
        return 0;
      })",
                                       {"-shared", "-O1", "-w"}, "p.so"));
  }
  static char* free_place() {
    constexpr std::size_t bytes = 16 * 4096;  // the system takes the end first
    void* const place = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ::munmap(place, bytes);
    return static_cast<char*>(place);
  }
  /// Runs `body` in an instance of cell 0, or of 1 inside the other's body.
  static void run_in(const std::shared_ptr<const Program>& program, std::uint32_t cell, RecordingHost& host,
                     const std::function<void(Instance&)>& body) {
    ProgramContext* const outer = std::exchange(current_program_context, nullptr);
    run_instance(make_instance(program, host, cell), [&](Instance& instance) {
      body(instance);
      return 0;
    });
    current_program_context = outer;
  }
  static int call(Instance& instance, const char* name, char* place) {
    return function_of<int(char*)>(instance, name)(place);
  }

 private:
  Workshop shop_;
};

TEST_F(ChosenAddress, OfAnotherCellIsNotOverwrittenSilently) {
  const auto program = load();
  char* const place = free_place();
  RecordingHost hosts[2];
  run_in(program, 0, hosts[0], [&](Instance& first) {
    EXPECT_EQ(call(first, "take", place), 0);
    run_in(program, 1, hosts[1], [&](Instance& second) {
      EXPECT_EQ(call(second, "take_free", place), EEXIST);
      call(second, "take", place);
      ADD_FAILURE() << "it was mapped";
    });
    EXPECT_EQ(function_of<int()>(first, "kept")(), 0);
  });
  EXPECT_EQ(hosts[0].failure, "");
  EXPECT_EQ(hosts[1].failed_status, 1);
  EXPECT_NE(hosts[1].failure.find("--processes"), std::string::npos) << hosts[1].failure;
  // The first has ended.
  RecordingHost after;
  run_in(program, 1, after, [&](Instance& third) { EXPECT_EQ(call(third, "take", place), 0); });
  EXPECT_EQ(after.failure, "");
  ::munmap(place, 4096);
}

TEST_F(ChosenAddress, OfAnotherCellIsNotThereForOtherCalls) {
  const auto program = load();
  char* const place = free_place();
  RecordingHost hosts[3];
  run_in(program, 0, hosts[0], [&](Instance& first) {
    EXPECT_EQ(call(first, "take", place), 0);
    run_in(program, 1, hosts[1], [&](Instance& second) {
      EXPECT_EQ(call(second, "give", place), 0);  // as of a process that has nothing there
      EXPECT_EQ(call(second, "protect", place), ENOMEM);
      EXPECT_EQ(call(second, "advise", place), ENOMEM);
      EXPECT_EQ(call(second, "grow", place), EFAULT);
      EXPECT_EQ(call(second, "take_free", place), EEXIST);
      call(second, "move_to", place);
      ADD_FAILURE() << "it was mapped";
    });
    run_in(program, 1, hosts[2], [&](Instance& second) {
      call(second, "attach", place);
      ADD_FAILURE() << "it was attached";
    });
    EXPECT_EQ(function_of<int()>(first, "kept")(), 0);
    EXPECT_EQ(call(first, "protect", place), 0);
    EXPECT_EQ(call(first, "give", place), 0);
  });
  ASSERT_EQ(hosts[1].warnings.size(), 1U);
  EXPECT_NE(hosts[1].warnings[0].find("MAP_FIXED_NOREPLACE"), std::string::npos) << hosts[1].warnings[0];
  EXPECT_NE(hosts[1].failure.find("mremap(MREMAP_FIXED)"), std::string::npos) << hosts[1].failure;
  EXPECT_NE(hosts[2].failure.find("shmat(SHM_REMAP)"), std::string::npos) << hosts[2].failure;
}

TEST_F(ChosenAddress, IsTakenByOtherCallsToo) {
  const auto program = load();
  char* const place = free_place();
  for (const bool attaches : {false, true}) {
    RecordingHost hosts[2];
    run_in(program, 0, hosts[0], [&](Instance& first) {
      EXPECT_EQ(call(first, attaches ? "attach" : "move_to", place), 0);
      run_in(program, 1, hosts[1], [&](Instance& second) {
        EXPECT_EQ(call(second, "protect", place), ENOMEM);
        call(second, "take", place);
        ADD_FAILURE() << "it was mapped";
      });
      EXPECT_EQ(call(first, attaches ? "detach" : "give", place), 0);
      EXPECT_EQ(call(first, "take", place), 0);
      EXPECT_EQ(call(first, "give", place), 0);
    });
    EXPECT_NE(hosts[1].failure.find("--processes"), std::string::npos) << hosts[1].failure;
  }
}

TEST_F(ChosenAddress, IsFreeAgainOnceItIsUnmapped) {
  const auto program = load();
  char* const place = free_place();
  RecordingHost hosts[2];
  run_in(program, 0, hosts[0], [&](Instance& first) {
    EXPECT_EQ(call(first, "take_free", place), 0);
    EXPECT_EQ(call(first, "give", place), 0);
    // Now the second has it from elsewhere, as by mmap() where the system chooses.
    ASSERT_EQ(::mmap(place, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0), place);
    run_in(program, 1, hosts[1], [&](Instance& second) {
      EXPECT_EQ(call(second, "take", place), 0);
      EXPECT_EQ(call(second, "take", place), 0);  // its own
    });
  });
  EXPECT_EQ(hosts[1].failure, "");
  ::munmap(place, 4096);
}

TEST_F(ChosenAddress, InMemoryOfTheProgramItselfIsMapped) {
  RecordingHost host;
  run_in(load(), 0, host, [](Instance& instance) { EXPECT_EQ(function_of<int()>(instance, "refill")(), 0); });
  EXPECT_EQ(host.failure, "");
}

}  // namespace
}  // namespace aplib::loader::test
