// SPDX-License-Identifier: MIT
#include "launch/web/watcher.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/cell_map.hpp"
#include "base/farm_tally.hpp"
#include "base/text.hpp"
#include "launch/ctl/registry.hpp"
#include "launch/wire/status.hpp"

namespace aplib::launch::web {
namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;
using Clock = std::chrono::steady_clock;
using Words = std::vector<std::string>;
using text::json_string;

constexpr std::chrono::seconds look_again{1};
constexpr std::chrono::seconds look_again_alone{10};  // while nobody looks
constexpr std::chrono::seconds somebody_looks_for{10};
constexpr std::chrono::seconds tasks_again{2};
constexpr std::chrono::seconds answer_patience{10};
constexpr std::size_t answer_bytes_max = std::size_t{16} << 20;

// What one page may have to show.
constexpr std::size_t machines_max = 32;
constexpr std::size_t farms_max = 32;
constexpr std::size_t ended_max = 16;
constexpr std::size_t processes_max = 512;
constexpr std::size_t tasks_max = 2048;
constexpr std::size_t task_text_max = 400;
constexpr std::size_t samples_max = 300;
constexpr std::size_t events_max = 200;

constexpr const char* gone_without_a_word = "its process has gone without a word";

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// A request to one job, and its reply, without blocking.
class Question : public std::enable_shared_from_this<Question> {
 public:
  /// `gone`: nobody listens there any more. No reply, and not gone: it does not answer.
  using Answer = std::function<void(std::optional<ctl::Reply> reply, bool gone)>;

  Question(wire::EventLoop& loop, Answer answer)
      : loop_(loop), socket_(loop.io()), patience_(loop), answer_(std::move(answer)) {}

  static void ask(wire::EventLoop& loop, const std::string& path, const Words& words, Answer answer) {
    std::make_shared<Question>(loop, std::move(answer))->begin(path, words);
  }

 private:
  void begin(const std::string& path, const Words& words) {
    const auto self = shared_from_this();
    patience_.start(answer_patience, [self] { self->end(std::nullopt, false); });
    const ctl::RegistrySocket made = ctl::RegistrySocket::make();
    ::fcntl(made.descriptor(), F_SETFL, O_NONBLOCK);  // one that is stopped, and has many callers, takes no more
    const bool connected = made.connect(path) == 0;
    const bool gone = !connected && (errno == ENOENT || errno == ECONNREFUSED);
    os::UniqueFd copy(connected && made.peer_user() == ::getuid() ? ::fcntl(made.descriptor(), F_DUPFD_CLOEXEC, 3)
                                                                  : -1);
    ErrorCode error = asio::error::not_connected;
    if (copy) socket_.assign(asio::local::stream_protocol(), copy.get(), error);
    if (error) return loop_.post([self, gone] { self->end(std::nullopt, gone); });
    static_cast<void>(copy.release());
    const wire::Bytes request = wire::encode(ctl::Request{words});
    ByteWriter whole;
    whole.number(static_cast<std::uint32_t>(request.size()));
    whole.raw(request);
    bytes_ = whole.take();
    asio::async_write(socket_, asio::buffer(bytes_), [self](const ErrorCode& failed, std::size_t) {
      failed ? self->end(std::nullopt, false) : self->read_head();
    });
  }

  void read_head() {
    bytes_.resize(sizeof(std::uint32_t));
    asio::async_read(socket_, asio::buffer(bytes_), [self = shared_from_this()](const ErrorCode& failed, std::size_t) {
      const auto size = ByteReader(self->bytes_).number<std::uint32_t>();
      failed || size > answer_bytes_max ? self->end(std::nullopt, false) : self->read_body(size);
    });
  }

  void read_body(std::size_t size) {
    bytes_.resize(size);
    asio::async_read(socket_, asio::buffer(bytes_), [self = shared_from_this()](const ErrorCode& failed, std::size_t) {
      self->end(failed ? std::nullopt : wire::decode<ctl::Reply>(self->bytes_), false);
    });
  }

  void end(std::optional<ctl::Reply> reply, bool gone) {
    patience_.cancel();
    ErrorCode ignored;
    socket_.close(ignored);
    if (const Answer answer = std::exchange(answer_, nullptr)) answer(std::move(reply), gone);
  }

