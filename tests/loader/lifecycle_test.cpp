// SPDX-License-Identifier: MIT
// From mapping to unmapping: order of constructors and destructors, protection, sharing of text, memory given back,
// files that change.
#include <sys/mman.h>

#include <array>
#include <fstream>
#include <sstream>

#include "aplib/error.hpp"
#include "loaded.hpp"

namespace aplib::loader {
namespace {

using test::Loaded;

/// Lines of /proc/self/maps that name `file`.
std::vector<std::string> maps_of(const std::string& file) {
  std::ifstream maps("/proc/self/maps");
  std::vector<std::string> found;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(file) != line.npos) found.push_back(line);
  }
  return found;
}

/// Sum of a field of /proc/self/smaps over the mappings of `file`, in KiB.
long smaps_of(const std::string& file, const std::string& field, bool executable_only) {
  std::ifstream smaps("/proc/self/smaps");
  long sum = 0;
  bool ours = false;
  for (std::string line; std::getline(smaps, line);) {
    if (line.find('-') < line.find(' ')) {  // a mapping's first line
      ours = line.find(file) != line.npos && (!executable_only || line.find(" r-xp ") != line.npos);
    } else if (ours && line.starts_with(field + ":")) {
      std::istringstream number(line.substr(field.size() + 1));
      long value = 0;
      number >> value;
      sum += value;
    }
  }
  return sum;
}

TEST_F(Loaded, ConstructorsAndDestructorsRunOnceInOrderWithArguments) {
  shop.compile(R"(
    #include <stdio.h>
    extern void note(const char*);
    __attribute__((constructor)) static void begin(void) { note("library "); }
    __attribute__((destructor)) static void end(void) { note("~library "); })",
               {"-shared", "-Wl,-soname,libfirst.so"}, "libfirst.so");
  const auto program = load(R"(
    #include <stdio.h>
    #include <string.h>
    static char text[300];
    char* external;
    void note(const char* word) {
      snprintf(text + strlen(text), 100, "%s", word);
      if (external) memcpy(external, text, sizeof text);
    }
    __attribute__((constructor(101))) static void early(int argc, char** argv) { if (argc == 2 && !strcmp(argv[1], "x")) note("early "); }
    __attribute__((constructor(102))) static void late(void) { note("late "); }
    __attribute__((destructor(101))) static void last(void) { note("last "); }
    __attribute__((destructor(102))) static void before(void) { note("before "); }
    void set(char* place) { external = place; note("main "); })",
                            {"-L" + shop.folder(), "-Wl,--no-as-needed", "-lfirst", "-Wl,-rpath,$ORIGIN"});
  for (std::uint32_t cell = 0; cell < cells; ++cell) {
    std::array<char, 300> text{};
    test::RecordingHost host;
    test::run_instance(test::make_instance(program, host, cell, {"program", "x"}), [&text](Instance& instance) {
      test::function_of<void(char*)>(instance, "set")(text.data());
      return 0;
    });
    EXPECT_STREQ(text.data(), "library early late main before last ~library ");
  }
}

TEST_F(Loaded, RelocatedDataIsReadOnlyAndGapsHaveNoAccess) {
  const auto program =
      load("int target; int* const pointer = &target; int step(int x) { return pointer == &target ? x : 0; }",
           {"-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,separate-code", "-Wl,-z,max-page-size=0x10000"});
  test::RecordingHost host;
  test::run_instance(test::make_instance(program, host), [&](Instance& instance) {
    const Range relro = program->images()[0].file->relro();
    EXPECT_FALSE(relro.empty());
    bool read_only = false;
    for (const std::string& line : maps_of("program.so")) {
      std::istringstream words(line);
      std::uint64_t low = 0;
      char dash = 0;
      std::string mode;
      words >> std::hex >> low >> dash >> low >> mode;
      EXPECT_FALSE(mode[1] == 'w' && mode[2] == 'x') << line;
      std::uint64_t begin = 0;
      std::istringstream(line) >> std::hex >> begin;
      if (begin == reinterpret_cast<std::uint64_t>(instance.images()[0].base) + relro.address)
        read_only = mode[1] == '-';
    }
    EXPECT_TRUE(read_only);
    return test::function_of<int(int)>(instance, "step")(0);
  });
}

