// SPDX-License-Identifier: MIT
// CommandTemplate: a command with GNU Parallel's replacement strings, and the commands that values make of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace aplib::farm {

/// A word as a POSIX shell takes it literally, in the least number of characters.
[[nodiscard]] std::string shell_quoted(std::string_view text);

struct Command {
  std::string text;                ///< For the shell, and for people.
  std::vector<std::string> words;  ///< What the shell would execute. Empty: only the shell knows.
};

class CommandTemplate {
 public:
  struct Style {
    bool quote = false;    ///< The command's words are literal, with the values in them (-q).
    bool context = false;  ///< What stands around values is repeated for each one (-N, -X, -L); else values stand side
                           ///< by side.
    bool plus = false;     ///< Knows also {..}, {+/} and the like (--plus).
    std::string placeholder = "{}";    ///< What stands for the values (-I).
    std::vector<std::string> names{};  ///< Of the values, as in {name} (--header).
  };
  /// No words: each value is a command. Where no replacement string occurs, the values come behind the command. Throws
  /// Error(bad_option) for what is not known here.
  CommandTemplate(const std::vector<std::string>& words, const Style& style);

  /// Of a name or another text, which nobody quotes and no value is appended to.
  static CommandTemplate of_name(const std::string& text, const Style& style);

  /// Nothing in it is replaced.
  [[nodiscard]] bool is_constant() const;
  [[nodiscard]] Command make(const std::vector<std::string>& values, std::uint64_t sequence, unsigned slot) const;

 private:
  explicit CommandTemplate(const Style& style) : style_(style) {}

  enum class Kind : std::uint8_t {
    literal,
    blanks,  // between words, unless style_.quote
    word,    // begins one, in style_.quote
    values,
    sequence,
    slot
  };
  struct Piece {
    Kind kind = Kind::literal;
    std::string_view cut{};    // what follows the number in the braces
    std::ptrdiff_t index = 0;  // of the value, from 1; from -1: of the last. 0: all
    std::string text{};
  };
  class Builder;

  [[nodiscard]] bool parse_cut(std::string_view text, Piece& piece) const;
  [[nodiscard]] bool parse_placeholder(std::string_view inside, Piece& piece) const;
  void refuse_unknown(std::string_view inside) const;
  [[nodiscard]] std::optional<Piece> piece_at(std::string_view text, std::size_t& size) const;
  void add_literal(std::string_view text);
  void add_text(const std::string& text);
  [[nodiscard]] bool is_plain() const;

  Style style_;
  std::vector<Piece> pieces_;
  bool quotes_values_ = true;
  bool plain_ = false;  // the shell would only split it at blanks
};

}  // namespace aplib::farm
