// SPDX-License-Identifier: MIT
// apcc, apc++ and apfort: they become the user's compiler, with arguments that make programs of cells. This is the
// source of all three; APLIB_WRAPPER_LANGUAGE says which one is compiled. Started as mpicc, mpicxx, mpic++, mpiCC,
// mpifort, mpif77 or mpif90, also with suffix .aplib or _abi, they add MPI's headers and libraries, and answer what
// scripts ask such a wrapper.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/descriptor.hpp"
#include "base/os/own_folder.hpp"
#include "compile/command.hpp"
#include "compile/tree.hpp"

namespace aplib::compile {
namespace {

/// Behind "-showme:".
constexpr std::array questions = {"compile", "link", "incdirs", "libdirs", "libs", "command"};

struct Wrapper {
  Language language;
  std::string name;  ///< For messages.
  bool mpi;
};

/// The wrapper's own options, and what is left for the compiler.
struct Request {
  std::vector<std::string> arguments;
  std::string compiler;
  std::string final_root;
  bool show = false;
  std::string question;  ///< "compile" of -showme:compile; empty: -show and its like.
  bool help = false;
  bool prepare = false;
  bool retarget = false;
  bool old = false;
};

/// What an option of Open MPI's or MPICH's wrappers asks. False: it is none of them.
bool read_question(std::string_view option, Request& request) {
  if (option.starts_with("--show")) option.remove_prefix(1);
  if (option == "-compile-info" || option == "-compile_info") {
    request.question = "compile-info";
  } else if (option == "-link-info" || option == "-link_info") {
    request.question = "link-info";
  } else if (option.starts_with("-showme:")) {
    request.question = option.substr(8);
    if (std::ranges::find(questions, request.question) == questions.end()) {
      throw Refused(std::string(option) +
                    ": unknown option; use -showme:compile, link, incdirs, libdirs, libs or command");
    }
  } else if (option != "-showme" && option != "-show") {
    return false;
  }
  request.show = true;
  return true;
}

Request read_request(const Wrapper& wrapper, int argc, char** argv) {
  Request request;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (wrapper.mpi && read_question(argument, request)) continue;
    if (wrapper.mpi && (argument.starts_with("-cc=") || argument.starts_with("-cxx=") ||
                        argument.starts_with("-fc="))) {  // as MPICH's
      request.compiler = argument.substr(argument.find('=') + 1);
      continue;
    }
    if (argument == "--aplib-show" || argument == "-show") {
      request.show = true;
    } else if (argument == "--aplib-help") {
      request.help = true;
    } else if (argument == "--aplib-prepare") {
      request.prepare = true;
    } else if (argument == "--aplib-retarget") {
      request.retarget = true;
    } else if (argument == "--old") {
      request.old = true;
    } else if (argument.starts_with("--aplib-root=")) {
      request.final_root = argument.substr(13);
    } else if (argument.starts_with("--aplib-cc=")) {
      request.compiler = argument.substr(11);
    } else if (argument.starts_with("--aplib-")) {
      throw Refused(argument + ": unknown option; --aplib-help lists those of APlib");
    } else {
      request.arguments.push_back(argument);
    }
  }
  return request;
}

void say_help(const Wrapper& wrapper) {
  const std::string text =
      "usage: " + wrapper.name +
      " [options] arguments of the compiler...\n"
      "Compiles and links programs of cells: aprun -n 8 ./prog, or just ./prog.\n"
      "  --aplib-show        print the command instead of running it (also -show)\n"
      "  --aplib-cc=COMMAND  the compiler to use; else $" +
      compiler_variable(wrapper.language) + (wrapper.mpi ? " and the variables of Open MPI and MPICH" : "") +
      ", else the system's\n"
      "  --old               C of the 1990s: -std=gnu89 -fcommon, and CellOS's declarations in every source (apcc)\n"
      "  --aplib-root=FOLDER APlib will be in FOLDER when the programs run (packages); else where it is now\n" +
      (wrapper.mpi
           ? "  -show, -showme, -showme:compile, link, incdirs, libdirs, libs, command, -compile-info, -link-info\n"
           : "") +
      "After moving APlib, as the owner of its files:\n"
      "  --aplib-prepare             note the new place, once, so that all users link fast\n"
      "  --aplib-retarget PROGRAM... have finished programs started from the new place\n";
  std::fputs(text.c_str(), stdout);
}

/// Exit status when all was printed: 1, with a message, where standard output has not taken it.
int finish_output(const Wrapper& wrapper) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
  std::fprintf(stderr, "%s: cannot write standard output: %s\n", wrapper.name.c_str(), std::strerror(errno));
  return 1;
}

