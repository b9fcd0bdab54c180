// SPDX-License-Identifier: MIT
// LaunchMethod: how a child process makes a node run on a host, and what its end means. There is one for each
// LaunchKind that the launcher starts.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/start/child.hpp"
#include "launch/start/starter.hpp"

namespace aplib::launch::start {

/// Lines kept of what each has said last.
inline constexpr std::size_t words_max = 20;
/// A longer line is passed on in pieces.
inline constexpr std::size_t line_max = std::size_t{64} << 10;

/// How the start of one node ended.
struct MethodEnd {
  int status = 0;                  ///< The child's exit status, or 128 + signal.
  bool told = false;               ///< The shell on the host has reported the node's status, which is `status`.
  bool began = false;              ///< The shell on the host has reported that it runs.
  bool arrived = false;            ///< The node is there.
  int attempt = 1;                 ///< The number of attempts, this one included.
  std::string lost_folder;         ///< The folder that the host lacks.
  std::vector<std::string> words;  ///< The last output, without our own marks.

  void keep(std::string_view line) {
    words.emplace_back(line);
    if (words.size() > words_max) words.erase(words.begin());
  }
};

/// What to do then.
struct Verdict {
  enum class Kind { ended, failed, again };
  Kind kind = Kind::ended;
  int status = 0;                      ///< ended
  std::string text;                    ///< failed: the message. again: why, for the log.
  std::chrono::milliseconds pause{0};  ///< again: after this time.
};

/// Stateless. Only the starter's thread uses it.
class LaunchMethod {
 public:
  LaunchMethod() = default;
  virtual ~LaunchMethod() = default;
  LaunchMethod(const LaunchMethod&) = delete;
  LaunchMethod& operator=(const LaunchMethod&) = delete;

