// SPDX-License-Identifier: MIT
// Coordinator: the launcher's side of a machine of several processes. It starts the nodes, brings all or none of them
// to a common start, carries output, input and notes, notices who dies, and ends everything.
//
//   calling -> measuring -> preparing -> loading -> running -> ending -> over
//      \___________\____________\___________\__________/
// Everything happens on one thread, that of run(). Other threads post to it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/cluster/cluster.hpp"
#include "launch/cluster/shares.hpp"
#include "launch/coordinator/reach.hpp"
#include "launch/files/manifest.hpp"
#include "launch/output.hpp"
#include "launch/program_run.hpp"
#include "launch/report.hpp"
#include "launch/start/starter.hpp"
#include "launch/wire/start_messages.hpp"
#include "launch/wire/status.hpp"

namespace aplib::launch::coordinator {

/// Files of the user that go along with a machine.
struct SentFiles {
  std::shared_ptr<const files::Manifest> manifest{};
  bool replace = false;       ///< Also over files that are there and differ.
  std::vector<bool> hosts{};  ///< By process: whether it gets them.
};

/// Files that come back when a machine has ended.
struct FetchedFiles {
  std::string pattern{};  ///< In the working folder of a process.
  std::string folder{};   ///< On this computer.
  std::vector<bool> hosts{};
};

/// What to run, found and checked.
struct Job {
  cluster::Cluster cluster{};  ///< Its options are final, except for the grid.
  Reach reach{};
  /// What the nodes will say of their hosts, by process, where that is known before: then the start goes on without
  /// waiting for it. Empty: of none.
  std::vector<std::optional<wire::Hello>> foretold{};
  std::vector<wire::FileRef> files{};  ///< As wire::Prepare has them.
  std::vector<SentFiles> sent{};
  std::vector<FetchedFiles> fetched{};
  RunText text{};              ///< The grid is not known yet.
  bool with_host = false;      ///< The program is a host program.
  bool input_for_all = false;  ///< Each cell has an input file.
  std::string aprun{};         ///< Path of aprun, for hosts whose path the cluster file does not give.
  bool dry_run = false;        ///< Ends when everything is prepared, and says what would run.
};

/// How a job ended.
struct JobResult {
  int status = 0;                     ///< 0, or that of the first failure in time; the host program's comes first.
  std::string reason{};               ///< Empty, or the failure of the machine, which has been reported.
  std::vector<std::uint32_t> lost{};  ///< The processes that the failure is about: they did not come, or were lost.
  std::vector<int> cell_status{};     ///< By cell; empty if nothing ran.
  int host_status = 0;                ///< The host program's.
  std::vector<PlannedHost> plan{};    ///< For a dry run.
  CellMap planned_cells{};
  cluster::Shares shares{};
};

class Coordinator {
 public:
  struct Actions {
    /// A line for the user, without "aprun: ". The coordinator's thread.
    std::function<void(const std::string& line)> say;
  };

  /// `output` outlives it.
  Coordinator(Job job, Output& output, std::unique_ptr<start::Starter> starter, Actions actions);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  /// Runs from the start of the nodes to the end of the last one. Reports a failure once. Throws Error if it cannot
  /// listen; then nothing was started. Call it once.
  JobResult run();

  /// Ends the job with this status and text. Any thread, at any time.
  void stop(int status, const std::string& text);

  /// Hands a signal to the programs of all nodes, each of which does so where all its programs handle it. Calls
  /// refused_signal(signal) where one does not. True. Any thread.
  bool pass_signal(int signal);
  std::function<void(int signal)> refused_signal;  ///< Set before run(). The coordinator's thread calls it.

  /// For a status server: runs `what` on the coordinator's thread, where the functions below may be called. Any thread.
  /// If the job ends before, `what` is not called.
  void post(std::function<void()> what);

  /// Everything except what only nodes know. The coordinator's thread.
  [[nodiscard]] wire::MachineStatus status() const;
  /// Asks all running nodes a question. `answer` is called on the same thread, after at most a second, with the answers
  /// of the processes. Empty bytes: that node does not run, or does not know the question. The coordinator's thread.
  void ask_nodes(const std::string& question,
                 std::function<void(const std::vector<std::optional<wire::Bytes>>& answers)> answer);
  /// A line per task of every cell. There is no answer if the machine ends before.
  void ask_tasks(std::function<void(std::string)> answer);
  /// Loads a further program on all cells as task `task`. Throws Error if no machine runs or there is no such file.
  /// What nodes find wrong later is a failure of the machine.
  void start_program(const std::string& file, std::uint32_t task, const std::vector<std::string>& arguments);

  /// The nodes' side of the start, for another launcher that starts them (PMIx): the addresses to call, and the key.
  /// Valid once `listening` is called, before any node is started.
  struct Invitation {
    std::vector<std::string> endpoints;
    std::string key;
  };
  std::function<void(const Invitation&)> listening;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace aplib::launch::coordinator