  wire::EventLoop& loop_;
  asio::local::stream_protocol::socket socket_;
  wire::Timer patience_;
  Answer answer_;
  wire::Bytes bytes_;
};

/// A line of apctl tasks.
struct TaskLine {
  std::uint32_t cell = 0;
  std::string text{};  ///< "task 0: waits in ..."
};

struct Tasks {
  std::vector<TaskLine> lines{};
  std::vector<std::string> remarks{};  ///< Lines that are no task's.
  std::string cells{};                 ///< A letter for each cell: Running, Sleeping, Waiting, Ended, or ? not known.
};

/// How awake the letters' cells are. A cell is as its most wakeful task.
constexpr std::string_view wakefulness = "?EWSR";

char letter_of(std::string_view state) {
  if (state.starts_with("runs") || state.starts_with("is ready")) return 'R';
  return state.starts_with("sleeps") ? 'S' : 'W';
}

/// "cell 12 task 0: waits in ...".
std::optional<TaskLine> parse_task(std::string_view line, char& letter) {
  constexpr std::string_view head = "cell ";
  if (!line.starts_with(head)) return std::nullopt;
  TaskLine task;
  const auto [end, error] = std::from_chars(line.data() + head.size(), line.data() + line.size(), task.cell);
  if (error != std::errc() || end == line.data() + line.size() || *end != ' ') return std::nullopt;
  const std::string_view rest = line.substr(static_cast<std::size_t>(end - line.data()) + 1);
  const std::size_t colon = rest.find(": ");
  if (colon == rest.npos || !(rest.starts_with("task ") || rest.starts_with("thread "))) return std::nullopt;
  letter = letter_of(rest.substr(colon + 2));
  task.text = rest.substr(0, task_text_max);
  return task;
}

/// "ended already: cell 3 (status 1), cell 4".
void note_ended(std::string_view line, std::string& cells) {
  for (std::size_t at = line.find("cell "); at != line.npos; at = line.find("cell ", at + 1)) {
    std::uint32_t cell = 0;
    std::from_chars(line.data() + at + 5, line.data() + line.size(), cell);
    if (cell < cells.size() && cells[cell] == '?') cells[cell] = 'E';
  }
}

/// The text of apctl tasks. It is for people, so what is not understood is a remark.
Tasks parse_tasks(std::string_view text, const wire::MachineStatus& status) {
  Tasks tasks;
  tasks.cells.assign(status.cells.cells(), '?');
  std::string_view host;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.starts_with("  ")) {
      host = line.substr(0, line.rfind(':'));
      continue;
    }
    line.remove_prefix(2);
    char letter = '?';
    if (auto task = parse_task(line, letter)) {
      if (task->cell < tasks.cells.size()) {
        char& cell = tasks.cells[task->cell];
        if (wakefulness.find(letter) > wakefulness.find(cell)) cell = letter;
      }
      if (tasks.lines.size() < tasks_max) tasks.lines.push_back(*std::move(task));
      continue;
    }
    if (line.starts_with("ended already")) note_ended(line, tasks.cells);
    if (line.starts_with("a processor that computes")) {
      for (std::size_t p = 0; p < status.processes.size() && p < status.cells.processes(); ++p) {
        if (status.processes[p].name != host) continue;
        for (const std::uint32_t cell : status.cells.cells_of(static_cast<std::uint32_t>(p)))
          if (tasks.cells[cell] == '?') tasks.cells[cell] = 'R';
      }
    }
    if (tasks.remarks.size() < events_max)
      tasks.remarks.push_back(fmt::format("{}: {}", host, line.substr(0, task_text_max)));
  }
  return tasks;
}

struct Sample {
  double time;
  std::uint64_t bytes;
  std::uint64_t frames;
  std::uint64_t cpu_microseconds;
};

/// Of a process, each second since the look before.
struct Rates {
  double sent = 0;
  double received = 0;
  double cores = 0;
};

struct Machine {
  std::uint32_t job = 0;
  double begun = 0;  // wall clock, as all times here
  std::optional<double> ended{};
  std::optional<wire::MachineEnd> end{};  // nothing: it lives, or has ended without a word
  std::optional<wire::MachineStatus> status{};
  Tasks tasks{};
  std::string no_tasks{};  // why there are none
  std::deque<Sample> samples{};
  std::vector<Rates> rates{};  // by process; empty: not known yet
  bool silent = false;
  bool asked_status = false;  // under way
  bool asked_tasks = false;
  Clock::time_point status_at{};
  Clock::time_point tasks_at{};
};

struct FarmSample {
  double time;
  std::uint64_t done;
  std::uint64_t failed;
};

