// SPDX-License-Identifier: MIT
// LaunchMethod: how a process of ours makes a node run on a host, and what its end means. There is one for each
// LaunchKind that the launcher starts.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/start/starter.hpp"

namespace aplib::launch::start {

/// How it ended for one node.
struct MethodEnd {
  int status = 0;                  ///< Of our process: exit status, or 128 + signal.
  bool told = false;               ///< The shell there has told the node's status, and `status` is that.
  bool began = false;              ///< The shell on the host has told that it is there.
  bool arrived = false;            ///< The node has called back.
  int attempt = 1;                 ///< How many times it was tried, this one included.
  std::string lost_folder;         ///< The folder that the host does not have.
  std::vector<std::string> words;  ///< What was written last, without our own marks.
};

/// What follows.
struct Verdict {
  enum class Kind { ended, failed, again };
  Kind kind = Kind::ended;
  int status = 0;                      ///< ended
  std::string text;                    ///< failed: the message. again: why, for the log.
  std::chrono::milliseconds pause{0};  ///< again: after that time.
};

/// Stateless; used by the starter's thread alone.
class LaunchMethod {
 public:
  LaunchMethod() = default;
  virtual ~LaunchMethod() = default;
  LaunchMethod(const LaunchMethod&) = delete;
  LaunchMethod& operator=(const LaunchMethod&) = delete;

  /// Of our process. Several nodes: only where together() is true.
  [[nodiscard]] virtual std::vector<std::string> command(const std::vector<NodeStart>& nodes) const = 0;
  /// Where our process runs.
  [[nodiscard]] virtual std::string folder(const NodeStart& /*node*/) const { return {}; }
  [[nodiscard]] virtual Verdict judge(const NodeStart& node, const MethodEnd& end) const = 0;
  /// The message when our own process cannot even be executed; `why` is the system's.
  [[nodiscard]] virtual std::string not_executed(const NodeStart& node, const std::string& why) const = 0;
  /// Why nothing of this kind can be started here and now; "" when it can. Asked once, before the first.
  [[nodiscard]] virtual std::string hindrance() const { return {}; }
  /// One process of ours starts all nodes of this kind.
  [[nodiscard]] virtual bool together() const { return false; }
  /// At most some at a time.
  [[nodiscard]] virtual bool in_turn() const { return true; }
  /// What comes before its shell's mark are greetings and complaints of login shells. They matter only when the start
  /// fails.
  [[nodiscard]] virtual bool has_foreword() const { return false; }
  /// A line of our process's that says nothing to anybody.
  [[nodiscard]] virtual bool is_noise(std::string_view /*line*/) const { return false; }
  /// A command that kills what runs for `node` on its host, where ending our own process does not; `group` as its
  /// shell told. Empty: not needed.
  [[nodiscard]] virtual std::vector<std::string> kill_command(const NodeStart& /*node*/, long /*group*/) const {
    return {};
  }
};

[[nodiscard]] std::unique_ptr<LaunchMethod> make_local_method();
[[nodiscard]] std::unique_ptr<LaunchMethod> make_command_method();
/// `ssh`: words of the command, options included.
[[nodiscard]] std::unique_ptr<LaunchMethod> make_ssh_method(std::vector<std::string> ssh);
[[nodiscard]] std::unique_ptr<LaunchMethod> make_slurm_method();

// ---- Slurm: what the allocation that we run in looks like ----

/// "" inside an allocation (sbatch, salloc) with srun at hand; else what is missing and what to do.
[[nodiscard]] std::string slurm_hindrance();

/// Names of the allocation's hosts, in Slurm's order; none outside of one. For [[host]]s of a cluster file that
/// name none.
[[nodiscard]] std::vector<std::string> slurm_hosts();

/// "n[1-3,07-08]x,m" is n1x n2x n3x n07x n08x m: Slurm's compact lists (hostlist). A text that is no such list
/// comes back as one name.
[[nodiscard]] std::vector<std::string> expand_hostlist(std::string_view list);

// ---- what the methods have in common ----

/// "host 'ws1'".
[[nodiscard]] std::string host_name(const NodeStart& node);
/// "was killed by signal 9 (Killed)", "ended with status 3".
[[nodiscard]] std::string how_it_ended(int status);
/// The last few words in quotes and parentheses, or "".
[[nodiscard]] std::string quoted(const std::vector<std::string>& words);
/// The verdict on a node whose shell or process has run: 126 and 127 before it has called back mean that it was not
/// there.
[[nodiscard]] Verdict judge_program(const NodeStart& node, const MethodEnd& end, std::string_view by);

/// Lines by which the shell on the host reports to us; they are not passed on.
namespace mark {
inline constexpr std::string_view begins = "aplib-node begins ";        ///< and its process id, a group leader's
inline constexpr std::string_view no_folder = "aplib-node no folder ";  ///< and the folder
inline constexpr std::string_view ends = "aplib-node ends ";            ///< and the status
inline constexpr std::string_view process =
    "aplib-node process ";  ///< and its number: srun, whose lines are labelled by task
}  // namespace mark

/// What a shell on the host runs for a node: `marks`, the folder, the command; it stays and tells the status.
[[nodiscard]] std::string node_script(const NodeStart& node);

// ---- words for a POSIX shell, and texts with {name} in them ----

/// `word` so that a shell reads exactly it: as it is when it has only letters, digits and the harmless signs, else
/// in single quotes.
[[nodiscard]] std::string shell_quote(std::string_view word);

/// All words, quoted, with blanks between.
[[nodiscard]] std::string shell_command(std::span<const std::string> words);

/// The words of a command as people write it in an option: blanks separate, single and double quotes hold together,
/// a backslash takes the next character as it is. Throws Error(bad_option) naming `subject` for a quote without
/// end.
[[nodiscard]] std::vector<std::string> split_words(std::string_view text, std::string_view subject);

/// `text` with every "{name}" of the list replaced; other braces stay, they are the shell's.
[[nodiscard]] std::string fill_in(std::string_view text,
                                  std::span<const std::pair<std::string_view, std::string>> values);

}  // namespace aplib::launch::start
