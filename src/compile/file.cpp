// SPDX-License-Identifier: MIT
#include "compile/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

namespace aplib::compile {

std::optional<std::string> read_file(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  std::string text;
  char block[16384];
  for (;;) {
    const ssize_t bytes = read(descriptor, block, sizeof block);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) {
      const int reason = errno;
      close(descriptor);
      errno = reason;
      if (bytes < 0) return std::nullopt;
      return text;
    }
    text.append(block, static_cast<std::size_t>(bytes));
  }
}

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

std::string folder_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  if (slash == path.npos) return ".";
  return std::string(path.substr(0, slash == 0 ? 1 : slash));
}

std::string_view name_of(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::string real_path(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr), &std::free);
  return real ? std::string(real.get()) : path;
}

std::string find_command(const std::string& command) {
  const auto runs = [](const std::string& path) {
    struct stat status;
    return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && access(path.c_str(), X_OK) == 0;
  };
  if (command.find('/') != command.npos) return runs(command) ? command : std::string();
  const char* variable = std::getenv("PATH");
  std::string_view folders = variable != nullptr ? variable : "/usr/local/bin:/usr/bin:/bin";
  for (;;) {
    const std::size_t colon = folders.find(':');
    const std::string_view folder = folders.substr(0, colon);
    std::string path = folder.empty() ? std::string(".") : std::string(folder);
    path += '/';
    path += command;
    if (runs(path)) return path;
    if (colon == folders.npos) return std::string();
    folders.remove_prefix(colon + 1);
  }
}

}  // namespace aplib::compile
