// SPDX-License-Identifier: MIT
// Files that are no plug-ins for this APlib are refused with a message, and nothing breaks. The plug-ins here are
// compiled from one source, bad_plugin.c.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "aplib/error.hpp"
#include "comm/kind.hpp"
#include "comm/plugin/plugin.hpp"
#include "comm/plugin/plugin_module.hpp"
#include "launch/report.hpp"
#include "own_modules.hpp"

namespace aplib::comm::test {
namespace {

namespace fs = std::filesystem;

std::string bad(const std::string& name) { return std::string(BAD_PLUGINS) + "/" + name + ".so"; }

std::string refusal(const std::string& file) {
  const FoundModule opened = open_module(file);
  EXPECT_EQ(opened.kind == nullptr, !opened.refusal.empty());
  return opened.refusal;
}

class Scratch {
 public:
  Scratch() {
    std::string pattern = (fs::temp_directory_path() / "aplib-plugins-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  ~Scratch() { fs::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return (path_ / name).string();
  }

 private:
  fs::path path_;
};

std::string bytes_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string tcp_file() {
  for (const FoundModule& each : own_modules())
    if (each.kind && each.kind->name() == "tcp") return each.file;
  throw std::runtime_error(unknown_module(own_modules(), "tcp"));
}

TEST(Refusal, OtherVersions) {
  EXPECT_EQ(refusal(bad("too_new")),
            "it was built for plug-in interface 3.0, this APlib (0.1.0) has 1.1: compile it again with the headers of "
            "this APlib");
  EXPECT_EQ(refusal(bad("too_old")),
            "it was built for plug-in interface 0.9, this APlib (0.1.0) has 1.1: compile it again with the headers of "
            "this APlib");
  EXPECT_EQ(refusal(bad("needs_newer")),
            "it was built for plug-in interface 1.7, this APlib (0.1.0) has 1.1, and it requires 1.7: install a newer "
            "APlib, or compile it with the headers of this one");
}

TEST(Refusal, ANewerMinorThatRequiresNothingNewerIsTaken) {
  const FoundModule opened = open_module(bad("newer"));
  EXPECT_EQ(opened.refusal, "");
  ASSERT_NE(opened.kind, nullptr);
  EXPECT_EQ(opened.kind->name(), "newer");
}

TEST(Refusal, AnOlderMinorIsTakenWithoutWhatItDoesNotHave) {
  EXPECT_NE(open_module(bad("older")).kind, nullptr);
  void* const file = ::dlopen(bad("older").c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(file, nullptr);
  const plugin::OpenedPlugin opened = plugin::exported_plugin(file);
  ASSERT_NE(opened.exported, nullptr) << opened.refusal;
  const plugin::Plugin known(*opened.exported);
  EXPECT_NE(known->poll, nullptr);
  EXPECT_EQ(known->let_go, nullptr) << "what lies behind its structure is not its own";
}

TEST(Refusal, WrongStructures) {
  EXPECT_EQ(refusal(bad("no_symbol")),
            "it exports no aplib_comm_plugin_entry: it is not a module of APlib's, or APLIB_COMM_EXPORT is missing");
  EXPECT_EQ(refusal(bad("function")),
            "its aplib_comm_plugin_entry is no variable: declare it as <aplib/comm_module.h> says");
  EXPECT_EQ(refusal(bad("small")),
            "its aplib_comm_plugin_entry has 4 bytes and cannot be one: declare it as <aplib/comm_module.h> says");
  EXPECT_EQ(refusal(bad("rubbish")),
            "its aplib_comm_plugin_entry does not begin with APLIB_COMM_HEAD: initialise .head with that");
  EXPECT_NE(refusal(bad("wrong_size")).find("it says that its aplib_comm_plugin has 100000 bytes"), std::string::npos);
  EXPECT_EQ(refusal(bad("no_name")),
            "its name is none: use lower-case letters, digits, '-' and '_', at most 32, and not auto");
  EXPECT_EQ(refusal(bad("no_send")), "function send is missing: <aplib/comm_module.h> says which can be left out");
  EXPECT_EQ(refusal(bad("no_read")), "function read is missing: <aplib/comm_module.h> says which can be left out");
  EXPECT_NE(refusal(bad("unresolved")).find("it cannot be loaded: undefined symbol: nobody_has_this"),
            std::string::npos);
}

TEST(Refusal, AModuleOfOursOfAnotherBuild) {
  const std::string text = refusal(bad("other_build"));
  EXPECT_EQ(text.find("it is of APlib's build 0.0.9-0123456789ab, this program is of build 0.1.0-"), 0U) << text;
  EXPECT_NE(text.find(": install the programs and the modules of one build"), std::string::npos) << text;
  const std::vector<FoundModule> found = find_modules(BAD_PLUGINS, "other_build");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(unknown_module(found, "other_build"),
            "module \"other_build\" cannot be used: " + bad("other_build") + ": " + text);
}

TEST(Refusal, FilesThatAreNoSharedObjects) {
  const Scratch scratch;
  EXPECT_EQ(refusal(scratch.write("text.so", "a text\n")), "it is no shared object (64-bit ELF)");
  EXPECT_EQ(refusal(scratch.write("empty.so", "")), "it is no shared object (64-bit ELF)");
  EXPECT_EQ(refusal((scratch.path() / "none.so").string()), "it cannot be read: No such file or directory");
  fs::create_directory(scratch.path() / "folder.so");
  EXPECT_NE(refusal((scratch.path() / "folder.so").string()), "");
  std::string other = bytes_of(tcp_file());
  other[18] = 8;  // e_machine: MIPS
  EXPECT_EQ(refusal(scratch.write("mips.so", other)), "it was compiled for another kind of processor");
}

TEST(Refusal, IncompleteFiles) {
  const Scratch scratch;
  const std::string whole = bytes_of(bad("newer"));
  for (std::size_t bytes = 0; bytes < whole.size(); bytes += 1 + whole.size() / 40) {
    const FoundModule opened = open_module(scratch.write(std::to_string(bytes) + ".so", whole.substr(0, bytes)));
    // Bytes after the last loaded part are not needed.
    if (bytes < whole.size() / 2) {
      EXPECT_EQ(opened.kind, nullptr) << bytes;
    }
  }
}

TEST(Modules, OursAreFoundBestFirst) {
  std::vector<std::string> names;
  for (const FoundModule& each : own_modules()) {
    EXPECT_TRUE(each.kind) << each.file << ": " << each.refusal;
    if (each.kind) names.push_back(each.kind->name());
  }
  EXPECT_EQ(names.front(), "shm");
  EXPECT_EQ(names.back(), "example");
}

// APlib's own modules use C++ with the program that loads them: nothing translates frames, and an Error stays an Error.
TEST(Modules, OursWearNoMask) {
  for (const FoundModule& each : own_modules()) {
    ASSERT_TRUE(each.kind) << each.file << ": " << each.refusal;
    const bool is_plugin = dynamic_cast<const plugin::PluginKind*>(each.kind.get()) != nullptr;
    EXPECT_EQ(is_plugin, each.kind->name() == "example") << each.file;
  }
  const PortSettings settings{
      .address = "127.0.0.1", .ports = "nonsense", .host = "h", .key = JobKey::make(), .provider = {}};
  try {
    (void)own_module("tcp").open(settings);
    ADD_FAILURE() << "ports = \"nonsense\" was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::bad_option);
    EXPECT_NE(std::string(error.what()).find("ports = \"nonsense\": not a range of ports"), std::string::npos);
  }
}

TEST(Modules, OneAloneIsOpenedByItsFilesName) {
  const std::vector<FoundModule> found = find_modules("", "tcp");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].kind->name(), "tcp");
}

TEST(Modules, FoldersOfOthersComeFirst) {
  const Scratch scratch;
  const std::string copy = scratch.write("mine.so", bytes_of(tcp_file()));
  const std::vector<FoundModule> found = find_modules("/does/not/exist:" + scratch.path().string());
  std::string refused;
  for (const FoundModule& each : found) {
    if (!each.kind) {
      refused += each.file + ": " + each.refusal + "\n";
    } else if (each.kind->name() == "tcp") {
      EXPECT_EQ(each.file, copy);
    }
  }
  EXPECT_EQ(refused, "/does/not/exist: the folder cannot be read: No such file or directory\n" + tcp_file() +
                         ": \"tcp\" is already " + copy + "\n");
}

TEST(Modules, AnUnknownNameIsAnsweredWithThoseKnown) {
  std::vector<FoundModule> found = find_modules("", "tcp");
  EXPECT_EQ(unknown_module(found, "tpc"), "there is no module \"tpc\": did you mean \"tcp\"?; known are tcp");
  EXPECT_EQ(unknown_module(found, "pigeons"), "there is no module \"pigeons\"; known are tcp");
  found.push_back({"/m/rdma.so", nullptr, "it cannot be loaded: libfabric.so.1: cannot open shared object file"});
  EXPECT_EQ(
      unknown_module(found, "rdma"),
      "module \"rdma\" cannot be used: /m/rdma.so: it cannot be loaded: libfabric.so.1: cannot open shared object "
      "file");
  EXPECT_EQ(unknown_module({}, "tcp"), "there is no module \"tcp\", nor any other");
}

TEST(Modules, TheTableSaysWhatEachCanDoAndWhyNot) {
  std::vector<FoundModule> found = find_modules("", "tcp");
  const std::string file = found[0].file;
  found.push_back({"/m/old.so", nullptr, "it was built for plug-in interface 3.0"});
  const PortSettings settings{.address = "127.0.0.1", .ports = {}, .host = "h", .key = JobKey::make(), .provider = {}};
  EXPECT_EQ(launch::module_table(found, settings),
            "module  version  reaches   remote memory  secure          state   file\n"
            "tcp     0.1.0    any host  no             off, auth, tls  usable  " +
                file +
                "\ntcp: frames over TCP, between any hosts\n"
                "refused: /m/old.so: it was built for plug-in interface 3.0\n");
}

}  // namespace
}  // namespace aplib::comm::test