TEST_F(Loaded, TextIsSharedAndEverythingIsGivenBack) {
  const auto program = load("int data = 1; int step(int x) { data += x; return data; }");
  EXPECT_TRUE(maps_of("program.so").empty());
  std::array<test::RecordingHost, 50> hosts;
  std::vector<std::unique_ptr<Instance>> instances;
  for (std::uint32_t i = 0; i < hosts.size(); ++i) {
    instances.push_back(test::make_instance(program, hosts[i], i));
    // Touches the text page.
    volatile char seen = *reinterpret_cast<const char*>(test::function_of<int(int)>(*instances.back(), "step"));
    static_cast<void>(seen);
  }
  EXPECT_GE(maps_of("program.so").size(), 3 * hosts.size());
  EXPECT_EQ(smaps_of("program.so", "Private_Dirty", true), 0) << "a text page was written";
  EXPECT_GT(smaps_of("program.so", "Rss", true), 0);
  instances.clear();
  EXPECT_TRUE(maps_of("program.so").empty());
}

TEST_F(Loaded, InstancesOfOneCellLieSideBySideAndTheSameInAllCells) {
  const auto program = load("int step(int x) { return x; }");
  std::array<test::RecordingHost, 4> hosts;
  std::vector<std::unique_ptr<Instance>> instances;
  for (std::uint32_t i = 0; i < 4; ++i) instances.push_back(test::make_instance(program, hosts[i], i % 2));
  const auto base = [&](std::size_t i) { return instances[i]->images()[0].base; };
  EXPECT_EQ(base(1) - base(0), static_cast<std::ptrdiff_t>(SlotPlan::distance));
  EXPECT_EQ(base(3) - base(2), static_cast<std::ptrdiff_t>(SlotPlan::distance));
  EXPECT_GT(base(2), base(0));
  EXPECT_LT(base(2), base(0) + (1 << 20));
}

TEST_F(Loaded, LargeAlignmentIsHonoured) {
  const auto program =
      load("int data __attribute__((aligned(0x200000))) = 1; int step(int x) { data += x; return data; }");
  EXPECT_EQ(program->alignment(), 0x200000U);
  test::RecordingHost host;
  const auto instance = test::make_instance(program, host);
  EXPECT_EQ(reinterpret_cast<std::uint64_t>(instance->images()[0].base) % 0x200000, 0U);
  EXPECT_EQ(in_turns(program, "step", {1, 2}), (std::vector<int>{3, 5}));
}

TEST_F(Loaded, AReplacedFileIsRefusedAndRunningInstancesGoOn) {
  const auto program = load("int step(int x) { return x + 1; }");
  test::RecordingHost host;
  test::run_instance(test::make_instance(program, host), [&](Instance& instance) {
    // As editors and installers do: a new file takes the name. The instance keeps the old one.
    const std::string other = shop.compile("int step(int x) { return x + 2; }", {"-shared"}, "other.so");
    std::filesystem::rename(other, program->path());
    EXPECT_EQ(test::function_of<int(int)>(instance, "step")(1), 2);
    try {
      test::RecordingHost second;
      test::make_instance(program, second, 1);
      ADD_FAILURE() << "an instance was made of a file that is no longer there";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(program->path()), std::string::npos) << error.what();
    }
    return 0;
  });
}

TEST_F(Loaded, ThousandsOfInstancesFitIntoOneProcess) {
  const auto program = load("int data = 1; int table[1000]; int* p = &data; int step(int x) { data += x; return *p; }",
                            {"-Wl,-z,noseparate-code"});
  constexpr std::uint32_t count = 2000;
  test::RecordingHost host;
  std::vector<std::unique_ptr<Instance>> instances;
  for (std::uint32_t i = 0; i < count; ++i) instances.push_back(test::make_instance(program, host, i));
  for (std::uint32_t i = 0; i < count; ++i)
    ASSERT_EQ(test::function_of<int(int)>(*instances[i], "step")(static_cast<int>(i)), static_cast<int>(i) + 1);
}

}  // namespace
}  // namespace aplib::loader
