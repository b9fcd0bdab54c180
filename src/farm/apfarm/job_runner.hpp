// SPDX-License-Identifier: MIT
// JobRunner: runs jobs as processes of this computer, one in each slot at a time.
#pragma once

#include <deque>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/os/descriptor.hpp"
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

/// Once per process: it takes SIGCHLD.
class JobRunner final : public JobHost {
 public:
  struct Settings {
    std::size_t slots = 1;
    bool captures = true;  ///< Else jobs write where this process does.
    std::string shell = "/bin/sh";
    std::string owner{};  ///< PARALLEL_PID
  };
  explicit JobRunner(const Settings& settings);
  ~JobRunner() override;

  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  void give(std::size_t slot, JobOrder order) override;
  void stop(std::size_t slot, TaskNumber task, Stop how) override;
  void add_waits(std::vector<pollfd>& waits) const override;
  [[nodiscard]] std::optional<Time> next_time() const override;
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
    JobFiles files{};             // for the next one
    std::optional<Time> begun{};  // of the first one, or of the first attempt to start it
    double start = 0;
    Time kill_at = Time::max();
    bool stopping = false;
  };

  [[nodiscard]] std::size_t index_of(const Slot& slot) const { return static_cast<std::size_t>(&slot - slots_.data()); }
  void begin(Slot& slot);
  void begin_waiting();
  void end_early(Slot& slot);
  void conclude(Slot& slot, JobEnd end);
  void reap();
  void pass_time(Time now);

  const std::string name_ = ":";
  const Settings settings_;
  os::UniqueFd ends_;
  os::UniqueFd no_input_;
  GroupGuard guard_;
  std::unique_ptr<Environment> environment_;
  std::vector<Slot> slots_;
  HostNews news_;  // for the next work()
  bool paused_ = false;
  bool starts_wait_ = false;
  bool killing_ = false;
};

}  // namespace aplib::farm
