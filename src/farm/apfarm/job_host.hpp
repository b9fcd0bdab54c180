// SPDX-License-Identifier: MIT
// JobHost: a computer that runs jobs, in as many slots as it has: this one (job_runner.hpp), or a host of a pool
// (remote_host.hpp). A slot runs what it is given in order.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "farm/apfarm/command_template.hpp"
#include "farm/apfarm/job_process.hpp"
#include "farm/apfarm/moved_files.hpp"
#include "farm/queue.hpp"

namespace aplib::farm {

/// A job for a slot.
struct JobOrder {
  TaskNumber task = 0;
  std::uint64_t sequence = 0;
  unsigned slot_number = 1;  ///< For people: {%}, over all hosts.
  Command command{};
  JobFileNames files{};  ///< For hosts that do not have them.
};

/// The exit value of a job that could not be started, or whose files could not be moved.
inline constexpr int not_started_value = 255;

/// How a run of a job has ended.
struct JobEnd {
  std::size_t slot = 0;
  TaskNumber task = 0;
  bool begun = false;  ///< Else it was told to stop before that.
  double start = 0;    ///< Seconds since 1970.
  Time ran{0};
  int exit_value = 0;
  int signal = 0;
  std::string problem{};  ///< Why it could not be started; then exit_value is not_started_value.
  JobFiles files{};       ///< What it has written; none: nothing.
};

/// unless_begun: a job that runs may go on. term: SIGTERM, and soon SIGKILL.
enum class Stop : std::uint8_t { unless_begun, term, kill, last = kill };

/// What has happened on a host.
struct HostNews {
  std::optional<std::size_t> came{};  ///< It has so many slots from now on; they are free.
  std::optional<std::string> lost{};  ///< It runs nothing any more, and why; a whole message.
  std::vector<JobEnd> ends{};         ///< In the order in which they have ended.
};

/// Thread safety: none. No call waits.
class JobHost {
 public:
  JobHost() = default;
  virtual ~JobHost() = default;  ///< Kills what it runs.
  JobHost(const JobHost&) = delete;
  JobHost& operator=(const JobHost&) = delete;

  /// As the joblog has it. ":": this computer.
  [[nodiscard]] virtual const std::string& name() const noexcept = 0;
  /// Behind what the slot has. REQUIRES: the host has come and is not lost.
  virtual void give(std::size_t slot, JobOrder order) = 0;
  /// Its end is told as always. A job that the slot does not have is none of its business.
  virtual void stop(std::size_t slot, TaskNumber task, Stop how) = 0;

  /// Appends what is worth a look at work().
  virtual void add_waits(std::vector<pollfd>& waits) const = 0;
  /// When work() is needed in any case.
  [[nodiscard]] virtual std::optional<Time> next_time() const = 0;
  /// Does what can be done now. `waits`: what add_waits() has appended, with what has happened; empty: not known.
  virtual void work(Time now, std::span<const pollfd> waits, HostNews& news) = 0;
};

}  // namespace aplib::farm
