// SPDX-License-Identifier: MIT
#include "loader/program.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>

#include "compile.hpp"
#include "elf_bytes.hpp"
#include "refusal.hpp"

namespace aplib::loader {
namespace {

using test::contains;
using test::refusal;
using test::Workshop;

constexpr auto plain = "int value = 1; int* get(void) { return &value; }";

/// Sets LD_LIBRARY_PATH for one test.
class LibraryPath {
 public:
  explicit LibraryPath(const char* text) {
    const char* old = std::getenv(name);
    if (old != nullptr) old_ = old;
    had_ = old != nullptr;
    set(text);
  }
  ~LibraryPath() { set(had_ ? old_.c_str() : nullptr); }
  LibraryPath(const LibraryPath&) = delete;
  LibraryPath& operator=(const LibraryPath&) = delete;

 private:
  static constexpr const char* name = "LD_LIBRARY_PATH";
  static void set(const char* text) {
    if (text != nullptr) {
      ::setenv(name, text, 1);
    } else {
      ::unsetenv(name);
    }
  }
  std::string old_;
  bool had_ = false;
};

class LibraryTest : public ::testing::Test {
 protected:
  std::shared_ptr<const ElfFile> program(Workshop::Flags flags, std::string_view name = "program.so") {
    flags.insert(flags.begin(), "-shared");
    return ElfFile::open(shop_.compile("int a;", flags, name));
  }
  std::string library(std::string_view name, Workshop::Flags flags = {}) {
    flags.insert(flags.begin(), "-shared");
    return shop_.compile(plain, flags, name);
  }
  Library find(std::string_view name, const ElfFile& file, const SharingRules& rules = {}) {
    return find_library(name, {.file = &file, .needed_by = nullptr}, rules);
  }
  static void expect_separate(const Library& library, const std::string& path) {
    EXPECT_EQ(library.sharing, Sharing::separate);
    EXPECT_EQ(library.path, path);
    ASSERT_NE(library.file, nullptr);
    EXPECT_EQ(library.file->path(), path);
    EXPECT_EQ(library.handle, nullptr);
  }
  static void expect_shared(const Library& library) {
    EXPECT_EQ(library.sharing, Sharing::shared);
    EXPECT_EQ(library.file, nullptr);
    EXPECT_NE(library.handle, nullptr);
    EXPECT_FALSE(library.path.empty());
  }

