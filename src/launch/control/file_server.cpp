// SPDX-License-Identifier: MIT
#include "launch/control/file_server.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "launch/control/file_identity.hpp"

namespace aplib::launch {

std::vector<FileRef> describe_files(const std::vector<std::string>& paths) {
  std::vector<FileRef> files;
  for (const std::string& path : paths) {
    std::string absolute = std::filesystem::absolute(path).lexically_normal().string();
    FileIdentity identity = identify_file(absolute);
    files.push_back({std::move(absolute), std::move(identity)});
  }
  return files;
}

void FileServer::offer(const std::vector<FileRef>& files) {
  for (const FileRef& file : files) offered_.insert(file.path);
}

FilePiece FileServer::answer(const WantFile& question, Bytes& buffer) const {
  if (!offered_.contains(question.path)) return {fmt::format("{} was not offered", question.path), true, {}};
  const int descriptor = ::open(question.path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return {fmt::format("cannot read {}: {}", question.path, std::strerror(errno)), true, {}};
  buffer.resize(file_piece_bytes);
  std::size_t got = 0;
  ssize_t count = 0;
  while (got < buffer.size() && (count = ::pread(descriptor, buffer.data() + got, buffer.size() - got,
                                                 static_cast<off_t>(question.at + got))) > 0)
    got += static_cast<std::size_t>(count);
  const int error = count < 0 ? errno : 0;
  ::close(descriptor);
  if (error != 0) return {fmt::format("cannot read {}: {}", question.path, std::strerror(error)), true, {}};
  return {{}, got < buffer.size(), std::span<const std::byte>(buffer).first(got)};
}

}  // namespace aplib::launch
