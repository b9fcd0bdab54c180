// SPDX-License-Identifier: MIT
#include "child.hpp"

#include <fmt/core.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>

namespace apbench {
namespace {

struct CloseFile {
  void operator()(FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<FILE, CloseFile>;

/// In memory: there may be no folder for it.
File unnamed_file() {
  const int file = memfd_create("apbench", MFD_CLOEXEC);
  return File(file < 0 ? nullptr : fdopen(file, "w+"));
}

std::string content(FILE* file) {
  std::string text;
  std::rewind(file);
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text.push_back(static_cast<char>(c));
  return text;
}

}  // namespace

std::string beside(const std::string& name) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
}

std::string output_of(const std::vector<std::string>& arguments, int accepted) {
  const File out = unnamed_file();
  const File err = unnamed_file();
  if (out == nullptr || err == nullptr)
    throw std::runtime_error(fmt::format("no temporary file: {}", std::strerror(errno)));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fileno(out.get()), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(err.get()), STDERR_FILENO);
  std::vector<char*> argv;
  for (const std::string& argument : arguments)
    argv.push_back(const_cast<char*>(argument.c_str()));  // never written to
  argv.push_back(nullptr);
  pid_t child = 0;
  const int error = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw std::runtime_error(
        fmt::format("cannot start {}: {}; build the target of that name, it belongs beside apbench", arguments[0],
                    std::strerror(error)));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != accepted)) {
    throw std::runtime_error(
        fmt::format("{} ended with {} {}: {}", arguments[0], WIFEXITED(status) ? "exit status" : "signal",
                    WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status), content(err.get())));
  }
  return content(out.get());
}

}  // namespace apbench
