// SPDX-License-Identifier: MIT
// apcc, apc++ and apfort: they become the user's compiler, with arguments that make programs of cells. This is the
// source of all three; APLIB_WRAPPER_LANGUAGE says which one is compiled.

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "compile/command.hpp"
#include "compile/tree.hpp"

namespace aplib::compile {
namespace {

/// The wrapper's own options, and what is left for the compiler.
struct Request {
  std::vector<std::string> arguments;
  std::string compiler;
  std::string final_root;
  bool show = false;
  bool help = false;
  bool prepare = false;
  bool retarget = false;
  bool old = false;
};

Request read_request(int argc, char** argv) {
  Request request;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
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

void say_help(Language language) {
  const std::string name(wrapper_name(language));
  const std::string text =
      "usage: " + name +
      " [options] arguments of the compiler...\n"
      "Compiles and links programs of cells: aprun -n 8 ./prog, or just ./prog.\n"
      "  --aplib-show        print the command instead of running it (also -show)\n"
      "  --aplib-cc=COMMAND  the compiler to use; else $" +
      compiler_variable(language) +
      ", else the system's\n"
      "  --old               C of the 1990s: -std=gnu89 -fcommon, and CellOS's declarations in every source (apcc)\n"
      "  --aplib-root=FOLDER APlib will be in FOLDER when the programs run (packages); else where it is now\n"
      "After moving APlib, as the owner of its files:\n"
      "  --aplib-prepare             note the new place, once, so that all users link fast\n"
      "  --aplib-retarget PROGRAM... have finished programs started from the new place\n";
  std::fputs(text.c_str(), stdout);
}

/// Exit status when all was printed: 1, with a message, where standard output has not taken it.
int finish_output(Language language) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
  std::fprintf(stderr, "%s: cannot write standard output: %s\n", std::string(wrapper_name(language)).c_str(),
               std::strerror(errno));
  return 1;
}

/// The stub for programs of this request.
std::string start_of(const Request& request, const Prefix& prefix) {
  return request.final_root.empty() ? prefix.start() : Prefix::at(request.final_root).start();
}

int run_compiler(Language language, const Request& request) {
  const std::string name(wrapper_name(language));
  Compiler compiler = Compiler::find(language, request.compiler);
  const std::string& first = compiler.words.front();
  if (!compiler.file.empty() && compiler.file == real_path("/proc/self/exe")) {
    throw Refused(std::string(compiler_variable(language)) + "=" + first + " names " + name +
                  " itself; name the compiler that it shall use");
  }

  Arguments arguments = Arguments::read(request.arguments);
  arguments.old = request.old;
  if (request.old && language != Language::c) throw Refused("--old: it is for C of the 1990s; use apcc");
  const Prefix prefix = Prefix::own();
  if (tunes_for_program(arguments)) compiler.ask_version();
  const std::string object =
      arguments.output == Output::program ? program_object(prefix, start_of(request, prefix)) : std::string();
  std::vector<std::string> words = command(language, compiler, arguments, prefix, object);

  if (request.show) {
    std::puts(shell_text(words).c_str());
    return finish_output(language);
  }
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  const int reason = errno;
  std::fprintf(stderr,
               "%s: cannot run the compiler \"%s\": %s; install it, or name yours: %s=COMMAND in the environment, or "
               "--aplib-cc=COMMAND\n",
               name.c_str(), first.c_str(), std::strerror(reason), compiler_variable(language));
  return 127;
}

int run(Language language, int argc, char** argv) {
  try {
    const Request request = read_request(argc, argv);
    if (request.help) {
      say_help(language);
      return finish_output(language);
    }
    if (request.prepare || request.retarget) {
      const Prefix prefix = Prefix::own();
      const std::string start = start_of(request, prefix);
      if (request.prepare) prepare_program_object(prefix, start);
      for (const std::string& file : request.arguments) {
        if (request.retarget) retarget(file, start);
      }
      return 0;
    }
    return run_compiler(language, request);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", std::string(wrapper_name(language)).c_str(), error.what());
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
