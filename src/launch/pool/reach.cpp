// SPDX-License-Identifier: MIT
// Brings the hosts of a pool within reach: starts keepers where none stands, and leads the ways to them.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "aplib/version.hpp"
#include "base/os/descriptor.hpp"
#include "base/os/own_folder.hpp"
#include "launch/pool/keeper_address.hpp"
#include "launch/pool/pool.hpp"
#include "launch/start/child.hpp"
#include "launch/start/launch_method.hpp"
#include "launch/start/ssh_master.hpp"
#include "launch/start/starter.hpp"
#include "launch/terminal.hpp"

namespace aplib::launch::pool {

using namespace std::chrono_literals;

namespace {

namespace fs = std::filesystem;
using cluster::LaunchKind;

constexpr auto check_patience = 5s;  // for a standing keeper's answer
constexpr auto tool_patience = 20s;  // for what makes a key
constexpr std::string_view reached_mark = "aplib-keeper reached ";

/// The folder of this program.
std::string programs_folder() {
  const std::string path = os::own_program();
  return path.empty() ? "." : fs::path(path).parent_path().string();
}

/// The server's address in SSH_CONNECTION: "CLIENT PORT SERVER PORT". Nothing: "".
std::string server_of(const std::string& connection) {
  std::istringstream words(connection);
  std::string word;
  for (int i = 0; i < 3; ++i) words >> word;
  return words ? word : std::string();
}

/// What became of the start of keepers. Filled by the starter's thread.
struct Starts {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::uint32_t, std::string> sockets{};   ///< On their hosts, of those that stand.
  std::map<std::uint32_t, std::string> reached{};   ///< The addresses by which ssh came there, where it matters.
  std::map<std::uint32_t, std::string> problems{};  ///< Whole messages.
  std::size_t over = 0;

