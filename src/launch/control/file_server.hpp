// SPDX-License-Identifier: MIT
// FileServer: gives nodes the files that they were told about, and no others.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "launch/control/protocol.hpp"

namespace aplib::launch {

/// Files here as nodes shall know them, in order. Throws Error(failed) when one cannot be read.
[[nodiscard]] std::vector<FileRef> describe_files(const std::vector<std::string>& paths);

/// One thread at a time.
class FileServer {
 public:
  void offer(const std::vector<FileRef>& files);
  /// A piece of a file, or why there is none. Reads the file; `buffer` holds the bytes for as long as the piece is used.
  [[nodiscard]] FilePiece answer(const WantFile& question, Bytes& buffer) const;

 private:
  std::set<std::string> offered_;
};

}  // namespace aplib::launch
