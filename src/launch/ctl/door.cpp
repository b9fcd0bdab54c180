// SPDX-License-Identifier: MIT
#include "launch/ctl/door.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "aplib/error.hpp"
#include "aplib/ids.hpp"
#include "base/cell_map.hpp"
#include "base/os/descriptor.hpp"
#include "base/os/thread.hpp"
#include "base/os/time.hpp"
#include "base/text.hpp"
#include "kernel/programs.hpp"
#include "launch/coordinator/coordinator.hpp"
#include "launch/watchdog.hpp"
#include "launch/wire/status.hpp"

namespace aplib::launch::ctl {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t request_bytes_max = std::size_t{1} << 20;
constexpr std::size_t verb_shown_max = 40;
/// Clients come one at a time, so a silent one must not keep the others out for long.
constexpr std::chrono::milliseconds request_time_max = 5s;
constexpr std::chrono::milliseconds answer_time_max = 20s;

using Words = std::vector<std::string>;

/// A reply that another thread brings, perhaps after apctl has stopped waiting.
struct Promised {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Reply> reply;
};

}  // namespace

struct RegistryDoor::Impl {
  Verbs verbs;
  std::string path;
  RegistrySocket listener;
  std::optional<wire::MachineEnd> end;
  std::atomic<bool> end_wanted = false;
  os::EventFd closing;  // readable when the door closes
  std::thread thread;

  /// Waits until `descriptor` can be read. False: the door closes, or the time is over.
  [[nodiscard]] bool readable(int descriptor, std::optional<std::chrono::milliseconds> time) const {
    std::array<pollfd, 2> entries{pollfd{descriptor, POLLIN, 0}, pollfd{closing.get(), POLLIN, 0}};
    int ready = 0;
    do {
      ready = ::poll(entries.data(), entries.size(), time ? static_cast<int>(time->count()) : -1);
    } while (ready < 0 && errno == EINTR);
    return ready > 0 && entries[1].revents == 0;
  }

  [[nodiscard]] bool closed() const {
    pollfd entry{closing.get(), POLLIN, 0};
    return ::poll(&entry, 1, 0) > 0;
  }

