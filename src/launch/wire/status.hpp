// SPDX-License-Identifier: MIT
// The status of a running machine, for people who ask. Nodes give their part, the coordinator the rest, and apctl shows
// it. This is its only description, with one form in bytes (fields.hpp).
#pragma once

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "aplib/options.hpp"
#include "base/cell_map.hpp"
#include "launch/wire/fields.hpp"

namespace aplib::launch::wire {

/// The module that reaches some of the others.
struct Route {
  std::string module{};
  std::string peers{};  ///< Numbers of processes: "0-3, 7".
  std::string text{};   ///< How the pair is connected; empty: there are several pairs.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.module, self.peers, self.text);
  }
};

/// What only a node knows: the answer to node_state_question.
struct NodeState {
  std::string module{};
  std::uint64_t frames_sent = 0;
  std::uint64_t frames_received = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t refused = 0;
  std::uint64_t cpu_microseconds = 0;  ///< Processor time that the process has used.
  std::string polls{};                 ///< How long its threads poll before they sleep; empty: they do not run.
  std::vector<Route> routes{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.module, self.frames_sent, self.frames_received, self.bytes_sent, self.bytes_received, self.refused,
           self.cpu_microseconds, self.polls, self.routes);
  }
};
inline constexpr const char* node_state_question = "state";

/// Asks a node to hand this signal to its programs, if all of them handle it. The answer is one byte: 1, or 0 where one
/// does not; none where no program lives any more.
inline std::string signal_question(int signal) { return "signal " + std::to_string(signal); }
inline Bytes signal_answer(std::optional<bool> passed) { return passed ? Bytes{std::byte{*passed}} : Bytes(); }
/// Nothing: another question.
inline std::optional<int> asked_signal(const std::string& question) {
  for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM})
    if (question == signal_question(signal)) return signal;
  return std::nullopt;
}
/// Some nodes have handed it on, and none has refused. One without an answer has no program any more.
inline bool have_passed(const std::vector<std::optional<Bytes>>& answers) {
  const auto is = [](bool passed) {
    return [passed](const std::optional<Bytes>& each) { return each && *each == signal_answer(passed); };
  };
  return std::ranges::any_of(answers, is(true)) && std::ranges::none_of(answers, is(false));
}

struct ProcessStatus {
  std::string name{};      ///< As in the cluster file.
  std::string computer{};  ///< The host's own name; empty: not known yet.
  std::uint64_t pid = 0;
  std::string address{};  ///< Where it listens for messages; empty: nowhere.
  std::string state{};    ///< "running", "loading", ...
  NodeState node{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.name, self.computer, self.pid, self.address, self.state, self.node);
  }
};

struct MachineStatus {
  std::string state{};          ///< "running", ...
  std::uint64_t seconds = 0;    ///< Since aprun was started.
  std::uint64_t strangers = 0;  ///< Connections to the launcher that did not prove the key.
  Grid grid{0, 0};              ///< 0x0: not known yet.
  CellMap cells{};              ///< As planned until the machine runs. Without cells: not known yet.
  std::string file{};           ///< Cluster file; empty: none.
  std::string program{};
  std::vector<ProcessStatus> processes{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.state, self.seconds, self.strangers, self.grid.nx, self.grid.ny, self.cells, self.file, self.program,
           self.processes);
  }
};

/// How a machine has ended.
struct MachineEnd {
  std::uint32_t status = 0;
  std::string reason{};  ///< Empty: it is through.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.status, self.reason);
  }
};

}  // namespace aplib::launch::wire
