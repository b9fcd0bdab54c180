// SPDX-License-Identifier: MIT
#include "launch/ctl/pool_verbs.hpp"
#include "base/os/own_folder.hpp"

#include <fcntl.h>
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
#include <chrono>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "base/text.hpp"
#include "launch/files/manifest.hpp"
#include "launch/pool/batch_job.hpp"
#include "launch/pool/file_pipe.hpp"
#include "launch/pool/file_tree.hpp"
#include "launch/pool/on_hosts.hpp"
#include "launch/pool/pool.hpp"
#include "launch/start/launch_method.hpp"
#include "launch/start/started.hpp"
#include "launch/terminal.hpp"
#include "launch/this_host.hpp"

namespace aplib::launch::ctl {

using namespace std::chrono_literals;

namespace {

namespace fs = std::filesystem;
using cluster::LaunchKind;
using pool::Pool;

constexpr auto end_patience = 10s;

void say(const std::string& line) { tell_user("apctl", line); }

std::string plural(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

int tell_repair(const Pool& pool, bool is_new) {
  const pool::Repair done = pool::repair(pool, "apctl");
  for (const auto& [i, problem] : done.problems) say(problem);
  const std::size_t all = pool.hosts().size();
  const std::size_t stand = all - done.problems.size();
  std::string text = fmt::format("pool {}: {}", pool.name(), done.problems.empty() ? plural(all, "host") : "");
  if (!done.problems.empty()) text += fmt::format("{} of {}", stand, plural(all, "host"));
  text += stand == 1 && all == 1 ? " stands ready" : " stand ready";
  if (!is_new && done.missing != 0 && done.missing != done.problems.size())
    text += fmt::format("; repaired: {}", done.missing - done.problems.size());
  if (!done.problems.empty()) text += fmt::format("; apctl up {} tries the others again", pool.name());
  const int status = print("apctl", printable(text + "\n"));
  return done.problems.empty() ? status : static_cast<int>(ExitStatus::program_failed);
}

pool::PoolLock locked(const std::string& name) {
  const WaitNote note("apctl", fmt::format("pool {}: waits for another apctl up or down of it", name));
  return pool::PoolLock(name);
}

std::string read_text(const std::string& file) {
  const WaitNote note("apctl", wait_text(file));
  auto text = os::read_file(file);
  if (!text)
    throw Error(Errc::bad_option, fmt::format("cannot read the cluster file {}: {}", file, os::text_of(errno)));
  return *std::move(text);
}

}  // namespace

namespace {

/// A pool of the job in which this process is, or of one that is submitted. The job that an earlier pool of that name
/// had inside of an allocation may be over.
int up_in_job(const std::string& name, const std::string& text, const UpRequest& request, pool::BatchJob job) {
  if (Pool::exists(name)) {
    const Pool before = Pool::open(name);
    const bool is_over = before.job() && before.job()->state().kind == pool::BatchState::Kind::ended;
    if (!is_over && job.number.empty())
      throw Error(Errc::bad_option, fmt::format("pool {} stands already: apctl down {} ends it, or --name gives this "
                                                "one another name",
                                                name, name));
    if (!is_over && !(before.job() && before.job()->number == job.number))
      throw Error(Errc::bad_option, fmt::format("pool {} stands already, elsewhere than in {}: apctl down {} ends it, "
                                                "or --name gives this one another name",
                                                name, job.text(), name));
    if (!is_over) return tell_repair(before, false);
    for (std::size_t i = 0; i < before.hosts().size(); ++i) before.end_masters(i);
    before.remove();
  }
  const std::string file = request.file.empty() ? "the job of pool " + name : fs::absolute(request.file).string();
  const Pool pool = Pool::make_in_job(name, text, file, std::move(job), request.options,
                                      fs::path(os::own_program()).parent_path().string());
  if (!pool.job()->submitted) return tell_repair(pool, true);
  return print("apctl", printable(fmt::format("pool {}: {} is submitted, and writes to {}; apctl hosts {} says whether "
                                              "it has begun\n",
                                              name, pool.job()->text(), pool.job()->file("output"), name)));
}

/// Where both the launcher's computer and the job see the job's files.
std::string shared_folder(const std::string& given) {
  const char* const home = std::getenv("HOME");
  if (given.empty() && (home == nullptr || home[0] != '/'))
    throw Error(Errc::bad_option, "HOME is not set: --folder FOLDER says where the hosts of the job find its files");
  const std::string folder = given.empty() ? std::string(home) + "/.aplib" : fs::absolute(given).string();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw Error(Errc::failed,
                fmt::format("cannot make the folder {}: {}; --folder names another one", folder, error.message()));
  return folder;
}

}  // namespace

int pool_up(const UpRequest& request) {
  const std::string name = request.name.empty() ? fs::path(request.file).stem().string() : request.name;
  if (const std::string problem = Pool::name_problem(name); !problem.empty())
    throw Error(Errc::bad_option, problem + (request.file.empty() ? "" : "; --name gives another one"));
  if (request.submit.empty() && !(request.options.empty() && request.folder.empty()))
    throw Error(Errc::bad_option, "--folder and the words behind -- are for --submit");
  const pool::PoolLock lock = locked(name);
  if (!request.submit.empty()) {
    const std::string text = request.file.empty() ? "" : read_text(request.file);
    return up_in_job(name, text, request,
                     {.system = pool::batch_system(request.submit), .folder = shared_folder(request.folder)});
  }
  if (request.file.empty()) {
    const Pool pool = Pool::open(name);
    pool::check_job(pool);
    return tell_repair(pool, false);
  }
  const std::string text = read_text(request.file);
  const std::string file = fs::absolute(request.file).string();
  const cluster::Cluster cluster = cluster::parse_cluster(text, file, Options::from_environment());
  if (cluster.hosts.empty() && cluster.defaults.launch == LaunchKind::slurm) {
    if (const std::string problem = start::slurm_hindrance(); !problem.empty())
      throw Error(Errc::bad_option,
                  fmt::format("{}: {}; apctl up --submit gives a pool a job of its own", file, problem));
    return up_in_job(name, text, request, {.system = pool::BatchSystem::slurm, .number = std::getenv("SLURM_JOB_ID")});
  }
  if (Pool::exists(name)) {
    const Pool pool = Pool::open(name);
    if (pool.text() != text || pool.job()) {
      throw Error(Errc::bad_option,
                  fmt::format("pool {} stands already, by another content of its cluster file: apctl down {} ends it, "
                              "or --name gives this one another name",
                              name, name));
    }
    return tell_repair(pool, false);
  }
  return tell_repair(Pool::make(name, text, file), true);
}

int pool_down(const std::string& name) {
  const pool::PoolLock lock = locked(name);
  const Pool pool = Pool::open(name);
  const std::vector<pool::KeeperAddress> ways = pool.ways();
  std::vector<std::string> problems(ways.size());
  std::vector<std::future<void>> ends;  // all at once, as long as there are threads
  for (std::size_t i = 0; i < ways.size(); ++i) {
    ends.push_back(std::async(std::launch::async | std::launch::deferred, [&, i] {
      problems[i] = pool::end_keeper(ways[i], end_patience);
      pool.end_masters(i);
    }));
  }
  for (const std::future<void>& each : ends) each.wait();
  int status = 0;
  const auto complain = [&](const std::string& text) {
    status = static_cast<int>(ExitStatus::program_failed);
    say(text);
  };
  if (pool.job() && pool.job()->submitted) {
    // Its keepers end with it, also those to which no way leads.
    if (const std::string problem = pool.job()->cancel(); !problem.empty())
      complain(fmt::format("{} may go on: {}", pool.job()->text(), problem));
  } else {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      if (problems[i].empty()) continue;
      const std::string when = pool.cluster().keeper_idle.count() == 0
                                   ? ""
                                   : fmt::format(" after {}", text::print_duration(pool.cluster().keeper_idle));
      complain(fmt::format("host '{}': {}; a keeper that still stands there ends by itself{}", pool.hosts()[i].name,
                           problems[i], when));
    }
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
  const pool::HostWork work{
      .words =
          [&](std::size_t i) {
            const cluster::ClusterHost& host = pool.hosts()[i].host;
            const std::string& threads = host.threads;
            return std::vector<std::string>{"--speed", fmt::format("{}", static_cast<unsigned>(host.speed.kind)),
                                            fmt::format("{}", host.speed.number), host.speed.command,
                                            threads.empty() ? pool.cluster().options.get("threads") : threads};
          },
      .here =
          [&](std::size_t i, const os::Ends& ends, const pool::LaneMaker& /*lanes*/) {
            ::fcntl(ends.reader.get(), F_SETFL, 0);  // it would not wait
            const double speed = std::strtod(os::read_all(ends.reader.get()).value_or("").c_str(), nullptr);
            if (speed > 0) known[i].speed = speed;  // else the host has said what is wrong
            if (speed > 0) known[i].speed_at = pool::now_in_seconds();
            return std::vector<std::string>();
          }};
  static_cast<void>(pool::run_on_hosts(pool, hosts, work));
}

/// Asks all hosts of a pool at once.
std::vector<Row> ask_hosts(const Pool& pool, bool speed) {
  const auto answers = pool::facts_of(pool.ways(), pool.cluster().options.peer_timeout, true);
  std::vector<Pool::Known> known = pool.known();
  std::vector<std::size_t> standing;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].facts) pool::note(known[i], *answers[i].facts);
    if (pool::problem_of(answers[i]).empty()) standing.push_back(i);
  }
  if (speed) measure_speeds(pool, standing, known);
  pool.keep(known);
  const std::int64_t now = pool::now_in_seconds();
  std::vector<Row> rows;
  for (std::size_t i = 0; i < answers.size(); ++i)
    rows.push_back({pool, i, known[i], pool::problem_of(answers[i]), answers[i].round_trip, now});
  return rows;
}

}  // namespace

