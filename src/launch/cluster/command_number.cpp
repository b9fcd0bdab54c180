// SPDX-License-Identifier: MIT
#include "launch/cluster/command_number.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <csignal>
#include <optional>
#include <string_view>
#include <system_error>

#include "aplib/error.hpp"
#include "launch/cluster/document.hpp"

namespace aplib::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t output_max = 4096;

std::string reason(int error) { return std::generic_category().message(error); }

/// sh, in a group of its own, with its standard output in a pipe.
class Shell {
 public:
  /// Throws std::system_error.
  explicit Shell(const std::string& line) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category());
    output_ = ends[0];
    const int error = spawn(line, ends[1]);
    ::close(ends[1]);
    if (error == 0) return;
    ::close(output_);
    throw std::system_error(error, std::generic_category());
  }
  ~Shell() {
    ::close(output_);
    if (child_ <= 0) return;
    ::kill(-child_, SIGKILL);
    (void)wait();
  }
  Shell(const Shell&) = delete;
  Shell& operator=(const Shell&) = delete;

  /// Until the end of the output, or `until`. Nothing: it was not over then.
  std::optional<std::string> read(Clock::time_point until) {
    std::string text;
    std::array<char, 512> piece{};
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
      pollfd entry{.fd = output_, .events = POLLIN, .revents = 0};
      const int ready = ::poll(&entry, 1, static_cast<int>(std::max<long>(left, 0)));
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) return std::nullopt;
      const ssize_t count = ::read(output_, piece.data(), piece.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return text;
      if (text.size() < output_max) text.append(piece.data(), static_cast<std::size_t>(count));
    }
  }

  /// Exit status, or 128 and the signal's number. Once.
  int wait() {
    int status = 0;
    while (::waitpid(child_, &status, 0) < 0 && errno == EINTR) {
    }
    child_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  int spawn(const std::string& line, int output) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawnattr_init(&attributes);
    // Standard input of a node is where the job's key comes from.
    ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
    sigset_t none;
    sigset_t all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setsigdefault(&attributes, &all);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    std::string shell = "sh";
    std::string option = "-c";
    std::string copy = line;
    std::array<char*, 4> arguments{shell.data(), option.data(), copy.data(), nullptr};
    const int error = ::posix_spawn(&child_, "/bin/sh", &files, &attributes, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&files);
    ::posix_spawnattr_destroy(&attributes);
    if (error != 0) child_ = 0;
    return error;
  }

  int output_ = -1;
  pid_t child_ = 0;
};

std::optional<double> parse(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == text.npos) return std::nullopt;
  text = text.substr(first, text.find_last_not_of(blanks) + 1 - first);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(number) || !(number > 0))
    return std::nullopt;
  return number;
}

}  // namespace

double command_number(const std::string& subject, const std::string& line, std::chrono::seconds time_max) {
  const auto refuse = [&](const std::string& what) {
    throw Error(Errc::failed, fmt::format("{}: the command {} {}", subject, quoted(line), what));
  };
  std::optional<std::string> output;
  int status = 0;
  try {
    Shell shell(line);
    output = shell.read(Clock::now() + time_max);
    if (output) status = shell.wait();
  } catch (const std::system_error& error) {
    refuse(fmt::format("cannot be started: {}", reason(error.code().value())));
  }
  if (!output) refuse(fmt::format("is not done after {} s: use a shorter one", time_max.count()));
  if (status != 0) refuse(fmt::format("failed with status {}: try it on this host", status));
  const auto number = parse(*output);
  if (!number)
    refuse(fmt::format("wrote {}, not a number above 0: it must print that and nothing else", quoted(*output)));
  return *number;
}

}  // namespace aplib::launch
