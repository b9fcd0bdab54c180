// SPDX-License-Identifier: MIT
// Program files on their way from the launcher to hosts that lack them: when two files are one program, FileServer,
// which gives nodes the files that they were told about, and StagedFiles, which a node keeps.
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

/// By build-id where the file has one, else by size and a sum over all bytes. Looks at the file's own bytes alone;
/// what is no ELF file has no build-id. Throws Error(failed) when it cannot be read.
[[nodiscard]] FileIdentity identify_file(const std::string& path);

/// For people: "build-id 4f3a...", "4711 bytes, sum 1b2c...".
[[nodiscard]] std::string identity_text(const FileIdentity& identity);

/// Files here as nodes shall know them, in order. Throws Error(failed) when one cannot be read.
[[nodiscard]] std::vector<FileRef> describe_files(const std::vector<std::string>& paths);

/// One thread at a time.
class FileServer {
 public:
  void offer(const std::vector<FileRef>& files);
  /// A piece of a file, or why there is none. Reads the file; `buffer` holds the bytes for as long as the piece is
  /// used.
  [[nodiscard]] FilePiece answer(const WantFile& question, Bytes& buffer) const;

 private:
  std::set<std::string> offered_;
};

/// Program files that a host did not have and got from the launcher, in a folder that only this user can enter and
/// that goes when the process does. Not thread safe, but for remove().
class StagedFiles {
 public:
  StagedFiles() = default;
  /// remove()s.
  ~StagedFiles();
  StagedFiles(const StagedFiles&) = delete;
  StagedFiles& operator=(const StagedFiles&) = delete;

  /// Begins a file of that name, beside another one of it that came before and may run; makes the folder the first
  /// time, in TMPDIR, or else in /tmp or /var/tmp if programs may be executed there. Throws Error(failed).
  void begin(const FileRef& file);
  /// The next bytes. Throws Error(failed): no space, say.
  void write(std::span<const std::byte> bytes);
  /// Returns where it is, executable. Throws Error(failed) when what came is not what was announced.
  std::string finish();

  /// Empty: nothing was staged.
  [[nodiscard]] const std::string& folder() const noexcept { return folder_; }
  /// Removes folder and files. Any thread; a second call does nothing.
  void remove() noexcept;

 private:
  void make_folder();

  std::string folder_;
  std::string path_;
  FileRef file_;
  os::UniqueFd descriptor_;
  os::UniqueFd keeper_pipe_;  // open as long as we live: then the keeper removes the folder
  pid_t keeper_ = -1;
};

}  // namespace aplib::launch::wire
