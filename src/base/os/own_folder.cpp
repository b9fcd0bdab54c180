// SPDX-License-Identifier: MIT
#include "base/os/own_folder.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <vector>

#include "aplib/error.hpp"

namespace aplib::os {

std::string own_folder(std::span<const std::string> candidates) {
  std::string problems;
  bool removable = false;
  const auto pass_over = [&](const std::string& problem) {
    problems += fmt::format("{}{}", problems.empty() ? "" : "; ", problem);
  };
  for (const std::string& folder : candidates) {
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
      pass_over(fmt::format("cannot make the folder {}: {}", folder, std::generic_category().message(errno)));
      continue;
    }
    struct stat found {};
    if (::lstat(folder.c_str(), &found) != 0) {
      pass_over(fmt::format("cannot look at the folder {}: {}", folder, std::generic_category().message(errno)));
    } else if (!S_ISDIR(found.st_mode) || found.st_uid != ::getuid() || (found.st_mode & 0077U) != 0) {
      pass_over(fmt::format("{} is not a folder of this user alone, so it cannot be trusted", folder));
      removable = true;
    } else {
      return folder;
    }
  }
  throw Error(Errc::failed, fmt::format("{}: {}set XDG_RUNTIME_DIR to a folder of yours", problems,
                                        removable ? "remove it, or " : ""));
}

std::string registry_folder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && runtime[0] == '/') return own_folder(std::array{fmt::format("{}/aplib", runtime)});
  std::vector<std::string> candidates{fmt::format("/tmp/aplib-{}", ::getuid())};
  // Anybody may have made the first folder. Nobody else can make this one.
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') candidates.push_back(fmt::format("{}/.aplib", home));
  return own_folder(candidates);
}

}  // namespace aplib::os
