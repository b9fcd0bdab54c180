// SPDX-License-Identifier: MIT
#include "compile/command.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include "base/os/descriptor.hpp"
#include "compile/tree.hpp"

namespace aplib::compile {

// ---------------------------------------------------------------- files of arguments

std::optional<std::vector<std::string>> read_response_file(const std::string& path) {
  const auto text = os::read_file(path);
  if (!text) return std::nullopt;
  return split_arguments(*text);
}

// ---------------------------------------------------------------- the command line

namespace {

using namespace std::string_view_literals;

template <std::size_t size>
bool is_one_of(std::string_view text, const std::array<std::string_view, size>& list) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

/// Their value is the next argument, and no file to compile. (gcc's common.opt and c.opt, clang's Options.td, ld's
/// options that gcc passes on.)
constexpr std::array takes_next = {"-o"sv,
                                   "-x"sv,
                                   "-D"sv,
                                   "-U"sv,
                                   "-I"sv,
                                   "-L"sv,
                                   "-l"sv,
                                   "-T"sv,
                                   "-u"sv,
                                   "-z"sv,
                                   "-e"sv,
                                   "-h"sv,
                                   "-A"sv,
                                   "-B"sv,
                                   "-G"sv,
                                   "-J"sv,
                                   "-MF"sv,
                                   "-MT"sv,
                                   "-MQ"sv,
                                   "-MJ"sv,
                                   "-include"sv,
                                   "-imacros"sv,
                                   "-isystem"sv,
                                   "-iquote"sv,
                                   "-idirafter"sv,
                                   "-iprefix"sv,
                                   "-iwithprefix"sv,
                                   "-isysroot"sv,
                                   "-imultilib"sv,
                                   "-imultiarch"sv,
                                   "-aux-info"sv,
                                   "-dumpbase"sv,
                                   "-dumpdir"sv,
                                   "-wrapper"sv,
                                   "-Xassembler"sv,
                                   "-Xpreprocessor"sv,
                                   "-Xclang"sv,
                                   "-mllvm"sv,
                                   "-target"sv,
                                   "-arch"sv,
                                   "-ivfsoverlay"sv,
                                   "-gcc-toolchain"sv,
                                   "-Tbss"sv,
                                   "-Tdata"sv,
                                   "-Ttext"sv,
                                   "-rpath"sv,
                                   "--param"sv,
                                   "--sysroot"sv,
                                   "--output"sv,
                                   "-iwithprefixbefore"sv,
                                   "-dumpbase-ext"sv,
                                   "-include-pch"sv,
                                   "-Xlinker"sv};

/// No link.
constexpr std::array makes_objects = {
    "-c"sv,        "-S"sv,           "-E"sv,         "-M"sv,       "-MM"sv, "-fsyntax-only"sv,
    "--compile"sv, "--preprocess"sv, "--assemble"sv, "--analyze"sv};

/// Only says something.
constexpr std::array informs = {"--version"sv,  "-dumpversion"sv, "-dumpfullversion"sv, "-dumpmachine"sv,
                                "-dumpspecs"sv, "--help"sv,       "--target-help"sv,    "--dumpversion"sv};

/// Code or a link of another kind than a program of cells, which needs -fPIC and -shared; static libraries of the
/// compiler, which would be a second set beside the machine's, or cannot be part of a shared object.
constexpr std::array dropped = {"-fpie"sv,
                                "-fPIE"sv,
                                "-fno-pie"sv,
                                "-fno-PIE"sv,
                                "-fno-pic"sv,
                                "-fno-PIC"sv,
                                "-pie"sv,
                                "--pie"sv,
                                "-no-pie"sv,
                                "--no-pie"sv,
                                "-nopie"sv,
                                "-mdirect-extern-access"sv,
                                "-static-libgcc"sv,
                                "-static-libstdc++"sv,
                                "-static-libgfortran"sv,
                                "-ftls-model=local-exec"sv,
                                "-fdirect-access-external-data"sv};

/// As `dropped`, for the linker.
constexpr std::array dropped_of_linker = {"-pie"sv,       "--pie"sv, "-no-pie"sv, "--no-pie"sv, "--pic-executable"sv,
                                          "-static-pie"sv};

/// The library with main() of programs that have cell_main. aprun brings that; a second machine inside a cell is
/// not wanted.
constexpr std::string_view own_main = "aplib_cellos_main";
constexpr std::string_view own_main_file = "/libaplib_cellos_main.a";

/// Sanitizers whose runtime must own the whole process.
constexpr std::array owning_sanitizers = {"address"sv,   "thread"sv,   "memory"sv,    "leak"sv,
                                          "hwaddress"sv, "dataflow"sv, "safe-stack"sv};

/// Not ".s": an assembler takes none of the options that compilers take, and clang says so.
constexpr std::array source_suffixes = {
    "c"sv,   "i"sv,   "ii"sv,  "m"sv,   "mi"sv,  "mm"sv,  "M"sv,   "mii"sv, "h"sv,   "cc"sv,  "cp"sv,  "cxx"sv, "cpp"sv,
    "CPP"sv, "c++"sv, "C"sv,   "hh"sv,  "H"sv,   "hp"sv,  "hxx"sv, "hpp"sv, "HPP"sv, "h++"sv, "tcc"sv, "f"sv,   "for"sv,
    "ftn"sv, "F"sv,   "FOR"sv, "fpp"sv, "FPP"sv, "FTN"sv, "f90"sv, "f95"sv, "f03"sv, "f08"sv, "F90"sv, "F95"sv, "F03"sv,
    "F08"sv, "S"sv,   "sx"sv,  "d"sv,   "go"sv,  "ads"sv, "adb"sv, "ll"sv,  "bc"sv,  "cppm"sv};

bool is_source(std::string_view file) {
  const std::size_t dot = file.rfind('.');
  return dot != file.npos && is_one_of(file.substr(dot + 1), source_suffixes);
}

/// Follows one command line from left to right.
class Reader {
 public:
  explicit Reader(Arguments& result) : result_(result) {}

