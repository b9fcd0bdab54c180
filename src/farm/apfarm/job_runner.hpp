// SPDX-License-Identifier: MIT
// JobRunner: runs jobs as processes of this computer, one in each slot at a time.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <deque>
#include <initializer_list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "farm/apfarm/cell_messages.hpp"
#include "farm/apfarm/job_host.hpp"
#include "farm/apfarm/job_process.hpp"

namespace aplib::farm {

/// How many jobs at once a word such as "4", "200%", "+1" or "-1" means on this computer. Throws Error(bad_option).
[[nodiscard]] std::size_t slots_of(const std::string& word);
/// The user's: PARALLEL_SHELL, SHELL, /bin/sh.
[[nodiscard]] std::string usual_shell();
/// Blocks these signals; the descriptor is readable when one has come. Throws Error(exhausted).
[[nodiscard]] os::UniqueFd signals_as_file(std::initializer_list<int> numbers);
[[nodiscard]] Time time_now();

/// Where the program of a cell is, beside this one. Throws Error(failed) when it is not there.
[[nodiscard]] std::string cell_program();

/// A process with a machine of one cell, which runs program files one after the other without a fork
/// (src/farm/cells). A program that takes the process with it costs a new one.
class JobCell {
 public:
  /// Starts it. Throws as JobProcess.
  JobCell(const std::string& program, const std::vector<char*>& environment, std::atomic<pid_t>* group, int nice);

  /// REQUIRES: it has none. False: it has gone.
  [[nodiscard]] bool run(const JobOrder& order, const std::string& entry, int input, int output, int error);
  /// Readable when the job has ended.
  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }
  /// Nothing: it has not ended, or the process has.
  [[nodiscard]] std::optional<CellEnded> hear();

  [[nodiscard]] pid_t pid() const noexcept { return process_->pid(); }
  void signal(int number) const noexcept { process_->signal(number); }

 private:
  os::UniqueFd socket_;
  std::optional<JobProcess> process_;
  MessageStream stream_;
};

/// Once per process: it takes SIGCHLD.
class JobRunner final : public JobHost {
 public:
  struct Settings {
    std::size_t slots = 1;
    bool captures = true;  ///< Else jobs write where this process does.
    std::string shell = "/bin/sh";
    std::string owner{};  ///< PARALLEL_PID
    bool cells = false;   ///< Programs that a cell can run need no process.
    int nice = 0;         ///< Of jobs.
    std::string entry{};  ///< Not empty: jobs are calls of this function, as of aprun --entry, and all run in cells.
  };
  explicit JobRunner(const Settings& settings);
  ~JobRunner() override;

  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  void give(std::size_t slot, JobOrder order) override;
  void stop(std::size_t slot, TaskNumber task, Stop how) override;
  void add_waits(std::vector<pollfd>& waits) const override;
  [[nodiscard]] std::optional<Time> next_time() const override;
  /// Throws Error(exhausted) when there has been no room for any job for long.
  void work(Time now, std::span<const pollfd> waits, HostNews& news) override;

  /// While it pauses, it begins no further job.
  void pause(bool paused) {
    paused_ = paused;
    begin_waiting();
  }

 private:
  class Environment;
  struct Slot {
    std::deque<JobOrder> orders{};  // the first one runs, or waits for room for a process
    std::optional<JobProcess> process{};
    std::optional<JobCell> cell{};
    bool in_cell = false;         // the first one runs there
    JobFiles files{};             // for the next one
    std::optional<Time> begun{};  // of the first one, or of the first attempt to start it
    double start = 0;
    Time kill_at = Time::max();
    bool stopping = false;
    int full = 0;  // why what it has written may not be whole (errno)
  };

  [[nodiscard]] std::size_t index_of(const Slot& slot) const { return static_cast<std::size_t>(&slot - slots_.data()); }
  [[nodiscard]] static bool runs(const Slot& slot) noexcept { return slot.process || slot.in_cell; }
  void begin(Slot& slot);
  void make_files(Slot& slot);
  [[nodiscard]] bool begin_in_cell(Slot& slot);
  void end_in_cell(Slot& slot, const CellEnded& ended);
  void end_cell(Slot& slot);
  [[nodiscard]] std::atomic<pid_t>& cell_group(const Slot& slot) {
    return guard_.group(slots_.size() + index_of(slot));
  }
  static void signal(Slot& slot, int number);
  void begin_waiting();
  void end_early(Slot& slot);
  void conclude(Slot& slot, JobEnd end);
  void judge_output(Slot& slot, JobEnd& end);
  void reap();
  void pass_time(Time now);

  const std::string name_ = ":";
  const Settings settings_;
  os::UniqueFd ends_;
  os::UniqueFd no_input_;
  GroupGuard guard_;                 // of each slot, its process, and behind them of each its cell
  const std::string cell_program_;   // empty: no cells
  std::set<std::string> not_cells_;  // programs
  std::unique_ptr<Environment> environment_;
  std::vector<Slot> slots_;
  HostNews news_;  // for the next work()
  bool paused_ = false;
  bool starts_wait_ = false;
  std::optional<Error> lack_;        // why
  std::optional<Time> lacks_since_;  // and none runs
  bool killing_ = false;
};

}  // namespace aplib::farm
