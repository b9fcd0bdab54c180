// SPDX-License-Identifier: MIT
#include "launch/start/launch_method.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "aplib/error.hpp"

namespace aplib::launch::start {

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

/// What the cluster file says, by sh.
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
                              quoted(end.words), command({node})[2])};
    }
    return {.kind = Verdict::Kind::ended, .status = end.status, .text = {}};
  }
  std::string not_executed(const NodeStart& node, const std::string& why) const override {
    return fmt::format("{}: {}", host_name(node), why);
  }
  /// Our shell on a command that a signal has ended: "Killed".
  bool is_noise(std::string_view line) const override {
    const auto is_of = [&](int number) { return line == ::strsignal(number); };
    return is_of(SIGKILL) || is_of(SIGTERM) || is_of(SIGHUP);
  }
};

}  // namespace

std::unique_ptr<LaunchMethod> make_local_method() { return std::make_unique<LocalMethod>(); }

std::unique_ptr<LaunchMethod> make_command_method() { return std::make_unique<CommandMethod>(); }

std::string host_name(const NodeStart& node) { return fmt::format("host '{}'", node.host.name); }

std::string how_it_ended(int status) {
  if (status <= 128) return fmt::format("ended with status {}", status);
  const char* name = ::strsignal(status - 128);
  return fmt::format("was killed by signal {} ({})", status - 128, name == nullptr ? "unknown" : name);
}

std::string quoted(const std::vector<std::string>& words) {
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
                                host_name(node), by, node.command[0], quoted(end.words))};
  }
  if (!end.arrived && end.status == not_executable) {
    return {
        .kind = Kind::failed,
        .text = fmt::format("{}: {} reached it, but {} cannot be executed there{}; is it for another kind of machine?",
                            host_name(node), by, node.command[0], quoted(end.words))};
  }
  return {.kind = Kind::ended, .status = end.status, .text = {}};
}

std::string node_script(const NodeStart& node) {
  // The launcher's own folder is a convenience on a host that has it; a folder that was asked for must be there.
  std::string folder;
  if (!node.host.folder.empty()) {
    folder = fmt::format("cd {0} 2>/dev/null || {{ echo {1}{0}; exit 1; }}; ", shell_quote(node.host.folder),
                         mark::no_folder);
  } else {
    std::error_code ignored;
    const std::string ours = std::filesystem::current_path(ignored).string();
    if (!ours.empty()) folder = fmt::format("cd {} 2>/dev/null; ", shell_quote(ours));
  }
  // Not exec: the shell tells how the node ended, also when that was by a signal, which ssh would report as a
  // failure of its own. What the shell itself says of that ("Killed") goes nowhere.
  return fmt::format("echo {}$$; {}exec 3>&2 2>/dev/null; (exec {} 2>&3 3>&-); s=$?; echo {}$s; exit $s", mark::begins,
                     folder, shell_command(node.command), mark::ends);
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
