// SPDX-License-Identifier: MIT
#include "launch/cluster/cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "base/text.hpp"
#include "launch/cluster/document.hpp"
#include "launch/cluster/keys.hpp"
#include "launch/files/manifest.hpp"

namespace aplib::launch::cluster {
namespace {

/// The names that `pattern` stands for, in its order; a name without brackets is itself. Numbers keep the width
/// that the first one of a range is written with. Nothing: brackets that make no sense, or more than `max` names.
[[nodiscard]] std::optional<std::vector<std::string>> expand_names(std::string_view pattern, std::size_t max);

constexpr std::size_t digits_max = 9;

struct Range {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::size_t width = 0;  ///< As "01" is written; 0: no leading zeros.
};

std::optional<Range> parse_range(std::string_view text) {
  const std::size_t dash = text.find('-');
  const std::string_view from = text.substr(0, dash);
  const std::string_view to = dash == text.npos ? from : text.substr(dash + 1);
  if (from.size() > digits_max || to.size() > digits_max) return std::nullopt;
  const auto first = text::parse_number(from);
  const auto last = text::parse_number(to);
  if (!first || !last || *first > *last) return std::nullopt;
  return Range{*first, *last, from.front() == '0' ? from.size() : 0};
}

std::optional<std::vector<std::string>> expand_names(std::string_view pattern, std::size_t max) {
  const std::size_t open = pattern.find('[');
  const std::size_t close = pattern.find(']');
  if (open == pattern.npos && close == pattern.npos) {
    if (pattern.find(',') != pattern.npos) return std::nullopt;
    return std::vector{std::string(pattern)};
  }
  if (open == pattern.npos || close == pattern.npos || close < open) return std::nullopt;
  const std::string_view before = pattern.substr(0, open);
  const std::string_view behind = pattern.substr(close + 1);
  if (behind.find_first_of("[],") != behind.npos || before.find(',') != before.npos) return std::nullopt;
  const std::string_view list = pattern.substr(open + 1, close - open - 1);

  std::vector<std::string> names;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    const auto range = parse_range(list.substr(at, end - at));
    if (!range || range->last - range->first >= max - names.size()) return std::nullopt;
    for (std::uint64_t number = range->first; number <= range->last; ++number) {
      names.push_back(fmt::format("{}{:0{}}{}", before, number, range->width, behind));
    }
    at = end + 1;
  }
  return names;
}

constexpr std::size_t problems_max = 20;

struct Problem {
  Place at;
  std::string text;
};

/// Keys that may stand in a section.
bool belongs(const KeyInfo& key, SectionKind section) {
  return key.section == section || (section == SectionKind::machine && key.for_all_hosts);
}

std::optional<SectionKind> section_kind(std::string_view name) {
  if (name == "machine") return SectionKind::machine;
  if (name == "host") return SectionKind::host;
  if (name == "site") return SectionKind::site;
  if (name == "file") return SectionKind::file;
  if (name == "comm") return SectionKind::comm;
  return std::nullopt;
}

/// Whether a name in a list of hosts means this host: "ws1" means also "ws1-1" and others that come from its count.
bool means(std::string_view name, std::string_view host) {
  if (!host.starts_with(name)) return false;
  const std::string_view rest = host.substr(name.size());
  return rest.empty() ||
         (rest.size() > 1 && rest.front() == '-' && rest.find_first_not_of("0123456789", 1) == rest.npos);
}

/// Turns a document into a Cluster, and notes all that is wrong with it on the way.
class Reader {
 public:
  Reader(std::string name, const Options& open) : file_(std::move(name)) {
    cluster_.file = file_;
    cluster_.options = open;
  }

  Cluster read(const Document& document);

 private:
  void read_machine(const Section& section);
  void read_comm(const Section& section);
  void read_host(const Section& section);
  void read_file(const Section& section);
  void read_site(const Section& section);
  /// Applies `entry` to `target` if the section knows its key. Returns the key when all went well.
  const KeyInfo* read_entry(const Entry& entry, SectionKind section, const std::string& subject,
                            const KeyTarget& target);
  /// Checks keys that belong together: launch and command, speed and speed-command.
  void check_pairs(const ClusterHost& host, const std::set<std::string_view>& keys, Place at,
                   const std::string& subject);
  void add_hosts(const ClusterHost& host, std::uint32_t count, const std::string& subject);
  void check_hosts();
  /// Gives each host its site.
  void check_sites();
  /// Checks that the hosts of files are some.
  void check_files();
  void complain(Place at, const std::string& text) { problems_.push_back({at, text}); }
  [[nodiscard]] std::string unknown_key(const Entry& entry, SectionKind section) const;
  void throw_problems();

