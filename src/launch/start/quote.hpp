// SPDX-License-Identifier: MIT
// Words for a POSIX shell, and texts with {name} in them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace aplib::launch {

/// `word` so that a shell reads exactly it: as it is when it has only letters, digits and the harmless signs, else in single quotes.
[[nodiscard]] std::string shell_quote(std::string_view word);

/// All words, quoted, with blanks between.
[[nodiscard]] std::string shell_command(std::span<const std::string> words);

/// The words of a command as people write it in an option: blanks separate, single and double quotes hold together, a backslash takes the next character as it is. Throws
/// Error(bad_option) naming `subject` for a quote without end.
[[nodiscard]] std::vector<std::string> split_words(std::string_view text, std::string_view subject);

/// `text` with every "{name}" of the list replaced; other braces stay, they are the shell's.
[[nodiscard]] std::string fill_in(std::string_view text,
                                  std::span<const std::pair<std::string_view, std::string>> values);

}  // namespace aplib::launch
