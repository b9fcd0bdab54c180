// SPDX-License-Identifier: MIT
// The heap of loaded programs, counted per instance.
#include "loader/libc/heap.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

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

}  // namespace
}  // namespace aplib::loader::test
