// SPDX-License-Identifier: MIT
// Session: one apfarm from its first job to its last. One thread hands jobs to hosts, waits for their ends and for
// signals, and prints.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farm/apfarm/command_template.hpp"
#include "farm/apfarm/inputs.hpp"
#include "farm/apfarm/job_host.hpp"
#include "farm/queue.hpp"

namespace aplib::farm {

/// When a session ends before its last job (--halt).
struct Halt {
  enum class When : std::uint8_t { never, soon, now };  ///< soon: what runs may end.
  enum class On : std::uint8_t { failed, succeeded, done };
  When when = When::never;
  On on = On::failed;
  std::uint64_t count = 0;  ///< So many jobs, or
  double part = 0;          ///< this part of all that are known, when those are three at least. 0: count.

  /// GNU Parallel's words: "now,fail=1", "soon,success=3", "never", "fail=20%", 0, 1, 2. Nothing: not of this form.
  static std::optional<Halt> parse(std::string_view text);
};

enum class Resume : std::uint8_t {
  no,
  rest,    ///< Jobs that the joblog does not have.
  failed,  ///< Those, and those that failed.
};

/// Names of a job's files (moved_files.hpp).
struct FileTemplates {
  std::vector<CommandTemplate> sends{};
  std::vector<CommandTemplate> returns{};
  bool cleanup = false;
};

/// Where outputs go instead of standard output (--results).
struct Results {
  CommandTemplate place;             ///< A folder; with values in it and without / at the end, the beginning of names.
  std::vector<std::string> names{};  ///< Of the values, in folders' names; their numbers where there are none.
};

struct SessionOptions {
  std::string title{};  ///< What apctl web calls it.
  unsigned tries = 1;
  Time timeout{0};      ///< 0: none.
  bool copies = false;  ///< Idle slots run what others have for long, when nothing waits; the first to end counts.
  bool keep_order = false;
  std::optional<CommandTemplate> tag{};  ///< What each line of output begins with, and a tab.
  bool ungroup = false;
  bool dry_run = false;
  bool json = false;
  bool verbose = false;          ///< The command stands on standard error when it starts,
  bool prints_commands = false;  ///< or before its output.
  bool bar = false;
  bool progress = false;
  bool eta = false;
  Time delay{0};  ///< Between the starts of jobs.
  Halt halt{};
  FileTemplates files{};
  std::string joblog{};  ///< Empty: none.
  std::optional<Results> results{};
  Resume resume = Resume::no;
};

/// Runs the jobs on these hosts. Returns apfarm's exit status, as GNU Parallel's: 0, the number of failed jobs up to
/// 100, 101 for more, or what --halt says; 128 + number when a signal ended it. Throws Error. Once per process: it
/// takes signals.
[[nodiscard]] int run_session(const CommandTemplate& commands, Inputs& inputs, const SessionOptions& options,
                              std::vector<std::unique_ptr<JobHost>> hosts);

}  // namespace aplib::farm
