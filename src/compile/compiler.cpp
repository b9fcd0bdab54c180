// SPDX-License-Identifier: MIT
#include "compile/compiler.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "compile/file.hpp"
#include "compile/response_file.hpp"

namespace aplib::compile {
namespace {

struct Names {
  std::string_view wrapper;
  const char* variable;
  const char* usual;
  const char* fallback;
};

const Names& names(Language language) {
  static constexpr Names c = {"apcc", "AP_CC", "gcc", "cc"};
  static constexpr Names cxx = {"apc++", "AP_CXX", "g++", "c++"};
  static constexpr Names fortran = {"apfort", "AP_FC", "gfortran", "f95"};
  return language == Language::c ? c : language == Language::cxx ? cxx : fortran;
}

/// "12" of "gcc-12"; 0: no number there.
int trailing_number(std::string_view name) {
  const std::size_t dash = name.rfind('-');
  if (dash == name.npos) return 0;
  int number = 0;
  for (const char c : name.substr(dash + 1)) {
    if (c < '0' || c > '9' || number > 1000) return 0;
    number = number * 10 + (c - '0');
  }
  return number;
}

}  // namespace

std::string_view wrapper_name(Language language) { return names(language).wrapper; }

const char* compiler_variable(Language language) { return names(language).variable; }

Compiler Compiler::find(Language language, const std::string& command) {
  const Names& name = names(language);
  Compiler compiler;
  compiler.words = split_arguments(command);
  if (compiler.words.empty()) {
    const char* variable = std::getenv(name.variable);
    if (variable != nullptr) compiler.words = split_arguments(variable);
  }
  if (compiler.words.empty())
    compiler.words = {find_command(name.usual).empty() && !find_command(name.fallback).empty() ? name.fallback
                                                                                               : name.usual};

  // "ccache gcc -m64": the last word that is no option.
  for (const std::string& word : compiler.words) {
    if (word.starts_with('-')) continue;
    const std::string found = find_command(word);
    compiler.file = found.empty() ? std::string() : real_path(found);
  }
  const std::string_view file = name_of(compiler.file);
  if (file.find("clang") != file.npos) {
    compiler.family = Family::clang;
  } else if (file.find("gcc") != file.npos || file.find("g++") != file.npos || file.find("gfortran") != file.npos) {
    compiler.family = Family::gnu;
    compiler.version = trailing_number(file);
  }
  return compiler;
}

void Compiler::ask_version() {
  if (family != Family::gnu || version != 0) return;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::string option = "-dumpversion";
  char* const argv[] = {file.data(), option.data(), nullptr};
  pid_t child = 0;
  const int failed = posix_spawn(&child, file.c_str(), &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  char text[64];
  ssize_t bytes = 0;
  if (failed == 0) {
    do {
      bytes = ::read(ends[0], text, sizeof text - 1);
    } while (bytes < 0 && errno == EINTR);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
  }
  close(ends[0]);
  text[bytes > 0 ? bytes : 0] = 0;
  version = std::atoi(text);
}

}  // namespace aplib::compile
