// SPDX-License-Identifier: MIT
#include "launch/cluster/keys.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "aplib/command_line.hpp"
#include "aplib/ids.hpp"
#include "base/text.hpp"

namespace aplib::launch::cluster {
namespace {

constexpr std::string_view grid_remedy = "use NXxNY, a number of cells, or \"auto\"";

/// The value as a command line has it, because options are set from text.
std::optional<std::string> option_text(const Value& value) {
  struct Visitor {
    std::optional<std::string> operator()(const std::string& text) const { return text; }
    std::optional<std::string> operator()(std::int64_t number) const { return fmt::format("{}", number); }
    std::optional<std::string> operator()(double number) const { return fmt::format("{}", number); }
    std::optional<std::string> operator()(bool truth) const { return std::string(text::print_switch(truth)); }
    std::optional<std::string> operator()(const Value::Texts& texts) const {
      return fmt::format("{}", fmt::join(texts, ","));
    }
    std::optional<std::string> operator()(const Value::Other&) const { return std::nullopt; }
  };
  return std::visit(Visitor{}, value.content);
}

/// The complaint of Options::set() without name and value, which the message has already.
std::string option_problem(std::string_view name, const std::string& text) {
  std::string problem = detail::option_problem(std::string(name), text);
  for (const std::string& before : {fmt::format("\"{}\" is ", text), fmt::format("\"{}\": ", text)}) {
    if (problem.starts_with(before)) problem.erase(0, before.size());
  }
  return problem;
}

std::string apply_option(std::string_view name, Options& options, const Value& value) {
  const auto text = option_text(value);
  if (!text) return "not a value of an option: use a text, a number, true or false";
  std::string problem = option_problem(name, *text);
  if (problem.empty()) options.set(name, *text);
  return problem;
}

/// A text without NUL, which no path, argument or command can have.
const std::string* plain_text(const Value& value) {
  const auto* text = std::get_if<std::string>(&value.content);
  return text != nullptr && text->find('\0') == text->npos ? text : nullptr;
}

std::string apply_text(std::string& into, const Value& value, std::string_view what) {
  const std::string* text = plain_text(value);
  if (text == nullptr || text->empty()) return fmt::format("not {}: use a text in double quotes", what);
  into = *text;
  return {};
}

std::string apply_texts(std::vector<std::string>& into, const Value& value) {
  const auto* texts = std::get_if<Value::Texts>(&value.content);
  constexpr std::string_view remedy = "use texts with commas between them, for example [\"--grid\", \"300\"]";
  if (texts == nullptr) return fmt::format("not a list of texts: {}", remedy);
  for (const std::string& text : *texts) {
    if (text.find('\0') != text.npos) return "has a NUL character, which no argument can have: take it out";
  }
  into = *texts;
  return {};
}

/// Nothing if the value is no number or is out of range.
std::optional<std::uint32_t> whole(const Value& value, std::uint32_t max) {
  const auto* number = std::get_if<std::int64_t>(&value.content);
  if (number == nullptr || *number < 1 || *number > max) return std::nullopt;
  return static_cast<std::uint32_t>(*number);
}

bool is_auto(const Value& value) {
  const auto* text = std::get_if<std::string>(&value.content);
  return text != nullptr && text::equal_ignoring_case(*text, "auto");
}

/// Names reach command lines of ssh and others, so nothing in them may look like an option or like shell.
std::string apply_name(std::string& into, const Value& value, std::string_view what, std::string_view more) {
  const std::string* text = plain_text(value);
  const auto fits = [more](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-' || more.find(c) != more.npos;
  };
  if (text == nullptr || text->empty() || text->front() == '-' || !std::ranges::all_of(*text, fits)) {
    return fmt::format("not {}: use letters, digits and any of _.-{}, and no dash at the beginning", what, more);
  }
  into = *text;
  return {};
}

std::string apply_machine_cells(const KeyTarget& target, const Value& value) {
  if (is_auto(value)) {
    target.cluster->grid.reset();
    return {};
  }
  const auto text = option_text(value);
  Options scratch;
  if (!text || std::holds_alternative<Value::Texts>(value.content)) return fmt::format("not a grid: {}", grid_remedy);
  std::string problem = option_problem("cells", *text);
  if (problem.empty()) {
    scratch.set("cells", *text);
    target.cluster->grid = scratch.cells;
  } else {
    problem += ", or \"auto\"";
  }
  return problem;
}

std::string apply_program(const KeyTarget& target, const Value& value) {
  return apply_text(target.cluster->program, value, "a file");
}
std::string apply_host_program(const KeyTarget& target, const Value& value) {
  return apply_text(target.cluster->host_program, value, "a file");
}
std::string apply_args(const KeyTarget& target, const Value& value) { return apply_texts(target.cluster->args, value); }

std::string apply_host_name(const KeyTarget& target, const Value& value) {
  return apply_name(target.host->name, value, "a name of a host", "@:%,[]");
}
/// Why no host can be reached at this address. Empty if one may be reached, or if the text is a name.
std::string address_problem(const std::string& text) {
  in_addr four{};
  in6_addr six{};
  const bool is_four = ::inet_pton(AF_INET, text.c_str(), &four) == 1;
  const bool is_six = ::inet_pton(AF_INET6, text.substr(0, text.find('%')).c_str(), &six) == 1;
  const bool looks_like_one = text.find(':') != text.npos || text.find_first_not_of("0123456789.") == text.npos;
  if (looks_like_one && !is_four && !is_six)
    return "not an address: use one of the host's, without a port, or its name";
  const std::uint32_t bits = ntohl(four.s_addr);
  const bool nobodys = is_four && (bits == INADDR_ANY || bits == INADDR_BROADCAST || IN_MULTICAST(bits));
  if (nobodys || (is_six && (IN6_IS_ADDR_UNSPECIFIED(&six) || IN6_IS_ADDR_MULTICAST(&six))))
    return "not an address of one host: use one by which the other hosts reach it, or its name";
  return {};
}

std::string apply_address(const KeyTarget& target, const Value& value) {
  std::string problem = apply_name(target.host->address, value, "an address or a name of a host", ":%");
  return problem.empty() ? address_problem(target.host->address) : problem;
}

std::string apply_count(const KeyTarget&, const Value& value) {
  if (whole(value, ClusterHost::processes_max)) return {};
  return fmt::format("not a number of processes: use 1 .. {}", ClusterHost::processes_max);
}

struct LaunchName {
  std::string_view name;
  LaunchKind kind;
};
constexpr std::array launch_names{LaunchName{"ssh", LaunchKind::ssh}, LaunchName{"local", LaunchKind::local},
                                  LaunchName{"slurm", LaunchKind::slurm}, LaunchName{"pmix", LaunchKind::pmix},
                                  LaunchName{"command", LaunchKind::command}};

std::string apply_launch(const KeyTarget& target, const Value& value) {
  const auto* text = std::get_if<std::string>(&value.content);
  const auto* known = text == nullptr ? launch_names.end() : std::ranges::find(launch_names, *text, &LaunchName::name);
  if (known == launch_names.end())
    return "not a way to start a process: use \"ssh\", \"local\", \"slurm\", \"pmix\" or \"command\"";
  target.host->launch = known->kind;
  return {};
}

std::string apply_command(const KeyTarget& target, const Value& value) {
  const std::string* text = plain_text(value);
  if (text == nullptr || (text->find("{cmd}") == text->npos && text->find("{quoted-cmd}") == text->npos))
    return "not a command: use a text with {cmd} where the command to run on the host belongs, for example \"rsh "
           "{host} "
           "{quoted-cmd}\"";
  target.host->command = *text;
  target.host->launch = LaunchKind::command;
  return {};
}

std::string apply_ssh(const KeyTarget& target, const Value& value) {
  return apply_name(target.host->ssh, value, "a destination of ssh", "@:%[]");
}
std::string apply_ssh_options(const KeyTarget& target, const Value& value) {
  return apply_texts(target.host->ssh_options, value);
}

std::string apply_host_cells(const KeyTarget& target, const Value& value) {
  const auto number = whole(value, cell_count_max);
  if (!number && !is_auto(value)) return fmt::format("not a number of cells: use 1 .. {} or \"auto\"", cell_count_max);
  target.host->cells = number;
  return {};
}

std::string apply_threads(const KeyTarget& target, const Value& value) {
  Options scratch;
  std::string problem = apply_option("threads", scratch, value);
  if (problem.empty()) target.host->threads = scratch.get("threads");
  return problem;
}

std::string apply_speed(const KeyTarget& target, const Value& value) {
  Speed& speed = target.host->speed;
  const auto* text = std::get_if<std::string>(&value.content);
  const auto* number = std::get_if<double>(&value.content);
  const auto* integer = std::get_if<std::int64_t>(&value.content);
  if (text != nullptr && *text == "memory") {
    speed.kind = Speed::Kind::memory;
  } else if (text != nullptr && *text == "compute") {
    speed.kind = Speed::Kind::compute;
  } else if (text != nullptr && *text == "command") {
    speed.kind = Speed::Kind::command;
  } else if (text == nullptr && (number != nullptr || integer != nullptr)) {
    speed.kind = Speed::Kind::number;
    speed.number = number != nullptr ? *number : static_cast<double>(*integer);
    if (!std::isfinite(speed.number) || !(speed.number >= Speed::number_min) || speed.number > Speed::number_max)
      return fmt::format("out of range: use {:g} .. {:g}", Speed::number_min, Speed::number_max);
  } else {
    return "not a speed: use \"memory\", \"compute\", a number (relative to the other hosts'), or \"command\" with "
           "speed-command = \"...\" beside it";
  }
  return {};
}

std::string apply_speed_command(const KeyTarget& target, const Value& value) {
  std::string problem = apply_text(target.host->speed.command, value, "a command");
  if (problem.empty()) target.host->speed.kind = Speed::Kind::command;
  return problem;
}

std::string apply_aprun(const KeyTarget& target, const Value& value) {
  return apply_text(target.host->aprun, value, "a file");
}
std::string apply_folder(const KeyTarget& target, const Value& value) {
  return apply_text(target.host->folder, value, "a folder");
}

std::string apply_source(const KeyTarget& target, const Value& value) {
  return apply_text(target.file->source, value, "a file");
}
std::string apply_target(const KeyTarget& target, const Value& value) {
  return apply_text(target.file->target, value, "a place for files");
}
std::string apply_hosts(std::vector<std::string>& into, const Value& value) {
  const auto* texts = std::get_if<Value::Texts>(&value.content);
  if (texts == nullptr || texts->empty())
    return "not a list of hosts: use their names with commas between them, for example [\"ws1\", \"ws2\"]";
  into = *texts;
  return {};
}
std::string apply_file_hosts(const KeyTarget& target, const Value& value) {
  return apply_hosts(target.file->hosts, value);
}
std::string apply_site_hosts(const KeyTarget& target, const Value& value) {
  return apply_hosts(target.site->hosts, value);
}
std::string apply_gateway(const KeyTarget& target, const Value& value) {
  return apply_name(target.site->gateway, value, "a destination of ssh", "@:%[]");
}
std::string apply_aprelay(const KeyTarget& target, const Value& value) {
  return apply_text(target.site->aprelay, value, "a file");
}
std::string apply_truth(bool& into, const Value& value) {
  const auto* truth = std::get_if<bool>(&value.content);
  if (truth == nullptr) return "neither true nor false: use one of them, without quotes";
  into = *truth;
  return {};
}
std::string apply_fetch(const KeyTarget& target, const Value& value) { return apply_truth(target.file->fetch, value); }
std::string apply_replace(const KeyTarget& target, const Value& value) {
  return apply_truth(target.file->replace, value);
}

std::string apply_keeper_idle(const KeyTarget& target, const Value& value) {
  const auto text = option_text(value);
  const auto time = text ? text::parse_duration(*text) : std::nullopt;
  constexpr auto longest = std::chrono::hours(24 * 365);
  if (!time || *time < std::chrono::seconds(1) || *time > longest)
    return "not a time: use 1s .. 8760h, for example \"30min\"";
  target.cluster->keeper_idle = *time;
  return {};
}
std::string apply_keeper_key(const KeyTarget& target, const Value& value) {
  return apply_text(target.cluster->keeper_key, value, "a file");
}
std::string apply_keeper(const KeyTarget& target, const Value& value) {
  const std::string problem = apply_name(target.host->standing_keeper, value, "a path of a socket", "/");
  if (!problem.empty() || target.host->standing_keeper.front() == '/') return problem;
  return "not a whole path: begin with /, as in \"/run/user/1000/aplib/standing.keeper\"";
}
std::string apply_need(const KeyTarget& target, const Value& value) {
  const auto number = whole(value, ClusterHost::processes_max);
  if (!number) return fmt::format("not a number of hosts: use 1 .. {}", ClusterHost::processes_max);
  target.cluster->need = *number;
  return {};
}

struct KeyRow {
  KeyInfo info;
  std::string (*apply)(const KeyTarget&, const Value&);
};

constexpr SectionKind machine = SectionKind::machine;
constexpr SectionKind host = SectionKind::host;
constexpr SectionKind site = SectionKind::site;
constexpr SectionKind file = SectionKind::file;

constexpr std::array rows{
    KeyRow{{machine, "grid", "\"NXxNY\"|N|\"auto\"", "\"auto\"", "1 .. 16384 cells in all",
            "Grid of cells: \"4x2\" has 4 columns and 2 rows, 8 means 8x1; \"auto\": as many cells as suit the hosts."},
           apply_machine_cells},
    KeyRow{{machine, "cells", "N|\"NXxNY\"|\"auto\"", "\"auto\"", "1 .. 16384 cells in all", "The same as grid."},
           apply_machine_cells},
    KeyRow{
        {machine, "program", "FILE", "", "",
         "Program that every cell runs, found as on aprun's command line; a program on the command line replaces it."},
        apply_program},
    KeyRow{{machine, "host-program", "FILE", "", "",
            "Host program, which runs once, on the first host, and starts programs on the cells with ccreat."},
           apply_host_program},
    KeyRow{
        {machine, "args", "[TEXT, ...]", "[]", "", "Arguments of the program, or of the host program if there is one."},
        apply_args},
    KeyRow{{machine, "need", "N", "all", "1 .. 4096",
            "Of a pool: a machine starts when that many of the hosts stand, without the others; which, is said."},
           apply_need},
    KeyRow{{machine, "keeper-idle", "TIME", "8h", "1s .. 8760h",
            "Of a pool: a host's keeper ends when nothing was started there for that long."},
           apply_keeper_idle},
    KeyRow{{machine, "keeper-key", "FILE", "a new key each time", "",
            "Of a pool with keepers that systemd starts: the file with their key, 64 hexadecimal digits."},
           apply_keeper_key},
    KeyRow{{host, "name", "NAME", "", "letters, digits, _.-@:%",
            "The host's name in messages, and where ssh goes. ws[1-4] means four hosts. This computer needs no name."},
           apply_host_name},
    KeyRow{
        {host, "address", "ADDRESS|NAME", "", "letters, digits, _.-:%",
         "Where the other hosts reach this one, and where ssh goes. Without it, the address by which ssh has reached "
         "the host, or the host aprun."},
        apply_address},
    KeyRow{{host, "launch", "\"ssh\"|\"local\"|\"slurm\"|\"pmix\"|\"command\"", "\"ssh\"", "",
            "Who starts the process: ssh; aprun itself, on this computer; Slurm's srun, in an allocation; another "
            "launcher that started aprun; a command. \"local\" if there is no name.",
            true},
           apply_launch},
    KeyRow{{host, "command", "TEXT", "", "contains {cmd} or {quoted-cmd}",
            "Line for sh that starts the process. {cmd}: what to run there; {quoted-cmd}: the same as one word, for "
            "commands that pass it to a shell again; {host}, {address}: the host's.",
            true},
           apply_command},
    KeyRow{{host, "cells", "N|\"auto\"", "\"auto\"", "1 .. 16384",
            "Cells of this host; \"auto\": by its speed, so that all hosts finish together."},
           apply_host_cells},
    KeyRow{{host, "count", "N", "1", "1 .. 4096",
            "Number of processes on this host, each with these cells; named NAME-1, NAME-2, ..."},
           apply_count},
    KeyRow{{host, "threads", "N|\"auto\"|\"per-cell\"", "the machine's", "1 .. 4096",
            "Threads that carry this host's cells, as in [machine]."},
           apply_threads},
    KeyRow{{host, "speed", "\"memory\"|\"compute\"|NUMBER|\"command\"", "\"memory\"", "numbers: 1e-6 .. 1e15",
            "The speed for cells = \"auto\": measured by a short run that is bound by memory or by arithmetic, a "
            "number, or what a command prints.",
            true},
           apply_speed},
    KeyRow{{host, "speed-command", "TEXT", "", "",
            "Line for sh, run on the host, that prints a number; larger is faster. Implies speed = \"command\".", true},
           apply_speed_command},
    KeyRow{
        {host, "ssh", "[USER@]HOST[:PORT]", "", "letters, digits, _.-@:%[]",
         "Where ssh goes, if that is neither the address nor the name; write an IPv6 address with a port in brackets."},
        apply_ssh},
    KeyRow{{host, "ssh-options", "[TEXT, ...]", "[]", "", "Arguments for ssh, for example [\"-p\", \"2222\"].", true},
           apply_ssh_options},
    KeyRow{{host, "aprun", "FILE", "aprun's own path", "", "Path of aprun on the host.", true}, apply_aprun},
    KeyRow{{host, "folder", "FOLDER", "the current folder", "", "Working folder on the host.", true}, apply_folder},
    KeyRow{
        {host, "keeper", "PATH", "", "",
         "In a pool: the socket, on the host, of a keeper that systemd starts. Without it, apctl up starts one.", true},
        apply_keeper},
    KeyRow{{site, "gateway", "[USER@]HOST[:PORT]", "", "letters, digits, _.-@:%[]",
            "The host by which ssh goes to the hosts of the site, and on which a relay joins them with others that "
            "cannot reach them."},
           apply_gateway},
    KeyRow{{site, "hosts", "[NAME, ...]", "all that ssh starts", "",
            "The hosts of the site. They reach each other, and ws[1-4] means four."},
           apply_site_hosts},
    KeyRow{{site, "aprelay", "FILE", "beside aprun", "", "Path of aprelay on the gateway."}, apply_aprelay},
    KeyRow{{file, "source", "PATH|PATTERN", "", "",
            "File or folder of this computer that the hosts get; with fetch = true, the names of what comes from them, "
            "with *, ?, [a-z] and {a,b}."},
           apply_source},
    KeyRow{{file, "target", "PATH|FOLDER", "the source's own path or name", "relative, without .. (not for fetch)",
            "Where it goes in the working folder of a host; with fetch = true, the folder of this computer that gets "
            "it, \".\" by default."},
           apply_target},
    KeyRow{{file, "hosts", "[NAME, ...]", "all hosts", "", "The hosts that get it, or from which it comes."},
           apply_file_hosts},
    KeyRow{{file, "fetch", "true|false", "false", "", "The files come from the hosts when the machine has ended."},
           apply_fetch},
    KeyRow{{file, "replace", "true|false", "false", "",
            "Replace a file that is there on a host and differs, instead of not starting."},
           apply_replace},
};

const KeyRow* own_row(SectionKind section, std::string_view name) {
  const auto* found = std::ranges::find_if(
      rows, [&](const KeyRow& row) { return row.info.section == section && row.info.name == name; });
  return found == rows.end() ? nullptr : found;
}

SectionKind section_of(const OptionInfo& option) {
  return option.section == "comm" ? SectionKind::comm : SectionKind::machine;
}

std::vector<KeyInfo> all_keys() {
  std::vector<KeyInfo> keys;
  for (const SectionKind section :
       {SectionKind::machine, SectionKind::host, SectionKind::site, SectionKind::file, SectionKind::comm}) {
    for (const KeyRow& row : rows) {
      if (row.info.section == section) keys.push_back(row.info);
    }
    for (const OptionInfo& option : option_table()) {
      if (section_of(option) != section || own_row(section, option.name) != nullptr) continue;
      keys.push_back({.section = section,
                      .name = option.name,
                      .values = option.values,
                      .default_value = option.default_value,
                      .range = option.range,
                      .help = option.help,
                      .option = true});
    }
  }
  return keys;
}

}  // namespace

const std::vector<KeyInfo>& cluster_keys() {
  static const std::vector<KeyInfo> keys = all_keys();
  return keys;
}

std::string apply_key(const KeyInfo& key, const KeyTarget& target, const Value& value) {
  if (key.option) return apply_option(key.name, target.cluster->options, value);
  return own_row(key.section, key.name)->apply(target, value);
}

std::string_view section_text(SectionKind section) {
  switch (section) {
    case SectionKind::machine:
      return "[machine]";
    case SectionKind::host:
      return "[[host]]";
    case SectionKind::site:
      return "[[site]]";
    case SectionKind::file:
      return "[[file]]";
    case SectionKind::comm:
      return "[comm]";
  }
  return {};
}

std::string_view launch_text(LaunchKind kind) {
  if (kind == LaunchKind::keeper) return "keeper";
  return std::ranges::find(launch_names, kind, &LaunchName::kind)->name;
}

}  // namespace aplib::launch::cluster
