// SPDX-License-Identifier: MIT
#include "launch/net/net.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "kernel/programs.hpp"
#include "launch/coordinator/coordinator.hpp"
#include "launch/ctl/door.hpp"
#include "launch/net/matrix.hpp"
#include "launch/net/report.hpp"
#include "launch/net/tournament.hpp"
#include "launch/output.hpp"
#include "launch/pool/pool.hpp"
#include "launch/program_run.hpp"
#include "launch/start/starter.hpp"
#include "launch/terminal.hpp"
#include "launch/this_host.hpp"
#include "launch/watchdog.hpp"
#include "launch/wire/files.hpp"

namespace aplib::launch::net {
namespace {

constexpr const char* who = "apctl";
constexpr int partly = static_cast<int>(ExitStatus::program_failed);
constexpr const char* no_answer = "no result came";

/// As in aprun: the coordinator cleans up for some seconds on hosts that do not answer.
constexpr std::chrono::seconds watchdog_grace{10};

/// Hosts as they are measured: one process with one cell each, without anything else that the file asks for.
cluster::Cluster plain(cluster::Cluster cluster) {
  std::vector<cluster::ClusterHost> hosts;
  for (cluster::ClusterHost& host : cluster.hosts) {
    if (host.number > 1) continue;  // another process of the host before
    host.cells = 1;
    host.threads.clear();
    host.process = false;
    hosts.push_back(std::move(host));
  }
  cluster.hosts = std::move(hosts);
  cluster.files.clear();
  cluster.program.clear();
  cluster.host_program.clear();
  cluster.args.clear();
  cluster.options.set("threads", "1");
  return cluster;
}

std::vector<std::string> names_of(const cluster::Cluster& cluster) {
  std::vector<std::string> names;
  for (const cluster::ClusterHost& host : cluster.hosts) names.push_back(host.name);
  return names;
}

/// Where net-probe lies in the installation of that aprun.
std::string probe_beside(const std::string& aprun) {
  return std::filesystem::path(aprun).parent_path().parent_path() / "lib/aplib/net-probe";
}

/// Why a machine has ended, without what that means for the machine.
std::string cause_of(const coordinator::JobResult& result) {
  std::string cause = result.reason;
  for (const std::string_view end : {"; nothing was started", "; the machine stops"})
    if (cause.ends_with(end)) cause.resize(cause.size() - end.size());
  return cause;
}

/// Gives what is written to a pipe to `take`, line by line, on a thread of its own.
class LineReader {
 public:
  explicit LineReader(std::function<void(std::string_view line)> take)
      : pipe_(os::Pipe::make()), thread_([this, take = std::move(take)] { read(take); }) {}
  ~LineReader() { finish(); }
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  [[nodiscard]] int descriptor() const { return pipe_.writer.get(); }
  /// Nobody writes any more. Returns when all lines are taken.
  void finish() {
    pipe_.writer.reset();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void read(const std::function<void(std::string_view)>& take) {
    std::string open;
    std::array<char, 4096> bytes{};
    for (;;) {
      const ssize_t count = ::read(pipe_.reader.get(), bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return;
      open.append(bytes.data(), static_cast<std::size_t>(count));
      for (std::size_t end = open.find('\n'); end != open.npos; end = open.find('\n')) {
        take(std::string_view(open).substr(0, end));
        open.erase(0, end + 1);
      }
    }
  }

  os::Pipe pipe_;
  std::thread thread_;
};

/// A file that is not whole shall not look so.
void remove_part(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) std::filesystem::remove(path, error);
}

/// A file that the user wants. It is opened before anything is measured.
class ResultFile {
 public:
  explicit ResultFile(const std::string& path) : path_(path) {
    if (path.empty()) return;
    stream_.open(path);
    if (!stream_)
      throw Error(Errc::bad_option, fmt::format("the file {} cannot be written: {}", path, os::text_of(errno)));
  }
  /// Throws Error(failed).
  void write(const std::string& text) {
    if (path_.empty()) return;
    stream_ << text << std::flush;
    if (stream_) return;
    const std::string why = os::text_of(errno);
    remove_part(path_);
    throw Error(Errc::failed, fmt::format("the file {} cannot be written: {}", path_, why));
  }

