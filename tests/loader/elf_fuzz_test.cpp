// SPDX-License-Identifier: MIT
// For any bytes in a file, open() either throws Error or returns an object that keeps its promises. Another seed:
// APLIB_TEST_SEED=n.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "aplib/error.hpp"
#include "checks.hpp"
#include "compile.hpp"
#include "elf_invariants.hpp"
#include "elf_mutator.hpp"

namespace aplib::loader {
namespace {

using test::Workshop;
using testing_support::test_seed;

constexpr int mutations_per_file = 4000;

/// A file in memory, rewritten for each mutation.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(::memfd_create("mutation", MFD_CLOEXEC)) {
    if (descriptor_ < 0) throw std::runtime_error("no memory files here");
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  void write(const std::vector<char>& bytes) const {
    const bool written = ::ftruncate(descriptor_, 0) == 0 &&
                         ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size());
    if (!written) throw std::runtime_error("a memory file cannot be written");
  }
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

class ElfFuzzTest : public ::testing::Test {
 protected:
  void fuzz(const std::string& path) const {
    SCOPED_TRACE("seed " + std::to_string(test_seed()));
    ASSERT_EQ(test::broken_promise(*ElfFile::open(path)), "");
    test::ElfMutator mutator(path, test_seed());
    const MemoryFile file;
    int accepted = 0;
    for (int i = 0; i < mutations_per_file; ++i) {
      std::string description;
      file.write(mutator.next(description));
      try {
        const auto opened = ElfFile::open(file.path());
        ++accepted;
        ASSERT_EQ(test::broken_promise(*opened), "") << "mutation " << i << ": " << description;
      } catch (const Error& error) {
        ASSERT_NE(std::string_view(error.what()).find(file.path()), std::string_view::npos)
            << error.what() << " (mutation " << i << ": " << description << ")";
      }
    }
    // Mutations that all fail at the first byte would prove nothing, nor would harmless ones.
    EXPECT_GT(accepted, mutations_per_file / 20);
    EXPECT_LT(accepted, mutations_per_file - mutations_per_file / 20);
  }

  Workshop shop_;
};

constexpr auto source = R"(
    #include <stdio.h>
    #include <stdlib.h>
    __thread int mine = 1;
    static __thread char zero[40];
    int table[20] = {1};
    int* pointers[20] = {[0 ... 19] = &table[3]};
    __attribute__((constructor)) static void begin(void) { mine = 2; }
    __attribute__((destructor)) static void end(void) { mine = 3; }
    int call(const char* text) { return puts(text) + mine + zero[3] + *pointers[2] + (malloc(3) != 0); }
)";

TEST_F(ElfFuzzTest, SharedObject) { fuzz(shop_.compile(source, {"-shared", "-s", "-Wl,-soname,x,-rpath,/y"}, "a.so")); }

TEST_F(ElfFuzzTest, OldStyle) {
  fuzz(shop_.compile(source, {"-shared", "-s", "-Wl,--hash-style=sysv,-z,norelro,-z,noseparate-code"}, "a.so"));
}

TEST_F(ElfFuzzTest, PackedRelocations) {
  const Workshop::Flags flags{"-Wl,-z,pack-relative-relocs"};
  if (!shop_.knows(flags)) GTEST_SKIP() << "needs a linker that packs relocations";
  fuzz(shop_.compile(source, {"-shared", "-s", flags[0]}, "a.so"));
}

TEST_F(ElfFuzzTest, Versions) {
  const std::string script = shop_.write("map", "V1 { global: f; }; V2 { global: f; call; local: *; } V1;");
  fuzz(shop_.compile(std::string(source) + R"(
      int f_old(void) { return 1; }
      int f_new(void) { return 2; }
      __asm__(".symver f_old, f@V1");
      __asm__(".symver f_new, f@@V2");
  )",
                     {"-shared", "-s", "-Wl,--version-script=" + script}, "a.so"));
}

TEST_F(ElfFuzzTest, Executable) {
  fuzz(shop_.compile("#include <stdio.h>\nint main(void) { return fputs(\"x\", stdout) < 0; }", {"-fPIE", "-pie", "-s"},
                     "program"));
}

}  // namespace
}  // namespace aplib::loader
