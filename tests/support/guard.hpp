// SPDX-License-Identifier: MIT
// The guard of a launcher (src/launch/start/child.hpp), for tests that kill it.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace aplib::testing_support {

/// The process id of the launcher's guard. Waits until there is one.
inline pid_t guard_of(pid_t launcher) {
  const std::string parent = "\nPPid:\t" + std::to_string(launcher) + "\n";
  for (;; ::usleep(1000)) {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      std::ostringstream status;  // a process that ends meanwhile makes reading fail, which it takes for the end
      status << std::ifstream(entry.path() / "status").rdbuf();
      const std::string text = status.str();
      if (text.starts_with("Name:\taprun-guard\n") && text.find(parent) != text.npos)
        return std::stoi(entry.path().filename());
    }
  }
}

}  // namespace aplib::testing_support