  void run() {
    while (readable(listener.descriptor(), std::nullopt)) {
      const RegistrySocket client(::accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
      if (client.descriptor() < 0) {
        if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(100ms);  // programs have all descriptors
        continue;
      }
      if (client.peer_user() != ::getuid() && client.peer_user() != 0) continue;
      serve(client);
    }
  }

  void serve(const RegistrySocket& client) {
    const auto until = std::chrono::steady_clock::now() + request_time_max;
    const auto bytes = client.receive(request_bytes_max, [&] {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
      return left > 0ms && readable(client.descriptor(), left);
    });
    if (!bytes) return;  // no request: apctl only looks which machines there are
    client.limit_waits(request_time_max);
    Reply reply;
    try {
      const auto request = wire::decode<Request>(*bytes);
      reply = reply_to(request && !request->words.empty() ? request->words : Words{"?"});
    } catch (const std::exception& error) {
      reply.problem = error.what();
    }
    static_cast<void>(client.send(wire::encode(reply)));
  }

  /// Answers a request. Throws what the verb throws.
  [[nodiscard]] Reply reply_to(const Words& words) {
    if (words.front() == end_verb) {
      end_wanted = true;
      return {};
    }
    const auto verb = verbs.find(words.front());
    if (verb == verbs.end()) {
      throw Error(
          Errc::bad_argument,
          fmt::format("this aprun does not know the request \"{}\": are apctl and aprun of the same installation?",
                      words.front().substr(0, verb_shown_max)));
    }
    const auto promised = std::make_shared<Promised>();
    verb->second(words, [promised](Reply reply) {
      const std::lock_guard lock(promised->mutex);
      promised->reply = std::move(reply);
      promised->changed.notify_all();
    });
    const auto until = std::chrono::steady_clock::now() + answer_time_max;
    std::unique_lock lock(promised->mutex);
    // The end of the door is polled, because a request at that moment is rare.
    while (!promised->reply && std::chrono::steady_clock::now() < until && !closed())
      promised->changed.wait_for(lock, 50ms);
    if (!promised->reply) throw Error(Errc::failed, closed() ? "the machine has ended" : "not all hosts have answered");
    return std::move(*promised->reply);
  }
};

RegistryDoor::RegistryDoor(Verbs verbs) {
  try {
    impl_ = std::make_unique<Impl>();
    impl_->verbs = std::move(verbs);
    const std::string folder = registry_folder();
    impl_->path = job_socket(folder, static_cast<std::uint32_t>(::getpid()));
    forget_dead_jobs(folder);
    impl_->listener = RegistrySocket::make();
    if (impl_->listener.listen(impl_->path) != 0) {
      problem_ = fmt::format("cannot listen at {}: {}", impl_->path, os::text_of(errno));
      return;
    }
    remove_at_sudden_end(impl_->path);
    impl_->thread = os::quiet_thread("aprun-door", [impl = impl_.get()] { impl->run(); });
  } catch (const std::exception& error) {
    problem_ = error.what();
  }
}

RegistryDoor::~RegistryDoor() {
  if (impl_ == nullptr || !impl_->thread.joinable()) return;
  // Whoever finds no socket any more looks there.
  if (impl_->end && impl_->end_wanted) leave_end(impl_->path, *impl_->end);
  remove_at_sudden_end({});
  ::unlink(impl_->path.c_str());
  impl_->closing.signal();
  impl_->thread.join();
}

void RegistryDoor::set_end(int status, const std::string& reason) {
  if (impl_ != nullptr) impl_->end = {static_cast<std::uint32_t>(status), reason};
}

Verb load_verb(Loader load) {
  struct Numbers {
    std::mutex mutex;                 // a refusal may come from another thread
    std::set<std::uint32_t> used{0};  // 0: the machine's own program

    std::uint32_t take(const std::string& wish) {
      const std::lock_guard lock(mutex);
      const bool chosen = wish != "auto";
      std::uint32_t next = first_loaded_task;
      while (!chosen && used.contains(next)) ++next;
      const auto task = chosen ? text::parse_number(wish) : std::optional<std::uint64_t>(next);
      if (!task || *task > task_id_max)
        throw Error(Errc::bad_argument, fmt::format("load: task {}: use 0 .. {}", wish, task_id_max));
      const auto number = static_cast<std::uint32_t>(*task);
      if (!used.insert(number).second)
        throw Error(
            Errc::bad_argument,
            fmt::format("load: a program of this machine is task {} already: use another number, or none", number));
      return number;
    }
    void give_back(std::uint32_t number) {
      const std::lock_guard lock(mutex);
      used.erase(number);
    }
  };
  const auto numbers = std::make_shared<Numbers>();
  return [numbers, load = std::move(load)](const Words& request, const ReplyTaker& reply) {
    if (request.size() < 3) throw Error(Errc::bad_argument, "load: a program is missing");
    const std::uint32_t number = numbers->take(request[2]);
    Words arguments(request.begin() + 3, request.end());
    arguments.insert(arguments.begin(), request[1]);
    try {
      load(request[1], number, arguments, [numbers, number, reply](Reply of_load) {
        if (!of_load.problem.empty()) numbers->give_back(number);
        reply(of_load.problem.empty() ? text_reply(fmt::format("{}", number)) : std::move(of_load));
      });
    } catch (...) {
      numbers->give_back(number);
      throw;
    }
  };
}

namespace {

constexpr int stopped_status = static_cast<int>(ExitStatus::interrupted);
constexpr const char* stopped_text = "stopped by apctl";

/// Tries a file here first, so that one that cannot run does not end the machine that it is meant for. Throws Error.
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

Verbs machine_verbs(coordinator::Coordinator& coordinator, const Options& options) {
  // The coordinator is used on its own thread alone.
  return {
      {"status",
       [&coordinator](const Words&, const ReplyTaker& reply) {
         coordinator.post([&coordinator, reply] {
           coordinator.ask_nodes(wire::node_state_question, [&coordinator, reply](const auto& answers) {
             wire::MachineStatus status = coordinator.status();
             for (std::size_t p = 0; p < status.processes.size() && p < answers.size(); ++p) {
               if (!answers[p]) status.processes[p].state += ", does not answer";
               if (!answers[p] || answers[p]->empty()) continue;
               if (auto node = wire::decode<wire::NodeState>(*answers[p])) status.processes[p].node = std::move(*node);
             }
             reply({{}, wire::encode(status)});
           });
         });
       }},
      {"tasks",
       [&coordinator](const Words&, const ReplyTaker& reply) {
         coordinator.post([&coordinator, reply] {
           coordinator.ask_tasks([reply](const std::string& text) { reply(text_reply(text)); });
         });
       }},
      {"load", load_verb([&coordinator, options](const std::string& file, std::uint32_t task, const Words& arguments,
                                                 const ReplyTaker& reply) {
         check_program(file, options);
         coordinator.post([&coordinator, file, task, arguments, reply] {
           try {
             coordinator.start_program(file, task, arguments);
             reply({});
           } catch (const Error& error) {
             reply({error.what(), {}});
           }
         });
       })},
      {"stop",
       [&coordinator](const Words&, const ReplyTaker& reply) {
         coordinator.stop(stopped_status, stopped_text);
         reply({});
       }},
  };
}

Verbs machine_verbs(const std::string& program, Grid grid, std::function<std::string()> polls,
                    std::function<void(int status, const std::string& text)> stop) {
  const auto start = std::chrono::steady_clock::now();
  const auto refusal = [](const char* text) {
    return [text](const Words&, const ReplyTaker&) { throw Error(Errc::failed, text); };
  };
  return {
      {"status",
       [=](const Words&, const ReplyTaker& reply) {
         wire::MachineStatus status;
         status.state = "running";
         status.seconds = static_cast<std::uint64_t>(
             std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - start).count());
         status.grid = grid;
         status.cells = CellMap(grid.count());
         status.program = program;
         status.processes.push_back({.name = "local",
                                     .computer = computer_name(),
                                     .pid = static_cast<std::uint64_t>(::getpid()),
                                     .state = "running",
                                     .node = {.cpu_microseconds = os::cpu_microseconds(), .polls = polls()}});
         reply({{}, wire::encode(status)});
       }},
      {"tasks", refusal("tasks: only machines of aprun -f can tell")},
      {"load", refusal("load: only machines of aprun -f can load programs while they run")},
      {"stop",
       [stop = std::move(stop)](const Words&, const ReplyTaker& reply) {
         stop(stopped_status, stopped_text);
         reply({});
       }},
  };
}

}  // namespace aplib::launch::ctl
