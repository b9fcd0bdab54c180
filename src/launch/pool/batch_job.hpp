// SPDX-License-Identifier: MIT
// BatchJob: the job of a batch system that has the hosts of a pool. Its script starts a keeper on each of them, and
// ends with the last keeper. Who the hosts are and where the keepers stand, it writes to a file in the job's folder,
// which the job's first host and the launcher's computer have both.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace aplib::launch::pool {

enum class BatchSystem : std::uint8_t { slurm, sge };

/// "Slurm", "Grid Engine".
[[nodiscard]] std::string_view batch_text(BatchSystem system);
/// The one of that name, "slurm" or "sge"; "auto": the one whose commands are here. Throws Error(bad_option).
[[nodiscard]] BatchSystem batch_system(std::string_view name);

/// What the script of a job has to know.
struct BatchPlan {
  BatchSystem system = BatchSystem::slurm;
  std::string pool{};                 ///< Its name.
  std::string keepers{};              ///< Keeper n is keepers-n.
  std::vector<std::string> keeper{};  ///< The command of one, but for its number.
  std::string folder{};               ///< Of the job.
};
[[nodiscard]] std::string batch_script(const BatchPlan& plan);

/// What the script has written.
struct BatchHosts {
  struct Host {
    std::string name{};
    std::string socket{};  ///< Of the keeper, on its host. Empty: none stands.
    bool ended = false;    ///< The keeper has ended, or could not begin.
  };
  std::vector<Host> hosts{};  ///< In the batch system's order. None: the script has not begun.
  bool over = false;          ///< All keepers have ended.
};
[[nodiscard]] BatchHosts read_batch_hosts(std::string_view text);

/// What a batch system says of a job.
struct BatchState {
  enum class Kind : std::uint8_t { waits, runs, ended, unknown };
  Kind kind = Kind::unknown;
  std::string words{};  ///< The batch system's own: "PENDING, Resources".
};
/// From the answer of `squeue --format=%T|%r`, or of `qstat`. No answer: the job has ended.
[[nodiscard]] BatchState read_batch_state(BatchSystem system, std::string_view answer, std::string_view number);

/// Calls of the batch system's commands block until these have ended.
struct BatchJob {
  BatchSystem system = BatchSystem::slurm;
  std::string number{};
  std::string folder{};
  bool submitted = false;  ///< By apctl. Else the pool was made inside of the job.

  /// "job 123 of Slurm".
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::string file(std::string_view name) const;
  /// What its script has written so far.
  [[nodiscard]] BatchHosts hosts() const;
  [[nodiscard]] BatchState state() const;
  /// Why its pool has no hosts, or none any more: the end of a sentence about the job.
  [[nodiscard]] std::string absence() const;

  /// Gives the script to the batch system, with options of its command. Throws Error(failed).
  void submit(const std::vector<std::string>& options);
  /// Starts the script inside of the job in which this process is, and waits until each keeper stands or has failed.
  /// Throws Error(failed) where none stands.
  void begin_here() const;
  // Of Slurm alone:
  /// At which it reaches these hosts. Empty: unknown. Throws Error.
  [[nodiscard]] std::vector<std::string> addresses(const std::vector<std::string>& names) const;
  /// What runs a script for sh on a host of the job, with the command's own standard streams.
  [[nodiscard]] std::vector<std::string> command_on(const std::string& host, const std::string& script) const;

  /// Ends a job that was submitted. Returns "", or what went wrong.
  [[nodiscard]] std::string cancel() const;
};

/// A job as a text, and back.
[[nodiscard]] std::string print_batch_job(const BatchJob& job);
[[nodiscard]] std::optional<BatchJob> read_batch_job(std::string_view text);

}  // namespace aplib::launch::pool
