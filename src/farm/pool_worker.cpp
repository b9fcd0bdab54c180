// SPDX-License-Identifier: MIT
#include "farm/pool_worker.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"

namespace aplib::farm {
namespace {

constexpr const char* mark = "APFARM_WORKER";

WorkerStreams streams;

/// Before anything of the program runs: what it prints is not to get between the messages, so it goes to the standard
/// error, which apctl passes on.
[[gnu::constructor]] void take_streams() {
  if (std::getenv(mark) == nullptr) return;
  ::unsetenv(mark);  // what the program starts is no worker
  streams = {::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1),
             ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)};
  const os::UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ::dup2(nothing.get(), STDIN_FILENO);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
}

}  // namespace

std::optional<WorkerStreams> streams_of_worker() noexcept {
  return streams.in < 0 ? std::nullopt : std::optional(streams);
}

PoolProgram PoolProgram::of_this_process(const std::string& pool) {
  PoolProgram program{.pool = pool, .command = {}};
  std::array<char, 4096> path{};
  const ssize_t bytes = ::readlink("/proc/self/exe", path.data(), path.size());
  const auto words = os::read_file("/proc/self/cmdline");
  if (bytes <= 0 || !words)
    throw Error(Errc::failed, "farm: /proc does not say which program this is: workers in a pool need it mounted");
  program.command.emplace_back(path.data(), static_cast<std::size_t>(bytes));
  for (std::size_t at = words->find('\0') + 1; at != 0 && at < words->size(); at = words->find('\0', at) + 1)
    program.command.emplace_back(words->c_str() + at);
  return program;
}

void PoolProgram::run(unsigned number, int channel) const {
  std::vector<std::string> words{
      "apctl", "exec", "--number", std::to_string(number), pool, "env", std::string(mark) + "=1"};
  words.insert(words.end(), command.begin(), command.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::dup2(channel, STDIN_FILENO);
  ::dup2(channel, STDOUT_FILENO);
  ::execvp(pointers[0], pointers.data());
  std::fprintf(stderr, "farm: apctl, which starts workers in pool %s, cannot be executed: %s; is it in PATH?\n",
               pool.c_str(), std::strerror(errno));
  constexpr int not_executed = 127;
  ::_exit(not_executed);
}

unsigned cores_of_pool(const std::string& pool) {
  if (pool.empty() || pool.find('\'') != pool.npos)
    throw Error(
        Errc::bad_argument,
        fmt::format("farm: Options::pool = \"{}\": no name of a pool; apctl hosts shows those that stand", pool));
  const std::string command = fmt::format("apctl hosts '{}' --json", pool);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(::popen(command.c_str(), "re"), &::pclose);
  const auto text = file ? os::read_all(::fileno(file.get())) : std::nullopt;
  double cores = 0;
  constexpr std::string_view key = "\"cores\": ";
  for (std::size_t at = 0; text && (at = text->find(key, at)) != text->npos;) {
    at += key.size();
    cores += std::floor(std::max(1.0, std::strtod(text->c_str() + at, nullptr)));
  }
  if (cores < 1) {
    throw Error(Errc::failed,
                fmt::format("farm: {} shows no host, so that nobody knows how many workers there are to "
                            "be: does the pool stand, and is apctl in PATH? Options::workers says it, too",
                            command));
  }
  return static_cast<unsigned>(cores);
}

}  // namespace aplib::farm
