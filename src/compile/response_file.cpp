// SPDX-License-Identifier: MIT
#include "compile/response_file.hpp"

#include "compile/file.hpp"

namespace aplib::compile {

std::vector<std::string> split_arguments(const std::string& text) {
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

std::optional<std::vector<std::string>> read_response_file(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return std::nullopt;
  return split_arguments(*text);
}

}  // namespace aplib::compile
