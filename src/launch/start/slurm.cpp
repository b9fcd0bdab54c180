// SPDX-License-Identifier: MIT
#include "launch/start/slurm.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/text.hpp"
#include "launch/start/launch_method.hpp"

namespace aplib::launch::start {
namespace {

constexpr std::size_t hosts_max = 65536;

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

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

/// The items of a list at commas outside of brackets.
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

/// One item, its first bracket opened; the rest by itself again.
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

/// One srun for all nodes: it knows the way to every host of the allocation, and sends the key to all of them by
/// their standard input.
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
      const std::string& name = node.host.name;
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
                                host_name(node), how_it_ended(end.status), quoted(end.words),
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

}  // namespace aplib::launch::start
