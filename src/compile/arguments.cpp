// SPDX-License-Identifier: MIT
#include "compile/arguments.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "compile/file.hpp"

namespace aplib::compile {

// ---------------------------------------------------------------- files of arguments

std::vector<std::string> split_arguments(const std::string& text) {
  std::vector<std::string> arguments;
  std::string argument;
  bool inside = false;  // of an argument, which may be empty: ""
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && i + 1 < text.size()) {
      argument += text[++i];
      inside = true;
    } else if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        argument += c;
      }
    } else if (c == '"' || c == '\'') {
      quote = c;
      inside = true;
    } else if (c == ' ' || (c >= '\t' && c <= '\r')) {
      if (inside) arguments.push_back(argument);
      argument.clear();
      inside = false;
    } else {
      argument += c;
      inside = true;
    }
  }
  if (inside) arguments.push_back(argument);
  return arguments;
}

std::optional<std::vector<std::string>> read_response_file(const std::string& path) {
  const auto text = read_file(path);
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

}  // namespace aplib::compile
