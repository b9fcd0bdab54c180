// SPDX-License-Identifier: MIT
#include "launch/ctl/pool_verbs.hpp"
#include "launch/program_path.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "aplib/version.hpp"
#include "base/os/descriptor.hpp"
#include "base/text.hpp"
#include "launch/ctl/on_hosts.hpp"
#include "launch/pool/pool.hpp"
#include "launch/start/launch_method.hpp"
#include "launch/start/ssh_master.hpp"
#include "launch/start/starter.hpp"
#include "launch/terminal.hpp"

namespace aplib::launch::ctl {

using namespace std::chrono_literals;

namespace {

namespace fs = std::filesystem;
using cluster::LaunchKind;
using pool::Pool;

constexpr auto end_patience = 10s;
constexpr auto check_patience = 5s;  // for a standing keeper's answer

void say(const std::string& line) { tell_user("apctl", line); }

std::string plural(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

/// The folder of this program.
std::string programs_folder() {
  const std::string path = own_program();
  return path.empty() ? "." : fs::path(path).parent_path().string();
}

std::int64_t now_in_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// What became of the start of keepers. Filled by the starter's thread.
struct Starts {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::uint32_t, std::string> sockets{};   ///< On their hosts, of those that stand.
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

/// Starts keepers on these hosts, by ssh or here. ssh stays connected.
void start_keepers(const Pool& pool, const std::vector<std::size_t>& which, Starts& starts) {
  const std::string folder = programs_folder();
  const auto idle = std::chrono::duration_cast<std::chrono::seconds>(pool.cluster().keeper_idle);
  std::vector<start::NodeStart> nodes;
  for (const std::size_t i : which) {
    start::NodeStart node;
    node.process = static_cast<std::uint32_t>(i);
    node.host = pool.hosts()[i].host;
    node.host.folder.clear();
    if (node.host.launch == LaunchKind::ssh) {
      const std::vector<std::string> master = start::SshMaster::options(pool.control(i));
      node.host.ssh_options.insert(node.host.ssh_options.begin(), master.begin(), master.end());
      node.leaves_some = true;  // ssh itself leaves our group, but not the one by which it goes through a gateway
    } else {
      node.command = {"env", "-u", "SSH_CONNECTION"};  // which tells of this computer's own login
    }
    for (const std::string& word : {pool.keeper_program(i, folder), std::string("--pool"), pool.id(i),
                                    std::string("--idle"), fmt::format("{}", idle.count())})
      node.command.push_back(word);
    if (!node.host.standing_keeper.empty())
      node.command = {"sh", "-c", fmt::format("echo {}{} >&2", pool::stands_mark, node.host.standing_keeper)};
    node.input = pool.key().reveal_hex() + "\n";
    nodes.push_back(std::move(node));
  }
  start::StartEvents events;
  events.said = [&](std::uint32_t host, const std::string& line) {
    if (!line.starts_with(pool::stands_mark)) return;
    const std::lock_guard lock(starts.mutex);
    starts.sockets[host] = line.substr(pool::stands_mark.size());
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

void note(Pool::Known& known, const pool::HostFacts& facts) {
  known.at = now_in_seconds();
  known.facts = facts;
}

/// Why host `i` does not stand; "": it does.
std::string problem_of(const pool::FactsAnswer& answer) {
  if (!answer.facts) return answer.problem;
  if (answer.facts->version == version) return {};
  return fmt::format("its keeper is of APlib {}, and this is {}: apctl down and up start keepers of one version",
                     answer.facts->version, version);
}

int repair(const Pool& pool, bool is_new) {
  const std::vector<pool::KeeperAddress> ways = pool.ways();
  std::vector<std::size_t> missing;
  {
    const auto answers = pool::facts_of(ways, check_patience);
    for (std::size_t i = 0; i < answers.size(); ++i)
      if (!problem_of(answers[i]).empty()) missing.push_back(i);
  }
  std::map<std::size_t, std::string> problems;
  for (const std::size_t i : missing) {
    // A master that does not answer would hold up whoever asks it.
    pool.end_masters(i);
  }
  if (!missing.empty()) {
    Starts starts;
    start_keepers(pool, missing, starts);
    for (const auto& [i, problem] : starts.problems) problems[i] = problem;
    for (const auto& [i, remote] : starts.sockets) {
      if (const std::string problem = open_way(pool, i, remote); !problem.empty())
        problems[i] = fmt::format("host '{}': {}", pool.hosts()[i].name, problem);
    }
    const auto answers = pool::facts_of(ways, check_patience);
    std::vector<Pool::Known> known = pool.known();
    for (std::size_t i = 0; i < answers.size(); ++i)
      if (answers[i].facts) note(known[i], *answers[i].facts);
    pool.keep(known);
    for (const std::size_t i : missing) {
      const std::string problem = problem_of(answers[i]);
      if (!problem.empty()) problems.try_emplace(i, fmt::format("host '{}': {}", pool.hosts()[i].name, problem));
    }
  }
  for (const auto& [i, problem] : problems) say(problem);
  const std::size_t all = pool.hosts().size();
  const std::size_t stand = all - problems.size();
  std::string text = fmt::format("pool {}: {}", pool.name(), problems.empty() ? plural(all, "host") : "");
  if (!problems.empty()) text += fmt::format("{} of {}", stand, plural(all, "host"));
  text += stand == 1 && all == 1 ? " stands ready" : " stand ready";
  if (!is_new && !missing.empty() && missing.size() != problems.size())
    text += fmt::format("; repaired: {}", missing.size() - problems.size());
  if (!problems.empty()) text += fmt::format("; apctl up {} tries the others again", pool.name());
  const int status = print("apctl", printable(text + "\n"));
  return problems.empty() ? status : static_cast<int>(ExitStatus::program_failed);
}

std::string read_text(const std::string& file) {
  auto text = os::read_file(file);
  if (!text)
    throw Error(Errc::bad_option,
                fmt::format("cannot read the cluster file {}: {}", file, std::generic_category().message(errno)));
  return *std::move(text);
}

}  // namespace

int pool_up(const std::string& file, std::string name) {
  if (name.empty()) name = fs::path(file).stem().string();
  if (const std::string problem = Pool::name_problem(name); !problem.empty())
    throw Error(Errc::bad_option, problem + (file.empty() ? "" : "; --name gives another one"));
  if (file.empty()) return repair(Pool::open(name), false);
  const std::string text = read_text(file);
  if (Pool::exists(name)) {
    const Pool pool = Pool::open(name);
    if (pool.text() != text) {
      throw Error(Errc::bad_option,
                  fmt::format("pool {} stands already, by another content of its cluster file: apctl down {} ends it, "
                              "or --name gives this one another name",
                              name, name));
    }
    return repair(pool, false);
  }
  return repair(Pool::make(name, text, fs::absolute(file).string()), true);
}

int pool_down(const std::string& name) {
  const Pool pool = Pool::open(name);
  const std::vector<pool::KeeperAddress> ways = pool.ways();
  std::vector<std::string> problems(ways.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ways.size(); ++i) {
    threads.emplace_back([&, i] {
      problems[i] = pool::end_keeper(ways[i], end_patience);
      pool.end_masters(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  int status = 0;
  for (std::size_t i = 0; i < ways.size(); ++i) {
    if (problems[i].empty()) continue;
    status = static_cast<int>(ExitStatus::program_failed);
    const std::string when = pool.cluster().keeper_idle.count() == 0
                                 ? ""
                                 : fmt::format(" after {}", text::print_duration(pool.cluster().keeper_idle));
    say(fmt::format("host '{}': {}; a keeper that still stands there ends by itself{}", pool.hosts()[i].name,
                    problems[i], when));
  }
  pool.remove();
  return status;
}

namespace {

std::string json_texts(const std::vector<std::string>& texts) {
  std::vector<std::string> quoted;
  for (const std::string& each : texts) quoted.push_back(text::json_string(each));
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

std::string gib(std::uint64_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / static_cast<double>(std::uint64_t{1} << 30));
}

/// A host of a pool, asked just now.
struct Row {
  const Pool& pool;
  std::size_t host;
  Pool::Known known{};
  std::string problem{};
  std::optional<std::chrono::nanoseconds> round_trip{};
  std::int64_t now = 0;

  [[nodiscard]] bool was_seen() const { return known.at != 0; }
  [[nodiscard]] bool was_measured() const { return known.speed_at != 0; }
  [[nodiscard]] std::int64_t age() const { return now - known.at; }
  [[nodiscard]] std::int64_t speed_age() const { return now - known.speed_at; }
  [[nodiscard]] double milliseconds() const { return std::chrono::duration<double, std::milli>(*round_trip).count(); }
  /// Its gateway; empty: none.
  [[nodiscard]] std::string site() const {
    const std::uint32_t number = pool.hosts()[host].host.site;
    return number == 0 ? std::string() : pool.cluster().sites[number - 1].gateway;
  }
  [[nodiscard]] std::string_view way() const {
    return pool.hosts()[host].host.launch == LaunchKind::ssh ? "ssh" : "here";
  }
};

const TableRow host_columns{"POOL", "HOST", "SITE",    "WAY",   "ARCH",    "KERNEL", "CPU",        "CORES", "FREE GiB",
                            "LOAD", "GPUS", "MODULES", "SPEED", "VERSION", "RUNS",   "ROUND TRIP", "AGE",   ""};

std::vector<std::string> cells_of(const Row& row) {
  const pool::HostFacts& facts = row.known.facts;
  std::vector<std::string> cells{row.pool.name(), row.pool.hosts()[row.host].name, row.site(), std::string(row.way())};
  if (!row.was_seen()) {
    cells.resize(host_columns.size() - 1);
  } else {
    cells.insert(cells.end(),
                 {facts.architecture, facts.kernel, facts.cpu_model, fmt::format("{:g}", facts.cores),
                  fmt::format("{}/{}", gib(facts.free_bytes), gib(facts.memory_bytes)),
                  fmt::format("{:.2f} {:.2f} {:.2f}", facts.load1, facts.load5, facts.load15),
                  fmt::format("{}", fmt::join(facts.gpus, ", ")), fmt::format("{}", fmt::join(facts.modules, " ")),
                  row.was_measured() ? fmt::format("{:.3g} ({} s ago)", row.known.speed, row.speed_age()) : "",
                  facts.version, fmt::format("{}", facts.runs)});
    cells.push_back(row.round_trip ? fmt::format("{:.1f} ms", row.milliseconds()) : "");
    cells.push_back(fmt::format("{} s", row.age()));
  }
  cells.push_back(row.problem.empty() ? "" : "lost: " + row.problem);
  return cells;
}

std::string json_of(const Row& row) {
  const pool::HostFacts& facts = row.known.facts;
  std::string text =
      fmt::format("{{\"pool\": {}, \"host\": {}, \"way\": \"{}\", \"stands\": {}", text::json_string(row.pool.name()),
                  text::json_string(row.pool.hosts()[row.host].name), row.way(), row.problem.empty());
  if (!row.problem.empty()) text += fmt::format(", \"problem\": {}", text::json_string(row.problem));
  if (row.round_trip) text += fmt::format(", \"round_trip_ms\": {:.3f}", row.milliseconds());
  if (const std::string site = row.site(); !site.empty())
    text += fmt::format(", \"site\": {}", text::json_string(site));
  if (row.was_measured())
    text += fmt::format(", \"speed\": {:g}, \"speed_age_s\": {}", row.known.speed, row.speed_age());
  if (row.was_seen()) {
    text += fmt::format(
        ", \"age_s\": {}, \"name\": {}, \"kernel\": {}, \"architecture\": {}, \"cpu\": {}, \"cores\": {:g}, "
        "\"memory_bytes\": {}, \"free_bytes\": {}, \"load\": [{:g}, {:g}, {:g}], \"gpus\": {}, \"modules\": {}, "
        "\"version\": {}, \"keeper\": {}, \"running\": {}, \"started\": {}, \"strangers\": {}",
        row.age(), text::json_string(facts.host), text::json_string(facts.kernel),
        text::json_string(facts.architecture), text::json_string(facts.cpu_model), facts.cores, facts.memory_bytes,
        facts.free_bytes, facts.load1, facts.load5, facts.load15, json_texts(facts.gpus), json_texts(facts.modules),
        text::json_string(facts.version), facts.keeper, facts.runs, facts.started, facts.strangers);
  }
  return text + "}";
}

/// Measures how fast these hosts are, all at once. What goes wrong, the user is told.
void measure_speeds(const Pool& pool, const std::vector<std::size_t>& hosts, std::vector<Pool::Known>& known) {
  const HostWork work{
      .words =
          [&](std::size_t i) {
            const cluster::ClusterHost& host = pool.hosts()[i].host;
            const std::string& threads = host.threads;
            return std::vector<std::string>{"--speed", fmt::format("{}", static_cast<unsigned>(host.speed.kind)),
                                            fmt::format("{}", host.speed.number), host.speed.command,
                                            threads.empty() ? pool.cluster().options.get("threads") : threads};
          },
      .here =
          [&](std::size_t i, const os::Ends& ends, pool::LaneSource* /*lanes*/) {
            ::fcntl(ends.reader.get(), F_SETFL, 0);  // it would not wait
            const double speed = std::strtod(os::read_all(ends.reader.get()).value_or("").c_str(), nullptr);
            if (speed > 0) known[i].speed = speed;  // else the host has said what is wrong
            if (speed > 0) known[i].speed_at = now_in_seconds();
            return std::vector<std::string>();
          }};
  static_cast<void>(run_on_hosts(pool, hosts, work));
}

/// Asks all hosts of a pool at once.
std::vector<Row> ask_hosts(const Pool& pool, bool speed) {
  const auto answers = pool::facts_of(pool.ways(), pool.cluster().options.peer_timeout, true);
  std::vector<Pool::Known> known = pool.known();
  std::vector<std::size_t> standing;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].facts) note(known[i], *answers[i].facts);
    if (problem_of(answers[i]).empty()) standing.push_back(i);
  }
  if (speed) measure_speeds(pool, standing, known);
  pool.keep(known);
  const std::int64_t now = now_in_seconds();
  std::vector<Row> rows;
  for (std::size_t i = 0; i < answers.size(); ++i)
    rows.push_back({pool, i, known[i], problem_of(answers[i]), answers[i].round_trip, now});
  return rows;
}

}  // namespace

int pool_hosts(const std::string& name, bool json, bool speed) {
  std::vector<Pool> pools;
  if (!name.empty()) {
    pools.push_back(Pool::open(name));
  } else {
    for (const std::string& each : Pool::names()) pools.push_back(Pool::open(each));
  }
  std::vector<TableRow> lines{host_columns};
  std::string objects;
  bool all_stand = true;
  for (const Pool& pool : pools) {
    for (const Row& row : ask_hosts(pool, speed)) {
      all_stand = all_stand && row.problem.empty();
      if (json) {
        objects += (objects.empty() ? "" : ",\n ") + json_of(row);
      } else {
        lines.push_back(cells_of(row));
      }
    }
  }
  std::string text = "there is no pool: apctl up -f FILE makes one\n";
  if (json) {
    text = fmt::format("[{}]\n", objects);
  } else if (!pools.empty()) {
    text = table(lines);
  }
  const int status = print("apctl", text);
  return status == 0 && !all_stand ? static_cast<int>(ExitStatus::program_failed) : status;
}

}  // namespace aplib::launch::ctl
