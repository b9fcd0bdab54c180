// SPDX-License-Identifier: MIT
#include "compile/command.hpp"

#include <initializer_list>

namespace aplib::compile {
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
  if (!tunes_for_program(arguments)) return;
  // A program's own definitions win anyway (-Bsymbolic below), so its code may say so: globals are then reached directly, as in an executable,
  // and stay visible to the program's libraries. gcc needs to hear as well that no executable holds copies of them.
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
    // Behind the user's folders. Twice: old sources include the headers by their historical names. /usr/include must not move up.
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
