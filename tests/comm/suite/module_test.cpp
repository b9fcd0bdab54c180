// SPDX-License-Identifier: MIT
// aplib-module-test: runs the tests of every module on a plug-in file (docs/write-a-module.md).
//
//   aplib-module-test ./my_module.so [--provider NAME] [-- options of GoogleTest]
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string_view>

#include "aplib/error.hpp"
#include "comm/kind.hpp"
#include "kind_net.hpp"

namespace aplib::comm::test {
namespace {

constexpr int usage_status = 2;
constexpr const char* usage =
    "usage: aplib-module-test FILE.so [--provider NAME] [-- OPTIONS OF GOOGLETEST]\n"
    "Checks that the module of a plug-in file keeps the promises of <aplib/comm_module.h>, with several processes'\n"
    "modules inside this one. What it cannot do is skipped, with the reason.\n"
    "  aplib-module-test ./mine.so -- --gtest_filter='*Close*' --gtest_brief=1\n";

struct Command {
  std::string file;
  std::string provider;
  std::vector<char*> for_gtest;
};

const ModuleKind* kind = nullptr;  // The file's kind; set before the suite asks for its subjects.
std::string provider;

bool read(int argc, char** argv, Command& command) {
  command.for_gtest.push_back(argv[0]);
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") {
      command.for_gtest.insert(command.for_gtest.end(), argv + i + 1, argv + argc);
      return !command.file.empty();
    }
    if (word == "--provider" && i + 1 < argc) {
      command.provider = argv[++i];
    } else if (!word.starts_with('-') && command.file.empty()) {
      command.file = word;
    } else {
      return false;
    }
  }
  return !command.file.empty();
}

std::vector<Subject> subjects() {
  std::vector<Subject> all;
  for (const Secure secure : {Secure::off, Secure::auth, Secure::tls}) {
    if (kind == nullptr || !kind->keeps(secure)) continue;
    all.push_back({std::string(to_string(secure)), [secure](std::uint32_t processes) {
                     return std::make_unique<KindNet>(*kind, processes,
                                                      KindNetOptions{.secure = secure, .provider = provider});
                   }});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Module, Conformance, testing::ValuesIn(subjects()), subject_name);

int run(int argc, char** argv) {
  Command command;
  if (!read(argc, argv, command)) {
    const bool asked = argc == 2 && std::string_view(argv[1]) == "--help";
    std::fputs(usage, asked ? stdout : stderr);
    return asked ? 0 : usage_status;
  }
  static const FoundModule opened = open_module(std::filesystem::absolute(command.file).string());
  if (!opened.kind) {
    std::cerr << "aplib-module-test: " << command.file << ": " << opened.refusal << '\n';
    return usage_status;
  }
  const ModuleKind& found = *opened.kind;
  kind = &found;
  provider = command.provider;
  std::cout << "module " << found.name() << ' ' << found.version() << ": " << found.description() << '\n';
  if (const auto why = found.unusable(settings_of({.secure = Secure::off, .provider = provider}))) {
    std::cerr << "aplib-module-test: module " << found.name() << " cannot be used here: " << *why << '\n';
    return usage_status;
  }
  int count = static_cast<int>(command.for_gtest.size());
  command.for_gtest.push_back(nullptr);
  testing::InitGoogleTest(&count, command.for_gtest.data());
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace aplib::comm::test

int main(int argc, char** argv) {
  try {
    return aplib::comm::test::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "aplib-module-test: " << error.what() << '\n';
    return 1;
  }
}
