// SPDX-License-Identifier: MIT
// bench-coordinator: the launcher's side of a machine of very many hosts. The nodes are simulated: a second process is
// at the other end of their pipes, answers as nodes do, and runs nothing.
//
//   bench-coordinator 100 1000 9900
//
// For each number of hosts, it prints what the launcher takes: seconds until all run, its memory then, seconds of a
// status as apctl asks for it, and seconds from the loss of a host until all others are told to stop and have left.
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "aplib/version.hpp"
#include "base/os/descriptor.hpp"
#include "base/os/local_socket.hpp"
#include "comm/greeting.hpp"
#include "comm/job_key.hpp"
#include "launch/coordinator/coordinator.hpp"
#include "launch/output.hpp"
#include "launch/start/starter.hpp"
#include "launch/wire/connection.hpp"
#include "launch/wire/event_loop.hpp"
#include "launch/wire/files.hpp"
#include "launch/wire/protocol.hpp"
#include "launch/wire/run_messages.hpp"
#include "launch/wire/start_messages.hpp"
#include "launch/wire/status.hpp"

namespace {

using namespace aplib;
using namespace aplib::launch;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Of this process, in MiB.
double resident_memory() {
  std::ifstream file("/proc/self/statm");
  double all = 0;
  double resident = 0;
  file >> all >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

void write_number(int descriptor, double number) {
  if (::write(descriptor, &number, sizeof number) != sizeof number) std::_Exit(1);
}

double read_number(int descriptor) {
  double number = 0;
  if (::read(descriptor, &number, sizeof number) != sizeof number) throw Error(Errc::failed, "the nodes have ended");
  return number;
}

/// All nodes, on one thread. They write to `news` when all have been told to go, and when all but the lost one have
/// been told to stop; a number in `orders` makes the last node break its connection.
class Nodes {
 public:
  Nodes(std::vector<os::Ends> ends, int orders, int news) : ends_(std::move(ends)), orders_(orders), news_(news) {}

  [[noreturn]] void run() {
    std::string key(2 * 32, '\0');
    if (::read(orders_, key.data(), key.size()) != static_cast<ssize_t>(key.size())) std::_Exit(0);
    settings_.key = *comm::JobKey::from_hex(key);
    settings_.timeout = std::chrono::hours(1);
    nodes_.resize(ends_.size());
    loop_.post([this] {
      for (std::uint32_t process = 0; process < ends_.size(); ++process) greet(process);
    });
    std::thread([this] {
      (void)read_number(orders_);
      loop_.post([this] { nodes_.back()->drop(); });
    }).detach();
    loop_.run();
    std::_Exit(0);
  }

 private:
  void greet(std::uint32_t process) {
    wire::ConnectionSettings settings = settings_;
    settings.self = process;
    wire::ConnectionEvents events;
    events.opened = [this, process](std::uint32_t) { loop_.post([this, process] { begin(process); }); };
    events.closed = [](wire::ConnectionEnd, const std::string&) {};
    nodes_[process] = wire::connect_pair(loop_, settings, std::move(ends_[process]), comm::Introduction::launcher, "",
                                         std::move(events));
  }

  void begin(std::uint32_t process) {
    wire::Connection& connection = *nodes_[process];
    connection.trust();
    wire::ConnectionEvents events;
    events.message = [this, process](wire::MessageType type, std::span<const std::byte>) { take(process, type); };
    events.closed = [](wire::ConnectionEnd, const std::string&) {};
    connection.listen(std::move(events));
    wire::Hello hello;
    hello.version = version;
    hello.process = process;
    hello.host_id = hello.host = fmt::format("computer{}", process);
    hello.local = fmt::format("10.{}.{}.{}", process / 65536, process / 256 % 256, process % 256);
    connection.send(hello);
  }

  void take(std::uint32_t process, wire::MessageType type) {
    wire::Connection& connection = *nodes_[process];
    const auto count = static_cast<std::uint32_t>(nodes_.size());
    switch (type) {
      case wire::MessageType::measure: {
        wire::SpeedIs speed;
        speed.speed = 1;
        speed.threads = 1;
        return connection.send(speed);
      }
      case wire::MessageType::prepare:
        return connection.send(wire::Prepared{
            fmt::format("tcp=10.{}.{}.{}:{}", process / 65536, process / 256 % 256, process % 256, 40000), {}, ""});
      case wire::MessageType::plan:
        return connection.send(wire::Ready{});
      case wire::MessageType::go:
        if (++going_ == count) write_number(news_, now());
        return;
      case wire::MessageType::stop: {
        wire::Finished finished;
        finished.cell_status = {0};
        connection.send(finished);
        if (++stopped_ == count - 1) write_number(news_, now());
        return;
      }
      case wire::MessageType::refused:
      case wire::MessageType::leave:
        return connection.close();
      default:
        return;
    }
  }

  std::vector<os::Ends> ends_;
  int orders_;
  int news_;
  wire::EventLoop loop_;
  wire::ConnectionSettings settings_{.key = comm::JobKey::make()};
  std::vector<std::shared_ptr<wire::Connection>> nodes_;
  std::uint32_t going_ = 0;
  std::uint32_t stopped_ = 0;
};

/// Gives two descriptors to the process at the other end of a socket.
void give(int socket, int first, int second) {
  const std::byte byte{};
  const std::array<int, 2> both{first, second};
  if (!os::send_message(socket, std::span(&byte, 1), both)) std::_Exit(1);
}

os::Ends taken(int socket) {
  std::byte byte{};
  os::ReceivedMessage received = os::receive_message(socket, std::span(&byte, 1));
  if (received.bytes != 1 || received.passed != 2)
    throw Error(Errc::exhausted, "no further descriptor: raise ulimit -n");
  return {std::move(received.descriptors[0]), std::move(received.descriptors[1])};
}

/// The nodes' ends of their pipes. The launcher gets the others.
std::vector<os::Ends> make_pipes(std::uint32_t hosts, int launcher) {
  std::vector<os::Ends> ends;
  for (std::uint32_t host = 0; host < hosts; ++host) {
    os::Pipe to = os::Pipe::make();
    os::Pipe from = os::Pipe::make();
    give(launcher, from.reader.get(), to.writer.get());
    ends.push_back({std::move(to.reader), std::move(from.writer)});
  }
  return ends;
}

/// Takes the launcher's ends of all pipes.
class PipeStarter : public start::Starter {
 public:
  PipeStarter(int nodes, int orders) : nodes_(nodes), orders_(orders) {}
  void start(std::vector<start::NodeStart> nodes, start::StartEvents events) override {
    const std::string& key = nodes.front().input;  // with an end of line
    for (std::uint32_t process = 0; process < nodes.size(); ++process) events.greets({process, taken(nodes_), ""});
    if (::write(orders_, key.data(), key.size() - 1) != static_cast<ssize_t>(key.size() - 1))
      throw Error(Errc::failed, "the nodes have ended");
  }
  void arrived(std::uint32_t /*process*/) override {}

 private:
  int nodes_;
  int orders_;
};

coordinator::Job make_job(std::uint32_t hosts, bool by_speed) {
  coordinator::Job job;
  for (std::uint32_t host = 0; host < hosts; ++host) {
    cluster::ClusterHost& one = job.cluster.hosts.emplace_back();
    one.name = fmt::format("host{}", host);
    if (!by_speed) one.cells = 1;
  }
  job.cluster.grid = Grid{hosts, 1};
  job.cluster.options.set("peer-timeout", "3600s");
  job.files = wire::describe_files({std::filesystem::read_symlink("/proc/self/exe")});
  job.text.programs = {{.name = "prog"}};
  return job;
}

void measure(std::uint32_t hosts, bool by_speed) {
  std::array<int, 2> sockets{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0)
    throw Error(Errc::exhausted, "no socket");
  os::UniqueFd here(sockets[0]);
  os::UniqueFd there(sockets[1]);
  os::Pipe orders = os::Pipe::make();
  os::Pipe news = os::Pipe::make();
  const pid_t nodes = ::fork();
  if (nodes < 0) throw Error(Errc::exhausted, "no further process");
  if (nodes == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    here.reset();
    Nodes(make_pipes(hosts, there.get()), orders.reader.get(), news.writer.get()).run();
  }
  there.reset();
  news.writer.reset();

  const double memory_before = resident_memory();
  Output output({});
  coordinator::Coordinator coordinator(make_job(hosts, by_speed), output,
                                       std::make_unique<PipeStarter>(here.get(), orders.writer.get()),
                                       {.say = [](const std::string&) {}});
  const double begun = now();
  double ran = 0;
  double memory = 0;
  double status = 0;
  double lost = 0;
  double stopped = 0;
  std::thread user([&] {
    ran = read_number(news.reader.get());
    memory = resident_memory();
    os::Pipe answered = os::Pipe::make();
    const double asked = now();
    coordinator.post([&] {
      const auto bytes = wire::encode(coordinator.status());
      write_number(answered.writer.get(), static_cast<double>(bytes.size()));
    });
    (void)read_number(answered.reader.get());
    status = now() - asked;
    lost = now();
    write_number(orders.writer.get(), 0);
    stopped = read_number(news.reader.get());
  });
  static_cast<void>(coordinator.run());
  const double ended = now();
  user.join();
  ::kill(nodes, SIGKILL);
  ::waitpid(nodes, nullptr, 0);
  fmt::print("{:8}{:12.3f}{:12.1f}{:12.4f}{:12.3f}{:12.3f}\n", hosts, ran - begun, memory - memory_before, status,
             stopped - lost, ended - lost);
  std::fflush(stdout);
}

void allow_descriptors(std::uint32_t hosts) {
  const rlim_t wanted = 2 * rlim_t{hosts} + 60;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, wanted));
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < wanted)
    throw Error(Errc::exhausted, fmt::format("{} hosts take {} descriptors; raise ulimit -n", hosts, wanted));
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::uint32_t> sizes{100, 1000};
  CLI::App app("bench-coordinator: the launcher's side of a machine of many simulated hosts", "bench-coordinator");
  app.add_option("hosts", sizes, "How many hosts, one measurement each")->check(CLI::Range(2, 16384));
  bool by_speed = false;
  app.add_flag("--by-speed", by_speed, "Cells are shared out by measured speeds");
  CLI11_PARSE(app, argc, argv);
  try {
    fmt::print("{:>8}{:>12}{:>12}{:>12}{:>12}{:>12}\n", "hosts", "start s", "memory MiB", "status s", "loss s",
               "end s");
    for (const std::uint32_t hosts : sizes) {
      allow_descriptors(hosts);
      measure(hosts, by_speed);
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench-coordinator: {}\n", error.what());
    return 1;
  }
}
