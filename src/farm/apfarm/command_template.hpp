// SPDX-License-Identifier: MIT
// CommandTemplate: a command with GNU Parallel's replacement strings, and the commands that values make of it.
#pragma once

#include <cstddef>
#include <cstdint>
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
    bool quote = false;              ///< The command's own words are literal, too (-q).
    std::string placeholder = "{}";  ///< What stands for the values (-I).
  };
  /// No words, or the placeholder alone: each value is a command. Where no replacement string occurs, the values come
  /// behind the command. Throws Error(bad_option) for what is not known here.
  CommandTemplate(const std::vector<std::string>& words, const Style& style);

  /// Of a file's name, which nobody quotes and no value is appended to.
  static CommandTemplate of_name(const std::string& text, const std::string& placeholder);

  [[nodiscard]] Command make(const std::vector<std::string>& values, std::uint64_t sequence, unsigned slot) const;
  /// REQUIRES: of_name().
  [[nodiscard]] std::string make_name(const std::vector<std::string>& values, std::uint64_t sequence,
                                      unsigned slot) const;

 private:
  CommandTemplate() = default;

  enum class Kind : std::uint8_t { literal, values, sequence, slot };
  enum class Cut : std::uint8_t { none, extension, folder, name, folder_and_extension };
  struct Piece {
    Kind kind = Kind::literal;
    Cut cut = Cut::none;
    std::size_t index = 0;  // of the value, from 1. 0: all
    std::string text{};     // of a literal
  };

  static bool parse_placeholder(std::string_view inside, Piece& piece);
  static std::string cut_value(const std::string& value, Cut cut);
  static std::vector<std::string> values_of(const Piece& piece, const std::vector<std::string>& values,
                                            std::uint64_t sequence, unsigned slot);
  void add_text(const std::string& text, const std::string& placeholder);
  [[nodiscard]] bool is_plain() const;

  std::vector<Piece> pieces_;
  bool quotes_values_ = true;
  bool plain_ = false;  // the shell would only split it at blanks
};

}  // namespace aplib::farm
