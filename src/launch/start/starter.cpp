// SPDX-License-Identifier: MIT
#include "launch/start/starter.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "base/os/thread.hpp"
#include "base/text.hpp"
#include "comm/greeting.hpp"
#include "launch/start/child.hpp"
#include "launch/start/launch_method.hpp"

namespace aplib::launch::start {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int turns_max = 8;                // logins under way at once: what sshd's MaxStartups (10) takes
constexpr milliseconds grace_input{1000};   // from the end of its input to SIGTERM
constexpr milliseconds grace_term{500};     // from there to SIGKILL
constexpr milliseconds grace_remote{5000};  // for the command that kills on the host itself
constexpr milliseconds blind_pause{10};     // between looks, where the system tells no end

/// A node, and what is known of it.
struct Node {
  NodeStart start;
  MethodEnd end;
  long group = 0;             ///< Of its shell on its host, as that told.
  std::optional<int> status;  ///< As its shell told.
  bool done = false;          ///< failed or ended was told.
};

/// One child process and the nodes that it starts.
struct Launch {
  const LaunchMethod* method = nullptr;
  std::vector<Node> nodes;
  std::unique_ptr<Started> child;  ///< While it runs.
  std::string to_write;
  std::array<std::string, 2> unfinished_lines;  ///< By Child::Stream.
  std::map<std::string, std::size_t> by_label;  ///< srun: label of a task -> index in nodes.
  int attempt = 0;
  bool has_turn = false;
  Clock::time_point not_before;
  std::optional<Clock::time_point> begins_until{};  ///< A keeper tells at once that what it starts begins.
  bool done = false;
};

class AllMethods : public Starter {
 public:
  explicit AllMethods(std::vector<std::string> ssh)
      : local_(make_local_method()),
        command_(make_command_method()),
        ssh_(make_ssh_method(std::move(ssh))),
        slurm_(make_slurm_method()),
        keeper_(make_keeper_method()) {}

  ~AllMethods() override {
    if (!thread_.joinable()) return;
    stopping_ = true;
    wake_.signal();
    thread_.join();
  }

  void start(std::vector<NodeStart> nodes, StartEvents events) override;
  void arrived(std::uint32_t process) override {
    {
      const std::lock_guard lock(mutex_);
      arrivals_.push_back(process);
    }
    wake_.signal();
  }
  void leave_to_keepers() override { left_ = true; }

 private:
  const LaunchMethod& method_of(const NodeStart& node) const;
  static void check_open_files(std::size_t launches);
  void run();
  void take_arrivals();
  void begin_some();
  void begin(Launch& launch);
  void wait(std::optional<Clock::time_point> until);
  void take_output(Launch& launch);
  void take_stream(Launch& launch, Child::Stream stream);
  void take_greeting(Launch& launch, std::string_view came);
  void take_line(Launch& launch, Child::Stream stream, std::string_view line);
  void take_words(Launch& launch, Child::Stream stream, Node* node, std::string_view line);
  void take_end(Launch& launch, int status);
  void tell_failed(Node& node, const std::string& text);
  void tell_ended(Node& node, int status);
  void end_turn(Launch& launch);
  void end_all();
  bool any_runs() const;
  void reap();
  void give_up_silent();
  void kill_remotely();

  std::unique_ptr<LaunchMethod> local_;
  std::unique_ptr<LaunchMethod> command_;
  std::unique_ptr<LaunchMethod> ssh_;
  std::unique_ptr<LaunchMethod> slurm_;
  std::unique_ptr<LaunchMethod> keeper_;
  os::EventFd wake_;
  std::mutex mutex_;
  std::vector<std::uint32_t> arrivals_;  // under mutex_
  std::atomic<bool> stopping_{false};    // sequentially consistent: looked at once a round
  std::atomic<bool> left_{false};        // looked at when stopping
  std::thread thread_;

