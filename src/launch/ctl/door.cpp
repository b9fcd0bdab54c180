// SPDX-License-Identifier: MIT
#include "launch/ctl/door.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "aplib/error.hpp"
#include "aplib/ids.hpp"
#include "base/text.hpp"
#include "kernel/programs.hpp"
#include "launch/coordinator/coordinator.hpp"
#include "launch/ctl/registry.hpp"

namespace aplib::launch::ctl {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t request_bytes_max = std::size_t{1} << 20;
constexpr std::size_t verb_shown_max = 40;
/// One client at a time: one that says nothing must not keep the others out for long.
constexpr std::chrono::milliseconds request_time_max = 5s;
constexpr std::chrono::milliseconds answer_time_max = 20s;

using Words = std::vector<std::string>;

/// An answer that another thread brings, perhaps when nobody waits any more.
struct Promised {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<DoorAnswer> answer;
};

/// Signals are for the threads that expect them: a thread that is made while this lives gets none.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

struct RegistryDoor::State {
  DoorActions actions;
  std::string path;
  RegistrySocket listener;
  RegistrySocket closing;  // an eventfd: readable when the door closes
  std::uint32_t next_task = first_task;
  std::thread thread;

  /// Waits until `descriptor` can be read. False: the door closes, or the time is over.
  [[nodiscard]] bool readable(int descriptor, std::optional<std::chrono::milliseconds> time) const {
    std::array<pollfd, 2> entries{pollfd{descriptor, POLLIN, 0}, pollfd{closing.descriptor(), POLLIN, 0}};
    int ready = 0;
    do {
      ready = ::poll(entries.data(), entries.size(), time ? static_cast<int>(time->count()) : -1);
    } while (ready < 0 && errno == EINTR);
    return ready > 0 && entries[1].revents == 0;
  }

  [[nodiscard]] bool closed() const {
    pollfd entry{closing.descriptor(), POLLIN, 0};
    return ::poll(&entry, 1, 0) > 0;
  }