struct Farm {
  explicit Farm(const std::string& folder, const std::string& name)
      : id(name.substr(0, name.rfind('.'))), watch(folder, name) {
    std::from_chars(id.data(), id.data() + id.size(), process);
  }

  std::string id;
  FarmWatch watch;
  int process = 0;  // the last that was known
  std::optional<double> ended{};
  std::optional<FarmReport> report{};
  std::deque<FarmSample> samples{};
};

struct Event {
  double time;
  std::string who;
  std::string kind;  ///< begin, state, end, failure
  std::string text;
};

template <class Each, class Values>
std::string json_numbers(const std::deque<Each>& samples, Values&& value) {
  std::string list;
  for (const Each& sample : samples)
    fmt::format_to(std::back_inserter(list), "{}{}", list.empty() ? "" : ",", value(sample));
  return '[' + list + ']';
}

std::string json_strings(const std::vector<std::string>& texts) {
  std::string list;
  for (const std::string& each : texts) list += (list.empty() ? "" : ",") + json_string(each);
  return '[' + list + ']';
}

std::string process_json(const Machine& machine, std::size_t p) {
  const wire::MachineStatus& status = *machine.status;
  const Rates rates = p < machine.rates.size() && !machine.ended ? machine.rates[p] : Rates{};
  const wire::ProcessStatus& process = status.processes[p];
  std::string routes;
  for (const wire::Route& route : process.node.routes) {
    fmt::format_to(std::back_inserter(routes), R"({}{{"with":{},"by":{}}})", routes.empty() ? "" : ",",
                   json_string(route.peers), json_string(route.text.empty() ? route.module : route.text));
  }
  const bool carries = status.cells.cells() != 0 && p < status.cells.processes();
  const auto cells = carries ? status.cells.cells_of(static_cast<std::uint32_t>(p)) : std::span<const std::uint32_t>();
  return fmt::format(
      R"({{"name":{},"computer":{},"pid":{},"address":{},"state":{},"cells":{},"cell_numbers":{},"frames_sent":{},)"
      R"("frames_received":{},"bytes_sent":{},"bytes_received":{},"refused":{},"cpu_seconds":{:.3f},"sends":{:.0f},)"
      R"("receives":{:.0f},"cores_busy":{:.2f},"routes":[{}]}})",
      json_string(process.name), json_string(process.computer), process.pid, json_string(process.address),
      json_string(process.state), cells.size(), json_string(ranges_text(cells)), process.node.frames_sent,
      process.node.frames_received, process.node.bytes_sent, process.node.bytes_received, process.node.refused,
      static_cast<double>(process.node.cpu_microseconds) * 1e-6, rates.sent, rates.received, rates.cores, routes);
}

std::string tasks_json(const Machine& machine) {
  std::string lines;
  for (const TaskLine& task : machine.tasks.lines) {
    fmt::format_to(std::back_inserter(lines), R"({}{{"cell":{},"text":{}}})", lines.empty() ? "" : ",", task.cell,
                   json_string(task.text));
  }
  return fmt::format(R"("cell_states":{},"tasks":[{}],"remarks":{},"no_tasks":{})", json_string(machine.tasks.cells),
                     lines, json_strings(machine.tasks.remarks), json_string(machine.no_tasks));
}

std::string machine_json(const Machine& machine) {
  const wire::MachineStatus none;
  const wire::MachineStatus& status = machine.status ? *machine.status : none;
  std::string state = machine.silent ? "no answer" : machine.status ? status.state : "not known yet";
  if (machine.ended) state = "ended";
  std::uint64_t strangers = status.strangers;
  std::string processes;
  for (std::size_t p = 0; p < status.processes.size(); ++p) {
    strangers += status.processes[p].node.refused;
    if (p < processes_max) processes += (p == 0 ? "" : ",") + process_json(machine, p);
  }
  std::string end = "null";
  if (machine.ended && !machine.end)
    end = fmt::format(R"({{"status":null,"reason":{}}})", json_string(gone_without_a_word));
  if (machine.end)
    end = fmt::format(R"({{"status":{},"reason":{}}})", machine.end->status, json_string(machine.end->reason));
  return fmt::format(
      R"({{"job":{},"state":{},"begun":{:.3f},"ended":{},"end":{},"program":{},"file":{},"grid":[{},{}],"strangers":{},)"
      R"("process_count":{},"processes":[{}],{},"history":{{"time":{},"bytes":{},"frames":{},"cpu_microseconds":{}}}}})",
      machine.job, json_string(state), machine.begun,
      machine.ended ? fmt::format("{:.3f}", *machine.ended) : std::string("null"), end, json_string(status.program),
      json_string(status.file), status.grid.nx, status.grid.ny, strangers, status.processes.size(), processes,
      tasks_json(machine),
      json_numbers(machine.samples, [](const Sample& each) { return fmt::format("{:.2f}", each.time); }),
      json_numbers(machine.samples, [](const Sample& each) { return each.bytes; }),
      json_numbers(machine.samples, [](const Sample& each) { return each.frames; }),
      json_numbers(machine.samples, [](const Sample& each) { return each.cpu_microseconds; }));
}

