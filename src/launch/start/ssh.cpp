// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <utility>

#include "launch/start/launch_method.hpp"

namespace aplib::launch::start {
namespace {

using std::chrono::milliseconds;

constexpr int ssh_failed = 255;

/// What ssh says when it cannot do it, and what that means. The texts are OpenSSH's (ssh.c, sshconnect.c, packet.c,
/// kex.c), in every locale English.
struct Symptom {
  std::string_view text;
  int attempts;        ///< How often it is tried in all.
  milliseconds pause;  ///< Before the second attempt; twice as long before each further one.
  std::string_view remedy;
};

constexpr std::string_view remedy_login = "log in there by a key that needs no password (ssh-copy-id, ssh-agent); try";
constexpr std::string_view remedy_key =
    "check the host's key, then log in once by hand to accept it, or put it into known_hosts; try";
constexpr std::string_view remedy_reach = "is it on, is its name right, does sshd run there? try";
constexpr std::string_view remedy_busy = "sshd there accepts no more connections now (MaxStartups in sshd_config); try";

// The first that is found counts. Who drops a connection before the login has often too many of them at that moment
// (MaxStartups).
constexpr std::array<Symptom, 17> symptoms{{
    {"Host key verification failed", 1, milliseconds(0), remedy_key},
    {"REMOTE HOST IDENTIFICATION HAS CHANGED", 1, milliseconds(0), remedy_key},
    {"Permission denied", 1, milliseconds(0), remedy_login},
    {"Too many authentication failures", 1, milliseconds(0), remedy_login},
    {"Bad owner or permissions", 1, milliseconds(0), remedy_login},
    {"Temporary failure in name resolution", 3, milliseconds(500), remedy_reach},
    {"Could not resolve hostname", 1, milliseconds(0), remedy_reach},
    {"kex_exchange_identification", 8, milliseconds(200), remedy_busy},
    {"Connection reset", 8, milliseconds(200), remedy_busy},
    {"Connection closed", 8, milliseconds(200), remedy_busy},
    {"Broken pipe", 8, milliseconds(200), remedy_busy},
    {"banner exchange", 3, milliseconds(500), remedy_busy},
    {"Connection timed out", 2, milliseconds(500), remedy_reach},
    {"Operation timed out", 2, milliseconds(500), remedy_reach},
    {"Connection refused", 2, milliseconds(500), remedy_reach},
    {"No route to host", 2, milliseconds(1000), remedy_reach},
    {"Network is unreachable", 2, milliseconds(1000), remedy_reach},
}};
constexpr milliseconds pause_max{3000};

const Symptom* symptom_of(const std::vector<std::string>& words) {
  for (const Symptom& symptom : symptoms) {
    const auto has = [&](const std::string& line) { return line.find(symptom.text) != line.npos; };
    if (std::ranges::any_of(words, has)) return &symptom;
  }
  return nullptr;
}

/// What ssh wrote, without what servers greet with and without colours of warnings.
std::vector<std::string> complaints_of(const std::vector<std::string>& words) {
  std::vector<std::string> kept;
  for (const std::string& line : words) {
    if (line.empty() || line.starts_with("Warning: Permanently added") || line.starts_with("@@@")) continue;
    kept.push_back(line);
  }
  return kept;
}

/// Where ssh shall go: [user@]name[:port], with an IPv6 address and a port as [address]:port.
struct Target {
  std::string host;
  std::string port;
};

Target target_of(const cluster::ClusterHost& host) {
  const std::string text = host.ssh_destination();
  const std::size_t at = text.rfind('@');
  const std::size_t begin = at == text.npos ? 0 : at + 1;
  const std::string user = text.substr(0, begin);
  std::string place = text.substr(begin);
  std::string port;
  if (place.starts_with('[')) {
    const std::size_t close = place.find(']');
    if (close != place.npos) {
      if (place.substr(close + 1).starts_with(':')) port = place.substr(close + 2);
      place = place.substr(1, close - 1);
    }
  } else if (std::ranges::count(place, ':') == 1) {
    const std::size_t colon = place.find(':');
    port = place.substr(colon + 1);
    place.resize(colon);
  }
  return {user + place, port};
}

class SshMethod : public LaunchMethod {
 public:
  explicit SshMethod(std::vector<std::string> ssh) : ssh_(std::move(ssh)) {}

