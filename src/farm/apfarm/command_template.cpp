// SPDX-License-Identifier: MIT
#include "farm/apfarm/command_template.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <utility>

#include "aplib/error.hpp"
#include "base/text.hpp"

namespace aplib::farm {
namespace {

bool is_one_of(char c, std::string_view marks) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || marks.find(c) != std::string::npos;
}

constexpr std::string_view shell_blanks = " \t\n";

/// Shells have these built in, and do not all do what the programs of that name do.
constexpr std::array<std::string_view, 16> built_in{"[",    "alias",  "cd",    "command", "echo", "getopts",
                                                    "kill", "printf", "pwd",   "read",    "test", "time",
                                                    "type", "ulimit", "umask", "wait"};

constexpr std::array<std::string_view, 5> cuts{"", ".", "/", "//", "/."};
constexpr std::array<std::string_view, 8> plus_cuts{"+/", "+.", "+..", "+...", "..", "...", "/..", "/..."};

std::string folder_of(const std::string& value) {
  const std::size_t end = value.find_last_not_of('/');  // of the name
  const std::size_t slash = end == std::string::npos ? end : value.rfind('/', end);
  if (slash == std::string::npos) return value.starts_with('/') ? "/" : ".";
  const std::size_t last = value.find_last_not_of('/', slash);
  return last == std::string::npos ? "/" : value.substr(0, last + 1);
}

/// Where the last so many extensions of a name begin; text.npos: it has less.
std::size_t extensions_of(std::string_view text, std::size_t count) {
  std::size_t dot = text.size();
  for (; count > 0; --count) {
    dot = dot == 0 ? text.npos : text.rfind('.', dot - 1);
    if (dot == text.npos || text.find('/', dot) != text.npos) return text.npos;
  }
  return dot;
}

/// As GNU Parallel's replacement strings with this text in their braces.
std::string cut_value(const std::string& value, std::string_view cut) {
  const std::size_t slash = value.rfind('/');
  if (cut == "//") return folder_of(value);
  if (cut == "+/") return slash == std::string::npos ? "" : value.substr(0, slash);
  if (cut.starts_with("+.")) {
    // One of them is what follows the last dot, wherever that is.
    const std::size_t dot = cut == "+." ? value.rfind('.') : extensions_of(value, cut.size() - 1);
    return dot == value.npos ? "" : value.substr(dot + 1);
  }
  std::string text = value;
  if (cut.starts_with('/')) {
    text.erase(0, slash == std::string::npos ? 0 : slash + 1);
    cut.remove_prefix(1);
  }
  if (const std::size_t dot = extensions_of(text, cut.size()); dot != text.npos) text.erase(dot);
  return text;
}

}  // namespace

std::string shell_quoted(std::string_view text) {
  if (!text.empty() && std::ranges::all_of(text, [](char c) { return is_one_of(c, "_./+-"); }))
    return std::string(text);
  std::string quoted = "'";
  for (const char c : text) c == '\'' ? quoted += "'\"'\"'" : quoted += c;
  return quoted + "'";
}

CommandTemplate::CommandTemplate(const std::vector<std::string>& words, const Style& style) : style_(style) {
  if (style.quote) {
    for (const std::string& word : words) {
      pieces_.push_back({.kind = Kind::word});
      add_text(word);
    }
  } else {
    std::string text;
    for (const std::string& word : words) text += text.empty() && &word == words.data() ? word : " " + word;
    add_text(text);
  }
  const auto is_value = [](const Piece& piece) { return piece.kind >= Kind::values; };
  if (is_constant()) {
    if (style.quote && !words.empty()) pieces_.push_back({.kind = Kind::word});
    if (!style.quote && !words.empty()) pieces_.push_back({.kind = Kind::blanks, .text = " "});
    pieces_.push_back({.kind = Kind::values});
  }
  // Where a value is in the command's first word, values are commands, or parts of them.
  const auto until = std::ranges::find_if(pieces_, [&](const Piece& piece) {
    return is_value(piece) || piece.kind == Kind::blanks || piece.text.find('=') != std::string::npos;
  });
  quotes_values_ = style.quote || !is_value(*until);
  plain_ = quotes_values_ && is_plain();
}

bool CommandTemplate::is_constant() const {
  return std::ranges::none_of(pieces_, [](const Piece& piece) { return piece.kind >= Kind::values; });
}

CommandTemplate CommandTemplate::of_name(const std::string& text, const Style& style) {
  CommandTemplate name(style);
  name.style_.quote = false;
  name.quotes_values_ = false;
  name.add_text(text);
  return name;
}

