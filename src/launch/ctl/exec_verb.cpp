// SPDX-License-Identifier: MIT
#include "launch/ctl/exec_verb.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "base/text.hpp"
#include "launch/pool/pool.hpp"
#include "launch/start/launch_method.hpp"
#include "launch/start/started.hpp"
#include "launch/terminal.hpp"

namespace aplib::launch::ctl {
namespace {

using start::Started;

/// Bytes on their way from one descriptor to another: it reads only when all is written.
class Flow {
 public:
  Flow(int from, int to) : from_(from), to_(to) {
    struct stat about {};
    to_socket_ = ::fstat(to, &about) == 0 && S_ISSOCK(about.st_mode);
    never_blocks_ = (::fcntl(to, F_GETFL) & O_NONBLOCK) != 0;
  }

  /// What it waits for; nothing: it has ended.
  [[nodiscard]] pollfd wish() const {
    if (begin_ < end_) return {.fd = to_, .events = POLLOUT, .revents = 0};
    return {.fd = ended_ ? -1 : from_, .events = POLLIN, .revents = 0};
  }
  [[nodiscard]] bool ended() const noexcept { return ended_ && begin_ == end_; }

  /// False: nobody takes any more.
  bool go_on() {
    if (begin_ == end_) {
      const ssize_t count = ::read(from_, buffer_.data(), buffer_.size());
      if (count < 0 && (errno == EINTR || errno == EAGAIN)) return true;
      begin_ = 0;
      end_ = static_cast<std::size_t>(std::max<ssize_t>(count, 0));
      ended_ = count <= 0;
      return true;
    }
    // A pipe takes so much at once when it takes anything, and would else make this process wait for one side only.
    const std::size_t piece =
        to_socket_ || never_blocks_ ? end_ - begin_ : std::min<std::size_t>(end_ - begin_, PIPE_BUF);
    const ssize_t count = to_socket_ ? ::send(to_, buffer_.data() + begin_, piece, MSG_NOSIGNAL | MSG_DONTWAIT)
                                     : ::write(to_, buffer_.data() + begin_, piece);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    if (count < 0) return false;
    begin_ += static_cast<std::size_t>(count);
    return true;
  }

 private:
  int from_;
  int to_;
  bool to_socket_ = false;
  bool never_blocks_ = false;
  bool ended_ = false;
  std::array<char, 65536> buffer_{};
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

/// One program on a host.
class HostProgram {
 public:
  explicit HostProgram(start::NodeStart start) : start_(std::move(start)), method_(start::make_keeper_method()) {}

  int run() {
    try {
      program_ = method_->begin({start_}, nullptr);
    } catch (const Error& error) {
      throw Error(Errc::failed, method_->not_executed(start_, error.what()));
    }
    const os::Ends ends = program_->release_streams();
    Flow in(STDIN_FILENO, ends.writer.get());
    Flow out(ends.reader.get(), STDOUT_FILENO);
    bool closed = false;
    while (!words_.end().told && !words_ended_) {
      std::array polled{in.wish(), out.wish(), pollfd{.fd = program_->end_fd(), .events = POLLIN, .revents = 0}};
      if (::poll(polled.data(), polled.size(), -1) < 0) continue;
      if (polled[0].revents != 0 && !in.go_on()) closed = true;  // it reads no more, and may write on
      if (polled[1].revents != 0 && !out.go_on()) return static_cast<int>(ExitStatus::program_failed);
      if (in.ended() && !std::exchange(closed, true)) ::shutdown(ends.writer.get(), SHUT_WR);
      if (polled[2].revents != 0) take_words();
    }
    while (!out.ended() && out.go_on()) {
      pollfd one = out.wish();
      if (one.fd >= 0) static_cast<void>(::poll(&one, 1, -1));
    }
    return status();
  }

 private:
  void take_words() {
    const std::string text = program_->read(Started::error);
    if (text.empty()) {
      words_ended_ = program_->ended().has_value();
      return;
    }
    words_.take(text, [this](const std::string& line) {
      if (words_.end().began) static_cast<void>(os::write_all(STDERR_FILENO, line + "\n"));
    });
  }

  [[nodiscard]] int status() const {
    if (words_.end().told) return words_.end().status;
    throw Error(Errc::failed, method_->judge(start_, words_.end()).text);
  }

  const start::NodeStart start_;
  const std::unique_ptr<start::LaunchMethod> method_;
  std::unique_ptr<Started> program_;
  start::KeptWords words_;
  bool words_ended_ = false;
};

}  // namespace

int exec_in_pool(const std::vector<std::string>& words, unsigned number) {
  if (words.size() < 2)
    throw Error(Errc::bad_argument, "a pool and a program are needed: apctl exec POOL[:HOST] PROGRAM [ARGUMENTS...]");
  const std::size_t colon = words[0].find(':');
  const pool::Pool pool = pool::Pool::reach(words[0].substr(0, colon));
  std::size_t which = number % pool.hosts().size();
  if (colon != std::string::npos) {
    const std::string wanted = words[0].substr(colon + 1);
    const auto at = std::ranges::find(pool.hosts(), wanted, &pool::PoolHost::name);
    if (at == pool.hosts().end()) {
      std::vector<std::string_view> known;
      for (const pool::PoolHost& each : pool.hosts()) known.push_back(each.name);
      throw Error(Errc::bad_argument,
                  fmt::format("pool {} has no host {}: it has {}", pool.name(), wanted, fmt::join(known, ", ")));
    }
    which = static_cast<std::size_t>(at - pool.hosts().begin());
  }
  start::NodeStart start{.process = static_cast<std::uint32_t>(which),
                         .host = pool.standing_cluster().hosts[pool.hosts()[which].members.front()],
                         .command = {words.begin() + 1, words.end()},
                         .input = {}};
  if (start.command[0].find('/') == std::string::npos) start.command.insert(start.command.begin(), "/usr/bin/env");
  ::signal(SIGPIPE, SIG_IGN);
  return HostProgram(std::move(start)).run();
}

}  // namespace aplib::launch::ctl