// ---------------------------------------------------------------- old sources
// C sources of the 1990s include headers of CellOS by full paths of the system that they were written on. Compilers
// take such a path as it is, so they get a changed text.

using namespace std::string_view_literals;

constexpr std::string_view blanks = " \t";

/// The rest of `line` behind `word` and blanks; nothing: something else stands there.
std::optional<std::string_view> behind(std::string_view line, std::string_view word) {
  line.remove_prefix(std::min(line.find_first_not_of(blanks), line.size()));
  if (!line.starts_with(word)) return std::nullopt;
  line.remove_prefix(word.size());
  line.remove_prefix(std::min(line.find_first_not_of(blanks), line.size()));
  return line;
}

/// What the line includes by a path of the old system; empty: nothing of that kind.
std::string_view old_path(std::string_view line) {
  const auto directive = behind(line, "#");
  const auto operand = directive ? behind(*directive, "include") : std::nullopt;
  if (!operand || operand->empty() || (operand->front() != '"' && operand->front() != '<')) return {};
  const std::string_view path = operand->substr(1, operand->find_first_of("\">", 1) - 1);
  return path.starts_with("/usr/cap/") ? path : std::string_view();
}

bool is_source(const std::vector<std::string>& words, std::size_t i) {
  static constexpr std::array valued = {"-o"sv, "-include"sv, "-imacros"sv, "-MF"sv, "-MT"sv, "-MQ"sv};
  const bool is_value = i > 0 && std::ranges::find(valued, words[i - 1]) != valued.end();
  return !is_value && words[i].ends_with(".c") && !words[i].starts_with('-');
}

bool has(const std::vector<std::string>& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

/// `text`, of the source `file`, with each file below /usr/cap that it includes and that is not there included by its
/// name alone. Lines and messages stay the file's. Nothing: there is no such include.
std::optional<std::string> with_headers_found(const std::string& text, const std::string& file) {
  std::string changed = "# 1 \"" + file + "\"\n";
  bool is_changed = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    const std::string_view line(text.data() + at, end - at);
    at = end;
    const std::string_view path = old_path(line);
    if (path.empty() || exists(std::string(path))) {
      changed += line;
      continue;
    }
    is_changed = true;
    changed += "#include <" + std::string(name_of(path)) + ">";
    changed += line.substr(static_cast<std::size_t>(path.data() - line.data()) + path.size() + 1);
  }
  if (!is_changed) return std::nullopt;
  return changed;
}

/// The same for the sources among `arguments`. Changed texts are in unnamed files, which the compiler inherits. Not for
/// headers that include one by such a path, and not for several sources that one command makes objects of.
void find_old_headers(Arguments& arguments) {
  std::vector<std::string>& words = arguments.kept;
  std::size_t sources = 0;
  for (std::size_t i = 0; i < words.size(); ++i) sources += is_source(words, i) ? 1 : 0;
  const bool has_output = std::ranges::any_of(words, [](const std::string& word) { return word.starts_with("-o"); });
  const char* const suffix = has_output ? nullptr : has(words, "-c") ? ".o" : has(words, "-S") ? ".s" : nullptr;
  if (arguments.names_language || (suffix != nullptr && sources != 1)) return;

  std::vector<std::string> found;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto text = is_source(words, i) ? os::read_file(words[i]) : std::nullopt;
    const auto changed = text ? with_headers_found(*text, words[i]) : std::nullopt;
    const int descriptor = changed ? memfd_create("source.c", 0) : -1;
    if (descriptor < 0 || !os::write_all(descriptor, *changed)) {
      found.push_back(words[i]);
      continue;
    }
    const std::string name(name_of(words[i]));
    if (suffix != nullptr) found.insert(found.end(), {"-o", name.substr(0, name.size() - 2) + suffix});
    found.insert(found.end(), {"-iquote", folder_of(words[i]), "-x", "c", "/proc/self/fd/" + std::to_string(descriptor),
                               "-x", "none"});
  }
  words = std::move(found);
}

// ---------------------------------------------------------------- the compiler

/// The stub for programs of this request.
std::string start_of(const Request& request, const Prefix& prefix) {
  return request.final_root.empty() ? prefix.start() : Prefix::at(request.final_root).start();
}

