// SPDX-License-Identifier: MIT
// Arguments of a command in a text, as files and variables have them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace aplib {

/// The arguments in `text`: parted by white space; quotes of both kinds and backslashes as in gcc (libiberty's
/// buildargv).
inline std::vector<std::string> split_arguments(const std::string& text) {
  std::vector<std::string> arguments;
  std::string argument;
  bool inside = false;  // of an argument, which may be empty: ""
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && i + 1 < text.size()) {
      argument += text[++i];
      inside = true;
    } else if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        argument += c;
      }
    } else if (c == '"' || c == '\'') {
      quote = c;
      inside = true;
    } else if (c == ' ' || (c >= '\t' && c <= '\r')) {
      if (inside) arguments.push_back(argument);
      argument.clear();
      inside = false;
    } else {
      argument += c;
      inside = true;
    }
  }
  if (inside) arguments.push_back(argument);
  return arguments;
}

}  // namespace aplib