  std::vector<std::string> command(const std::vector<NodeStart>& nodes) const override {
    // The user's login shell, whichever it is, only starts sh.
    return words(nodes[0], "exec sh -c " + shell_quote(node_script(nodes[0])));
  }

  Verdict judge(const NodeStart& node, const MethodEnd& end) const override {
    using Kind = Verdict::Kind;
    if (end.told || (end.began && end.status != ssh_failed)) return judge_program(node, end, "ssh");
    const std::vector<std::string> complaints = complaints_of(end.words);
    std::vector<std::string> trial = command_line(node, {});
    trial.insert(trial.end(), {target_of(node.host).host, "true"});
    const std::string by_hand = fmt::format("`{}`", shell_command(trial));
    if (end.began) {
      return {.kind = Kind::failed,
              .text = fmt::format("{}: the ssh connection to it broke{}", host_name(node), quoted(complaints))};
    }
    if (end.status != ssh_failed) {  // the login shell, a forced command, a signal to our ssh
      return {.kind = Kind::failed,
              .text = fmt::format("{}: ssh {} before aprun ran there{}; what does its login shell do? try {}",
                                  host_name(node), how_it_ended(end.status), quoted(complaints), by_hand)};
    }
    const Symptom* symptom = symptom_of(complaints);
    if (symptom != nullptr && end.attempt < symptom->attempts) {
      milliseconds pause = symptom->pause * (1 << std::min(end.attempt - 1, 10));
      // Those that were dropped together shall not come back together.
      pause = std::min(pause, pause_max) + milliseconds((node.process * 37) % 200);
      return {.kind = Kind::again, .text = complaints.back(), .pause = pause};
    }
    const std::string times = end.attempt == 1 ? "" : fmt::format(" {} times", end.attempt);
    return {.kind = Kind::failed,
            .text = fmt::format("{}: ssh to {} failed{}{}; {} {}", host_name(node), target_of(node.host).host, times,
                                quoted(complaints), symptom == nullptr ? "try" : symptom->remedy, by_hand)};
  }

  std::string not_executed(const NodeStart& node, const std::string& why) const override {
    return fmt::format("{}: {}; install an ssh client (package openssh-client) on this host", host_name(node), why);
  }

  bool has_foreword() const override { return true; }

  std::vector<std::string> kill_command(const NodeStart& node, long group) const override {
    return words(node, fmt::format("kill -KILL -{}", group));
  }

 private:
  // Of two values of an option ssh takes the first: those of the command, then the host's, then ours.
  std::vector<std::string> command_line(const NodeStart& node, std::initializer_list<const char*> ours) const {
    std::vector<std::string> all = ssh_;
    all.insert(all.end(), node.host.ssh_options.begin(), node.host.ssh_options.end());
    const Target target = target_of(node.host);
    if (!target.port.empty()) all.insert(all.end(), {"-p", target.port});
    all.insert(all.end(), ours.begin(), ours.end());
    return all;
  }

  std::vector<std::string> words(const NodeStart& node, const std::string& remote) const {
    std::vector<std::string> all =
        command_line(node, {"-T", "-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o",
                            "ServerAliveInterval=15", "-o", "ClearAllForwardings=yes"});
    all.insert(all.end(), {"--", target_of(node.host).host, remote});
    return all;
  }

  std::vector<std::string> ssh_;
};

}  // namespace

std::unique_ptr<LaunchMethod> make_ssh_method(std::vector<std::string> ssh) {
  return std::make_unique<SshMethod>(std::move(ssh));
}

}  // namespace aplib::launch::start