bool can_stop(const FarmReport& report) { return report.kind == "apfarm"; }

std::string farm_json(const Farm& farm) {
  const FarmReport& report = *farm.report;
  std::string end = "null";
  if (farm.ended)
    end = fmt::format(R"({{"status":{},"reason":{}}})",
                      report.ended && report.status >= 0 ? fmt::format("{}", report.status) : std::string("null"),
                      json_string(report.ended ? report.reason : gone_without_a_word));
  std::string failures;
  for (const FarmReport::Failure& failure : report.failures) {
    fmt::format_to(std::back_inserter(failures), R"({}{{"time":{:.3f},"text":{}}})", failures.empty() ? "" : ",",
                   failure.time, json_string(failure.text));
  }
  const FarmCounts& counts = report.counts;
  return fmt::format(
      R"({{"id":{},"pid":{},"kind":{},"title":{},"state":"{}","can_stop":{},"begun":{:.3f},"ended":{},"end":{},)"
      R"("workers":{},"queued":{},"running":{},"done":{},"failed":{},"total":{},"failures":[{}],)"
      R"("history":{{"time":{},"done":{},"failed":{}}}}})",
      json_string(farm.id), farm.process, json_string(report.kind), json_string(report.title),
      farm.ended ? "ended" : "running", can_stop(report), report.begun,
      farm.ended ? fmt::format("{:.3f}", *farm.ended) : std::string("null"), end, counts.workers, counts.queued,
      counts.running, counts.done, counts.failed,
      counts.total != 0 ? fmt::format("{}", counts.total) : std::string("null"), failures,
      json_numbers(farm.samples, [](const FarmSample& each) { return fmt::format("{:.2f}", each.time); }),
      json_numbers(farm.samples, [](const FarmSample& each) { return each.done; }),
      json_numbers(farm.samples, [](const FarmSample& each) { return each.failed; }));
}

}  // namespace

struct Watcher::Impl {
  Impl(wire::EventLoop& its_loop, std::string its_folder)
      : loop(its_loop), folder(std::move(its_folder)), timer(loop) {}

  [[nodiscard]] bool somebody_looks() const { return Clock::now() - looked < somebody_looks_for; }

  void tick() {
    look();
    timer.start(look_again, [this] { tick(); });
  }

  void look_at_farms() {
    const std::vector<std::string> names = FarmWatch::find(folder);
    for (const std::string& name : names) {
      if (farms.size() < farms_max && !farms.contains(name) && !seen_farms.contains(name))
        farms.emplace(name, std::make_shared<Farm>(folder, name));
    }
    for (auto each = farms.begin(); each != farms.end();) {
      const std::shared_ptr<Farm> farm = each->second;
      look_at(*farm);
      if (!farm->ended) {
        const bool is_none = !farm->report && std::ranges::find(names, each->first) == names.end();
        each = is_none ? farms.erase(each) : std::next(each);
        continue;
      }
      // The file of one that was killed stays for a while.
      seen_farms.insert(each->first);
      ended_farms.push_front(farm);
      if (ended_farms.size() > ended_max) ended_farms.pop_back();
      each = farms.erase(each);
    }
  }

  void look_at(Farm& farm) {
    std::optional<FarmReport> report = farm.watch.read();
    const double now = wall_seconds();
    if (!report) {
      if (!farm.report) return;  // it begins
      report = farm.report;
      report->lives = false;
    }
    if (report->process != 0) farm.process = report->process;
    const std::string who = name_of(farm);
    if (!farm.report) note({report->begun, who, "begin", report->title});
    farm.report = std::move(report);
    const FarmReport& is = *farm.report;
    farm.samples.push_back({now, is.counts.done, is.counts.failed});
    if (farm.samples.size() > samples_max) farm.samples.pop_front();
    if (is.lives && !is.ended) return;
    farm.ended = is.ended.value_or(now);
    const bool failed = !is.ended || is.status != 0;
    const std::string how = is.ended ? fmt::format("status {}{}{}", is.status, is.reason.empty() ? "" : ": ", is.reason)
                                     : gone_without_a_word;
    note({*farm.ended, who, failed ? "failure" : "end", how});
  }