  void read(const std::vector<std::string>& arguments, std::vector<std::string>& kept) {
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const std::string& argument = arguments[i];
      if (is_one_of(argument, takes_next)) {
        const bool has_value = i + 1 < arguments.size();
        if (has_value && argument == "-Xlinker" && is_one_of(arguments[i + 1], dropped_of_linker)) {
          ++i;
          continue;
        }
        if (has_value && argument == "-l" && arguments[i + 1] == own_main) {
          files_ = true;
          ++i;
          continue;
        }
        if (has_value) pair(argument, arguments[i + 1]);
        kept.push_back(argument);
        if (has_value) kept.push_back(arguments[++i]);
      } else if (argument.size() > 1 && argument[0] == '@') {
        response_file(argument, kept);
      } else if (argument == "-" || argument.empty() || argument[0] != '-') {
        files_ = true;
        if (argument.ends_with(own_main_file)) continue;
        if (compiled_language_ || (!result_.names_language && is_source(argument))) result_.compiles = true;
        kept.push_back(argument);
      } else if (argument.starts_with("-Wl,")) {
        linker_list(argument, kept);
      } else if (option(argument)) {
        kept.push_back(argument);
      }
    }
  }

  /// Call once, after read().
  void finish() {
    if (!files_ || informs_) {
      result_.output = Output::information;
    } else if (objects_) {
      result_.output = Output::objects;
    } else if (partial_) {
      result_.output = Output::partial;
    } else if (library_) {
      result_.output = Output::library;
    } else {
      result_.output = Output::program;
    }
    const bool uses_compiler = result_.output != Output::information;
    if (uses_compiler && !narrow_.empty()) {
      throw Refused(narrow_ + ": the cells of a machine are one 64-bit x86-64 process; leave " + narrow_ + " out");
    }
    if (uses_compiler && !sanitizer_.empty()) {
      throw Refused("-fsanitize=" + sanitizer_ +
                    ": this sanitizer must own the whole process, and a program of cells is one of many in it; " +
                    "leave it out, test one copy of the program with the plain compiler, or use -fsanitize=undefined");
    }
    if (result_.output == Output::program && !static_.empty()) {
      throw Refused(static_ +
                    ": a statically linked program brings its own C library and cannot be loaded into cells; leave " +
                    static_ + " out (libraries of your own may be static: give their .a files, compiled with -fPIC)");
    }
  }