  /// Starts the nodes, in this case by command() and folder(). Several nodes only if together() is true. The guard
  /// watches children. Throws Error.
  [[nodiscard]] virtual std::unique_ptr<Started> begin(const std::vector<NodeStart>& nodes, Guard* guard) const {
    return std::make_unique<Child>(Child::Command{
        .argv = command(nodes), .folder = folder(nodes[0]), .leaves_some = nodes[0].leaves_some, .guard = guard});
  }
  /// The command of the child.
  [[nodiscard]] virtual std::vector<std::string> command(const std::vector<NodeStart>& nodes) const = 0;
  /// The folder in which the child runs.
  [[nodiscard]] virtual std::string folder(const NodeStart& /*node*/) const { return {}; }
  [[nodiscard]] virtual Verdict judge(const NodeStart& node, const MethodEnd& end) const = 0;
  /// The message when begin() throws. `why` is the system's reason.
  [[nodiscard]] virtual std::string not_executed(const NodeStart& node, const std::string& why) const = 0;
  /// Why nothing of this kind can be started here now, or "". Called once, before the first start.
  [[nodiscard]] virtual std::string hindrance() const { return {}; }
  /// Whether one child starts all nodes of this kind.
  [[nodiscard]] virtual bool together() const { return false; }
  /// Whether begin() has passed on NodeStart::input, the node is spoken to at once, without a greeting, and who stands
  /// on its host sees to its end.
  [[nodiscard]] virtual bool is_kept() const { return false; }
  /// Whether only some start at a time.
  [[nodiscard]] virtual bool in_turn() const { return true; }
  /// Whether output before the shell's mark consists of greetings and complaints of login shells, which matter only
  /// when the start fails.
  [[nodiscard]] virtual bool has_foreword() const { return false; }
  /// Whether a line of the child means nothing to the user.
  [[nodiscard]] virtual bool is_noise(std::string_view /*line*/) const { return false; }
  /// A command that kills what runs for `node` on its host, if ending the child does not. `group` is what its shell
  /// reported. Empty: not needed.
  [[nodiscard]] virtual std::vector<std::string> kill_command(const NodeStart& /*node*/, long /*group*/) const {
    return {};
  }
};

[[nodiscard]] std::unique_ptr<LaunchMethod> make_local_method();
[[nodiscard]] std::unique_ptr<LaunchMethod> make_command_method();
/// `ssh`: the words of the command, options included.
[[nodiscard]] std::unique_ptr<LaunchMethod> make_ssh_method(std::vector<std::string> ssh);
[[nodiscard]] std::unique_ptr<LaunchMethod> make_slurm_method();
[[nodiscard]] std::unique_ptr<LaunchMethod> make_keeper_method();

/// A destination of ssh in two parts. [user@]name[:port]; an IPv6 address with a port is [address]:port.
struct SshTarget {
  std::string host;
  std::string port;
};
[[nodiscard]] SshTarget ssh_target(const cluster::ClusterHost& host);

// ---- Slurm: the allocation in which the launcher runs ----

/// Whether a command of that name can be executed.
[[nodiscard]] bool is_in_path(const std::string& program);

/// "" inside an allocation (sbatch, salloc) with srun installed. Otherwise what is missing and what to do.
[[nodiscard]] std::string slurm_hindrance();

/// The names of the allocation's hosts, in Slurm's order; none outside an allocation. For [[host]]s of a cluster file
/// without names.
[[nodiscard]] std::vector<std::string> slurm_hosts();

/// "n[1-3,07-08]x,m" is n1x n2x n3x n07x n08x m: Slurm's compact lists (hostlist). Any other text is returned as one
/// name.
[[nodiscard]] std::vector<std::string> expand_hostlist(std::string_view list);

// ---- what the methods have in common ----

/// "host 'ws1'".
[[nodiscard]] std::string host_name(const NodeStart& node);
/// Why a start is given up whose keeper does not tell that it begins.
[[nodiscard]] std::string keeper_silence(const NodeStart& node);
/// "was killed by signal 9 (Killed)", "ended with status 3".
[[nodiscard]] std::string how_it_ended(int status);
/// The last few words of output in quotes and parentheses, or "".
[[nodiscard]] std::string in_quotes(const std::vector<std::string>& words);
/// The verdict on a node whose shell or process has run. 126 and 127 before it is there mean that the command was
/// missing.
[[nodiscard]] Verdict judge_program(const NodeStart& node, const MethodEnd& end, std::string_view by);

/// Lines on standard error by which the shell on the host reports to the starter. They are not passed on.
namespace mark {
inline constexpr std::string_view begins = "aplib-node begins ";        ///< and its process id, a group leader's
inline constexpr std::string_view no_folder = "aplib-node no folder ";  ///< and the folder
inline constexpr std::string_view ends = "aplib-node ends ";            ///< and the status
inline constexpr std::string_view process =
    "aplib-node process ";  ///< and its number: srun, whose lines are labelled by task
}  // namespace mark

/// What a node's host reports by a line.
struct Mark {
  enum class Kind : std::uint8_t { begins, no_folder, ends };
  Kind kind = Kind::begins;
  std::uint64_t number = 0;   ///< begins: its process; ends: its status.
  std::string_view folder{};  ///< no_folder. A view.
  std::string_view before{};  ///< What somebody wrote without an end of line stands before the mark. A view.
};
/// The mark in a line; only who has begun can end. Nothing: it is words.
[[nodiscard]] std::optional<Mark> find_mark(std::string_view line, bool began);

/// The words of a process that a keeper has started, on their way.
class KeptWords {
 public:
  /// Takes what has come on its standard error. `say`, if any, gets the lines that are no marks, without their ends.
  void take(std::string_view text, const std::function<void(const std::string&)>& say = {});
  /// What they have told so far.
  [[nodiscard]] const MethodEnd& end() const noexcept { return end_; }

 private:
  MethodEnd end_;
  std::string line_;  // unfinished
};

/// The script that a shell on the host runs for a node: `marks`, the folder, the command. The shell stays and reports
/// the status.
[[nodiscard]] std::string node_script(const NodeStart& node);

// ---- words for a POSIX shell, and texts with {name} in them ----

/// `word` in a form that a shell reads as exactly this word: unchanged if it has only letters, digits and harmless
/// signs, otherwise in single quotes.
[[nodiscard]] std::string shell_quote(std::string_view word);

/// All words, quoted, with blanks between them.
[[nodiscard]] std::string shell_command(std::span<const std::string> words);

/// The words of a command as people write it in an option. Blanks separate words, single and double quotes join them,
/// and a backslash quotes the next character. Throws Error(bad_option), which names `subject`, for a quote without an
/// end.
[[nodiscard]] std::vector<std::string> split_words(std::string_view text, std::string_view subject);

/// `text` with every "{name}" of the list replaced. Other braces are the shell's and stay.
[[nodiscard]] std::string fill_in(std::string_view text,
                                  std::span<const std::pair<std::string_view, std::string>> values);

}  // namespace aplib::launch::start
