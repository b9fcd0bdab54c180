// SPDX-License-Identifier: MIT
// Program files for hosts that lack them: when two files are the same program; FileServer, which sends nodes the
// announced files; StagedFiles, which a node keeps.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <set>
#include <span>
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

/// The files of this computer as nodes get to know them, in order. Throws Error(failed) when one cannot be read.
[[nodiscard]] std::vector<FileRef> describe_files(const std::vector<std::string>& paths);

/// One thread at a time.
class FileServer {
 public:
  void offer(const std::vector<FileRef>& files);
  /// A piece of a file, or why there is none. Reads the file. `buffer` holds the bytes while the piece is used.
  [[nodiscard]] FilePiece answer(const WantFile& question, Bytes& buffer) const;

 private:
  std::set<std::string> offered_;
};

/// Program files that a host lacked and got from the launcher, in a folder that only this user can enter and that is
/// removed with the process. Not thread safe, except remove().
class StagedFiles {
 public:
  StagedFiles() = default;
  /// remove()s.
  ~StagedFiles();
  StagedFiles(const StagedFiles&) = delete;
  StagedFiles& operator=(const StagedFiles&) = delete;

  /// Begins a file with that name, beside an earlier one with the same name that may run. The first time it makes the
  /// folder, in TMPDIR, or else in /tmp or /var/tmp if programs may be executed there. Throws Error(failed).
  void begin(const FileRef& file);
  /// Adds the next bytes. Throws Error(failed), for example without space.
  void write(std::span<const std::byte> bytes);
  /// Returns the path of the executable file. Throws Error(failed) when it differs from the announced one.
  std::string finish();

  /// Empty: nothing was staged.
  [[nodiscard]] const std::string& folder() const noexcept { return folder_; }
  /// Removes the folder and the files. Any thread. A second call does nothing.
  void remove() noexcept;

 private:
  void make_folder();

  std::string folder_;
  std::string path_;
  FileRef file_;
  os::UniqueFd descriptor_;
  os::UniqueFd keeper_pipe_;  // open while this process lives; then the keeper removes the folder
  pid_t keeper_ = -1;
};

}  // namespace aplib::launch::wire
