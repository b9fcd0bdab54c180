// SPDX-License-Identifier: MIT
#include "launch/control/registry_actions.hpp"

#include <unistd.h>

#include <array>
#include <chrono>
#include <utility>

#include "aplib/error.hpp"
#include "kernel/program_summary.hpp"
#include "kernel/programs.hpp"
#include "launch/control/coordinator.hpp"

namespace aplib::launch {
namespace {

constexpr int stopped_status = static_cast<int>(ExitStatus::interrupted);
constexpr const char* stopped_text = "stopped by apctl";

JobStatus status_of(const MachineState& machine) {
  JobStatus status;
  status.state = machine.phase;
  status.seconds = static_cast<std::uint64_t>(machine.seconds);
  status.file = machine.file;
  status.program = machine.program;
  std::uint32_t cells = 0;
  for (const ProcessState& process : machine.processes) {
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
    for (const NodeWay& way : process.node.ways)
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

DoorActions door_actions(Coordinator& coordinator, const Options& options) {
  DoorActions actions;
  actions.status = [&coordinator](DoorReply reply) {
    coordinator.post([&coordinator, reply = std::move(reply)] {
      coordinator.ask_state(
          [reply](const MachineState& machine) { reply({.lines = status_lines(status_of(machine)), .problem = {}}); });
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

}  // namespace aplib::launch