  const std::string file_;
  Cluster cluster_;
  std::vector<Problem> problems_;
  std::map<std::string, int> lines_of_names_;
  int hosts_read_ = 0;
  std::vector<Place> file_hosts_;  // where each file names its hosts
  std::vector<Place> site_hosts_;  // and each site
  bool launch_for_all_ = false;
  bool too_many_ = false;
};

std::string Reader::unknown_key(const Entry& entry, SectionKind section) const {
  std::vector<std::string_view> here;
  std::vector<std::string_view> all;
  for (const KeyInfo& key : cluster_keys()) {
    if (belongs(key, section)) here.push_back(key.name);
    all.push_back(key.name);
    if (key.name == entry.key) return fmt::format("this key belongs in {}", section_text(key.section));
  }
  if (const auto meant = text::nearest(entry.key, here)) return fmt::format("unknown key: did you mean {}?", *meant);
  if (const auto meant = text::nearest(entry.key, all)) {
    const auto key = std::ranges::find(cluster_keys(), *meant, &KeyInfo::name);
    return fmt::format("unknown key: did you mean {} in {}?", *meant, section_text(key->section));
  }
  return fmt::format("unknown key: {} has {}", section_text(section), text::join(here));
}

const KeyInfo* Reader::read_entry(const Entry& entry, SectionKind section, const std::string& subject,
                                  const KeyTarget& target) {
  const auto known = std::ranges::find_if(
      cluster_keys(), [&](const KeyInfo& key) { return key.name == entry.key && belongs(key, section); });
  if (known == cluster_keys().end()) {
    complain(entry.at, fmt::format("{}: {}: {}", subject, in_quotes(entry.key), unknown_key(entry, section)));
    return nullptr;
  }
  const std::string problem = apply_key(*known, target, entry.value);
  if (problem.empty()) return &*known;
  complain(entry.value.at, fmt::format("{}: {} = {}: {}", subject, entry.key, entry.value.shown, problem));
  return nullptr;
}

void Reader::read_machine(const Section& section) {
  const std::string subject(section_text(SectionKind::machine));
  std::set<std::string_view> keys;
  std::string grid_key;
  for (const Entry& entry : section.entries) {
    const KeyInfo* key =
        read_entry(entry, SectionKind::machine, subject, {.cluster = &cluster_, .host = &cluster_.defaults});
    if (key == nullptr) continue;
    keys.insert(key->name);
    if (key->name != "grid" && key->name != "cells") continue;
    if (!grid_key.empty()) {
      complain(entry.at, fmt::format("{}: {} = {}: {} is given too: keep one of them", subject, entry.key,
                                     entry.value.shown, grid_key));
    }
    grid_key = entry.key;
    cluster_.grid_place =
        fmt::format("{}:{}:{}: {}: {}", file_, entry.value.at.line, entry.value.at.column, subject, entry.key);
  }
  if (keys.contains("program") && keys.contains("host-program")) {
    complain(section.at, fmt::format("{}: program and host-program are both given: a host program starts the cells' "
                                     "programs itself; keep one of them",
                                     subject));
  }
  launch_for_all_ = keys.contains("launch") || keys.contains("command");
  check_pairs(cluster_.defaults, keys, section.at, subject);
}

void Reader::read_comm(const Section& section) {
  for (const Entry& entry : section.entries) {
    (void)read_entry(entry, SectionKind::comm, std::string(section_text(SectionKind::comm)), {.cluster = &cluster_});
  }
}

void Reader::check_pairs(const ClusterHost& host, const std::set<std::string_view>& keys, Place at,
                         const std::string& subject) {
  if (host.launch == LaunchKind::command && host.command.empty()) {
    complain(at, fmt::format("{}: launch = \"command\": the command is missing: add command = \"... {{cmd}} ...\"",
                             subject));
  }
  if (host.launch != LaunchKind::command && keys.contains("command")) {
    complain(at, fmt::format("{}: command and launch = \"{}\" contradict each other: keep one of them", subject,
                             launch_text(host.launch)));
  }
  if (host.speed.kind == Speed::Kind::command && host.speed.command.empty()) {
    complain(at, fmt::format("{}: speed = \"command\": the command is missing: add speed-command = \"...\"", subject));
  }
  if (host.speed.kind != Speed::Kind::command && keys.contains("speed-command")) {
    complain(at, fmt::format("{}: speed and speed-command contradict each other: keep one of them", subject));
  }
}

void Reader::add_hosts(const ClusterHost& host, std::uint32_t count, const std::string& subject) {
  const Place at{host.line, 1};
  const auto names = expand_names(host.name, ClusterHost::processes_max);
  if (!names) {
    complain(at,
             fmt::format("{}: name = {}: not a list of names: use numbers and ranges in one pair of brackets, as in "
                         "ws[1-4,7], for at most {} hosts",
                         subject, in_quotes(host.name), ClusterHost::processes_max));
    return;
  }
  if (names->size() > 1 && !(host.address.empty() && host.ssh.empty())) {
    complain(at, fmt::format("{}: {} hosts cannot have one address: leave address and ssh out, or give each host a "
                             "table of its own",
                             subject, names->size()));
    return;
  }
  if (cluster_.hosts.size() + names->size() * count > ClusterHost::processes_max) {
    if (!too_many_)
      complain(at, fmt::format("{}: a machine has at most {} processes: take some out", subject,
                               ClusterHost::processes_max));
    too_many_ = true;
    return;
  }
  for (const std::string& name : *names) {
    for (std::uint32_t n = 1; n <= count; ++n) {
      ClusterHost each = host;
      each.number = n;
      each.name = count == 1 ? name : fmt::format("{}-{}", name, n);
      // ssh, addresses and Slurm mean the computer, not the process.
      if (count > 1 && each.launch == LaunchKind::ssh && each.ssh_destination() == each.name) each.ssh = name;
      if (count > 1 && each.launch == LaunchKind::slurm) each.ssh = name;
      const auto [known, is_new] = lines_of_names_.try_emplace(each.name, host.line);
      if (!is_new) {
        complain(at, fmt::format("{}: the host of line {} has the name {} too: names must differ; several processes on "
                                 "one host are written count = 2",
                                 subject, known->second, each.name));
        return;
      }
      cluster_.hosts.push_back(std::move(each));
    }
  }
}

void Reader::read_host(const Section& section) {
  ++hosts_read_;
  ClusterHost host = cluster_.defaults;
  host.line = section.at.line;
  std::string subject(section_text(SectionKind::host));
  const auto name = std::ranges::find(section.entries, "name", &Entry::key);
  const auto* text = name == section.entries.end() ? nullptr : std::get_if<std::string>(&name->value.content);
  subject += text != nullptr && text->size() < 60 ? fmt::format(" {}", *text) : fmt::format(" {}", hosts_read_);

  std::set<std::string_view> keys;
  std::uint32_t count = 1;
  // A host's own pair of keys replaces the pair of [machine] as a whole.
  const auto has = [&section](std::string_view key) {
    return std::ranges::find(section.entries, key, &Entry::key) != section.entries.end();
  };
  if (has("launch")) host.command.clear();
  if (has("speed")) host.speed = {};
  for (const Entry& entry : section.entries) {
    // If both of a pair are given, launch and speed decide. check_pairs() compares them.
    const KeyInfo* key = read_entry(entry, SectionKind::host, subject, {.cluster = &cluster_, .host = &host});
    if (key == nullptr) continue;
    keys.insert(key->name);
    if (key->name == "count") count = static_cast<std::uint32_t>(std::get<std::int64_t>(entry.value.content));
  }
  const bool named = !host.name.empty();
  if (!keys.contains("launch") && !keys.contains("command") && !launch_for_all_)
    host.launch = named || !host.address.empty() || !host.ssh.empty() ? LaunchKind::ssh : LaunchKind::local;
  if (!named && host.launch == LaunchKind::local) host.name = "local";
  if (!named && host.launch != LaunchKind::local) host.name = host.ssh_destination();
  if (host.name.empty()) {
    complain(
        section.at,
        fmt::format("{}: a name is missing: add name = \"ws1\", or launch = \"local\" for this computer", subject));
    return;
  }
  check_pairs(host, keys, section.at, subject);
  add_hosts(host, count, subject);
}

void Reader::read_file(const Section& section) {
  ClusterFile file;
  std::string subject(section_text(SectionKind::file));
  const auto source = std::ranges::find(section.entries, "source", &Entry::key);
  const auto* text = source == section.entries.end() ? nullptr : std::get_if<std::string>(&source->value.content);
  if (text != nullptr && text->size() < 60) subject += fmt::format(" {}", in_quotes(*text));
  std::set<std::string_view> keys;
  Place hosts = section.at;
  Place target = section.at;
  for (const Entry& entry : section.entries) {
    const KeyInfo* key = read_entry(entry, SectionKind::file, subject, {.cluster = &cluster_, .file = &file});
    if (key == nullptr) continue;
    keys.insert(key->name);
    if (key->name == "hosts") hosts = entry.value.at;
    if (key->name == "target") target = entry.value.at;
  }
  if (source == section.entries.end()) {
    complain(section.at, fmt::format("{}: a source is missing: add source = \"input.dat\"", subject));
    return;
  }
  if (file.fetch && keys.contains("replace")) {
    complain(section.at, fmt::format("{}: replace and fetch contradict each other: what is fetched always replaces; "
                                     "take replace out",
                                     subject));
  }
  if (!file.fetch && !file.target.empty() && !files::is_safe_path(file.target)) {
    complain(target, fmt::format("{}: target = {}: not in the working folder of the hosts: use a relative path without "
                                 "..; folder = \"...\" of [[host]] chooses another working folder",
                                 subject, in_quotes(file.target)));
  }
  cluster_.files.push_back(std::move(file));
  file_hosts_.push_back(hosts);
}

void Reader::read_site(const Section& section) {
  ClusterSite site;
  site.line = section.at.line;
  const std::string subject = fmt::format("{} {}", section_text(SectionKind::site), cluster_.sites.size() + 1);
  Place hosts = section.at;
  for (const Entry& entry : section.entries) {
    const KeyInfo* key = read_entry(entry, SectionKind::site, subject, {.cluster = &cluster_, .site = &site});
    if (key != nullptr && key->name == "hosts") hosts = entry.value.at;
  }
  if (std::ranges::find(section.entries, "gateway", &Entry::key) == section.entries.end()) {
    complain(section.at,
             fmt::format("{}: a gateway is missing: add gateway = \"login1\", the host by which ssh gets to "
                         "the hosts of the site",
                         subject));
    return;
  }
  std::vector<std::string> names;
  for (const std::string& pattern : site.hosts) {
    const auto expanded = expand_names(pattern, ClusterHost::processes_max);
    if (!expanded) {
      complain(hosts, fmt::format("{}: hosts: {}: not a list of names: use numbers and ranges in one pair of brackets, "
                                  "as in ws[1-4,7]",
                                  subject, in_quotes(pattern)));
      return;
    }
    names.insert(names.end(), expanded->begin(), expanded->end());
  }
  site.hosts = std::move(names);
  cluster_.sites.push_back(std::move(site));
  site_hosts_.push_back(hosts);
}

void Reader::check_sites() {
  if (cluster_.hosts.empty() && !cluster_.sites.empty()) {
    complain(site_hosts_[0], "[[site]]: its hosts are missing: write a [[host]] table for each of them");
    return;
  }
  std::vector<std::string_view> known;
  for (const ClusterHost& host : cluster_.hosts) known.emplace_back(host.name);
  for (std::uint32_t i = 0; i < cluster_.sites.size(); ++i) {
    const ClusterSite& site = cluster_.sites[i];
    const std::string subject = fmt::format("[[site]] {}: ", site.gateway);
    for (const std::string& name : site.hosts) {
      if (std::ranges::any_of(known, [&name](std::string_view host) { return means(name, host); })) continue;
      const auto meant = text::nearest(name, known);
      complain(site_hosts_[i],
               fmt::format("{}hosts: {}: no such host: {}", subject, in_quotes(name),
                           meant ? fmt::format("did you mean {}?", *meant) : "use the names of [[host]] tables"));
    }
    for (ClusterHost& host : cluster_.hosts) {
      if (!site.has(host)) continue;
      if (host.site != 0) {
        complain(site_hosts_[i],
                 fmt::format("{}{} is a host of the site of {} already: a host is in one site; name the "
                             "hosts of each by hosts = [...]",
                             subject, host.name, cluster_.sites[host.site - 1].gateway));
        return;
      }
      host.site = i + 1;
      if (host.ssh_destination() != site.gateway) host.gateway = site.gateway;
    }
  }
}

void Reader::check_files() {
  // Those of an allocation are not known yet.
  if (cluster_.hosts.empty()) return;
  std::vector<std::string_view> known;
  for (const ClusterHost& host : cluster_.hosts) known.emplace_back(host.name);
  for (std::size_t i = 0; i < cluster_.files.size(); ++i) {
    for (const std::string& name : cluster_.files[i].hosts) {
      if (std::ranges::any_of(known, [&name](std::string_view host) { return means(name, host); })) continue;
      const auto meant = text::nearest(name, known);
      complain(file_hosts_[i],
               fmt::format("[[file]]: hosts: {}: no such host: {}", in_quotes(name),
                           meant ? fmt::format("did you mean {}?", *meant) : "use the names of [[host]] tables"));
    }
  }
}

/// Checks what several hosts must agree on.
void Reader::check_hosts() {
  const auto unit = [](const ClusterHost& host) {
    // The user vouches that numbers and the output of commands can be compared.
    return host.speed.kind == Speed::Kind::command ? Speed::Kind::number : host.speed.kind;
  };
  const ClusterHost* first = nullptr;
  for (const ClusterHost& host : cluster_.hosts) {
    if ((host.launch == LaunchKind::pmix) != (cluster_.hosts.front().launch == LaunchKind::pmix)) {
      complain({host.line, 1},
               fmt::format("[[host]] {}: launch: \"pmix\" is for all hosts or for none, because the other "
                           "launcher starts them all: write launch = \"pmix\" in [machine]",
                           host.name));
      break;
    }
  }
  for (const ClusterHost& host : cluster_.hosts) {
    if (host.cells) continue;
    if (first == nullptr) first = &host;
    if (unit(host) == unit(*first)) continue;
    complain({host.line, 1}, fmt::format("[[host]] {}: speed: {} has another kind of speed, and the two cannot be "
                                         "compared: write speed once, in [machine]",
                                         host.name, first->name));
    break;
  }
}

void Reader::throw_problems() {
  if (problems_.empty()) return;
  std::ranges::stable_sort(problems_, {}, &Problem::at);
  std::string text;
  for (std::size_t i = 0; i < std::min(problems_.size(), problems_max); ++i) {
    const auto& [at, what] = problems_[i];
    text += fmt::format("{}{}:{}:{}: {}", i == 0 ? "" : "\n", file_, at.line, at.column, what);
  }
  if (problems_.size() > problems_max)
    text += fmt::format("\n{}: and {} more problems", file_, problems_.size() - problems_max);
  throw Error(Errc::bad_option, text);
}

Cluster Reader::read(const Document& document) {
  for (const Entry& entry : document.loose) {
    std::string hint;
    for (const KeyInfo& key : cluster_keys()) {
      if (key.name == entry.key && hint.empty()) hint = fmt::format(", for this key {}", section_text(key.section));
    }
    complain(
        entry.at,
        fmt::format("{}: keys stand in tables: write [machine], [[host]], [[site]], [[file]] or [comm] before it{}",
                    in_quotes(entry.key), hint));
  }
  // [machine] holds for all hosts, wherever it stands.
  for (const Section& section : document.sections) {
    if (section.name == "machine" && !section.element) read_machine(section);
  }
  for (const Section& section : document.sections) {
    const auto kind = section_kind(section.name);
    if (!kind) {
      constexpr std::array<std::string_view, 5> known{"machine", "host", "site", "file", "comm"};
      const auto meant = text::nearest(section.name, known);
      complain(section.at,
               fmt::format("[{}]: unknown table: {}", section.name,
                           meant ? fmt::format("did you mean {}?", section_text(*section_kind(*meant)))
                                 : "a cluster file has [machine], [[host]], [[site]], [[file]] and [comm]"));
    } else if (section.element != (*kind != SectionKind::machine && *kind != SectionKind::comm)) {
      complain(section.at, fmt::format("{}{}{}: write {}", section.element ? "[[" : "[", section.name,
                                       section.element ? "]]" : "]", section_text(*kind)));
    } else if (*kind == SectionKind::host) {
      read_host(section);
    } else if (*kind == SectionKind::site) {
      read_site(section);
    } else if (*kind == SectionKind::file) {
      read_file(section);
    } else if (*kind == SectionKind::comm) {
      read_comm(section);
    }
  }
  const bool allocated = cluster_.defaults.launch == LaunchKind::slurm || cluster_.defaults.launch == LaunchKind::pmix;
  if (hosts_read_ == 0 && !(launch_for_all_ && allocated)) {
    ClusterHost host = cluster_.defaults;
    host.launch = LaunchKind::local;
    host.name = "local";
    cluster_.hosts.push_back(std::move(host));
  }
  check_hosts();
  check_sites();
  check_files();
  throw_problems();
  return std::move(cluster_);
}

}  // namespace