 private:
  void pair(const std::string& option, const std::string& value) {
    if (option == "-x") language(value);
    if (option == "-l") files_ = true;
    if (option == "-Xlinker") linker_option(value);
  }

  void response_file(const std::string& argument, std::vector<std::string>& kept) {
    const auto inner = depth_ < 16 ? read_response_file(argument.substr(1)) : std::nullopt;
    if (!inner) {
      kept.push_back(argument);  // gcc takes it for a file's name, and says that there is none
      return;
    }
    ++depth_;
    std::vector<std::string> inner_kept;
    read(*inner, inner_kept);
    --depth_;
    if (inner_kept == *inner) {
      kept.push_back(argument);
    } else {
      kept.insert(kept.end(), inner_kept.begin(), inner_kept.end());
    }
  }

  /// -Wl,a,b,c
  void linker_list(const std::string& argument, std::vector<std::string>& kept) {
    std::string left = "-Wl";
    std::string_view rest = std::string_view(argument).substr(3);
    while (!rest.empty()) {
      rest.remove_prefix(1);  // the comma
      const std::string_view item = rest.substr(0, rest.find(','));
      rest.remove_prefix(item.size());
      if (is_one_of(item, dropped_of_linker)) continue;
      linker_option(item);
      left += ',';
      left += item;
    }
    if (left.size() > 4) kept.push_back(left);
  }

  /// -x
  void language(std::string_view name) {
    result_.names_language = name != "none";
    compiled_language_ = result_.names_language && name != "assembler";
  }

  void linker_option(std::string_view option) {
    if (option == "-shared" || option == "--shared" || option == "-Bshareable") library_ = true;
    if (option == "-r" || option == "--relocatable" || option == "-Ur") partial_ = true;
  }

  /// An option without a separate value. False: drop it.
  bool option(const std::string& text) {
    if (is_one_of(text, dropped)) return false;
    if (text == "-static" || text == "--static" || text == "-static-pie") {
      static_ = text;
      return false;  // refused later if this is a link of a program; nothing to a compiler
    }
    if (text == "-m32" || text == "-mx32" || text == "-m16") narrow_ = text;
    if (text == "-m64") narrow_.clear();
    if (is_one_of(text, makes_objects)) objects_ = true;
    if (is_one_of(text, informs) || text.starts_with("-print-") || text.starts_with("--print-") ||
        text.starts_with("--help="))
      informs_ = true;
    if (text == "-shared" || text == "--shared") library_ = true;
    if (text == "-r") partial_ = true;
    if (text == "-fPIC" || text == "-fpic") result_.position_independent = true;
    if (text == "-nostdlib" || text == "-nodefaultlibs") result_.own_libraries = true;
    if (text.starts_with("-fuse-ld=")) {
      result_.linker = text == "-fuse-ld=gold" ? Linker::gold : text == "-fuse-ld=lld" ? Linker::lld : Linker::usual;
    }
    if (text == "-fdefault-integer-8" || text == "-finteger-4-integer-8") result_.wide_integers = text;
    if (text == "-flto" || text.starts_with("-flto=")) result_.link_time_code = true;
    if (text == "-fno-lto") result_.link_time_code = false;
    if (text.starts_with("-l")) files_ = true;
    if (text.starts_with("-l") && std::string_view(text).substr(2) == own_main) return false;
    if (text.starts_with("-x")) language(std::string_view(text).substr(2));
    if (text.starts_with("-fsanitize=")) sanitizers(text.substr(11), true);
    if (text.starts_with("-fno-sanitize=")) sanitizers(text.substr(14), false);
    return true;
  }

  void sanitizers(const std::string& list, bool wanted) {
    std::string_view rest = list;
    for (;;) {
      const std::string_view item = rest.substr(0, rest.find(','));
      if (is_one_of(item, owning_sanitizers) || item == "all") {
        if (wanted) {
          sanitizer_ = item;
        } else if (item == "all" || item == sanitizer_) {
          sanitizer_.clear();
        }
      }
      if (item.size() == rest.size()) return;
      rest.remove_prefix(item.size() + 1);
    }
  }

