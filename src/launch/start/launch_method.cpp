// SPDX-License-Identifier: MIT
#include "launch/start/launch_method.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "aplib/error.hpp"
#include "base/text.hpp"

namespace aplib::launch::start {

// ---- marks ----

std::optional<Mark> find_mark(std::string_view line, bool began) {
  // It may stand behind something that was written without an end of line.
  const auto find = [&](Mark::Kind kind, std::string_view word) -> std::optional<Mark> {
    const std::size_t at = line.rfind(word);
    const auto number = at == line.npos ? std::nullopt : text::parse_number(line.substr(at + word.size()));
    if (!number) return std::nullopt;
    return Mark{.kind = kind, .number = *number, .before = line.substr(0, at)};
  };
  if (const auto mark = find(Mark::Kind::begins, mark::begins)) return mark;
  if (line.starts_with(mark::no_folder))
    return Mark{.kind = Mark::Kind::no_folder, .folder = line.substr(mark::no_folder.size())};
  return began ? find(Mark::Kind::ends, mark::ends) : std::nullopt;
}

void KeptWords::take(std::string_view text, const std::function<void(const std::string&)>& say) {
  const auto hear = [&](std::string_view line) {
    if (say) say(std::string(line));
    end_.keep(line);
  };
  line_ += text;
  for (std::size_t end = line_.find('\n'); end != line_.npos || line_.size() > line_max; end = line_.find('\n')) {
    const std::size_t length = std::min(end, line_max);
    const std::string line = line_.substr(0, length);
    line_.erase(0, length == end ? length + 1 : length);
    const std::optional<Mark> mark = find_mark(line, end_.began);
    if (!mark) {
      hear(line);
      continue;
    }
    if (!mark->before.empty()) hear(mark->before);
    switch (mark->kind) {
      case Mark::Kind::begins:
        end_.began = true;
        break;
      case Mark::Kind::no_folder:
        end_.lost_folder = mark->folder;
        break;
      case Mark::Kind::ends:
        end_.told = true;
        end_.status = static_cast<int>(mark->number);
        break;
    }
  }
}

// ---- this host, and a command of the user's ----

namespace {

constexpr int not_executable = 126;  // what a shell says
constexpr int not_found = 127;

/// fork and exec on this host.
class LocalMethod : public LaunchMethod {
 public:
  std::vector<std::string> command(const std::vector<NodeStart>& nodes) const override { return nodes[0].command; }
  std::string folder(const NodeStart& node) const override { return node.host.folder; }
  Verdict judge(const NodeStart& node, const MethodEnd& end) const override {
    (void)node;
    return {.kind = Verdict::Kind::ended, .status = end.status, .text = {}};
  }
  std::string not_executed(const NodeStart& node, const std::string& why) const override {
    return fmt::format("{}: {}; give the path of aprun there (aprun = \"...\"), or its folder (folder = \"...\")",
                       host_name(node), why);
  }
  bool in_turn() const override { return false; }
};

/// The command of the cluster file, run by sh.
class CommandMethod : public LaunchMethod {
 public:
  std::vector<std::string> command(const std::vector<NodeStart>& nodes) const override {
    const NodeStart& node = nodes[0];
    std::string cmd = shell_command(node.command);
    if (!node.host.folder.empty()) {
      cmd = "sh -c " + shell_quote(fmt::format("cd {} && exec {}", shell_quote(node.host.folder), cmd));
    }
    const std::array<std::pair<std::string_view, std::string>, 4> values{{
        {"cmd", cmd},
        {"quoted-cmd", shell_quote(cmd)},
        {"host", shell_quote(node.host.name)},
        {"address", shell_quote(node.host.address.empty() ? node.host.name : node.host.address)},
    }};
    return {"/bin/sh", "-c", fill_in(node.host.command, values)};
  }
  Verdict judge(const NodeStart& node, const MethodEnd& end) const override {
    if (!end.arrived && (end.status == not_found || end.status == not_executable)) {
      return {
          .kind = Verdict::Kind::failed,
          .text = fmt::format("{}: its command ended with status {}: {} cannot be executed{}; try it by hand: {}",
                              host_name(node), end.status, "the command itself or " + node.command[0] + " on that host",
                              in_quotes(end.words), command({node})[2])};
    }
    return {.kind = Verdict::Kind::ended, .status = end.status, .text = {}};
  }
  std::string not_executed(const NodeStart& node, const std::string& why) const override {
    return fmt::format("{}: {}", host_name(node), why);
  }
  /// Whether the line is the shell's word on a command that a signal has ended: "Killed".
  bool is_noise(std::string_view line) const override {
    const auto is_of = [&](int number) { return line == ::strsignal(number); };
    return is_of(SIGKILL) || is_of(SIGTERM) || is_of(SIGHUP);
  }
};

}  // namespace

std::unique_ptr<LaunchMethod> make_local_method() { return std::make_unique<LocalMethod>(); }

std::unique_ptr<LaunchMethod> make_command_method() { return std::make_unique<CommandMethod>(); }

// ---- ssh ----

SshTarget ssh_target(const cluster::ClusterHost& host) {
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

namespace {

using std::chrono::milliseconds;

constexpr int ssh_failed = 255;

/// What ssh says when it fails, and what that means. The texts are those of OpenSSH (ssh.c, sshconnect.c, packet.c,
/// kex.c), which are English in every locale.
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
constexpr std::string_view remedy_jump = "the host on the way (ProxyJump) does not lead there; try";
constexpr std::string_view remedy_busy = "sshd there accepts no more connections now (MaxStartups in sshd_config); try";

// The first one that is found counts. A server that drops a connection before the login often has too many of them at
// that moment (MaxStartups). Where another host on the way does not lead there, that is what ssh ends with, too.
constexpr std::array<Symptom, 18> symptoms{{
    {"Host key verification failed", 1, milliseconds(0), remedy_key},
    {"REMOTE HOST IDENTIFICATION HAS CHANGED", 1, milliseconds(0), remedy_key},
    {"Permission denied", 1, milliseconds(0), remedy_login},
    {"Too many authentication failures", 1, milliseconds(0), remedy_login},
    {"Bad owner or permissions", 1, milliseconds(0), remedy_login},
    {"Temporary failure in name resolution", 3, milliseconds(500), remedy_reach},
    {"Could not resolve hostname", 1, milliseconds(0), remedy_reach},
    {"stdio forwarding failed", 2, milliseconds(500), remedy_jump},
    {"Connection refused", 2, milliseconds(500), remedy_reach},
    {"No route to host", 2, milliseconds(1000), remedy_reach},
    {"Network is unreachable", 2, milliseconds(1000), remedy_reach},
    {"banner exchange", 3, milliseconds(500), remedy_busy},
    {"Connection timed out", 2, milliseconds(500), remedy_reach},
    {"Operation timed out", 2, milliseconds(500), remedy_reach},
    {"kex_exchange_identification", 8, milliseconds(200), remedy_busy},
    {"Connection reset", 8, milliseconds(200), remedy_busy},
    {"Connection closed", 8, milliseconds(200), remedy_busy},
    {"Broken pipe", 8, milliseconds(200), remedy_busy},
}};
constexpr milliseconds pause_max{3000};

const Symptom* symptom_of(const std::vector<std::string>& words) {
  for (const Symptom& symptom : symptoms) {
    const auto has = [&](const std::string& line) { return line.find(symptom.text) != line.npos; };
    if (std::ranges::any_of(words, has)) return &symptom;
  }
  return nullptr;
}

/// What ssh wrote, without servers' greetings and without colours.
std::vector<std::string> complaints_of(const std::vector<std::string>& words) {
  std::vector<std::string> kept;
  for (const std::string& line : words) {
    if (line.empty() || line.starts_with("Warning: Permanently added") || line.starts_with("@@@")) continue;
    kept.push_back(line);
  }
  return kept;
}

class SshMethod : public LaunchMethod {
 public:
  explicit SshMethod(std::vector<std::string> ssh) : ssh_(std::move(ssh)) {}

  std::vector<std::string> command(const std::vector<NodeStart>& nodes) const override {
    // The user's login shell may be any, so it only starts sh.
    return words(nodes[0], "exec sh -c " + shell_quote(node_script(nodes[0])));
  }

  Verdict judge(const NodeStart& node, const MethodEnd& end) const override {
    using Kind = Verdict::Kind;
    if (end.told || !end.lost_folder.empty()) return judge_program(node, end, "ssh");
    const std::vector<std::string> complaints = complaints_of(end.words);
    std::vector<std::string> trial = command_line(node, {});
    trial.insert(trial.end(), {ssh_target(node.host).host, "true"});
    const std::string by_hand = fmt::format("`{}`", shell_command(trial));
    if (end.began) {
      const std::string how = end.status == ssh_failed ? "" : fmt::format(": ssh {}", how_it_ended(end.status));
      return {
          .kind = Kind::failed,
          .text = fmt::format("{}: the ssh connection to it broke{}{}", host_name(node), how, in_quotes(complaints))};
    }
    if (end.status != ssh_failed) {  // the login shell, a forced command, a signal to our ssh
      return {.kind = Kind::failed,
              .text = fmt::format("{}: ssh {} before aprun ran there{}; what does its login shell do? try {}",
                                  host_name(node), how_it_ended(end.status), in_quotes(complaints), by_hand)};
    }
    const Symptom* symptom = symptom_of(complaints);
    if (symptom != nullptr && end.attempt < symptom->attempts) {
      milliseconds pause = symptom->pause * (1 << std::min(end.attempt - 1, 10));
      // Logins that were dropped together do not come back together.
      pause = std::min(pause, pause_max) + milliseconds((node.process * 37) % 200);
      return {.kind = Kind::again, .text = complaints.back(), .pause = pause};
    }
    const std::string times = end.attempt == 1 ? "" : fmt::format(" {} times", end.attempt);
    return {.kind = Kind::failed,
            .text = fmt::format("{}: ssh to {} failed{}{}; {} {}", host_name(node), ssh_target(node.host).host, times,
                                in_quotes(complaints), symptom == nullptr ? "try" : symptom->remedy, by_hand)};
  }

  std::string not_executed(const NodeStart& node, const std::string& why) const override {
    return fmt::format("{}: {}; install an ssh client (package openssh-client) on this host", host_name(node), why);
  }

  bool has_foreword() const override { return true; }

  std::vector<std::string> kill_command(const NodeStart& node, long group) const override {
    return words(node, fmt::format("kill -KILL -{}", group));
  }

 private:
  // ssh takes the first value of an option: the command's come first, then the host's, then these.
  std::vector<std::string> command_line(const NodeStart& node, std::initializer_list<const char*> ours) const {
    std::vector<std::string> all = ssh_;
    all.insert(all.end(), node.host.ssh_options.begin(), node.host.ssh_options.end());
    const SshTarget target = ssh_target(node.host);
    if (!target.port.empty()) all.insert(all.end(), {"-p", target.port});
    if (!node.host.gateway.empty()) all.insert(all.end(), {"-o", "ProxyJump=" + node.host.gateway});
    all.insert(all.end(), ours.begin(), ours.end());
    return all;
  }

  std::vector<std::string> words(const NodeStart& node, const std::string& remote) const {
    std::vector<std::string> all =
        command_line(node, {"-T", "-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o",
                            "ServerAliveInterval=15", "-o", "ClearAllForwardings=yes"});
    all.insert(all.end(), {"--", ssh_target(node.host).host, remote});
    return all;
  }

  std::vector<std::string> ssh_;
};

}  // namespace

std::unique_ptr<LaunchMethod> make_ssh_method(std::vector<std::string> ssh) {
  return std::make_unique<SshMethod>(std::move(ssh));
}

// ---- Slurm ----

namespace {

constexpr std::size_t hosts_max = 65536;

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

/// The items of a list, which commas outside brackets separate.
std::vector<std::string_view> items_of(std::string_view list) {
  std::vector<std::string_view> items;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    if (i == list.size() || (list[i] == ',' && depth == 0)) {
      if (i > begin) items.push_back(list.substr(begin, i - begin));
      begin = i + 1;
    } else if (list[i] == '[') {
      ++depth;
    } else if (list[i] == ']') {
      --depth;
    }
  }
  return items;
}

/// Expands the first bracket of an item, and the rest by recursion.
void expand(const std::string& before, std::string_view item, std::vector<std::string>& into) {
  const std::size_t open = item.find('[');
  const std::size_t close = item.find(']', open == item.npos ? 0 : open);
  if (open == item.npos || close == item.npos) {
    if (into.size() < hosts_max) into.push_back(before + std::string(item));
    return;
  }
  const std::string head = before + std::string(item.substr(0, open));
  const std::string_view rest = item.substr(close + 1);
  for (const std::string_view range : items_of(item.substr(open + 1, close - open - 1))) {
    const std::size_t dash = range.find('-');
    const std::string_view low = range.substr(0, dash);
    const std::string_view high = dash == range.npos ? low : range.substr(dash + 1);
    const std::optional<std::uint64_t> from = text::parse_number(low);
    const std::optional<std::uint64_t> to = text::parse_number(high);
    if (!from || !to) continue;
    for (std::uint64_t i = *from; i <= *to && into.size() < hosts_max; ++i) {
      expand(head + fmt::format("{:0{}}", i, low.size()), rest, into);
    }
  }
}

/// One srun starts all nodes. It reaches every host of the allocation, and passes the key to all standard inputs.
class SlurmMethod : public LaunchMethod {
 public:
  std::vector<std::string> command(const std::vector<NodeStart>& nodes) const override {
    // Every task gets the same command and finds its part by the name of its host and its number among those of
    // that host.
    std::map<std::string, int> on_host;
    std::set<std::string> hosts;
    std::string list;
    std::string script = "case $SLURMD_NODENAME.$SLURM_LOCALID in ";
    for (const NodeStart& node : nodes) {
      const std::string& name = node.host.ssh.empty() ? node.host.name : node.host.ssh;
      list += (list.empty() ? "" : ",") + name;
      hosts.insert(name);
      script += fmt::format("{0}.{1}) echo {2}{3}; echo {2}{3} >&2; {4};; ", shell_quote(name), on_host[name]++,
                            mark::process, node.process, node_script(node));
    }
    script += "*) echo no part of this machine >&2; exit 1;; esac";
    // The order of a list that is `arbitrary` stays, and names in it may come twice. A node binds its threads
    // itself, and may share its host's cores with other steps.
    return {"srun",
            "--nodelist=" + list,
            "--distribution=arbitrary",
            fmt::format("--nodes={}", hosts.size()),
            fmt::format("--ntasks={}", nodes.size()),
            "--overlap",
            "--overcommit",
            "--cpu-bind=none",
            "--mpi=none",
            "--kill-on-bad-exit=0",
            "--input=all",
            "--unbuffered",
            "--label",
            "sh",
            "-c",
            script};
  }

  Verdict judge(const NodeStart& node, const MethodEnd& end) const override {
    if (end.began) return judge_program(node, end, "srun");
    return {.kind = Verdict::Kind::failed,
            .text = fmt::format("{}: srun {} and has not started it{}; is the host in the allocation ({})?",
                                host_name(node), how_it_ended(end.status), in_quotes(end.words),
                                variable("SLURM_JOB_NODELIST"))};
  }

  std::string not_executed(const NodeStart& node, const std::string& why) const override {
    return fmt::format("{}: {}", host_name(node), why);
  }
  std::string hindrance() const override { return slurm_hindrance(); }
  bool together() const override { return true; }
  bool is_noise(std::string_view line) const override {
    return line ==
           "srun: cluster configuration lacks support for cpu binding";  // what --cpu-bind=none is answered then
  }
  bool in_turn() const override { return false; }
};

}  // namespace

bool is_in_path(const std::string& program) {
  std::string_view path = variable("PATH");
  while (!path.empty()) {
    const std::size_t colon = path.find(':');
    const std::string file = fmt::format("{}/{}", path.substr(0, colon), program);
    if (::access(file.c_str(), X_OK) == 0) return true;
    path.remove_prefix(colon == path.npos ? path.size() : colon + 1);
  }
  return false;
}

std::string slurm_hindrance() {
  if (variable("SLURM_JOB_ID").empty()) {
    return "launch = \"slurm\" works inside a Slurm allocation only: start aprun from a script of sbatch, or under "
           "salloc";
  }
  if (!is_in_path("srun")) {
    return "there is no srun in PATH, though this is a Slurm allocation (SLURM_JOB_ID is set): is Slurm's folder of "
           "programs in PATH?";
  }
  return {};
}

std::vector<std::string> slurm_hosts() {
  if (variable("SLURM_JOB_ID").empty()) return {};
  return expand_hostlist(variable("SLURM_JOB_NODELIST"));
}

std::vector<std::string> expand_hostlist(std::string_view list) {
  std::vector<std::string> names;
  for (const std::string_view item : items_of(list)) expand("", item, names);
  return names;
}

std::unique_ptr<LaunchMethod> make_slurm_method() { return std::make_unique<SlurmMethod>(); }

// ---- what they have in common ----

std::string host_name(const NodeStart& node) { return fmt::format("host '{}'", node.host.name); }

std::string keeper_silence(const NodeStart& node) {
  return fmt::format(
      "its keeper has not answered for {:g} s: it is stopped, or its host is down, far too busy, or cut off",
      std::chrono::duration<double>(node.host.keeper_patience).count());
}

std::string how_it_ended(int status) {
  if (status <= 128 || status - 128 > SIGRTMAX) return fmt::format("ended with status {}", status);
  const char* name = ::strsignal(status - 128);
  return fmt::format("was killed by signal {} ({})", status - 128, name == nullptr ? "unknown" : name);
}

std::string in_quotes(const std::vector<std::string>& words) {
  constexpr std::size_t lines_max = 3;
  const std::size_t from = words.size() > lines_max ? words.size() - lines_max : 0;
  std::string text;
  for (std::size_t i = from; i < words.size(); ++i) text += (i == from ? "" : " | ") + words[i];
  return text.empty() ? text : fmt::format(" (\"{}\")", text);
}

Verdict judge_program(const NodeStart& node, const MethodEnd& end, std::string_view by) {
  using Kind = Verdict::Kind;
  if (!end.lost_folder.empty()) {
    return {
        .kind = Kind::failed,
        .text = fmt::format("{}: {} reached it, but it has no folder {}; make it, or give another (folder = \"...\")",
                            host_name(node), by, end.lost_folder)};
  }
  if (!end.arrived && end.status == not_found) {
    return {.kind = Kind::failed,
            .text = fmt::format("{}: {} reached it, but there is no {}{}; install APlib there, or give the path of its "
                                "aprun (aprun = \"...\")",
                                host_name(node), by, node.command[0], in_quotes(end.words))};
  }
  if (!end.arrived && end.status == not_executable) {
    return {
        .kind = Kind::failed,
        .text = fmt::format("{}: {} reached it, but {} cannot be executed there{}; is it for another kind of machine?",
                            host_name(node), by, node.command[0], in_quotes(end.words))};
  }
  return {.kind = Kind::ended, .status = end.status, .text = {}};
}

std::string node_script(const NodeStart& node) {
  // The launcher's own folder is a convenience on a host that has it; a folder that was asked for must be there.
  std::string folder;
  if (!node.host.folder.empty()) {
    folder = fmt::format("cd {0} 2>/dev/null || {{ echo {1}{0} >&2; exit 1; }}; ", shell_quote(node.host.folder),
                         mark::no_folder);
  } else {
    std::error_code ignored;
    const std::string ours = std::filesystem::current_path(ignored).string();
    if (!ours.empty()) folder = fmt::format("cd {} 2>/dev/null; ", shell_quote(ours));
  }
  // The shell does not exec the node, so that it can tell how the node ended, even by a signal, which ssh would report
  // as a failure of its own. The shell's own word on that ("Killed") is dropped.
  return fmt::format("echo {}$$ >&2; {}exec 3>&2 2>/dev/null; (exec {} 2>&3 3>&-); s=$?; echo {}$s >&3; exit $s",
                     mark::begins, folder, shell_command(node.command), mark::ends);
}

namespace {

bool is_harmless(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-+./:,@%").find(c) != std::string_view::npos;
}

}  // namespace

std::string shell_quote(std::string_view word) {
  if (!word.empty() && std::ranges::all_of(word, is_harmless)) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string shell_command(std::span<const std::string> words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    text += shell_quote(word);
  }
  return text;
}

std::vector<std::string> split_words(std::string_view text, std::string_view subject) {
  std::vector<std::string> words;
  std::string word;
  bool inside = false;  // a word has begun, perhaps an empty one in quotes
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      word += text[++i];
      inside = true;
    } else if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        word += c;
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      inside = true;
    } else if (c == ' ' || c == '\t') {
      if (inside) words.push_back(std::move(word));
      word.clear();
      inside = false;
    } else {
      word += c;
      inside = true;
    }
  }
  if (quote != 0) {
    throw Error(Errc::bad_option, fmt::format("{}: '{}': the quote {} has no end", subject, text, quote));
  }
  if (inside) words.push_back(std::move(word));
  return words;
}

std::string fill_in(std::string_view text, std::span<const std::pair<std::string_view, std::string>> values) {
  std::string filled;
  while (!text.empty()) {
    const std::size_t brace = text.find('{');
    filled += text.substr(0, brace);
    if (brace == text.npos) break;
    text.remove_prefix(brace);
    const auto value = std::ranges::find_if(values, [&](const auto& pair) {
      return text.substr(1).starts_with(pair.first) && text.substr(1 + pair.first.size()).starts_with('}');
    });
    if (value == values.end()) {
      filled += '{';
      text.remove_prefix(1);
    } else {
      filled += value->second;
      text.remove_prefix(value->first.size() + 2);
    }
  }
  return filled;
}

}  // namespace aplib::launch::start
