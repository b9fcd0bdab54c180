// SPDX-License-Identifier: MIT
// Document: a TOML text as tables of keys with places in the file. The only door to the library that reads TOML.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace aplib::launch::cluster {

/// A larger text is refused.
constexpr std::size_t document_bytes_max = std::size_t{1} << 20;

/// Where something stands: both count from 1, columns in characters.
struct Place {
  int line = 1;
  int column = 1;
  friend auto operator<=>(const Place&, const Place&) = default;
};

struct Value {
  struct Other {
  };  ///< Nothing that a key of ours takes: a table, a date, a list of other things than texts and numbers.
  using Texts = std::vector<std::string>;  ///< A list of texts and whole numbers.

  std::variant<Other, std::string, std::int64_t, double, bool, Texts> content;
  std::string shown;  ///< As in the file, for messages; shortened when long.
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

/// `text` in quotes, for messages: control characters escaped, shortened when long.
[[nodiscard]] std::string quoted(std::string_view text);

/// Throws Error(bad_option) "NAME:line:column: ..." when it is no TOML.
[[nodiscard]] Document read_document(std::string_view text, const std::string& name);

}  // namespace aplib::launch::cluster