 private:
  std::string path_;
  std::ofstream stream_;
};

void check_gnuplot() {
  if (std::system("command -v gnuplot > /dev/null 2>&1") != 0)
    throw Error(Errc::bad_option,
                "--png needs the program gnuplot, which is not in PATH: install it (package gnuplot-nox)");
}

/// Throws Error(failed).
void draw(const Matrix& matrix, const std::string& path) {
  std::FILE* const gnuplot = ::popen("gnuplot", "w");
  const std::string script = picture_script(matrix, path);
  const bool written = gnuplot != nullptr && std::fwrite(script.data(), 1, script.size(), gnuplot) == script.size();
  if (gnuplot == nullptr || ::pclose(gnuplot) != 0 || !written)
    throw Error(Errc::failed, fmt::format("gnuplot could not draw {}", path));
  // It does not tell when a disk is full.
  constexpr std::string_view last_chunk("IEND\xae\x42\x60\x82");
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error) || os::read_file(path).value_or("").ends_with(last_chunk)) return;
  remove_part(path);
  throw Error(Errc::failed, fmt::format("gnuplot could not write all of {}: is the disk full?", path));
}

/// Runs machines until each pair is measured or given up.
class Campaign {
 public:
  Campaign(const Request& request, cluster::Cluster cluster, std::string aprun)
      : seconds_(request.seconds),
        cluster_(std::move(cluster)),
        aprun_(std::move(aprun)),
        matrix_(names_of(cluster_)),
        strikes_(matrix_.hosts()) {}

  /// Returns an exit status.
  int run() {
    while (const auto round = matrix_.open_round()) {
      const coordinator::JobResult result = run_machine(*round);
      if (stopped_) return *stopped_;
      if (result.reason.empty()) {
        give_up_open_pairs(no_answer);
      } else if (!learn(result)) {
        return result.status;
      }
    }
    return matrix_.is_complete() ? 0 : partly;
  }

  [[nodiscard]] const Matrix& matrix() const { return matrix_; }

 private:
  /// With all hosts that take part, from that round on.
  coordinator::JobResult run_machine(std::uint32_t round) {
    coordinator::Job job = make_job(round);
    round_.reset();
    std::vector<std::string> said;
    LineReader reader([this](std::string_view line) { take(line); });
    Output output({}, reader.descriptor());
    coordinator::Coordinator coordinator(std::move(job), output, start::make_starter(),
                                         {.say = [&said](const std::string& line) { said.push_back(line); }});
    Watchdog watchdog({}, {.stop = [&](int status, const std::string& text) { coordinator.stop(status, text); },
                           .last_words = {},
                           .grace = watchdog_grace});
    std::optional<ctl::RegistryDoor> door(std::in_place, ctl::machine_verbs(coordinator, cluster_.options));
    const coordinator::JobResult result = coordinator.run();
    door.reset();
    watchdog.finish();
    output.end_all();
    reader.finish();
    stopped_ = watchdog.status();
    for (const std::string& line : said)
      if (stopped_ || line != result.reason) tell_user(who, line);
    return result;
  }

  coordinator::Job make_job(std::uint32_t round) {
    coordinator::Job job;
    std::vector<std::string> arguments{std::to_string(matrix_.hosts()), std::to_string(round),
                                       fmt::format("{}", seconds_)};
    playing_.clear();
    job.cluster = cluster_;
    job.cluster.hosts.clear();
    for (std::uint32_t host = 0; host < matrix_.hosts(); ++host) {
      if (!matrix_.problem(host).empty()) continue;
      playing_.push_back(host);
      job.cluster.hosts.push_back(cluster_.hosts[host]);
      arguments.push_back(std::to_string(host));
    }
    job.cluster.grid = Grid{static_cast<std::uint32_t>(playing_.size()), 1};
    job.text.programs.push_back({.file = 0, .name = "net-probe", .arguments = std::move(arguments)});
    const std::vector<std::string> files{probe_beside(aprun_)};
    Options options = cluster_.options;
    options.cells = {1, 1};
    const ProgramSummary summary = summarize_program(options, make_run(job.text, files));
    job.files = wire::describe_files({summary.path});
    for (const ProgramSummary::File& library : summary.libraries)
      if (library.separate) std::ranges::move(wire::describe_files({library.path}), std::back_inserter(job.files));
    job.aprun = aprun_;
    job.reach = coordinator::find_reach(job.cluster.hosts);
    return job;
  }

  /// The reader's thread, while the machine runs.
  void take(std::string_view line) {
    if (const auto round = read_round(line)) round_ = std::max(round_.value_or(0), *round);
    if (const auto measurement = read_measurement(line)) matrix_.add(*measurement);
  }

