// SPDX-License-Identifier: MIT
// Program files for hosts that lack them: when two files are the same program, and StagedFiles, which a node keeps.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "base/os/descriptor.hpp"
#include "launch/wire/start_messages.hpp"

namespace aplib::launch::wire {

/// By build-id if the file has one, otherwise by size and a sum over all bytes. Looks only at the file's own bytes. A
/// file that is not ELF has no build-id. Throws Error(failed) when it cannot be read.
[[nodiscard]] FileIdentity identify_file(const std::string& path);

/// For people: "build-id 4f3a...", "4711 bytes, sum 1b2c...".
[[nodiscard]] std::string identity_text(const FileIdentity& identity);

/// Throws Error(failed) when the file at `path` is not the announced one.
void check_file(const std::string& path, const FileRef& announced);

/// The names under which these files are sent, in one folder: their own, or with a number behind it.
[[nodiscard]] std::vector<std::string> names_of(const std::vector<std::string>& paths);

/// The files of this computer as nodes get to know them, in order. Throws Error(failed) when one cannot be read.
[[nodiscard]] std::vector<FileRef> describe_files(const std::vector<std::string>& paths);

/// Program files that a host lacked and got from the launcher, in a folder that only this user can enter and that is
/// removed with the process. Not thread safe, except remove().
class StagedFiles {
 public:
  StagedFiles() = default;
  /// remove()s.
  ~StagedFiles();
  StagedFiles(const StagedFiles&) = delete;
  StagedFiles& operator=(const StagedFiles&) = delete;

  /// Makes an empty folder for the next files, beside those of earlier ones, which may run. The first time it makes the
  /// folder of all, in TMPDIR, or else in /tmp or /var/tmp if programs may be executed there. Throws Error(failed).
  std::string next_folder();

  /// Empty: nothing was staged.
  [[nodiscard]] const std::string& folder() const noexcept { return folder_; }
  /// Removes the folder and the files. Any thread. A second call does nothing.
  void remove() noexcept;

 private:
  void make_folder();

  std::string folder_;
  unsigned folders_ = 0;
  os::UniqueFd keeper_pipe_;  // open while this process lives; then the keeper removes the folder
  pid_t keeper_ = -1;
};

}  // namespace aplib::launch::wire
