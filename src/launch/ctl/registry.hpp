// SPDX-License-Identifier: MIT
// Registry: the machines that this user runs on this computer. Each aprun has a socket in a folder that nobody else
// can use; apctl looks there. A request and its reply are structures of fields.hpp behind their length.
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/os/descriptor.hpp"
#include "base/os/own_folder.hpp"
#include "launch/wire/fields.hpp"
#include "launch/wire/status.hpp"

namespace aplib::launch::ctl {

/// A request of apctl: a verb and its words. The answer is the verb's (door.hpp), or a message about a problem.
struct Request {
  std::vector<std::string> words{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.words);
  }
};
struct Reply {
  std::string problem{};
  wire::Bytes content{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.problem, self.content);
  }
};

/// A text as the content of a reply, and back.
[[nodiscard]] Reply text_reply(const std::string& text);
[[nodiscard]] std::string text_of(const wire::Bytes& content);

/// The folder of this user's sockets.
using os::own_folder;
using os::registry_folder;

/// The numbers (process ids of aprun) of the machines that answer, in rising order. Removes sockets whose aprun has
/// died.
[[nodiscard]] std::vector<std::uint32_t> registered_jobs(const std::string& folder);

/// The numbers of the jobs that have a socket, in rising order. Their apruns notice nothing, and may have died.
[[nodiscard]] std::vector<std::uint32_t> found_jobs(const std::string& folder);

/// Removes sockets and folders of processes that have ended, and no others: of jobs, also those that never listened,
/// and of keepers of pools.
void forget_dead_jobs(const std::string& folder);

/// The socket of job number `job`.
[[nodiscard]] std::string job_socket(const std::string& folder, std::uint32_t job);

/// Who asks this is told when the machine has ended, by a file beside its socket that stays for a while.
inline constexpr const char* end_verb = "end";
void leave_end(const std::string& job_socket, const wire::MachineEnd& end) noexcept;
/// Nothing: nobody has asked, or its aprun was killed.
[[nodiscard]] std::optional<wire::MachineEnd> read_end(const std::string& folder, std::uint32_t job);

/// A folder for further sockets of job number `job`, which makes and removes it.
[[nodiscard]] std::string job_folder(const std::string& folder, std::uint32_t job);

/// Asks a job and returns the content of its reply. Blocks for at most this many seconds. Throws Error(failed) when
/// there is no such job, it does not answer, or it refuses, with its message.
[[nodiscard]] wire::Bytes ask_job(const std::string& folder, std::uint32_t job, const std::vector<std::string>& request,
                                  int seconds_max = 30);

/// A stream between two processes of this computer, or none.
class RegistrySocket {
 public:
  /// Without a descriptor, errno says why.
  explicit RegistrySocket(int descriptor = -1) noexcept : descriptor_(descriptor), error_(descriptor < 0 ? errno : 0) {}

  static RegistrySocket make();

  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }
  /// How long connect() and send() wait at most for an aprun that takes nothing.
  void limit_waits(std::chrono::microseconds time) const;
  /// 0, or -1 and errno. A path that is too long for a socket is ENAMETOOLONG; EAGAIN: somebody listens, but many
  /// others wait already.
  [[nodiscard]] int connect(const std::string& path) const;
  /// The socket appears at `path` only when it already listens, so that whoever finds it can connect. Replaces what is
  /// there. Returns 0, or -1 and errno.
  [[nodiscard]] int listen(const std::string& path) const;
  /// Sends all of it, after its length. False: the other end is gone, or does not read.
  [[nodiscard]] bool send(std::span<const std::byte> bytes) const;
  /// Receives what send() sent at the other end. Nothing: the other end is gone, `readable` says that waiting is over,
  /// or it is longer than `bytes_max`. `readable` waits until there is something to read.
  [[nodiscard]] std::optional<wire::Bytes> receive(std::size_t bytes_max, const std::function<bool()>& readable) const;
  /// The user of the process at the other end; -1: not known.
  [[nodiscard]] uid_t peer_user() const;

 private:
  /// Or errno says why not.
  [[nodiscard]] bool is_made() const noexcept;

  os::UniqueFd descriptor_;
  int error_;  // why there is no descriptor
};

}  // namespace aplib::launch::ctl
