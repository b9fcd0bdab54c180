// SPDX-License-Identifier: MIT
// StagedFiles: program files that a host did not have and got from the launcher, in a folder that only this user can enter and that goes when the process does.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>

#include "launch/control/protocol.hpp"

namespace aplib::launch {

/// Not thread safe, but for remove().
class StagedFiles {
 public:
  StagedFiles() = default;
  /// remove()s.
  ~StagedFiles();
  StagedFiles(const StagedFiles&) = delete;
  StagedFiles& operator=(const StagedFiles&) = delete;

  /// Begins a file of that name; makes the folder (in TMPDIR, or /tmp) the first time. Throws Error(failed).
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
  void close_file() noexcept;

  std::string folder_;
  std::string path_;
  FileRef file_;
  int descriptor_ = -1;
  int keeper_pipe_ = -1;  // open as long as we live: then the keeper removes the folder
  pid_t keeper_ = -1;
};

}  // namespace aplib::launch