  void end(std::uint32_t host, const std::string& problem) {
    {
      const std::lock_guard lock(mutex);
      if (!problem.empty()) problems[host] = problem;
      ++over;
    }
    changed.notify_all();
  }
};

using SshOptions = std::function<std::vector<std::string>(std::size_t host)>;

/// Starts keepers on these hosts, by ssh with these options, or here. ssh stays connected.
void start_keepers(const Pool& pool, const std::vector<std::size_t>& which, Starts& starts,
                   const SshOptions& options = {}) {
  const std::string folder = programs_folder();
  const auto idle = std::chrono::duration_cast<std::chrono::seconds>(pool.cluster().keeper_idle);
  std::vector<start::NodeStart> nodes;
  for (const std::size_t i : which) {
    start::NodeStart node;
    node.process = static_cast<std::uint32_t>(i);
    node.host = pool.hosts()[i].host;
    node.host.folder.clear();
    if (node.host.launch == LaunchKind::ssh) {
      std::vector<std::string> master = start::SshMaster::options(pool.control(i));
      if (options) std::ranges::move(options(i), std::back_inserter(master));
      node.host.ssh_options.insert(node.host.ssh_options.begin(), master.begin(), master.end());
      node.leaves_some = true;  // ssh itself leaves our group, but not the one by which it goes through a gateway
    } else {
      node.command = {"env", "-u", "SSH_CONNECTION"};  // which tells of this computer's own login
    }
    for (const std::string& word : {pool.keeper_program(i, folder), std::string("--pool"), pool.id(i),
                                    std::string("--idle"), fmt::format("{}", idle.count())})
      node.command.push_back(word);
    if (const std::string& socket = node.host.standing_keeper; !socket.empty())
      node.command = {"sh", "-c",
                      fmt::format("echo {}$SSH_CONNECTION >&2; echo {}{} >&2", reached_mark, stands_mark,
                                  start::shell_quote(socket))};
    node.input = pool.key().reveal_hex() + "\n";
    nodes.push_back(std::move(node));
  }
  start::StartEvents events;
  events.said = [&](std::uint32_t host, const std::string& line) {
    const std::lock_guard lock(starts.mutex);
    if (line.starts_with(reached_mark)) starts.reached[host] = server_of(line.substr(reached_mark.size()));
    if (line.starts_with(stands_mark)) starts.sockets[host] = line.substr(stands_mark.size());
  };
  events.failed = [&](std::uint32_t host, const std::string& text) { starts.end(host, text); };
  events.ended = [&](std::uint32_t host, int status, const std::string& words) {
    const bool stands = starts.sockets.contains(host);  // only this thread changes it
    starts.end(host,
               stands ? ""
                      : fmt::format("host '{}': its keeper did not start: it {}{}", pool.hosts()[host].name,
                                    start::how_it_ended(status), words.empty() ? "" : fmt::format(" (\"{}\")", words)));
  };
  const std::unique_ptr<start::Starter> starter = start::make_starter();
  const std::size_t count = nodes.size();
  starter->start(std::move(nodes), std::move(events));
  std::unique_lock lock(starts.mutex);
  starts.changed.wait(lock, [&] { return starts.over == count; });
}

/// Leads the way of host `i` to the socket of its keeper there. Returns a problem or "".
std::string open_way(const Pool& pool, std::size_t i, const std::string& remote) {
  const cluster::ClusterHost& host = pool.hosts()[i].host;
  const std::string local = pool.way(i).socket;
  ::unlink(local.c_str());
  if (host.launch == LaunchKind::local) {
    std::error_code error;
    fs::create_symlink(remote, local, error);
    return error ? fmt::format("cannot make {}: {}", local, error.message()) : "";
  }
  const std::string problem = start::SshMaster(host, pool.control(i)).forward(local, remote);
  return problem.empty() ? ""
                         : fmt::format(
                               "ssh forwards no socket to it: {}; does sshd there allow it "
                               "(AllowStreamLocalForwarding)?",
                               problem);
}

/// The first ones.
std::string names_of(const Pool& pool, const std::vector<std::size_t>& which) {
  constexpr std::size_t names_max = 8;
  std::vector<std::string> names;
  for (std::size_t at = 0; at < std::min(which.size(), names_max); ++at) names.push_back(pool.hosts()[which[at]].name);
  return fmt::format("{}{}", fmt::join(names, ", "), which.size() > names_max ? ", ..." : "");
}

std::string message(const Pool& pool, std::size_t i, const std::string& problem) {
  return fmt::format("host '{}': {}", pool.hosts()[i].name, problem);
}

/// Starts keepers on these hosts, and leads the ways to them. Returns whole messages, by host of those that are not
/// within reach then.
std::map<std::size_t, std::string> lead(const Pool& pool, const std::vector<std::size_t>& which,
                                        std::vector<Pool::Known>& known, const SshOptions& options = {}) {
  if (which.empty()) return {};
  Starts starts;
  start_keepers(pool, which, starts, options);
  std::map<std::size_t, std::string> problems(starts.problems.begin(), starts.problems.end());
  for (const auto& [i, remote] : starts.sockets)
    if (const std::string problem = open_way(pool, i, remote); !problem.empty())
      problems[i] = message(pool, i, problem);
  for (const auto& [i, address] : starts.reached) known[i].reached = address;
  std::vector<KeeperAddress> ways;
  for (const std::size_t i : which) ways.push_back(pool.way(i));
  const auto answers = facts_of(ways, check_patience);
  for (std::size_t at = 0; at < which.size(); ++at) {
    if (answers[at].facts) note(known[which[at]], *answers[at].facts);
    const std::string problem = problem_of(answers[at]);
    if (!problem.empty()) problems.try_emplace(which[at], message(pool, which[at], problem));
  }
  return problems;
}

/// Hosts of a job of Slurm's to whose keepers ssh does not lead, as where nobody may log in: srun carries ssh's
/// connection to an sshd of this user's own, which knows one key. Who is at the other end, Slurm has seen to.
void lead_by_srun(const Pool& pool, std::map<std::size_t, std::string>& problems, std::vector<Pool::Known>& known) {
  const std::string key = fs::path(pool.way(0).socket).parent_path() / "ssh_key";
  std::vector<std::size_t> which;
  std::vector<std::string> names;
  for (const auto& [i, problem] : problems) {
    which.push_back(i);
    names.push_back(pool.hosts()[i].name);
    pool.end_masters(i);
  }
  const auto run = [](const std::vector<std::string>& command) {
    const start::CommandEnd end = start::run_command(command, tool_patience);
    if (!end.is_well()) throw Error(Errc::failed, end.words(command[0]));
  };
  if (::access(key.c_str(), R_OK) != 0) run({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key});
  std::string public_key = os::read_file(key + ".pub").value_or("");
  if (public_key.ends_with('\n')) public_key.pop_back();
  const std::string script = fmt::format(
      "d=$(mktemp -d) && trap 'rm -r \"$d\"' EXIT && trap exit HUP INT TERM && "
      "ssh-keygen -q -t ed25519 -N '' -f \"$d/host\" && echo {} > \"$d/user\" && PATH=$PATH:/usr/sbin:/sbin && "
      "\"$(command -v sshd)\" -i -f /dev/null -o HostKey=\"$d/host\" -o AuthorizedKeysFile=\"$d/user\" "
      "-o StrictModes=no -o UsePAM=no -o LogLevel=ERROR",
      start::shell_quote(public_key));
  const auto options = [&](std::size_t i) {
    const std::string proxy = start::shell_command(pool.job()->command_on(pool.hosts()[i].name, script));
    return std::vector<std::string>{"-o", "ProxyCommand=" + proxy,        "-o", "IdentityFile=" + key,
                                    "-o", "IdentitiesOnly=yes",           "-o", "StrictHostKeyChecking=no",
                                    "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"};
  };
  const std::map<std::size_t, std::string> left = lead(pool, which, known, options);
  const std::vector<std::string> addresses = pool.job()->addresses(names);
  for (std::size_t at = 0; at < which.size(); ++at) {
    const std::size_t i = which[at];
    if (left.contains(i)) {
      problems[i] += fmt::format("; and with srun as the way: {}", left.at(i));
    } else {
      problems.erase(i);
      known[i].reached = addresses[at];
    }
  }
}

}  // namespace

std::int64_t now_in_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void note(Pool::Known& known, const HostFacts& facts) {
  known.at = now_in_seconds();
  known.facts = facts;
}

std::string problem_of(const FactsAnswer& answer) {
  if (!answer.facts) return answer.problem;
  if (answer.facts->version == version) return {};
  return fmt::format("its keeper is of APlib {}, and this is {}: apctl down and up start keepers of one version",
                     answer.facts->version, version);
}

Repair repair(const Pool& pool, const std::string& who) {
  std::vector<Pool::Known> known = pool.known();
  const auto answers = [&] {
    const WaitNote note(who, fmt::format("pool {}: waits for an answer of its keepers", pool.name()));
    return facts_of(pool.ways(), check_patience);
  }();
  std::vector<std::size_t> startable;
  Repair done;
  bool is_news = false;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].facts) note(known[i], *answers[i].facts);
    is_news |= std::exchange(known[i].apart_at, 0) != 0;
    if (problem_of(answers[i]).empty()) continue;
    ++done.missing;
    // A master that does not answer would hold up whoever asks it.
    pool.end_masters(i);
    if (!pool.job() || !pool.hosts()[i].host.standing_keeper.empty()) {
      startable.push_back(i);
    } else {
      done.problems[i] = message(pool, i,
                                 fmt::format("no keeper stands there: {} starts each once, and {} may say more",
                                             pool.job()->text(), pool.job()->file("output")));
    }
  }
  if (done.missing == 0) {
    if (is_news) pool.keep(known);
    return done;
  }
  const WaitNote note(
      who, fmt::format("pool {}: waits for keepers, which start on {}", pool.name(), names_of(pool, startable)));
  std::map<std::size_t, std::string> problems = lead(pool, startable, known);
  if (!problems.empty() && pool.job() && pool.job()->system == BatchSystem::slurm) {
    try {
      lead_by_srun(pool, problems, known);
    } catch (const Error& error) {
      for (auto& [i, problem] : problems) problem += fmt::format("; and with srun as the way: {}", error.what());
    }
  }
  done.problems.merge(problems);
  pool.keep(known);
  return done;
}