  static std::string name_of(const Farm& farm) { return fmt::format("farm {}", farm.process); }

  void look() {
    look_at_farms();
    const std::vector<std::uint32_t> jobs = ctl::found_jobs(folder);
    for (const std::uint32_t job : jobs) {
      if (!machines.contains(job) && machines.size() < machines_max) find(job);
    }
    const auto now = Clock::now();
    const bool looks = somebody_looks();
    for (auto each = machines.begin(); each != machines.end();) {
      const std::shared_ptr<Machine> machine = each->second;
      ++each;
      if (!std::ranges::binary_search(jobs, machine->job)) {
        over(machine);
        continue;
      }
      if (!machine->asked_status &&
          now - machine->status_at >= (looks ? look_again : look_again_alone) - look_again / 10)
        ask_status(machine);
      if (looks && !machine->asked_tasks && machine->status && now - machine->tasks_at >= tasks_again - look_again / 10)
        ask_tasks(machine);
    }
  }

  void find(std::uint32_t job) {
    const auto machine = std::make_shared<Machine>();
    machine->job = job;
    machine->begun = wall_seconds();
    machines[job] = machine;
    Question::ask(loop, ctl::job_socket(folder, job), {ctl::end_verb}, [](const auto&, bool) {});
  }

  void ask_status(const std::shared_ptr<Machine>& machine) {
    machine->asked_status = true;
    Question::ask(loop, ctl::job_socket(folder, machine->job), {"status"},
                  [this, alive = std::weak_ptr(mark), machine](std::optional<ctl::Reply> reply, bool gone) {
                    if (alive.expired()) return;
                    machine->asked_status = false;
                    machine->status_at = Clock::now();
                    auto status = reply ? wire::decode<wire::MachineStatus>(reply->content) : std::nullopt;
                    if (gone) return over(machine);
                    machine->silent = !status.has_value();
                    if (status) take(*machine, *std::move(status));
                  });
  }

  void take(Machine& machine, wire::MachineStatus status) {
    const double now = wall_seconds();
    const std::string who = name_of(machine);
    if (!machine.status) {
      machine.begun = now - static_cast<double>(status.seconds);
      note({machine.begun, who, "begin", status.program});
    } else {
      for (std::size_t p = 0; p < std::min(status.processes.size(), machine.status->processes.size()); ++p) {
        const wire::ProcessStatus& process = status.processes[p];
        if (process.state != machine.status->processes[p].state)
          note({now, who, "state", fmt::format("{}: {}", process.name, process.state)});
      }
    }
    take_rates(machine, status, now);
    Sample sample{.time = now, .bytes = 0, .frames = 0, .cpu_microseconds = 0};
    for (const wire::ProcessStatus& process : status.processes) {
      sample.bytes += process.node.bytes_sent;
      sample.frames += process.node.frames_sent;
      sample.cpu_microseconds += process.node.cpu_microseconds;
    }
    machine.samples.push_back(sample);
    if (machine.samples.size() > samples_max) machine.samples.pop_front();
    machine.status = std::move(status);
  }

  static void take_rates(Machine& machine, const wire::MachineStatus& status, double now) {
    const double time = machine.samples.empty() ? 0 : now - machine.samples.back().time;
    machine.rates.clear();
    if (!machine.status || time <= 0 || machine.status->processes.size() != status.processes.size()) return;
    for (std::size_t p = 0; p < status.processes.size(); ++p) {
      const wire::NodeState& is = status.processes[p].node;
      const wire::NodeState& was = machine.status->processes[p].node;
      // A node that has ended tells nothing any more.
      const auto per_second = [time](std::uint64_t after, std::uint64_t before) {
        return after < before ? 0 : static_cast<double>(after - before) / time;
      };
      machine.rates.push_back({.sent = per_second(is.bytes_sent, was.bytes_sent),
                               .received = per_second(is.bytes_received, was.bytes_received),
                               .cores = per_second(is.cpu_microseconds, was.cpu_microseconds) * 1e-6});
    }
  }