  /// What the end of a machine says of its hosts. Each call gives up a pair or a host. False: it says nothing, and all
  /// pairs are given up.
  bool learn(const coordinator::JobResult& result) {
    bool learned = false;
    const std::string why = cause_of(result);
    for (const std::uint32_t process : result.lost) {
      const std::uint32_t host = playing_.at(process);
      // It may be the path to the one that it has just met. If its host is dead, the next machine's start says so.
      const auto partner = round_ ? partner_of(matrix_.hosts(), *round_, host) : std::nullopt;
      const bool is_first = ++strikes_[host] == 1;
      if (is_first && partner && matrix_.is_open(host, *partner)) {
        matrix_.lose(host, *partner, why);
      } else {
        matrix_.lose(host, why);
        tell_user(who, fmt::format("{} is left out: {}", matrix_.name(host), why));
      }
      learned = true;
    }
    if (!learned && round_) learned = give_up_round(*round_, why);
    if (!learned) {
      tell_user(who, result.reason);
      give_up_open_pairs(why);
    }
    return learned;
  }

  bool give_up_round(std::uint32_t round, const std::string& why) {
    bool any = false;
    for (const std::uint32_t host : playing_) {
      const auto partner = partner_of(matrix_.hosts(), round, host);
      if (!partner || !matrix_.is_open(host, *partner)) continue;
      matrix_.lose(host, *partner, why);
      any = true;
    }
    return any;
  }

  void give_up_open_pairs(const std::string& why) {
    while (const auto round = matrix_.open_round()) give_up_round(*round, why);
  }

  double seconds_;
  cluster::Cluster cluster_;
  std::string aprun_;
  Matrix matrix_;
  std::vector<int> strikes_;            // by host: how often it was lost while it measured
  std::vector<std::uint32_t> playing_;  // by process of the last machine: the host
  std::optional<std::uint32_t> round_;  // the last one that any host of the last machine has begun
  std::optional<int> stopped_;          // by the user
};

}  // namespace

std::optional<int> read_request(int count, const char* const* words, Request& into) {
  CLI::App app("Measures round trips and rates between all hosts of a cluster file or a pool, each pair both ways.",
               "apctl net");
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format("apctl: net: {}\nRun with --help for more information.\n", error.what());
  });
  app.add_option("-f,--file", into.file, "The cluster file.")->option_text("FILE");
  app.add_option("POOL", into.pool, "Or a pool that stands (apctl up).")
      ->option_text(" ")
      ->check([](const std::string& text) { return pool::Pool::name_problem(text); });
  app.add_option("--json", into.json, "Writes the results to this file, too.")->option_text("FILE");
  app.add_option("--png", into.picture, "Draws the results as a picture, by gnuplot.")->option_text("FILE");
  app.add_option("--seconds", into.seconds, "How long a stream of messages is measured; default: 2.")
      ->option_text("S")
      ->check(CLI::Range(0.1, 60.0));
  try {
    app.parse(count, words);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? finish_output(who) : static_cast<int>(ExitStatus::usage);
  }
  if (into.file.empty() == into.pool.empty()) {
    tell_user(who, into.pool.empty() ? "net: no hosts are named: apctl net -f FILE, or apctl net POOL"
                                     : "net: -f and a pool both name hosts: leave one of them out");
    return static_cast<int>(ExitStatus::usage);
  }
  return std::nullopt;
}

int measure_network(const Request& request, const cluster::Cluster& cluster, const std::string& aprun) {
  Campaign campaign(request, plain(cluster), aprun);
  const std::uint32_t hosts = campaign.matrix().hosts();
  if (hosts < 2) {
    throw Error(Errc::bad_option,
                fmt::format("{}: it names one host alone: a network takes two; name another one", cluster.file));
  }
  ResultFile json(request.json);
  if (!request.picture.empty()) check_gnuplot();
  allow_many_files();
  constexpr double beside_stream = 0.5;  // round trips, and what is still under way
  tell_user(who, fmt::format("{} pairs of {} hosts in {} rounds take about {:.0f} s", hosts * (hosts - 1) / 2, hosts,
                             rounds_of(hosts), rounds_of(hosts) * 2 * (request.seconds + beside_stream)));
  int status = campaign.run();
  const Matrix& matrix = campaign.matrix();
  const int written = print(who, text_report(matrix));
  if (status == 0) status = written;
  json.write(json_report(matrix, cluster.file, request.seconds));
  if (!request.picture.empty()) draw(matrix, request.picture);
  return status;
}

}  // namespace aplib::launch::net