namespace {

[[noreturn]] void refuse_job(const Pool& pool, const std::string& why) {
  throw Error(Errc::failed, fmt::format("pool {}: {} {}", pool.name(), pool.job()->text(), why));
}

}  // namespace

void check_job(const Pool& pool) {
  if (!pool.job()) return;
  if (pool.hosts().empty() || pool.job()->hosts().over) refuse_job(pool, pool.job()->absence());
  // A job may end by force, without a word of its script.
  const auto answers = facts_of(pool.ways(), pool.cluster().options.peer_timeout);
  const bool all_answer = std::ranges::all_of(answers, [](const FactsAnswer& each) { return each.facts.has_value(); });
  if (!all_answer && pool.job()->state().kind == BatchState::Kind::ended) refuse_job(pool, pool.job()->absence());
}

Pool Pool::reach(const std::string& name) {
  Pool pool = open(name);
  if (!pool.job()) return pool;
  check_job(pool);
  // Ways are led once to each keeper that has come. What else is amiss, apctl up repairs.
  std::string come;
  for (const PoolHost& each : pool.hosts()) come += fmt::format("{} {}\n", each.name, each.host.standing_keeper);
  if (pool.led() == come) return pool;
  const PoolLock lock(name);
  if (pool.led() == come) return pool;  // another process has done it meanwhile
  const Repair done = repair(pool);
  pool.keep_led(come);
  if (done.problems.size() == pool.hosts().size())
    refuse_job(pool, fmt::format("is not within reach: {}", done.problems.begin()->second));
  return pool;
}

}  // namespace aplib::launch::pool
