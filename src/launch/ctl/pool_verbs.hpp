// SPDX-License-Identifier: MIT
// The verbs of apctl for pools: hosts that stand ready, files to and from them, and programs there. docs/pool.md says
// what they do.
#pragma once

#include <string>
#include <vector>

#include "launch/files/target.hpp"

namespace aplib::launch::ctl {

struct UpRequest {
  std::string file{};    ///< The cluster file. May be empty: the pool stands, or its hosts come from a job.
  std::string name{};    ///< The pool's; empty: the file's.
  std::string submit{};  ///< The batch system that gets a job; empty: none does.
  std::string folder{};  ///< Of the job's files; empty: ~/.aplib.
  std::vector<std::string> options{};  ///< For its command.
};
/// Makes a pool of the hosts of a cluster file, or of a job, or repairs one that stands. Returns an exit status. Throws
/// Error.
[[nodiscard]] int pool_up(const UpRequest& request);
/// Ends its keepers, with what they have started, and the ways to them. Returns an exit status. Throws Error.
[[nodiscard]] int pool_down(const std::string& name);
/// Prints what the hosts of a pool are, of all pools without a name. `speed`: measures that, too. Returns an exit
/// status, 1 if a host is lost. Throws Error.
[[nodiscard]] int pool_hosts(const std::string& name, bool json, bool speed);

/// `words`: files and folders of this computer, and POOL[:HOST]:FOLDER last. Returns an exit status. Throws Error.
[[nodiscard]] int put_files(std::vector<std::string> words, files::Existing existing);
/// `words`: POOL[:HOST]:PATTERN..., and a folder of this computer last.
[[nodiscard]] int get_files(std::vector<std::string> words);

/// `words`: POOL or POOL:HOST, the program, and its arguments. Without a host, `number` says which one, in turn.
/// Returns the program's status, 128 + number after a signal. Throws Error.
[[nodiscard]] int exec_in_pool(const std::vector<std::string>& words, unsigned number);

}  // namespace aplib::launch::ctl
