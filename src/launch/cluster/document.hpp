// SPDX-License-Identifier: MIT
// Document: a TOML text as tables of keys with their places in the file. Only this file uses the TOML library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace aplib::launch::cluster {

/// Larger texts are refused.
constexpr std::size_t document_bytes_max = std::size_t{1} << 20;

/// A place in the file: both numbers count from 1, columns in characters.
struct Place {
  int line = 1;
  int column = 1;
  friend auto operator<=>(const Place&, const Place&) = default;
};

struct Value {
  struct Other {};  ///< A value that no key accepts: a table, a date, a list of anything but texts and numbers.
  using Texts = std::vector<std::string>;  ///< A list of texts and whole numbers.

  std::variant<Other, std::string, std::int64_t, double, bool, Texts> content;
  std::string shown;  ///< As in the file, for messages; shortened if long.
  Place at;
};

struct Entry {
  std::string key;
  Place at;
  Value value;
};

/// [name], or an element of [[name]].
struct Section {
  std::string name;
  bool element = false;
  Place at;
  std::vector<Entry> entries;  ///< In the order of the file.
};

struct Document {
  std::vector<Entry> loose;  ///< Keys before the first table.
  std::vector<Section> sections;
};

/// `text` in quotes, for messages: control characters are escaped, and long texts shortened.
[[nodiscard]] std::string in_quotes(std::string_view text);

/// `tables`: which ones such a file has, for messages. Throws Error(bad_option) "NAME:line:column: ..." when it is not
/// TOML.
[[nodiscard]] Document read_document(std::string_view text, const std::string& name,
                                     std::string_view tables = "[machine], [[host]] (once for each host) and [comm]");

}  // namespace aplib::launch::cluster
