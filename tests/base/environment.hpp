// SPDX-License-Identifier: MIT
// A test's own environment: no APLIB_* variable except those it sets. The old environment returns when it ends.
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