  void ask_tasks(const std::shared_ptr<Machine>& machine) {
    machine->asked_tasks = true;
    Question::ask(loop, ctl::job_socket(folder, machine->job), {"tasks"},
                  [alive = std::weak_ptr(mark), machine](const std::optional<ctl::Reply>& reply, bool) {
                    if (alive.expired()) return;
                    machine->asked_tasks = false;
                    machine->tasks_at = Clock::now();
                    if (!reply || !machine->status) return;
                    machine->no_tasks = reply->problem;
                    machine->tasks = parse_tasks(ctl::text_of(reply->content), *machine->status);
                  });
  }

  void over(const std::shared_ptr<Machine>& machine) {
    if (machines.erase(machine->job) == 0) return;
    machine->ended = wall_seconds();
    machine->end = ctl::read_end(folder, machine->job);
    if (!machine->status) return;  // nothing to show
    const bool failed = !machine->end || machine->end->status != 0;
    std::string how = gone_without_a_word;
    if (machine->end)
      how = fmt::format("status {}{}{}", machine->end->status, machine->end->reason.empty() ? "" : ": ",
                        machine->end->reason);
    note({*machine->ended, name_of(*machine), failed ? "failure" : "end", how});
    ended.push_front(machine);
    if (ended.size() > ended_max) ended.pop_back();
  }

  static std::string name_of(const Machine& machine) { return fmt::format("job {}", machine.job); }

  void note(Event event) {
    events.push_back(std::move(event));
    if (events.size() > events_max) events.pop_front();
  }

  [[nodiscard]] std::string json() const {
    std::string all = R"("machines":[)";
    const char* comma = "";
    for (const auto& [job, machine] : machines) all += std::exchange(comma, ",") + machine_json(*machine);
    for (const auto& machine : ended) all += std::exchange(comma, ",") + machine_json(*machine);
    all += R"(],"farms":[)";
    comma = "";
    for (const auto& [name, farm] : farms) {
      if (farm->report) all += std::exchange(comma, ",") + farm_json(*farm);
    }
    for (const auto& farm : ended_farms) all += std::exchange(comma, ",") + farm_json(*farm);
    all += R"(],"events":[)";
    comma = "";
    for (const Event& event : events) {
      fmt::format_to(std::back_inserter(all), R"({}{{"time":{:.3f},"who":{},"kind":"{}","text":{}}})",
                     std::exchange(comma, ","), event.time, json_string(event.who), event.kind,
                     json_string(event.text));
    }
    return all + ']';
  }

  wire::EventLoop& loop;
  std::string folder;
  wire::Timer timer;
  Clock::time_point looked{};
  std::map<std::uint32_t, std::shared_ptr<Machine>> machines;
  std::deque<std::shared_ptr<Machine>> ended;          // latest first
  std::map<std::string, std::shared_ptr<Farm>> farms;  // by name of the file
  std::deque<std::shared_ptr<Farm>> ended_farms;       // latest first
  std::set<std::string> seen_farms;                    // that have ended
  std::deque<Event> events;
  std::shared_ptr<int> mark = std::make_shared<int>(0);  // answers that come later than this object's end see it
};

Watcher::Watcher(wire::EventLoop& loop, std::string folder) : impl_(std::make_unique<Impl>(loop, std::move(folder))) {
  impl_->tick();
}
Watcher::~Watcher() = default;

std::string Watcher::state() {
  const bool first = !impl_->somebody_looks();
  impl_->looked = Clock::now();
  if (first) impl_->look();
  return impl_->json();
}

bool Watcher::stop_machine(std::uint32_t job) {
  const auto found = impl_->machines.find(job);
  if (found == impl_->machines.end()) return false;
  Question::ask(impl_->loop, ctl::job_socket(impl_->folder, job), {"stop"}, [](const auto&, bool) {});
  impl_->note({wall_seconds(), Impl::name_of(*found->second), "state", "told to end by the web page"});
  return true;
}

bool Watcher::stop_farm(std::string_view id) {
  for (const auto& [name, farm] : impl_->farms) {
    if (farm->id != id) continue;
    const auto report = farm->watch.read();  // whose process it is at this moment
    if (!report || !report->lives || report->process <= 0 || !can_stop(*report)) return false;
    if (::kill(report->process, SIGTERM) != 0) return false;
    impl_->note({wall_seconds(), Impl::name_of(*farm), "state", "told to end by the web page"});
    return true;
  }
  return false;
}

}  // namespace aplib::launch::web