/// What stands in the braces behind a number or a name.
bool CommandTemplate::parse_cut(std::string_view text, Piece& piece) const {
  piece.kind = Kind::values;
  if (const auto cut = std::ranges::find(cuts, text); cut != cuts.end()) {
    piece.cut = *cut;
    return true;
  }
  const auto cut = std::ranges::find(plus_cuts, text);
  if (!style_.plus || cut == plus_cuts.end()) return false;
  piece.cut = *cut;
  return true;
}

/// What stands between the braces: "#", "%", or a cut, also behind a number or a name.
bool CommandTemplate::parse_placeholder(std::string_view inside, Piece& piece) const {
  if (inside == "#" || inside == "%") {
    piece.kind = inside == "#" ? Kind::sequence : Kind::slot;
    return true;
  }
  for (std::size_t i = 0; i < style_.names.size(); ++i) {
    piece.index = static_cast<std::ptrdiff_t>(i) + 1;
    if (inside.starts_with(style_.names[i]) && parse_cut(inside.substr(style_.names[i].size()), piece)) return true;
  }
  const bool from_end = inside.starts_with('-');
  const std::string_view number = inside.substr(from_end ? 1 : 0);
  const std::size_t digits = std::min(number.find_first_not_of("0123456789"), number.size());
  piece.index = 0;
  if (digits > 0) {
    const auto index = text::parse_number(number.substr(0, digits));
    if (!index || *index > 1'000'000) return false;
    piece.index = static_cast<std::ptrdiff_t>(*index) * (from_end ? -1 : 1);
  } else if (from_end) {
    return false;
  }
  const std::string_view cut = number.substr(digits);
  // -I stands in place of {}, and takes {1} with it.
  if (cut.empty() && style_.placeholder != "{}") return false;
  return parse_cut(cut, piece);
}

/// What --plus means with GNU Parallel, and not here.
void CommandTemplate::refuse_unknown(std::string_view inside) const {
  if (!style_.plus || inside.empty()) return;
  const std::string_view rest = inside.substr(std::min(inside.find_first_not_of("-0123456789"), inside.size()));
  constexpr std::array<std::string_view, 8> words{"choose_k", "uniq", "host", "sshlogin", "hgrp", "slot", "seq", "0"};
  if ((rest.empty() || std::string_view(":#%/^,+").find(rest[0]) == rest.npos) &&
      std::ranges::find(words, rest) == words.end())
    return;
  if (inside == "##")
    throw Error(Errc::bad_option, "--plus: {##} is not there: the number of all jobs is not known when they start");
  throw Error(Errc::bad_option,
              fmt::format("--plus: {{{}}} is not there; use the shell's own expansions on a value: x={{}}; echo "
                          "\"${{x#a}}\"",
                          inside));
}

/// A replacement string that begins here.
std::optional<CommandTemplate::Piece> CommandTemplate::piece_at(std::string_view text, std::size_t& size) const {
  if (text.starts_with(style_.placeholder)) {
    size = style_.placeholder.size();
    return Piece{.kind = Kind::values};
  }
  if (!text.starts_with('{')) return std::nullopt;
  const std::size_t end = text.find('}');
  if (end == text.npos || end == 1) return std::nullopt;
  const std::string_view inside = text.substr(1, end - 1);
  if (inside.substr(std::min(inside.find_first_not_of("-0123456789"), inside.size())).starts_with('=')) {
    throw Error(Errc::bad_option,
                fmt::format("\"{}\": {{= ... =}} needs Perl, which apfarm does not have; use the shell's own "
                            "expansions on a value: x={{}}; echo \"${{x#a}}\"",
                            text));
  }
  size = end + 1;
  Piece piece;
  if (parse_placeholder(inside, piece)) return piece;
  refuse_unknown(inside);
  return std::nullopt;
}

void CommandTemplate::add_literal(std::string_view text) {
  while (!text.empty()) {
    const bool blank = shell_blanks.find(text[0]) != std::string::npos;
    const std::size_t size =
        std::min(blank ? text.find_first_not_of(shell_blanks) : text.find_first_of(shell_blanks), text.size());
    pieces_.push_back({.kind = blank ? Kind::blanks : Kind::literal, .text = std::string(text.substr(0, size))});
    text.remove_prefix(size);
  }
}

void CommandTemplate::add_text(const std::string& text) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t size = 1;
    if (auto piece = piece_at(std::string_view(text).substr(i), size)) {
      add_literal(std::string_view(text).substr(begin, i - begin));
      pieces_.push_back(*std::move(piece));
      begin = i + size;
    } else {
      size = 1;
    }
    i += size;
  }
  add_literal(std::string_view(text).substr(begin));
}

