// SPDX-License-Identifier: MIT
// Compiles small files while a test runs, with the compilers that CMake used. If one fails, throws std::runtime_error
// with the command and the compiler's messages, which gtest shows.
//
//   Workshop shop;                                                           // a folder of the test's own, removed
//   at its end
//   const std::string file = shop.compile("int counter;", {"-shared"}, "counter.so");
#pragma once

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace aplib::loader::test {

enum class Language { c, cpp, fortran };

/// The result of a command.
struct Outcome {
  int status = 0;      ///< Exit status, or 128 + signal.
  std::string output;  ///< Both streams, in order.
};

/// Runs a command (looked up in PATH) without a shell and with empty input.
inline Outcome run_command(const std::vector<std::string>& words) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) throw std::runtime_error("pipe: out of descriptors");
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", 0, 0);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  ::posix_spawn_file_actions_addclose(&actions, ends[0]);
  ::posix_spawn_file_actions_addclose(&actions, ends[1]);
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error != 0) {
    ::close(ends[0]);
    throw std::runtime_error(fmt::format("cannot start {} (error {}); is it installed?", words[0], error));
  }

  Outcome outcome;
  std::array<char, 4096> piece{};
  for (;;) {
    const ssize_t got = ::read(ends[0], piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    outcome.output.append(piece.data(), static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

/// The command that compiles `language`. Empty: there is none here (only Fortran is optional).
inline std::string compiler(Language language) {
  switch (language) {
    case Language::c:
      return APLIB_TEST_CC;
    case Language::cpp:
      return APLIB_TEST_CXX;
    case Language::fortran:
      break;
  }
  for (const char* name : {"gfortran", "gfortran-12", "gfortran-13", "gfortran-14"}) {
    for (std::istringstream folders(std::getenv("PATH") != nullptr ? std::getenv("PATH") : "");;) {
      std::string folder;
      if (!std::getline(folders, folder, ':')) break;
      const std::string file = folder + "/" + name;
      if (::access(file.c_str(), X_OK) == 0) return file;
    }
  }
  return {};
}

class Workshop {
 public:
  using Flags = std::vector<std::string>;

  Workshop() {
    std::string pattern = (std::filesystem::temp_directory_path() / "aplib-loader-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make a folder like " + pattern);
    folder_ = std::filesystem::canonical(pattern).string();
  }
  ~Workshop() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Workshop(const Workshop&) = delete;
  Workshop& operator=(const Workshop&) = delete;

  [[nodiscard]] const std::string& folder() const noexcept { return folder_; }
  /// The path of a file `name` (or "a/b/name") in the folder. Makes the folders on the way.
  [[nodiscard]] std::string path(std::string_view name) const {
    const std::filesystem::path file = std::filesystem::path(folder_) / name;
    std::filesystem::create_directories(file.parent_path());
    return file.string();
  }
  std::string write(std::string_view name, std::string_view text) const {
    const std::string file = path(name);
    std::ofstream(file, std::ios::binary) << text;
    return file;
  }

  /// Compiles and links `source` (only compiles with -c) with exactly `flags`, -fPIC and -g0, to the file `name`, whose
  /// path it returns. It does not use the test's own sanitizer.
  std::string compile(std::string_view source, const Flags& flags, std::string_view name,
                      Language language = Language::c) const {
    const std::string output = path(name);
    const char* suffix = language == Language::c ? ".c" : language == Language::cpp ? ".cpp" : ".f90";
    const std::string input = write(std::string(name) + suffix, source);
    Flags words{compiler(language)};
    if (words[0].empty()) throw std::runtime_error("there is no Fortran compiler here: check compiler() and skip");
    words.insert(words.end(), {"-fPIC", "-g0", input, "-o", output});
    words.insert(words.end(), flags.begin(), flags.end());
    const Outcome outcome = run_command(words);
    if (outcome.status != 0) {
      std::string text = fmt::format("status {} of:", outcome.status);
      for (const std::string& word : words) text += ' ' + word;
      throw std::runtime_error(text + '\n' + outcome.output);
    }
    return output;
  }
  std::string compile_cpp(std::string_view source, const Flags& flags, std::string_view name) const {
    return compile(source, flags, name, Language::cpp);
  }
  std::string compile_fortran(std::string_view source, const Flags& flags, std::string_view name) const {
    return compile(source, flags, name, Language::fortran);
  }

  /// Whether the compiler and linker know all of `flags`.
  [[nodiscard]] bool knows(const Flags& flags) const {
    Flags words{compiler(Language::c), "-Werror", "-shared", "-fPIC", write("probe.c", "int probe;\n"), "-o",
                path("probe.so")};
    words.insert(words.end(), flags.begin(), flags.end());
    const Outcome outcome = run_command(words);
    // Linkers only warn of flags that they do not know.
    return outcome.status == 0 && outcome.output.empty();
  }

 private:
  std::string folder_;
};

}  // namespace aplib::loader::test
