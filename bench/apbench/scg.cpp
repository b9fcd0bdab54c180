// SPDX-License-Identifier: MIT
// scg: runs the solver that stands beside apbench, and compares its speeds pair by pair within a round.
#include <fmt/core.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>

#include "benches.hpp"

namespace apbench {
namespace {

struct Size {
  const char* name;
  const char* cells;
  const char* threads;
};
constexpr std::array<Size, 3> sizes{{{"1x1-on-1", "1x1", "1"}, {"2x1-on-2", "2x1", "2"}, {"8x8-on-2", "8x8", "2"}}};
constexpr std::size_t one_cell = 0;
constexpr std::size_t two_cells = 1;
constexpr std::size_t many_cells = 2;

std::string scg_path() { return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "scg").string(); }

struct CloseFile {
  void operator()(FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<FILE, CloseFile>;

std::string content(FILE* file) {
  std::string text;
  std::rewind(file);
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text.push_back(static_cast<char>(c));
  return text;
}

// What `arguments` print on stdout. Throws when the program cannot be started or fails, with what it said on stderr.
std::string output_of(const std::vector<std::string>& arguments) {
  const File out(std::tmpfile());
  const File err(std::tmpfile());
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
    throw std::runtime_error(fmt::format("cannot start {}: {}; build the target scg, it belongs beside apbench",
                                         arguments[0], std::strerror(error)));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw std::runtime_error(
        fmt::format("{} ended with {} {}: {}", arguments[0], WIFEXITED(status) ? "exit status" : "signal",
                    WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status), content(err.get())));
  }
  return content(out.get());
}

// The number after "name": in the last JSON object of `text`.
double json_number(const std::string& text, const std::string& name) {
  const std::string key = fmt::format("\"{}\":", name);
  const std::size_t at = text.rfind(key);
  double value = 0;
  if (at != std::string::npos) {
    std::size_t begin = at + key.size();
    while (begin < text.size() && text[begin] == ' ') ++begin;
    const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), value);
    if (error == std::errc{}) return value;
  }
  throw std::runtime_error(fmt::format("scg --json printed no number named {}", key));
}

double mflops(const Size& size) {
  return json_number(
      output_of({scg_path(), "--cells", size.cells, "--threads", size.threads, "--grid", "300", "--json"}), "mflops");
}

}  // namespace

// All five each time: the ratios are made of the speeds that stand before them in the round. What --case leaves out is not printed.
void plan_scg(Plan& plan, Machines&, const Wishes&) {
  const auto round = std::make_shared<std::array<double, sizes.size()>>();
  const auto add = [&plan](const char* name, const char* unit, std::function<double(std::uint64_t)> run) {
    plan.push_back({.bench = "scg",
                    .case_name = name,
                    .bytes = 0,
                    .unit = unit,
                    .run = std::move(run),
                    .value = [](double value, std::uint64_t) { return value; },
                    .calibrated = false});
  };
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    add(sizes[i].name, "MFlops", [round, i](std::uint64_t) { return (*round)[i] = mflops(sizes[i]); });
  }
  add("2x1-over-1x1", "ratio", [round](std::uint64_t) { return (*round)[two_cells] / (*round)[one_cell]; });
  add("8x8-over-2x1", "ratio", [round](std::uint64_t) { return (*round)[many_cells] / (*round)[two_cells]; });
}

}  // namespace apbench