bool ClusterSite::has(const ClusterHost& host) const {
  if (hosts.empty()) return host.launch == LaunchKind::ssh;
  return std::ranges::any_of(hosts, [&host](const std::string& name) { return means(name, host.name); });
}

bool ClusterFile::is_for(std::string_view host) const {
  return hosts.empty() || std::ranges::any_of(hosts, [host](const std::string& name) { return means(name, host); });
}

Cluster parse_cluster(std::string_view text, const std::string& name, const Options& open) {
  return Reader(name, open).read(read_document(text, name));
}

namespace {

/// One host may leave its number of cells open, if the grid is known.
void close_number(Cluster& cluster) {
  std::uint64_t known = 0;
  ClusterHost* open = nullptr;
  for (ClusterHost& host : cluster.hosts) {
    if (host.cells) {
      known += *host.cells;
    } else if (std::exchange(open, &host) != nullptr) {
      open = nullptr;
      break;
    }
  }
  if (open != nullptr && cluster.grid && cluster.grid->count() > known)
    open->cells = static_cast<std::uint32_t>(cluster.grid->count() - known);
}

}  // namespace

void part_processes(Cluster& cluster, const std::function<bool(std::uint32_t cell)>& is_process) {
  close_number(cluster);
  std::vector<ClusterHost> hosts;
  std::uint32_t cell = 0;
  for (const ClusterHost& host : cluster.hosts) {
    if (!host.cells) {
      throw Error(Errc::bad_option, fmt::format("{}: [[host]] {}: ordinary processes are not shared out by speed: "
                                                "write cells = N",
                                                cluster.file, host.name));
    }
    const std::uint32_t end = cell + *host.cells;
    for (int number = 1; cell < end; ++number) {
      ClusterHost part = host;
      part.process = is_process(cell);
      const std::uint32_t first = cell++;
      while (!part.process && cell < end && !is_process(cell)) ++cell;
      part.cells = cell - first;
      if (*part.cells != *host.cells) {
        part.name = fmt::format("{}-{}", host.name, number);
        if (part.launch == LaunchKind::ssh && part.ssh.empty()) part.ssh = host.ssh_destination();
        if (part.launch == LaunchKind::slurm && part.ssh.empty()) part.ssh = host.name;
      }
      hosts.push_back(std::move(part));
    }
  }
  if (hosts.size() > ClusterHost::processes_max) {
    throw Error(Errc::bad_option, fmt::format("{} processes are asked for, and a machine has at most {}", hosts.size(),
                                              ClusterHost::processes_max));
  }
  cluster.hosts = std::move(hosts);
}

Cluster read_cluster(const std::string& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::string text(document_bytes_max + 1, '\0');  // one more than is allowed shows what is too large, or never ends
  if (in) in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in.is_open() || in.bad()) {
    throw Error(Errc::bad_option, fmt::format("cannot read the cluster file {}: {}", path, os::text_of(errno)));
  }
  text.resize(static_cast<std::size_t>(in.gcount()));
  Cluster cluster = parse_cluster(text, path, Options::from_environment());
  const char* cells = std::getenv("APLIB_CELLS");
  if (cluster.grid_place.empty() && cells != nullptr && *cells != '\0') {
    cluster.grid = cluster.options.cells;
    cluster.grid_place = "variable APLIB_CELLS";
  }
  return cluster;
}

}  // namespace aplib::launch::cluster