int pool_hosts(const std::string& name, bool json, bool speed) {
  std::vector<Pool> pools;
  bool all_stand = true;
  for (const std::string& each : name.empty() ? Pool::names() : std::vector{name}) {
    try {
      pools.push_back(Pool::reach(each));
    } catch (const Error& error) {
      if (error.code() != Errc::failed) throw;
      say(error.what());  // its job has no hosts now
      all_stand = false;
    }
  }
  std::vector<TableRow> lines{host_columns};
  std::string objects;
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
  std::string text = all_stand ? "there is no pool: apctl up -f FILE makes one\n" : "";
  if (json) {
    text = fmt::format("[{}]\n", objects);
  } else if (!pools.empty()) {
    text = table(lines);
  }
  const int status = print("apctl", text);
  return status == 0 && !all_stand ? static_cast<int>(ExitStatus::program_failed) : status;
}

namespace {

[[noreturn]] void refuse_words(const std::string& text) { throw Error(Errc::bad_argument, text); }

std::string names_of_hosts(const Pool& pool) {
  std::vector<std::string_view> names;
  for (const pool::PoolHost& each : pool.hosts()) names.push_back(each.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

/// POOL:PATH or POOL:HOST:PATH.
struct Place {
  Pool pool;
  std::vector<std::size_t> hosts{};  ///< Of the pool's.
  std::string path{};
  bool names_host = false;
};

Place place_of(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == text.npos || colon + 1 == text.size())
    refuse_words(fmt::format("{}: not a place in a pool: write POOL:PATH, or POOL:HOST:PATH", text));
  Place place{.pool = Pool::reach(text.substr(0, colon)), .path = text.substr(colon + 1)};
  const std::size_t second = place.path.find(':');
  const std::string host = place.path.substr(0, second);
  for (std::size_t i = 0; i < place.pool.hosts().size(); ++i) {
    const pool::PoolHost& each = place.pool.hosts()[i];
    const bool is_meant = second != place.path.npos && std::ranges::any_of(each.members, [&](std::size_t member) {
                            return place.pool.cluster().hosts[member].name == host;
                          });
    if (is_meant) place.hosts.push_back(i);
  }
  place.names_host = !place.hosts.empty();
  if (place.names_host) {
    place.path.erase(0, second + 1);
  } else if (second != place.path.npos && host.find('/') == host.npos) {
    refuse_words(fmt::format("pool {} has no host {}: it has {}; if a path is meant, write {}:./{}", place.pool.name(),
                             host, names_of_hosts(place.pool), place.pool.name(), place.path));
  }
  if (place.path == "~" || place.path.starts_with("~/")) {
    refuse_words(
        fmt::format("{}: nobody expands ~ there: write a path from /, or one from the home folder of the hosts, "
                    "as {}",
                    text, place.path.size() > 2 ? place.path.substr(2) : "."));
  }
  if (!place.names_host)
    for (std::size_t i = 0; i < place.pool.hosts().size(); ++i) place.hosts.push_back(i);
  return place;
}

}  // namespace

int put_files(std::vector<std::string> words, files::Existing existing) {
  if (words.size() < 2) refuse_words("files and a place are needed: apctl put FILE... POOL[:HOST]:FOLDER");
  const Place place = place_of(words.back());
  words.pop_back();
  std::vector<files::Source> sources;
  for (const std::string& word : words) {
    // As cp has it: the last name counts, and a folder's content for "." and what ends in a slash.
    const std::filesystem::path path = std::filesystem::absolute(word).lexically_normal();
    sources.push_back({word, (path.has_filename() ? path : path.parent_path()).filename().string()});
  }
  const auto manifest = std::make_shared<const files::Manifest>(files::gather(sources, describe_this_host().host_id));
  if (!manifest->problems.empty()) refuse_words(fmt::format("{}", fmt::join(manifest->problems, "\n")));
  const bool all_well =
      pool::send_files(place.pool, place.hosts, {.manifest = manifest, .folder = place.path, .existing = existing});
  return all_well ? 0 : static_cast<int>(ExitStatus::program_failed);
}

int get_files(std::vector<std::string> words) {
  if (words.size() < 2) refuse_words("a place and a folder are needed: apctl get POOL[:HOST]:PATTERN... FOLDER");
  const std::string folder = words.back();
  words.pop_back();
  bool all_well = true;
  for (const std::string& word : words) {
    const Place place = place_of(word);
    const auto into = [&](std::size_t host) {
      // Hosts may have files of the same name.
      return place.names_host || place.hosts.size() == 1 ? folder : folder + "/" + place.pool.hosts()[host].name;
    };
    const auto receive = [&](std::size_t host, const os::Ends& ends, const pool::LaneMaker& make_lanes) {
      files::Receiver receiver({.folder = into(host),
                                .existing = files::Existing::replace,
                                .resume = true,
                                .host = describe_this_host().host_id});
      const auto lanes = make_lanes();
      return pool::carry(receiver, ends, lanes.get());
    };
    const auto words_there = [&](std::size_t host) {
      std::vector<std::string> words_there{"--serve", place.path};
      if (auto names = files::names_in(into(host))) words_there.push_back(std::move(*names));
      return words_there;
    };
    all_well &=
        pool::run_on_hosts(place.pool, place.hosts, {.words = words_there, .here = receive, .takes_lanes = true});
  }
  return all_well ? 0 : static_cast<int>(ExitStatus::program_failed);
}

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
    using Clock = std::chrono::steady_clock;
    const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(start_.host.keeper_patience);
    while (!words_.end().told && !words_ended_) {
      std::array polled{in.wish(), out.wish(), pollfd{.fd = program_->end_fd(), .events = POLLIN, .revents = 0}};
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
      const int patience = words_.end().began ? -1 : static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX));
      const int ready = ::poll(polled.data(), polled.size(), patience);
      if (ready == 0) throw Error(Errc::failed, method_->not_executed(start_, start::keeper_silence(start_)));
      if (ready < 0) continue;
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
    if (at == pool.hosts().end())
      refuse_words(fmt::format("pool {} has no host {}: it has {}", pool.name(), wanted, names_of_hosts(pool)));
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