  Workshop shop_;
  LibraryPath no_path_{nullptr};
};

TEST(LibraryPattern, StarsAndQuestionMarks) {
  const auto matches = [](const char* pattern, const char* name) { return matches_any({pattern}, name); };
  EXPECT_TRUE(matches("libx.so", "libx.so"));
  EXPECT_FALSE(matches("libx.so", "libx.so.1"));
  EXPECT_TRUE(matches("libx.so*", "libx.so.1"));
  EXPECT_TRUE(matches("libx.so*", "libx.so"));
  EXPECT_TRUE(matches("*x?so", "libx.so"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("a*b*c", "a-b-b-c"));
  EXPECT_FALSE(matches("a*b*c", "a-b-b-d"));
  EXPECT_FALSE(matches("?", ""));
  EXPECT_FALSE(matches("", "x"));
  EXPECT_FALSE(matches_any({}, "x"));
  EXPECT_TRUE(matches_any({"y", "x"}, "x"));
  // Trying every way to match the stars with the name would take for ever.
  EXPECT_FALSE(matches("*a*a*a*a*a*a*a*a*a*a*b", std::string(2000, 'a').c_str()));
}

TEST_F(LibraryTest, RunpathNamesFoldersOfSeparateLibraries) {
  const std::string x = library("lib/libx.so");
  for (const char* runpath : {"$ORIGIN/lib", "${ORIGIN}/lib", "/nowhere:$ORIGIN/lib:/elsewhere"}) {
    expect_separate(find("libx.so", *program({std::string("-Wl,-rpath,") + runpath})), x);
  }
}

TEST_F(LibraryTest, LibStandsForTheSystemsFolder) {
  Dl_info info{};
  ASSERT_NE(::dladdr(::dlsym(RTLD_DEFAULT, "gnu_get_libc_version"), &info), 0);
  std::string folder = std::filesystem::path(info.dli_fname).parent_path().string();
  folder = folder.substr(folder.starts_with("/usr/") ? 5 : 1);
  const std::string x = library(folder + "/libx.so");
  expect_separate(find("libx.so", *program({"-Wl,-rpath,$ORIGIN/$LIB"})), x);
}

TEST_F(LibraryTest, RpathIsInheritedAndRunpathIsNot) {
  const std::string y = library("deep/liby.so");
  const auto middle = program({}, "libmiddle.so");
  const auto middle_with_runpath = program({"-Wl,-rpath,/nowhere", "-Wl,--enable-new-dtags"}, "libother.so");
  const auto rpath = program({"-Wl,-rpath,$ORIGIN/deep", "-Wl,--disable-new-dtags"}, "rpath.so");
  const auto runpath = program({"-Wl,-rpath,$ORIGIN/deep", "-Wl,--enable-new-dtags"}, "runpath.so");
  const Requester above{.file = rpath.get(), .needed_by = nullptr};
  expect_separate(find_library("liby.so", {.file = middle.get(), .needed_by = &above}, {}), y);
  refusal([&] { find_library("liby.so", {.file = middle_with_runpath.get(), .needed_by = &above}, {}); });
  const Requester other{.file = runpath.get(), .needed_by = nullptr};
  refusal([&] { find_library("liby.so", {.file = middle.get(), .needed_by = &other}, {}); });
}

TEST_F(LibraryTest, LibraryPathComesAfterRpathAndBeforeRunpath) {
  const std::string first = library("first/libx.so");
  const std::string second = library("second/libx.so");
  const LibraryPath path((shop_.folder() + "/nowhere:" + shop_.folder() + "/second").c_str());
  expect_separate(find("libx.so", *program({"-Wl,-rpath,$ORIGIN/first", "-Wl,--disable-new-dtags"})), first);
  expect_separate(find("libx.so", *program({"-Wl,-rpath,$ORIGIN/first", "-Wl,--enable-new-dtags"})), second);
  expect_separate(find_library("libx.so", {}, {}), second);
}

TEST_F(LibraryTest, ANameWithASlashIsAPath) {
  const std::string x = library("libx.so");
  expect_separate(find(x, *program({})), x);
  expect_separate(find("$ORIGIN/libx.so", *program({})), x);
  const std::string text = refusal([&] { find(shop_.folder() + "/absent.so", *program({})); });
  EXPECT_TRUE(contains(text, shop_.folder() + "/absent.so"));
  EXPECT_TRUE(contains(text, "not found"));
}

TEST_F(LibraryTest, SomeLibrariesAreNeverSeparate) {
  std::filesystem::create_directory(shop_.folder() + "/lib");
  Dl_info info{};
  ASSERT_NE(::dladdr(::dlsym(RTLD_DEFAULT, "gnu_get_libc_version"), &info), 0);
  std::filesystem::copy_file(info.dli_fname, shop_.folder() + "/lib/libc.so.6");
  const auto file = program({"-Wl,-rpath,$ORIGIN/lib"});
  const SharingRules all{.private_names = {"*"}, .shared_names = {}};
  for (const char* name : {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "libgcc_s.so.1"}) {
    expect_shared(find(name, *file, all));
  }
  EXPECT_EQ(::dlsym(find("libc.so.6", *file, all).handle, "gnu_get_libc_version"),
            ::dlsym(RTLD_DEFAULT, "gnu_get_libc_version"));
}

TEST_F(LibraryTest, ThisLibraryIsAlwaysTheOneThatRuns) {
  const Library found = find("libaplib.so.9.9", *program({}));
  expect_shared(found);
  // The library is linked into the test.
  EXPECT_EQ(found.handle, ::dlopen(nullptr, RTLD_NOW));
}

TEST_F(LibraryTest, SanitizersMustBeThereFromTheStart) {
  const std::string text = refusal([&] { find("libtsan.so.99", *program({})); });
  EXPECT_TRUE(contains(text, "LD_PRELOAD=libtsan.so.99"));
  EXPECT_TRUE(contains(text, "-fsanitize"));
}

TEST_F(LibraryTest, LibrariesOfTheSystemAreSeparateUnlessTheRulesSayShared) {
  constexpr auto name = "libhwloc.so.15";
  const std::string path = find_system_library(name);
  if (path.empty()) GTEST_SKIP() << "needs the library " << name;
  const auto file = program({});
  const auto of_folder = program({"-Wl,-rpath," + std::filesystem::path(path).parent_path().string()}, "b.so");
  const std::string real = std::filesystem::canonical(path).string();
  for (const Library& found : {find(name, *file), find(path, *file), find(name, *of_folder),
                               find(name, *file, {.private_names = {"libhwloc.so*"}, .shared_names = {"*"}})}) {
    expect_separate(found, real);
  }
  expect_shared(find(name, *file, {.private_names = {}, .shared_names = {"libhwloc.so*"}}));
}

TEST_F(LibraryTest, FortransLibraryIsSeparate) {
  constexpr auto name = "libgfortran.so.5";
  if (find_system_library(name).empty()) GTEST_SKIP() << "needs the library " << name;
  const auto file = program({});
  EXPECT_EQ(find(name, *file).sharing, Sharing::separate);
  expect_shared(find(name, *file, {.private_names = {}, .shared_names = {"libgfortran.so*"}}));
}

TEST_F(LibraryTest, RulesGoByFileNameAndBySoname) {
  const std::string x = library("lib/libx.so", {"-Wl,-soname,libreal.so.3"});
  const auto file = program({"-Wl,-rpath,$ORIGIN/lib"});
  for (const char* pattern : {"libx.so", "libreal.so*"}) {
    const Library found = find("libx.so", *file, {.private_names = {}, .shared_names = {pattern}});
    expect_shared(found);
    auto* const get = reinterpret_cast<int* (*)()>(::dlsym(found.handle, "get"));
    ASSERT_NE(get, nullptr);
    EXPECT_EQ(*get(), 1);
  }
  expect_separate(find("libx.so", *file, {.private_names = {"libx*"}, .shared_names = {"libx*"}}), x);
  expect_separate(find("libx.so", *file, {.private_names = {}, .shared_names = {"liby*"}}), x);
}

TEST_F(LibraryTest, FilesForOtherMachinesArePassedOver) {
  const std::string right = library("right/libx.so");
  test::ElfBytes wrong(right);
  wrong.header().e_machine = EM_AARCH64;
  wrong.save(shop_.path("wrong/libx.so"));
  expect_separate(find("libx.so", *program({"-Wl,-rpath,$ORIGIN/wrong:$ORIGIN/right"})), right);
  const std::string text = refusal([&] { find("libx.so", *program({"-Wl,-rpath,$ORIGIN/wrong"}, "b.so")); });
  EXPECT_TRUE(contains(text, "another machine"));
}

TEST_F(LibraryTest, AFileThatCannotBeLoadedIsNotPassedOver) {
  library("right/libx.so");
  shop_.write("wrong/libx.so", "this is no library");
  const std::string text = refusal([&] { find("libx.so", *program({"-Wl,-rpath,$ORIGIN/wrong:$ORIGIN/right"})); });
  EXPECT_TRUE(contains(text, shop_.folder() + "/wrong/libx.so"));
  EXPECT_TRUE(contains(text, "is not a program"));
}

TEST_F(LibraryTest, TellsWhereItLooked) {
  const auto top = program({"-Wl,-rpath,/opt/top", "-Wl,--disable-new-dtags"}, "top.so");
  const auto middle = program({}, "libmiddle.so");
  const Requester above{.file = top.get(), .needed_by = nullptr};
  const LibraryPath path("/opt/from-environment");
  const std::string text =
      refusal([&] { find_library("libabsent.so.7", {.file = middle.get(), .needed_by = &above}, {}); });
  for (const std::string& part : {std::string("libabsent.so.7"), middle->path(), top->path(), std::string("/opt/top"),
                                  std::string("/opt/from-environment"), std::string("system's libraries"),
                                  std::string("LD_LIBRARY_PATH"), std::string("-rpath")}) {
    EXPECT_TRUE(contains(text, part));
  }
  EXPECT_TRUE(contains(refusal([] { find_library("libabsent.so.7", {}, {}); }), "by the host"));
  EXPECT_TRUE(contains(refusal([] { find_library("", {}, {}); }), "not the name of a library"));
}

/// A cache with one library, as ldconfig writes it.
std::string cache_with(const std::string& name, const std::string& path, std::uint32_t flags) {
  std::string cache = "glibc-ld.so.cache1.1";
  const auto word = [&](std::uint32_t value) { cache.append(reinterpret_cast<const char*>(&value), sizeof value); };
  word(1);
  word(static_cast<std::uint32_t>(name.size() + path.size() + 2));
  for (int i = 0; i < 5; ++i) word(0);
  const auto strings = static_cast<std::uint32_t>(cache.size() + 24);
  word(flags);
  word(strings);
  word(static_cast<std::uint32_t>(strings + name.size() + 1));
  for (int i = 0; i < 3; ++i) word(0);
  return cache + name + '\0' + path + '\0';
}

TEST(LibraryCache, FindsLibrariesOfThisMachine) {
  EXPECT_EQ(find_in_library_cache(cache_with("liba.so", "/x/liba.so", 0x303), "liba.so"), "/x/liba.so");
  EXPECT_EQ(find_in_library_cache(cache_with("liba.so", "/x/liba.so", 0x303), "libb.so"), "");
  EXPECT_EQ(find_in_library_cache(cache_with("liba.so", "/x/liba.so", 0x003), "liba.so"), "");
  EXPECT_EQ(find_in_library_cache("", "liba.so"), "");
}

TEST(LibraryCache, SurvivesAnyBytes) {
  const std::string cache = cache_with("liba.so", "/x/liba.so", 0x303);
  for (std::size_t bytes = 0; bytes < cache.size(); ++bytes) {
    EXPECT_EQ(find_in_library_cache(std::string_view(cache).substr(0, bytes), "liba.so"), "") << bytes;
  }
  constexpr std::uint64_t seed = 7;
  std::mt19937_64 random(seed);
  for (int i = 0; i < 20000; ++i) {
    std::string spoiled = cache;
    spoiled[random() % spoiled.size()] = static_cast<char>(random());
    spoiled[20 + random() % 52] = static_cast<char>(random());
    const std::string found = find_in_library_cache(spoiled, "liba.so");
    ASSERT_LE(found.size(), cache.size()) << "seed " << seed << ", " << i;
  }
}

}  // namespace
}  // namespace aplib::loader
