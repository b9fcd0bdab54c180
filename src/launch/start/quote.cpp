// SPDX-License-Identifier: MIT
#include "launch/start/quote.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "aplib/error.hpp"

namespace aplib::launch {
namespace {

bool is_harmless(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-+./:,@%").find(c) != std::string_view::npos;
}

}  // namespace

std::string shell_quote(std::string_view word) {
  if (!word.empty() && std::ranges::all_of(word, is_harmless)) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string shell_command(std::span<const std::string> words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    text += shell_quote(word);
  }
  return text;
}

std::vector<std::string> split_words(std::string_view text, std::string_view subject) {
  std::vector<std::string> words;
  std::string word;
  bool inside = false;  // a word has begun, perhaps an empty one in quotes
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      word += text[++i];
      inside = true;
    } else if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        word += c;
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      inside = true;
    } else if (c == ' ' || c == '\t') {
      if (inside) words.push_back(std::move(word));
      word.clear();
      inside = false;
    } else {
      word += c;
      inside = true;
    }
  }
  if (quote != 0) {
    throw Error(Errc::bad_option, fmt::format("{}: '{}': the quote {} has no end", subject, text, quote));
  }
  if (inside) words.push_back(std::move(word));
  return words;
}

std::string fill_in(std::string_view text, std::span<const std::pair<std::string_view, std::string>> values) {
  std::string filled;
  while (!text.empty()) {
    const std::size_t brace = text.find('{');
    filled += text.substr(0, brace);
    if (brace == text.npos) break;
    text.remove_prefix(brace);
    const auto value = std::ranges::find_if(values, [&](const auto& pair) {
      return text.substr(1).starts_with(pair.first) && text.substr(1 + pair.first.size()).starts_with('}');
    });
    if (value == values.end()) {
      filled += '{';
      text.remove_prefix(1);
    } else {
      filled += value->second;
      text.remove_prefix(value->first.size() + 2);
    }
  }
  return filled;
}

}  // namespace aplib::launch
