// SPDX-License-Identifier: MIT
// Registry: the machines that this user runs on this computer. Each aprun has a socket in a folder that nobody else can use; apctl looks there.
// A request and its answer are lines of words.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aplib/options.hpp"

namespace aplib::launch::ctl {

/// By which module a process reaches others.
struct JobWay {
  std::string module;
  std::string peers;  ///< Numbers of processes: "0-3,7".
  std::string text;   ///< How the pair is connected; empty: there are several.
};

/// A process of a machine.
struct JobProcess {
  std::string name;      ///< As in the cluster file.
  std::string computer;  ///< The host's own name; empty: not known yet.
  std::uint64_t pid = 0;
  std::string address;  ///< Where it listens; empty: nowhere.
  std::uint32_t first_cell = 0;
  std::uint32_t cells = 0;
  std::string state;  ///< "running", "loading", ...
  std::uint64_t frames_sent = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t frames_received = 0;
  std::uint64_t bytes_received = 0;
  std::vector<JobWay> ways{};
};

struct JobStatus {
  std::string state;          ///< Of the machine: "running", ...
  std::uint64_t seconds = 0;  ///< Since aprun was started.
  Grid grid{0, 0};            ///< 0x0: not known yet.
  std::string file;           ///< Cluster file; empty: none.
  std::string program;
  std::vector<JobProcess> processes;
};

/// Lines of join_words().
[[nodiscard]] std::string status_lines(const JobStatus& status);
/// Nothing: they make no sense.
[[nodiscard]] std::optional<JobStatus> read_status_lines(std::string_view lines);

/// The folder of this user's sockets: $XDG_RUNTIME_DIR/aplib, or /tmp/aplib-UID where that is not set. Made if missing, for this user alone. Throws Error(failed) when it cannot be
/// made or is not ours alone: then a stranger may have put it there.
[[nodiscard]] std::string registry_folder();

/// Numbers (process ids of aprun) of the machines that answer, rising. Removes sockets whose aprun has died.
[[nodiscard]] std::vector<std::uint32_t> registered_jobs(const std::string& folder);

/// Removes sockets of processes that are gone, and disturbs no other.
void forget_dead_jobs(const std::string& folder);

/// Where job number `job` listens.
[[nodiscard]] std::string job_socket(const std::string& folder, std::uint32_t job);

/// Asks a job: words of a request; its answer is lines. Blocks, for at most so many seconds. Throws Error(failed) when there is no such job or it refuses, in its words.
[[nodiscard]] std::string ask_job(const std::string& folder, std::uint32_t job, const std::vector<std::string>& request,
                                  int seconds_max = 30);

// ---- lines of words: words are separated by blanks, and what is no plain character is written %XX ----

/// Without an end of line. Any bytes can stand in words, and words can be empty ("%").
[[nodiscard]] std::string join_words(const std::vector<std::string>& words);
/// Nothing: it was not made by join_words().
[[nodiscard]] std::optional<std::vector<std::string>> split_words(std::string_view line);

/// A stream between two processes of this computer.
/// Owns a descriptor, or none (-1).
class RegistrySocket {
 public:
  explicit RegistrySocket(int descriptor = -1) noexcept : descriptor_(descriptor) {}
  ~RegistrySocket();
  RegistrySocket(RegistrySocket&& other) noexcept;
  RegistrySocket& operator=(RegistrySocket&& other) noexcept;

  static RegistrySocket make();

  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  /// 0, or -1 and errno. A path that is too long for a socket is ENAMETOOLONG.
  [[nodiscard]] int connect(const std::string& path) const;
  /// Appears under `path` when it listens already, so that whoever finds it can connect. Replaces what is there. 0, or -1 and errno.
  [[nodiscard]] int listen(const std::string& path) const;
  /// All of it; false: the other end is gone, or does not read.
  [[nodiscard]] bool send(std::string_view bytes) const;
  /// Whose the process at the other end is; -1: not known.
  [[nodiscard]] uid_t peer_user() const;

 private:
  int descriptor_;
};

}  // namespace aplib::launch::ctl
