// SPDX-License-Identifier: MIT
#include "launch/control/registry_words.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace aplib::launch {
namespace {

constexpr char escape = '%';

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<std::string> decode(std::string_view text) {
  if (text.empty()) return std::nullopt;
  std::string word;
  if (text.size() == 1 && text.front() == escape) return word;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != escape) {
      word += text[at];
      continue;
    }
    const int high = at + 2 < text.size() ? digit(text[at + 1]) : -1;
    const int low = at + 2 < text.size() ? digit(text[at + 2]) : -1;
    if (high < 0 || low < 0) return std::nullopt;
    word += static_cast<char>(high * 16 + low);
    at += 2;
  }
  return word;
}

}  // namespace

std::string join_words(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    if (word.empty()) line += escape;
    for (const char c : word) {
      const auto code = static_cast<unsigned char>(c);
      if (code <= ' ' || code >= 0x7f || c == escape) {
        line += fmt::format("{}{:02X}", escape, code);
      } else {
        line += c;
      }
    }
  }
  return line;
}

std::optional<std::vector<std::string>> split_words(std::string_view line) {
  std::vector<std::string> words;
  if (line.empty()) return words;
  for (std::size_t at = 0; at <= line.size();) {
    const std::size_t end = std::min(line.find(' ', at), line.size());
    auto word = decode(line.substr(at, end - at));
    if (!word) return std::nullopt;
    words.push_back(std::move(*word));
    at = end + 1;
  }
  return words;
}

}  // namespace aplib::launch