  void run() {
    while (readable(listener.descriptor(), std::nullopt)) {
      const RegistrySocket client(::accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
      if (client.descriptor() < 0) {
        if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(100ms);  // programs use all descriptors
        continue;
      }
      if (client.peer_user() != ::getuid() && client.peer_user() != 0) continue;
      serve(client);
    }
  }

  void serve(const RegistrySocket& client) {
    const auto request = read_request(client);
    if (!request) return;
    const timeval limit{.tv_sec = 5, .tv_usec = 0};
    ::setsockopt(client.descriptor(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    std::string answer;
    try {
      answer = answer_to(*request) + "end\n";
    } catch (const std::exception& error) {
      answer = join_words({"error", error.what()}) + '\n';
    }
    (void)client.send(answer);
  }

  /// Nothing: none came, as when apctl only looks who is there.
  [[nodiscard]] std::optional<Words> read_request(const RegistrySocket& client) const {
    const auto until = std::chrono::steady_clock::now() + request_time_max;
    std::string line;
    std::array<char, 4096> piece{};
    while (line.find('\n') == line.npos && line.size() < request_bytes_max) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
      if (left <= 0ms || !readable(client.descriptor(), left)) return std::nullopt;
      const ssize_t count = ::recv(client.descriptor(), piece.data(), piece.size(), 0);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return std::nullopt;
      line.append(piece.data(), static_cast<std::size_t>(count));
    }
    if (line.find('\n') == line.npos) return std::nullopt;  // longer than any request
    auto words = split_words(std::string_view(line).substr(0, line.find('\n')));
    if (!words || words->empty()) return Words{"?"};
    return words;
  }

  [[nodiscard]] std::string answer_to(const Words& request) {
    const std::string& verb = request.front();
    if (verb == "status") return wait_for(actions.status);
    if (verb == "tasks") {
      if (!actions.tasks) throw Error(Errc::failed, "tasks: only machines of aprun -f can tell");
      return join_words({"text", wait_for(actions.tasks)}) + '\n';
    }
    if (verb == "load") return load(request);
    if (verb == "stop") {
      actions.stop();
      return {};
    }
    throw Error(
        Errc::bad_argument,
        fmt::format("this aprun does not know the request \"{}\": are apctl and aprun of the same installation?",
                    verb.substr(0, verb_shown_max)));
  }

  /// Calls `ask` and returns the lines it answers. Throws what it throws, and problems.
  template <class Ask>
  [[nodiscard]] std::string wait_for(const Ask& ask) const {
    const auto promised = std::make_shared<Promised>();
    ask([promised](DoorAnswer answer) {
      const std::lock_guard lock(promised->mutex);
      promised->answer = std::move(answer);
      promised->changed.notify_all();
    });
    const auto until = std::chrono::steady_clock::now() + answer_time_max;
    std::unique_lock lock(promised->mutex);
    // The door's end is looked at now and then: it is rare that somebody asks just then.
    while (!promised->answer && std::chrono::steady_clock::now() < until && !closed())
      promised->changed.wait_for(lock, 50ms);
    if (!promised->answer)
      throw Error(Errc::failed, closed() ? "the machine has ended" : "not all hosts have answered");
    if (!promised->answer->problem.empty()) throw Error(Errc::failed, promised->answer->problem);
    return promised->answer->lines;
  }

  /// load FILE TASK ARGUMENTS...; TASK may be "auto".
  [[nodiscard]] std::string load(const Words& request) {
    if (!actions.load) throw Error(Errc::failed, "load: only machines of aprun -f can load programs while they run");
    if (request.size() < 3) throw Error(Errc::bad_argument, "load: a program is missing");
    const bool chosen = request[2] != "auto";
    const auto task = chosen ? text::parse_number(request[2]) : std::optional<std::uint64_t>(next_task);
    if (!task || *task > task_id_max)
      throw Error(Errc::bad_argument, fmt::format("load: task {}: use 0 .. {}", request[2], task_id_max));
    if (!chosen) ++next_task;
    Words arguments(request.begin() + 3, request.end());
    arguments.insert(arguments.begin(), request[1]);
    (void)wait_for([&](DoorReply reply) {
      actions.load(request[1], static_cast<std::uint32_t>(*task), arguments, std::move(reply));
    });
    return join_words({"task", fmt::format("{}", *task)}) + '\n';
  }
};

RegistryDoor::RegistryDoor(DoorActions actions) : state_(std::make_unique<State>()) {
  state_->actions = std::move(actions);
  try {
    const std::string folder = registry_folder();
    state_->path = job_socket(folder, static_cast<std::uint32_t>(::getpid()));
    forget_dead_jobs(folder);
    state_->listener = RegistrySocket::make();
    state_->closing = RegistrySocket(::eventfd(0, EFD_CLOEXEC));
    if (state_->closing.descriptor() < 0 || state_->listener.listen(state_->path) != 0) {
      problem_ = fmt::format("cannot listen at {}: {}", state_->path, std::generic_category().message(errno));
      return;
    }
    const NoSignals guard;
    state_->thread = std::thread([state = state_.get()] { state->run(); });
  } catch (const std::exception& error) {
    problem_ = error.what();
  }
}

RegistryDoor::~RegistryDoor() {
  if (!state_->thread.joinable()) return;
  ::unlink(state_->path.c_str());
  const std::uint64_t one = 1;
  (void)!::write(state_->closing.descriptor(), &one, sizeof one);
  state_->thread.join();
}

namespace {

constexpr int stopped_status = static_cast<int>(ExitStatus::interrupted);
constexpr const char* stopped_text = "stopped by apctl";

JobStatus status_of(const coordinator::MachineState& machine) {
  JobStatus status;
  status.state = machine.phase;
  status.seconds = static_cast<std::uint64_t>(machine.seconds);
  status.file = machine.file;
  status.program = machine.program;
  std::uint32_t cells = 0;
  for (const coordinator::ProcessState& process : machine.processes) {
    status.processes.push_back({.name = process.name,
                                .computer = process.host,
                                .pid = process.pid,
                                .address = process.endpoint,
                                .first_cell = process.first_cell,
                                .cells = process.cells,
                                .state = process.stage,
                                .frames_sent = process.node.frames_sent,
                                .bytes_sent = process.node.bytes_sent,
                                .frames_received = process.node.frames_received,
                                .bytes_received = process.node.bytes_received,
                                .ways = {}});
    for (const wire::Route& way : process.node.routes)
      status.processes.back().ways.push_back({way.module, way.peers, way.text});
    cells += process.cells;
  }
  // Before the hosts have been measured nobody knows it.
  if (cells == machine.grid.count()) status.grid = machine.grid;
  return status;
}

/// A file that cannot run must not end the machine that it was meant for: it is tried here first. Throws Error.
void check_program(const std::string& file, const Options& options) {
  Options one = options;
  one.cells = {1, 1};
  ProgramRun run;
  run.file = file;
  run.arguments = {file};
  if (summarize_program(one, run).is_host) {
    throw Error(
        Errc::bad_argument,
        "load: " + file + " is a host program, and a machine has one from its start or never: use a program for cells");
  }
}

std::string computer_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

DoorActions door_actions(coordinator::Coordinator& coordinator, const Options& options) {
  DoorActions actions;
  actions.status = [&coordinator](DoorReply reply) {
    coordinator.post([&coordinator, reply = std::move(reply)] {
      coordinator.ask_state([reply](const coordinator::MachineState& machine) {
        reply({.lines = status_lines(status_of(machine)), .problem = {}});
      });
    });
  };
  actions.tasks = [&coordinator](DoorReply reply) {
    coordinator.post([&coordinator, reply = std::move(reply)] {
      coordinator.ask_tasks([reply](std::string text) { reply({.lines = std::move(text), .problem = {}}); });
    });
  };
  actions.load = [&coordinator, options](const std::string& file, std::uint32_t task,
                                         const std::vector<std::string>& arguments, DoorReply reply) {
    check_program(file, options);
    coordinator.post([&coordinator, file, task, arguments, reply = std::move(reply)] {
      try {
        coordinator.start_program(file, task, arguments);
        reply({});
      } catch (const Error& error) {
        reply({.lines = {}, .problem = error.what()});
      }
    });
  };
  actions.stop = [&coordinator] { coordinator.stop(stopped_status, stopped_text); };
  return actions;
}

DoorActions door_actions(const std::string& program, Grid grid,
                         std::function<void(int status, const std::string& text)> stop) {
  DoorActions actions;
  const auto start = std::chrono::steady_clock::now();
  actions.status = [=](const DoorReply& reply) {
    JobStatus status;
    status.state = "running";
    status.seconds = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - start).count());
    status.grid = grid;
    status.program = program;
    status.processes.push_back({.name = "local",
                                .computer = computer_name(),
                                .pid = static_cast<std::uint64_t>(::getpid()),
                                .address = {},
                                .first_cell = 0,
                                .cells = grid.count(),
                                .state = "running"});
    reply({.lines = status_lines(status), .problem = {}});
  };
  actions.stop = [stop = std::move(stop)] { stop(stopped_status, stopped_text); };
  return actions;
}

}  // namespace aplib::launch::ctl