  // Only the thread uses the members below.
  StartEvents events_;
  std::deque<Launch> launches_;
  std::map<std::uint32_t, std::pair<Launch*, Node*>> by_process_;
  int turns_ = 0;
  std::unique_ptr<Guard> guard_;  // null: no child of ours
};

const LaunchMethod& AllMethods::method_of(const NodeStart& node) const {
  switch (node.host.launch) {
    case cluster::LaunchKind::local:
      return *local_;
    case cluster::LaunchKind::command:
      return *command_;
    case cluster::LaunchKind::ssh:
      return *ssh_;
    case cluster::LaunchKind::slurm:
      return *slurm_;
    case cluster::LaunchKind::keeper:
      return *keeper_;
    case cluster::LaunchKind::pmix:
      break;
  }
  throw Error(
      Errc::bad_argument,
      fmt::format("{}: launch = \"pmix\": its process is started by the launcher that started this one (mpirun, "
                  "srun --mpi=pmix), not by aprun",
                  host_name(node)));
}

void AllMethods::start(std::vector<NodeStart> nodes, StartEvents events) {
  if (thread_.joinable()) throw Error(Errc::bad_argument, "a starter starts once");
  std::map<const LaunchMethod*, Launch*> together;
  for (NodeStart& node : nodes) {
    const LaunchMethod& method = method_of(node);
    Launch*& shared = together[&method];
    if (shared == nullptr || !method.together()) {
      shared = &launches_.emplace_back();
      shared->method = &method;
    }
    shared->nodes.push_back({.start = std::move(node), .end = {}, .status = {}});
  }
  for (Launch& launch : launches_) {
    for (Node& node : launch.nodes) by_process_[node.start.process] = {&launch, &node};
  }
  check_open_files(launches_.size());
  events_ = std::move(events);
  // A node that has closed its input would cause SIGPIPE, which a quiet thread blocks.
  thread_ = os::quiet_thread("aprun-starter", [this] { run(); });
}

/// Refuses a start for which there are not enough open files, before it begins.
void AllMethods::check_open_files(std::size_t launches) {
  constexpr std::size_t of_each = 5;  // its three streams, its end, and its connection, where it makes one
  constexpr std::size_t of_aprun = 16;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const std::size_t needed = launches * of_each + of_aprun;
  if (launches > 1 && needed > limit.rlim_cur) {
    throw Error(
        Errc::exhausted,
        fmt::format("{} processes need {} open files of aprun, and the limit is {}: raise it (ulimit -n), or use "
                    "fewer processes",
                    launches, needed, limit.rlim_cur));
  }
}

void AllMethods::run() {
  // Keepers look after what they have started.
  const auto is_kept = [](const Launch& launch) { return launch.method->is_kept(); };
  if (!std::ranges::all_of(launches_, is_kept)) guard_ = std::make_unique<Guard>();
  std::map<const LaunchMethod*, std::string> hindrances;
  for (Launch& launch : launches_) {
    auto [entry, is_new] = hindrances.try_emplace(launch.method);
    if (is_new) entry->second = launch.method->hindrance();
    if (entry->second.empty()) continue;
    launch.done = true;
    for (Node& node : launch.nodes) {
      tell_failed(node, fmt::format("{}: {}", host_name(node.start), entry->second));
    }
  }
  while (!stopping_) {
    take_arrivals();
    begin_some();
    std::optional<Clock::time_point> next;
    for (const Launch& launch : launches_) {
      if (launch.done || launch.child || launch.attempt == 0) continue;
      if (!next || launch.not_before < *next) next = launch.not_before;
    }
    if (turns_ >= turns_max && next && *next <= Clock::now()) next.reset();  // an end or an arrival will wake us
    for (const Launch& launch : launches_)
      if (launch.child && launch.begins_until && (!next || *launch.begins_until < *next)) next = launch.begins_until;
    wait(next);
    reap();
    give_up_silent();
  }
  end_all();
  guard_.reset();
}

/// Looked at when all that has come is read, so that time in which this process stood still is nobody's fault.
void AllMethods::give_up_silent() {
  for (Launch& launch : launches_) {
    if (!launch.child || !launch.begins_until || Clock::now() < *launch.begins_until) continue;
    launch.child.reset();
    launch.done = true;
    Node& node = launch.nodes[0];
    tell_failed(node, launch.method->not_executed(node.start, keeper_silence(node.start)));
  }
}

void AllMethods::take_arrivals() {
  std::vector<std::uint32_t> arrivals;
  {
    const std::lock_guard lock(mutex_);
    arrivals.swap(arrivals_);
  }
  for (const std::uint32_t process : arrivals) {
    const auto found = by_process_.find(process);
    if (found == by_process_.end()) continue;
    found->second.second->end.arrived = true;
    end_turn(*found->second.first);
  }
}

void AllMethods::begin_some() {
  const Clock::time_point now = Clock::now();
  for (Launch& launch : launches_) {
    if (launch.done || launch.child || launch.not_before > now || stopping_) continue;
    if (launch.method->in_turn()) {
      if (turns_ >= turns_max) continue;
      ++turns_;
      launch.has_turn = true;
    }
    begin(launch);
  }
}

void AllMethods::begin(Launch& launch) {
  ++launch.attempt;
  std::vector<NodeStart> starts;
  for (Node& node : launch.nodes) {
    starts.push_back(node.start);
    node.end = {.attempt = launch.attempt, .lost_folder = {}, .words = {}};
    node.status.reset();
  }
  try {
    launch.child = launch.method->begin(starts, guard_.get());
  } catch (const Error& error) {
    end_turn(launch);
    launch.done = true;
    const bool here = error.code() == Errc::exhausted;  // then nothing is wrong with what should be executed
    for (Node& node : launch.nodes) {
      tell_failed(node, here ? fmt::format("{}: {}", host_name(node.start), error.what())
                             : launch.method->not_executed(node.start, error.what()));
    }
    return;
  }
  launch.unfinished_lines = {};
  launch.by_label.clear();
  if (launch.method->is_kept()) {
    launch.begins_until =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(launch.nodes[0].start.host.keeper_patience);
    if (events_.greets)
      events_.greets({.process = starts[0].process, .ends = launch.child->release_streams(), .came = {}, .kept = true});
    return;
  }
  launch.to_write = starts[0].input;  // several nodes are of one machine: the same for all
  launch.child->write(launch.to_write);
}

void AllMethods::wait(std::optional<Clock::time_point> until) {
  std::vector<pollfd> fds{{wake_.get(), POLLIN, 0}};
  bool blind = false;
  for (const Launch& launch : launches_) {
    if (!launch.child) continue;
    for (const Child::Stream stream : {Child::output, Child::error}) {
      fds.push_back({launch.child->output_fd(stream), POLLIN, 0});
    }
    fds.push_back({launch.child->end_fd(), POLLIN, 0});
    if (!launch.to_write.empty()) fds.push_back({launch.child->input_fd(), POLLOUT, 0});
    blind = blind || launch.child->end_fd() < 0;
  }
  int timeout = -1;
  if (until) {
    const auto left = std::chrono::ceil<milliseconds>(*until - Clock::now());
    timeout = static_cast<int>(std::max<milliseconds::rep>(left.count(), 0));
  }
  if (blind) timeout = timeout < 0 ? blind_pause.count() : std::min<int>(timeout, blind_pause.count());
  ::poll(fds.data(), fds.size(), timeout);
  wake_.clear();
}

/// Takes everything that has come from all children.
void AllMethods::reap() {
  for (Launch& launch : launches_) {
    if (!launch.child) continue;
    if (!launch.to_write.empty() && !launch.child->write(launch.to_write)) launch.to_write.clear();
    const std::optional<int> status = launch.child->ended();  // before its last words are read, so that none is missed
    take_output(launch);
    if (status) take_end(launch, *status);
  }
}

void AllMethods::take_output(Launch& launch) {
  // What login shells have printed is read before the mark of the begin, which is on standard error.
  take_stream(launch, Child::output);
  take_stream(launch, Child::error);
}

/// Where a greeting begins, or may begin at the end of what has come.
std::size_t greeting_in(std::string_view text) {
  constexpr std::string_view magic = comm::Greeting::magic;
  if (const std::size_t at = text.find(magic); at != text.npos) return at;
  std::size_t length = std::min(magic.size() - 1, text.size());
  while (!text.ends_with(magic.substr(0, length))) --length;
  return text.size() - length;
}

void AllMethods::take_stream(Launch& launch, Child::Stream stream) {
  std::string& unfinished = launch.unfinished_lines[stream];
  const bool may_greet = stream == Child::output && !launch.method->is_kept() &&
                         cluster::speaks_by_streams(launch.nodes[0].start.host.launch) && !stopping_;
  for (std::string text = launch.child->read(stream); !text.empty(); text = launch.child->read(stream)) {
    unfinished += text;
    const std::size_t end = may_greet ? greeting_in(unfinished) : unfinished.size();
    const bool greets = std::string_view(unfinished).substr(end).starts_with(comm::Greeting::magic);
    std::string_view rest = std::string_view(unfinished).substr(0, end);
    for (std::size_t eol = rest.find('\n'); eol != rest.npos || rest.size() > line_max; eol = rest.find('\n')) {
      const std::size_t length = std::min(eol, rest.size());
      take_line(launch, stream, rest.substr(0, length));
      rest.remove_prefix(std::min(length + 1, rest.size()));
    }
    if (greets) {
      if (!rest.empty()) take_line(launch, stream, rest);
      return take_greeting(launch, std::exchange(unfinished, {}).substr(end));
    }
    unfinished = std::string(rest) + unfinished.substr(end);
  }
}

void AllMethods::take_greeting(Launch& launch, std::string_view came) {
  Node& node = launch.nodes[0];
  node.end.arrived = true;
  launch.to_write.clear();
  end_turn(launch);
  os::Ends ends = launch.child->release_streams();
  if (events_.greets) events_.greets({node.start.process, std::move(ends), std::string(came)});
}

void AllMethods::take_line(Launch& launch, Child::Stream stream, std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (launch.method->is_noise(line)) return;
  Node* node = &launch.nodes[0];
  if (launch.method->together()) {  // "3: text" comes from task 3; what has no label is srun's own, and concerns all
    const std::size_t colon = line.find(": ");
    std::string label(line.substr(0, colon == line.npos ? 0 : colon));
    label.erase(0, label.find_first_not_of(' '));
    const bool labelled = !label.empty() && label.find_first_not_of("0123456789") == label.npos;
    node = nullptr;
    if (labelled) {
      line.remove_prefix(colon + 2);
      if (line.starts_with(mark::process)) {
        for (std::size_t i = 0; i < launch.nodes.size(); ++i) {
          if (line.substr(mark::process.size()) == std::to_string(launch.nodes[i].start.process)) {
            launch.by_label[label] = i;
          }
        }
        return;
      }
      const auto found = launch.by_label.find(label);
      if (found != launch.by_label.end()) node = &launch.nodes[found->second];
    }
  }
  const std::optional<Mark> mark = node == nullptr ? std::nullopt : find_mark(line, node->end.began);
  if (!mark) return take_words(launch, stream, node, line);
  if (!mark->before.empty()) take_words(launch, stream, node, mark->before);
  switch (mark->kind) {
    case Mark::Kind::begins:
      node->end.began = true;
      launch.begins_until.reset();
      if (launch.method->has_foreword()) node->end.words.clear();
      node->group = static_cast<long>(mark->number);
      end_turn(launch);
      return;
    case Mark::Kind::no_folder:
      node->end.lost_folder = mark->folder;
      return;
    case Mark::Kind::ends:
      node->status = static_cast<int>(mark->number);
      node->end.told = true;
      if (!launch.method->together()) return;  // srun ends with the last of them
      node->end.status = *node->status;
      const Verdict verdict = launch.method->judge(node->start, node->end);
      verdict.kind == Verdict::Kind::failed ? tell_failed(*node, verdict.text) : tell_ended(*node, verdict.status);
      return;
  }
}

/// A line of a node, or of what starts all.
void AllMethods::take_words(Launch& launch, Child::Stream stream, Node* node, std::string_view line) {
  for (Node& each : launch.nodes) {
    if (node != nullptr && &each != node) continue;
    each.end.keep(line);
  }
  // A node itself writes nothing on standard output but its greeting.
  if (launch.method->has_foreword() && (!launch.nodes[0].end.began || stream == Child::output)) return;
  Node& speaker = node == nullptr ? launch.nodes[0] : *node;
  if (events_.said) events_.said(speaker.start.process, std::string(line));
}

void AllMethods::take_end(Launch& launch, int status) {
  for (const Child::Stream stream : {Child::output, Child::error}) {
    const std::string unfinished = std::exchange(launch.unfinished_lines[stream], {});
    // One that ends here might have become a greeting.
    if (!unfinished.empty()) take_line(launch, stream, std::string_view(unfinished).substr(0, unfinished.find('\n')));
  }
  if (launch.child->pid() > 0 && guard_) guard_->forget(launch.child->pid());
  launch.child.reset();
  launch.to_write.clear();
  end_turn(launch);
  if (stopping_) {
    launch.done = true;
    return;
  }
  for (Node& node : launch.nodes) {
    if (node.done) continue;
    node.end.status = node.status.value_or(status);
    const Verdict verdict = launch.method->judge(node.start, node.end);
    if (verdict.kind == Verdict::Kind::again) {
      launch.not_before = Clock::now() + verdict.pause;
      return;
    }
    verdict.kind == Verdict::Kind::failed ? tell_failed(node, verdict.text) : tell_ended(node, verdict.status);
  }
  launch.done = true;
}

void AllMethods::tell_failed(Node& node, const std::string& text) {
  if (std::exchange(node.done, true)) return;
  if (events_.failed) events_.failed(node.start.process, text);
}

void AllMethods::tell_ended(Node& node, int status) {
  if (std::exchange(node.done, true)) return;
  std::string words;
  for (const std::string& line : node.end.words) words += (words.empty() ? "" : " | ") + line;
  if (events_.ended) events_.ended(node.start.process, status, words);
}

void AllMethods::end_turn(Launch& launch) {
  if (std::exchange(launch.has_turn, false)) --turns_;
}

bool AllMethods::any_runs() const {
  return std::ranges::any_of(launches_, [](const Launch& launch) { return launch.child != nullptr; });
}

void AllMethods::end_all() {
  for (Launch& launch : launches_) {
    if (left_ && launch.method->is_kept()) launch.child.reset();
    if (launch.child) launch.child->close_input();
    launch.to_write.clear();
  }
  const auto wait_for = [&](milliseconds grace) {
    const Clock::time_point until = Clock::now() + grace;
    do {
      reap();
      if (!any_runs()) return true;
      wait(until);
    } while (Clock::now() < until);
    return false;
  };
  const auto signal_all = [&](int number) {
    for (Launch& launch : launches_) {
      if (launch.child) launch.child->signal(number);
    }
  };
  if (wait_for(grace_input)) return;
  kill_remotely();
  signal_all(SIGTERM);
  signal_all(SIGCONT);  // a stopped one takes no other signal
  if (wait_for(grace_term)) return;
  signal_all(SIGKILL);
  // Nothing survives that for long, but a process inside a system call (a disk, a file server) may take a while.
  for (Launch& launch : launches_) launch.child.reset();
}

/// Kills nodes on their hosts. A node that is stopped or hangs does not end with its input, and would stay there once
/// the way to it is cut.
void AllMethods::kill_remotely() {
  std::vector<std::unique_ptr<Child>> killers;
  for (const Launch& launch : launches_) {
    if (!launch.child) continue;
    for (const Node& node : launch.nodes) {
      if (node.group <= 1 || node.status) continue;
      const std::vector<std::string> command = launch.method->kill_command(node.start, node.group);
      if (command.empty()) continue;
      try {
        killers.push_back(std::make_unique<Child>(command, ""));
      } catch (const Error&) {
        continue;  // the host is out of reach in every sense
      }
    }
  }
  const Clock::time_point until = Clock::now() + grace_remote;
  while (!killers.empty() && Clock::now() < until) {
    std::erase_if(killers, [](const auto& killer) { return killer->ended().has_value(); });
    if (!killers.empty()) std::this_thread::sleep_for(blind_pause);
  }
}

}  // namespace

std::unique_ptr<Starter> make_starter(const std::string& ssh) {
  std::vector<std::string> words = split_words(ssh, "option ssh");
  if (words.empty()) words.emplace_back("ssh");
  return std::make_unique<AllMethods>(std::move(words));
}

}  // namespace aplib::launch::start