/// What -show and its like print.
std::string answer(const Wrapper& wrapper, const std::string& question, const Compiler& compiler, Arguments arguments,
                   const Prefix& prefix, const std::string& start) {
  if (question == "command") return shell_text(compiler.words);
  if (question == "incdirs")
    return prefix.mpi_include() + (arguments.mpi_modules.empty() ? "" : " " + arguments.mpi_modules);
  if (question == "libdirs") return prefix.library_folder;
  if (question == "libs") return wrapper.language == Language::fortran ? "mpifort_abi mpi_abi" : "mpi_abi";
  if (wrapper.mpi && (!question.empty() || arguments.output == Output::information)) {
    // Of a command that compiles or links something, which is not there.
    arguments.compiles = !question.starts_with("link");
    arguments.output = question.starts_with("compile") ? Output::objects : Output::program;
  }
  const std::string object = arguments.output == Output::program ? program_object(prefix, start) : std::string();
  std::vector<std::string> words = command(wrapper.language, compiler, arguments, prefix, object);
  if (question == "compile" || question == "link")
    words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(compiler.words.size()));
  return shell_text(words);
}

/// The folder with the module mpi for this compiler; empty: none.
std::string module_folder(const Prefix& prefix, const Compiler& compiler) {
  if (compiler.file.empty()) return {};
  const std::string name = compiler.family == Compiler::Family::gnu ? "gfortran-" + std::to_string(compiler.version)
                                                                    : std::string(name_of(compiler.file));
  return mpi_module_folder(prefix, compiler.words, name);
}

int run_compiler(const Wrapper& wrapper, const Request& request) {
  const Language language = wrapper.language;
  const char* const variable = wrapper.mpi ? compiler_variable_of_mpi(language) : compiler_variable(language);
  const char* const wanted = std::getenv(variable);
  Compiler compiler =
      Compiler::find(language, request.compiler.empty() && wanted != nullptr ? wanted : request.compiler);
  const std::string& first = compiler.words.front();
  if (!compiler.file.empty() && compiler.file == os::own_program()) {
    throw Refused(std::string(variable) + "=" + first + " names " + wrapper.name +
                  " itself; name the compiler that it shall use");
  }

  Arguments arguments = Arguments::read(request.arguments);
  arguments.mpi = wrapper.mpi;
  arguments.old = request.old;
  if (request.old && language != Language::c) throw Refused("--old: it is for C of the 1990s; use apcc");
  if (request.old) find_old_headers(arguments);
  const Prefix prefix = Prefix::own();
  const std::string start = start_of(request, prefix);
  const bool is_mpi_fortran = wrapper.mpi && language == Language::fortran;
  if (tunes_for_program(arguments) || (wrapper.mpi && request.show) || is_mpi_fortran) compiler.ask_version();
  if (is_mpi_fortran && (arguments.compiles || request.show)) arguments.mpi_modules = module_folder(prefix, compiler);
  if (request.show) {
    std::puts(answer(wrapper, request.question, compiler, arguments, prefix, start).c_str());
    return finish_output(wrapper);
  }

  const std::string object = arguments.output == Output::program ? program_object(prefix, start) : std::string();
  std::vector<std::string> words = command(language, compiler, arguments, prefix, object);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  const int reason = errno;
  std::fprintf(stderr,
               "%s: cannot run the compiler \"%s\": %s; install it, or name yours: %s=COMMAND in the environment, or "
               "--aplib-cc=COMMAND\n",
               wrapper.name.c_str(), first.c_str(), std::strerror(reason), variable);
  return 127;
}

int run(Language language, int argc, char** argv) {
  Wrapper wrapper{language, std::string(wrapper_name(language)), false};
  try {
    const std::string_view called = name_of(argc > 0 ? argv[0] : "");
    if (called.starts_with("mpi")) wrapper = {language, std::string(called), true};
    const Request request = read_request(wrapper, argc, argv);
    if (request.help) {
      say_help(wrapper);
      return finish_output(wrapper);
    }
    if (request.prepare || request.retarget) {
      const Prefix prefix = Prefix::own();
      const std::string start = start_of(request, prefix);
      if (request.prepare) prepare_program_object(prefix, start);
      if (request.prepare && wrapper.mpi && language == Language::fortran) {
        Compiler compiler = Compiler::find(language, request.compiler);
        compiler.ask_version();
        module_folder(prefix, compiler);
      }
      for (const std::string& file : request.arguments) {
        if (request.retarget) retarget(file, start);
      }
      return 0;
    }
    return run_compiler(wrapper, request);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", wrapper.name.c_str(), error.what());
    return 1;
  }
}

}  // namespace
}  // namespace aplib::compile

/// Does not return where the compiler runs: its exit status is the wrapper's. Else 0 after --aplib-show and
/// --aplib-help, 1 for what cannot be, 127 where there is no compiler; with one message on stderr.
int main(int argc, char** argv) {
  return aplib::compile::run(aplib::compile::Language::APLIB_WRAPPER_LANGUAGE, argc, argv);
}
