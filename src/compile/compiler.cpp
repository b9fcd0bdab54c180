// SPDX-License-Identifier: MIT
#include "compile/compiler.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <initializer_list>

#include "compile/file.hpp"

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

// ---------------------------------------------------------------- its command line

namespace {

class Line {
 public:
  explicit Line(std::vector<std::string> words) : words_(std::move(words)) {}
  void add(std::initializer_list<std::string> words) { words_.insert(words_.end(), words); }
  void add(const std::vector<std::string>& words) { words_.insert(words_.end(), words.begin(), words.end()); }
  std::vector<std::string> take() { return std::move(words_); }

 private:
  std::vector<std::string> words_;
};

/// Before the user's arguments, so that theirs win.
void add_code_options(Line& line, const Compiler& compiler, const Arguments& arguments) {
  if (!arguments.position_independent) line.add({"-fPIC"});
  // Frames larger than the guard below a task's stack touch each page on their way, so none jumps over it into another
  // task's stack.
  if (compiler.family != Compiler::Family::unknown) line.add({"-fstack-clash-protection"});
  if (!tunes_for_program(arguments)) return;
  // A program's own definitions win anyway (-Bsymbolic below), so its code may say so: globals are then reached
  // directly, as in an executable, and stay visible to the program's libraries. gcc needs to hear as well that no
  // executable holds copies of them.
  switch (compiler.family) {
    case Compiler::Family::gnu:
      line.add({"-fno-semantic-interposition", "-fvisibility=protected"});
      // gold warns of the mark that this leaves in objects.
      if (compiler.version >= 12 && arguments.linker != Linker::gold) line.add({"-mno-direct-extern-access"});
      break;
    case Compiler::Family::clang:
      line.add({"-fvisibility=protected"});
      break;
    case Compiler::Family::unknown:
      break;
  }
}

/// These links would lose the program's entries without a word.
void check_link_time_code(const Compiler& compiler, const Arguments& arguments) {
  if (arguments.output != Output::program || !arguments.link_time_code) return;
  if (arguments.linker == Linker::gold) {
    throw Refused(
        "-flto with -fuse-ld=gold: gold loses the program's main in link-time optimization; leave -fuse-ld=gold out");
  }
  if (arguments.linker == Linker::lld && compiler.family == Compiler::Family::gnu) {
    throw Refused(
        "-flto with -fuse-ld=lld: lld cannot read what gcc leaves for link-time optimization; leave -fuse-ld=lld out, "
        "or use clang");
  }
}

void add_program_options(Line& line, const Arguments& arguments) {
  line.add({"-shared"});
  std::string options = "-Wl,-z,defs,-z,now,-Bsymbolic,--hash-style=gnu,--build-id";
  // Text and read-only data in one mapping: an instance costs fewer of the kernel's map
  // entries. gold does so by itself and lacks the option.
  if (arguments.linker == Linker::lld) options += ",--no-rosegment";
  if (arguments.linker == Linker::usual) options += ",-z,noseparate-code";
  line.add({options});
}

}  // namespace

bool tunes_for_program(const Arguments& arguments) {
  return arguments.compiles && !arguments.position_independent && arguments.output != Output::library &&
         arguments.output != Output::information;
}

std::vector<std::string> command(Language language, const Compiler& compiler, const Arguments& arguments,
                                 const Prefix& prefix, const std::string& program_object) {
  check_link_time_code(compiler, arguments);
  Line line(compiler.words);
  if (arguments.output == Output::information) {
    line.add(arguments.kept);
    return line.take();
  }
  const bool program = arguments.output == Output::program;
  const bool links_libraries = program || arguments.output == Output::library;

  if (arguments.compiles) add_code_options(line, compiler, arguments);
  if (program) {
    add_program_options(line, arguments);
    line.add({program_object});  // before the user's static libraries, which may hold the entries
  }
  line.add(arguments.kept);
  if (arguments.compiles && language != Language::fortran) {
    // Behind the user's folders. Twice: old sources include the headers by their historical names. /usr/include
    // must not move up.
    if (prefix.include_folder != "/usr/include") line.add({"-isystem", prefix.include_folder});
    line.add({"-isystem", prefix.include_folder + "/aplib/compat"});
  }
  if (program) {
    if (arguments.names_language) line.add({"-x", "none"});
    line.add({prefix.entries_script()});  // after them
  }
  if (links_libraries && !arguments.own_libraries && !prefix.library_folder.empty()) {
    // No run path: aprun has the library in the process before any program.
    line.add({"-L" + prefix.library_folder, "-Wl,--push-state,-Bdynamic,--as-needed", "-laplib", "-Wl,--pop-state"});
  }
  return line.take();
}

std::string shell_text(const std::vector<std::string>& argv) {
  std::string text;
  for (const std::string& word : argv) {
    if (!text.empty()) text += ' ';
    const bool plain =
        !word.empty() && word.find_first_not_of(
                             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+=/.,:@%^") == word.npos;
    if (plain) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += '\'';
  }
  return text;
}

}  // namespace aplib::compile
