// SPDX-License-Identifier: MIT
#include "farm/apfarm/command_template.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "aplib/error.hpp"
#include "base/text.hpp"

namespace aplib::farm {
namespace {

bool is_safe(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("_./,:@%+=-").find(c) != std::string::npos;
}

/// Shells have these built in, and do not all do what the programs of that name do.
constexpr std::array<std::string_view, 16> built_in{"[",    "alias",  "cd",    "command", "echo", "getopts",
                                                    "kill", "printf", "pwd",   "read",    "test", "time",
                                                    "type", "ulimit", "umask", "wait"};

}  // namespace

std::string shell_quoted(std::string_view text) {
  if (!text.empty() && std::ranges::all_of(text, is_safe)) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) c == '\'' ? quoted += "'\"'\"'" : quoted += c;
  return quoted + "'";
}

CommandTemplate::CommandTemplate(const std::vector<std::string>& words, const Style& style) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    // A word that is a replacement string is one under -q, too.
    text += style.quote && word.find('{') == std::string::npos ? shell_quoted(word) : word;
  }
  quotes_values_ = !words.empty() && text != style.placeholder;
  add_text(text, style.placeholder);
  if (std::ranges::all_of(pieces_, [](const Piece& piece) { return piece.kind == Kind::literal; })) {
    if (!words.empty()) pieces_.push_back({.text = " "});
    pieces_.push_back({.kind = Kind::values});
  }
  plain_ = quotes_values_ && is_plain();
}

CommandTemplate CommandTemplate::of_name(const std::string& text, const std::string& placeholder) {
  CommandTemplate name;
  name.quotes_values_ = false;
  name.add_text(text, placeholder);
  return name;
}

/// What stands between the braces: "", ".", "/", "//", "/.", "#", "%", or a number before one of the first five.
bool CommandTemplate::parse_placeholder(std::string_view inside, Piece& piece) {
  if (inside == "#" || inside == "%") {
    piece.kind = inside == "#" ? Kind::sequence : Kind::slot;
    return true;
  }
  const std::size_t digits = std::min(inside.find_first_not_of("0123456789"), inside.size());
  if (digits > 0) {
    const auto index = text::parse_number(inside.substr(0, digits));
    if (!index || *index == 0 || *index > 1'000'000) return false;
    piece.index = *index;
  }
  const std::string_view cut = inside.substr(digits);
  piece.kind = Kind::values;
  if (cut.empty())
    piece.cut = Cut::none;
  else if (cut == ".")
    piece.cut = Cut::extension;
  else if (cut == "/")
    piece.cut = Cut::folder;
  else if (cut == "//")
    piece.cut = Cut::name;
  else if (cut == "/.")
    piece.cut = Cut::folder_and_extension;
  else
    return false;
  return true;
}

void CommandTemplate::add_text(const std::string& text, const std::string& placeholder) {
  std::string literal;
  const auto add = [&](const Piece& piece) {
    if (!literal.empty()) pieces_.push_back({.text = std::exchange(literal, "")});
    pieces_.push_back(piece);
  };
  for (std::size_t i = 0; i < text.size();) {
    if (text.compare(i, placeholder.size(), placeholder) == 0) {
      add({.kind = Kind::values});
      i += placeholder.size();
      continue;
    }
    if (text.compare(i, 2, "{=") == 0) {
      throw Error(Errc::bad_option,
                  fmt::format("\"{}\": {{= ... =}} needs Perl, which apfarm does not have; use the shell's own "
                              "expansions on a value: x={{}}; echo \"${{x#a}}\"",
                              text));
    }
    const std::size_t end = text[i] == '{' ? text.find('}', i) : std::string::npos;
    Piece piece;
    if (end != std::string::npos && end > i + 1 &&
        parse_placeholder(std::string_view(text).substr(i + 1, end - i - 1), piece)) {
      add(piece);
      i = end + 1;
    } else {
      literal += text[i++];
    }
  }
  if (!literal.empty()) pieces_.push_back({.text = literal});
}

/// Whether the shell would only split it: then it is executed without one, in half the time.
bool CommandTemplate::is_plain() const {
  std::string first;
  bool complete = false;
  for (const Piece& piece : pieces_) {
    if (piece.kind != Kind::literal) {
      if (!complete) first += '?';
      continue;
    }
    for (const char c : piece.text) {
      if (c != ' ' && !is_safe(c)) return false;
      if (c == ' ')
        complete = complete || !first.empty();
      else if (!complete)
        first += c;
    }
  }
  return first.find('=') == std::string::npos && first.find('?') == std::string::npos &&
         std::ranges::find(built_in, first) == built_in.end();
}

std::string CommandTemplate::cut_value(const std::string& value, Cut cut) {
  const std::size_t slash = value.rfind('/');
  if (cut == Cut::name) {
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : value.substr(0, slash);
  }
  std::string text = value;
  if (cut == Cut::folder || cut == Cut::folder_and_extension) text.erase(0, slash == std::string::npos ? 0 : slash + 1);
  if (cut == Cut::extension || cut == Cut::folder_and_extension) {
    const std::size_t dot = text.rfind('.');
    if (dot != std::string::npos && dot + 1 < text.size() && text.find('/', dot) == std::string::npos) text.erase(dot);
  }
  return text;
}

std::vector<std::string> CommandTemplate::values_of(const Piece& piece, const std::vector<std::string>& values,
                                                    std::uint64_t sequence, unsigned slot) {
  if (piece.kind == Kind::sequence) return {std::to_string(sequence)};
  if (piece.kind == Kind::slot) return {std::to_string(slot)};
  if (piece.index > values.size()) return {};
  std::vector<std::string> all;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (piece.index == 0 || piece.index == i + 1) all.push_back(cut_value(values[i], piece.cut));
  }
  return all;
}

Command CommandTemplate::make(const std::vector<std::string>& values, std::uint64_t sequence, unsigned slot) const {
  Command command;
  bool in_word = false;
  const auto begin_word = [&] {
    if (!in_word) command.words.emplace_back();
    in_word = true;
  };
  for (const Piece& piece : pieces_) {
    if (piece.kind == Kind::literal) {
      command.text += piece.text;
      for (const char c : piece.text) {
        if (c == ' ') {
          in_word = false;
        } else {
          begin_word();
          command.words.back() += c;
        }
      }
      continue;
    }
    bool first = true;
    for (const std::string& value : values_of(piece, values, sequence, slot)) {
      if (!first) {
        command.text += ' ';
        in_word = false;
      }
      first = false;
      command.text += quotes_values_ ? shell_quoted(value) : value;
      begin_word();
      command.words.back() += value;
    }
  }
  if (!plain_) command.words.clear();
  return command;
}

std::string CommandTemplate::make_name(const std::vector<std::string>& values, std::uint64_t sequence,
                                       unsigned slot) const {
  return make(values, sequence, slot).text;
}

}  // namespace aplib::farm