  Arguments& result_;
  bool files_ = false;
  bool compiled_language_ = false;  // of -x, where it stands now
  bool informs_ = false;
  bool objects_ = false;
  bool partial_ = false;
  bool library_ = false;
  int depth_ = 0;  // of response files
  std::string narrow_;
  std::string static_;
  std::string sanitizer_;
};

}  // namespace

Arguments Arguments::read(const std::vector<std::string>& arguments) {
  Arguments result;
  Reader reader(result);
  reader.read(arguments, result.kept);
  reader.finish();
  return result;
}

// ---------------------------------------------------------------- the compiler

namespace {

struct Names {
  std::string_view wrapper;
  const char* variable;
  const char* usual;
  const char* fallback;
  std::array<const char*, 3> of_other_mpis;
};

const Names& names(Language language) {
  static constexpr Names c = {"apcc", "AP_CC", "gcc", "cc", {"MPICC_CC", "OMPI_CC", "MPICH_CC"}};
  static constexpr Names cxx = {"apc++", "AP_CXX", "g++", "c++", {"MPICXX_CXX", "OMPI_CXX", "MPICH_CXX"}};
  static constexpr Names fortran = {"apfort", "AP_FC", "gfortran", "f95", {"MPIFORT_FC", "OMPI_FC", "MPICH_FC"}};
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

const char* compiler_variable_of_mpi(Language language) {
  const auto is_set = [](const char* variable) {
    const char* const value = std::getenv(variable);
    return value != nullptr && *value != '\0';
  };
  const Names& name = names(language);
  const auto other = std::ranges::find_if(name.of_other_mpis, is_set);
  return is_set(name.variable) || other == name.of_other_mpis.end() ? name.variable : *other;
}

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
  const os::UniqueFd reader(ends[0]);
  os::UniqueFd writer(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, writer.get(), STDOUT_FILENO);
  std::string option = "-dumpversion";
  char* const argv[] = {file.data(), option.data(), nullptr};
  pid_t child = 0;
  const int failed = posix_spawn(&child, file.c_str(), &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return;
  writer.reset();
  const std::string text = os::read_all(reader.get()).value_or("");
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  version = std::atoi(text.c_str());
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
void add_code_options(Line& line, const Compiler& compiler, const Arguments& arguments, const Prefix& prefix) {
  if (!arguments.position_independent) line.add({"-fPIC"});
  // As compilers of that time took it: functions without declarations, results without types, and a variable that
  // several files define.
  if (arguments.old) line.add({"-std=gnu89", "-fcommon", "-include", prefix.include_folder + "/aplib/compat/old.h"});
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

  if (arguments.mpi && language == Language::fortran && !arguments.wide_integers.empty() && arguments.compiles) {
    throw Refused(arguments.wide_integers +
                  ": INTEGERs of MPI have 4 bytes; leave it out, and declare long ones as INTEGER(KIND=8)");
  }
  if (arguments.compiles) add_code_options(line, compiler, arguments, prefix);
  // What mpif.h does not declare is called with buffers of many types. Other MPIs' wrappers allow both, too.
  if (arguments.compiles && arguments.mpi && language == Language::fortran && compiler.version >= 10)
    line.add({"-fallow-argument-mismatch", "-fallow-invalid-boz"});
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
  if (arguments.compiles && arguments.mpi) line.add({"-I" + prefix.mpi_include()});
  if (arguments.compiles && !arguments.mpi_modules.empty()) line.add({"-I" + arguments.mpi_modules});
  if (program) {
    if (arguments.names_language) line.add({"-x", "none"});
    line.add({prefix.entries_script()});  // after them
  }
  if (links_libraries && arguments.mpi) {
    // No run path: the loader gives programs the library beside libaplib, whatever they were linked with.
    if (!prefix.library_folder.empty()) line.add({"-L" + prefix.library_folder});
    // But ordinary processes load what interpreters extend themselves with, as mpi4py.
    if (!program && !prefix.library_folder.empty()) line.add({"-Wl,-rpath," + prefix.library_folder});
    if (language == Language::fortran) line.add({"-lmpifort_abi"});
    line.add({"-lmpi_abi"});
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
