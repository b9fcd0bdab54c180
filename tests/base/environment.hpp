// SPDX-License-Identifier: MIT
// An environment of a test's own: no APLIB_* variable but those it sets; everything as before when it ends.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace aplib {

class Environment {
 public:
  Environment();
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  void set(const std::string& variable, const std::string& value);

 private:
  static std::vector<std::pair<std::string, std::string>> take_all();

  std::vector<std::pair<std::string, std::string>> before_;
};

}  // namespace aplib
