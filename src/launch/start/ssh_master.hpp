// SPDX-License-Identifier: MIT
// SshMaster: an ssh connection that stands, so that further commands and forwarded sockets reach its host without a
// login. ssh itself keeps it (ControlMaster), in a process of its own, also when ours has ended.
#pragma once

#include <string>
#include <vector>

#include "launch/cluster/cluster.hpp"

namespace aplib::launch::start {

/// Not thread safe. Calls block while ssh works; all but the first command talk to the master on this computer only.
class SshMaster {
 public:
  /// The master to `host`, of LaunchKind::ssh, with its control socket at the path `control`: shorter than a socket's
  /// name by 20 characters, because ssh makes it under a longer name first.
  SshMaster(const cluster::ClusterHost& host, std::string control);

  /// Options of ssh by which the first command starts the master, and others go through it. They belong before the
  /// host's own.
  [[nodiscard]] static std::vector<std::string> options(const std::string& control);

  /// Whether it stands and answers.
  [[nodiscard]] bool stands() const;
  /// From now on connections to the socket `local` of this computer reach the socket `remote` of the host. Replaces a
  /// forward of that name. Returns ssh's complaint, or "".
  [[nodiscard]] std::string forward(const std::string& local, const std::string& remote) const;
  /// Ends it, with all that goes through it. Does nothing if it does not stand.
  void end() const;

 private:
  [[nodiscard]] std::string command(const std::string& word, const std::vector<std::string>& more) const;

  std::vector<std::string> options_;  // the host's
  std::string destination_;
  std::string control_;
};

}  // namespace aplib::launch::start
