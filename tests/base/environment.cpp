// SPDX-License-Identifier: MIT
#include "environment.hpp"

#include <unistd.h>

#include <cstdlib>

namespace aplib {

Environment::Environment() : before_(take_all()) {}

Environment::~Environment() {
  take_all();
  for (const auto& [variable, value] : before_) set(variable, value);
}

void Environment::set(const std::string& variable, const std::string& value) {
  setenv(variable.c_str(), value.c_str(), 1);
}

std::vector<std::pair<std::string, std::string>> Environment::take_all() {
  std::vector<std::pair<std::string, std::string>> taken;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text(*entry);
    if (text.starts_with("APLIB_")) taken.emplace_back(text.substr(0, text.find('=')), text.substr(text.find('=') + 1));
  }
  for (const auto& [variable, value] : taken) unsetenv(variable.c_str());
  return taken;
}

}  // namespace aplib
