// SPDX-License-Identifier: MIT
// Nodes that a keeper starts, which stands on their host (launch/pool). The way to it is there, so that a start costs
// no login.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "aplib/error.hpp"
#include "comm/job_key.hpp"
#include "launch/pool/keeper_address.hpp"
#include "launch/start/child.hpp"
#include "launch/start/launch_method.hpp"

namespace aplib::launch::start {
namespace {

constexpr int way_closed = 255;  // as ssh

/// A run of a keeper's: two connections to it.
class KeptRun final : public Started {
 public:
  /// `input` is the first of its standard input. Throws Error(failed).
  KeptRun(const pool::KeeperAddress& way, pool::Knock knock, const std::string& input) {
    std::uint64_t token = knock.token;
    if (token == 0) comm::fill_random(std::as_writable_bytes(std::span(&token, 1)));
    knock.token = token;
    knock.purpose = pool::Knock::Purpose::words;
    words_ = pool::knock_at(way, knock);
    input_ = pool::knock_at(way, {.purpose = pool::Knock::Purpose::streams, .token = token});
    if (!os::write_all(input_.get(), input)) throw Error(Errc::failed, "its keeper has gone");
    output_.reset(::fcntl(input_.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    if (!output_) os::refuse_descriptor("a connection to a keeper");
    for (const int fd : {words_.get(), input_.get()}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
  }

  pid_t pid() const noexcept override { return -1; }
  int end_fd() const noexcept override { return words_.get(); }
  int output_fd(Stream stream) const noexcept override { return stream == output ? output_.get() : words_.get(); }
  int input_fd() const noexcept override { return input_.get(); }
  os::Ends release_streams() noexcept override { return {std::move(output_), std::move(input_)}; }
  bool write(std::string& text) override { return !input_ || write_some(input_.get(), text); }
  void close_input() noexcept override {
    if (input_) ::shutdown(input_.get(), SHUT_WR);
    input_.reset();
  }
  std::string read(Stream stream) override {
    if (stream == output) return read_some(output_);
    std::array<char, 8192> buffer;
    ssize_t got = 0;
    do {
      got = ::read(words_.get(), buffer.data(), buffer.size());
    } while (got < 0 && errno == EINTR);
    return got > 0 ? std::string(buffer.data(), static_cast<std::size_t>(got)) : std::string();
  }
  /// The keeper ends a run whose words nobody hears: it asks the node, and soon uses force.
  void signal(int /*number*/) const noexcept override { ::shutdown(words_.get(), SHUT_RDWR); }
  std::optional<int> ended() override {
    char next = 0;
    const ssize_t got = ::recv(words_.get(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
    const bool is_open = got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
    return is_open ? std::nullopt : std::optional(way_closed);
  }

 private:
  os::UniqueFd words_;
  os::UniqueFd output_;
  os::UniqueFd input_;
};

class KeeperMethod final : public LaunchMethod {
 public:
  std::unique_ptr<Started> begin(const std::vector<NodeStart>& nodes, Guard* /*guard*/) const override {
    const NodeStart& node = nodes[0];
    const auto key = comm::JobKey::from_hex(node.host.keeper_key);
    if (!key) throw Error(Errc::failed, "its pool has no key");
    pool::Knock knock{.token = node.token,
                      .command = node.command,
                      .folder = node.host.folder,
                      .needs_folder = true,
                      .takes_lanes = node.token != 0};
    if (knock.folder.empty()) {
      std::error_code ignored;
      knock.folder = std::filesystem::current_path(ignored).string();
      knock.needs_folder = false;
    }
    return std::make_unique<KeptRun>(pool::KeeperAddress{node.host.keeper, *key}, std::move(knock), node.input);
  }
  bool is_kept() const override { return true; }
  std::vector<std::string> command(const std::vector<NodeStart>& nodes) const override { return nodes[0].command; }

  Verdict judge(const NodeStart& node, const MethodEnd& end) const override {
    using Kind = Verdict::Kind;
    if (end.told || !end.lost_folder.empty()) return judge_program(node, end, "its keeper");
    for (const std::string& line : end.words) {
      if (line.starts_with(pool::refusal_mark))
        return {
            .kind = Kind::failed,
            .text = fmt::format("{}: its keeper refuses: {}", host_name(node), line.substr(pool::refusal_mark.size()))};
    }
    if (end.began) {
      return {.kind = Kind::failed,
              .text = fmt::format("{}: the way to its keeper broke, as when ssh to it, or the keeper, has ended{}",
                                  host_name(node), in_quotes(end.words))};
    }
    return {.kind = Kind::failed,
            .text = fmt::format("{}: its keeper has closed the connection without a word, as one that has ended, or "
                                "knows another key; {}",
                                host_name(node), remedy)};
  }
  std::string not_executed(const NodeStart& node, const std::string& why) const override {
    const bool is_a_limit_here = why.find("ulimit") != why.npos;  // and names its own remedy
    return fmt::format("{}: {}{}{}", host_name(node), why, is_a_limit_here ? "" : "; ", is_a_limit_here ? "" : remedy);
  }
  bool in_turn() const override { return false; }

 private:
  static constexpr const char* remedy = "apctl up repairs the pool";
};

}  // namespace

std::unique_ptr<LaunchMethod> make_keeper_method() { return std::make_unique<KeeperMethod>(); }

}  // namespace aplib::launch::start