/// Whether the shell would only split it: then it is executed without one, in half the time.
bool CommandTemplate::is_plain() const {
  std::string first;
  bool complete = false;
  for (const Piece& piece : pieces_) {
    if (piece.kind == Kind::word || (piece.kind == Kind::blanks && !style_.quote)) {
      if (piece.text.find_first_not_of(' ') != std::string::npos) return false;
      complete = complete || !first.empty();
      continue;
    }
    if (!complete) first += piece.kind >= Kind::values ? "?" : piece.text;
    if (piece.kind == Kind::literal && !style_.quote &&
        !std::ranges::all_of(piece.text, [](char c) { return is_one_of(c, "_./,:@%+=-"); }))
      return false;
  }
  return !first.empty() && first.find_first_of("=? ") == std::string::npos &&
         std::ranges::find(built_in, first) == built_in.end();
}

/// Text for the shell, and the words that it would make of that.
class CommandTemplate::Builder {
 public:
  Builder(const CommandTemplate& made_of, const std::vector<std::string>& values, std::uint64_t sequence, unsigned slot)
      : template_(made_of), values_(values), sequence_(sequence), slot_(slot) {}

  /// What has no blanks within, of one value or (npos) of all.
  void add_run(std::span<const Piece> run, std::size_t value) {
    for (const Piece& piece : run) {
      if (piece.kind == Kind::literal) {
        add(piece.text, false);
      } else if (piece.kind == Kind::sequence || piece.kind == Kind::slot) {
        add(piece.kind == Kind::sequence ? std::to_string(sequence_) : std::to_string(slot_), false);
      } else {
        add_values(piece, value);
      }
    }
  }
  void add_blanks(const Piece& piece) {
    if (template_.style_.quote) return add(piece.text, false);
    command_.text += piece.text;
    in_word_ = false;
  }
  void begin_word() {
    command_.words.emplace_back();
    in_word_ = true;
  }
  void separate() {
    command_.text += ' ';
    in_word_ = false;
  }
  [[nodiscard]] Command take() {
    if (template_.style_.quote) {
      command_.text.clear();
      for (const std::string& word : command_.words)
        command_.text += (&word == command_.words.data() ? "" : " ") + shell_quoted(word);
    }
    if (!template_.plain_) command_.words.clear();
    return std::move(command_);
  }

 private:
  void add(const std::string& text, bool quoted) {
    if (!in_word_) begin_word();
    command_.words.back() += text;
    command_.text += quoted ? shell_quoted(text) : text;
  }
  void add_values(const Piece& piece, std::size_t value) {
    const auto count = static_cast<std::ptrdiff_t>(values_.size());
    if (piece.index == 0 && value == std::string::npos) {
      for (std::size_t i = 0; i < values_.size(); ++i) {
        if (i != 0) separate();
        add_value(values_[i], piece);
      }
      return;
    }
    std::ptrdiff_t place = piece.index == 0 ? static_cast<std::ptrdiff_t>(value) : piece.index - 1;
    if (piece.index < 0 && count > 0) place = (piece.index % count + count) % count;
    if (place >= 0 && place < count) add_value(values_[static_cast<std::size_t>(place)], piece);
  }
  void add_value(const std::string& value, const Piece& piece) {
    add(cut_value(value, piece.cut), template_.quotes_values_);
  }

  const CommandTemplate& template_;
  const std::vector<std::string>& values_;
  std::uint64_t sequence_;
  unsigned slot_;
  Command command_{};
  bool in_word_ = false;
};

Command CommandTemplate::make(const std::vector<std::string>& values, std::uint64_t sequence, unsigned slot) const {
  Builder builder(*this, values, sequence, slot);
  const auto ends_run = [](const Piece& piece) { return piece.kind == Kind::blanks || piece.kind == Kind::word; };
  for (auto piece = pieces_.begin(); piece != pieces_.end();) {
    if (ends_run(*piece)) {
      piece->kind == Kind::blanks ? builder.add_blanks(*piece) : builder.begin_word();
      ++piece;
      continue;
    }
    const auto end = std::find_if(piece, pieces_.end(), ends_run);
    const std::span run(piece, end);
    const bool repeats = style_.context && std::ranges::any_of(run, [](const Piece& each) {
                           return each.kind == Kind::values && each.index == 0;
                         });
    for (std::size_t i = 0; repeats && i < values.size(); ++i) {
      if (i != 0) builder.separate();
      builder.add_run(run, i);
    }
    if (!repeats) builder.add_run(run, std::string::npos);
    piece = end;
  }
  return builder.take();
}

}  // namespace aplib::farm
