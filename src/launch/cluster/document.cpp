// SPDX-License-Identifier: MIT
#include "launch/cluster/document.hpp"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cmath>
#include <utility>

#include "aplib/error.hpp"

namespace aplib::launch::cluster {
namespace {

/// A dotted key nests as deep as its line is long, and the library destroys nested tables by recursion.
constexpr std::size_t line_bytes_max = 4096;
constexpr std::size_t shown_max = 60;

Place place(const toml::source_region& region) {
  return {static_cast<int>(region.begin.line), static_cast<int>(region.begin.column)};
}

/// Older versions of the library (2.x) do not tell where a key stands: the value's place is near.
template <class Key>
Place place_of_key(const Key& key, const toml::node& value) {
  if constexpr (requires { key.source(); }) {
    return place(key.source());
  } else {
    return place(value.source());
  }
}

template <class Key>
std::string text_of_key(const Key& key) {
  return std::string(std::string_view(key));
}

/// Returns false if an element is neither text nor a number.
bool read_texts(const toml::array& array, Value::Texts& texts) {
  for (const toml::node& element : array) {
    if (const auto* text = element.as_string()) {
      texts.push_back(text->get());
    } else if (const auto* number = element.as_integer()) {
      texts.push_back(fmt::format("{}", number->get()));
    } else {
      return false;
    }
  }
  return true;
}

std::string shortened(std::string text) {
  if (text.size() <= shown_max) return text;
  std::size_t end = shown_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;  // not inside a character
  return text.substr(0, end) + "...";
}

std::string list_text(const Value::Texts& texts) {
  std::string text = "[";
  for (const std::string& each : texts) {
    if (text.size() > shown_max) break;
    text += (text.size() > 1 ? ", " : "") + in_quotes(each);
  }
  return shortened(text + "]");
}

Value read_value(const toml::node& node) {
  Value value;
  value.at = place(node.source());
  if (const auto* text = node.as_string()) {
    value.content = text->get();
    value.shown = in_quotes(text->get());
  } else if (const auto* whole = node.as_integer()) {
    value.content = whole->get();
    value.shown = fmt::format("{}", whole->get());
  } else if (const auto* number = node.as_floating_point()) {
    value.content = number->get();
    value.shown = fmt::format("{}", number->get());
  } else if (const auto* truth = node.as_boolean()) {
    value.content = truth->get();
    value.shown = truth->get() ? "true" : "false";
  } else if (const auto* array = node.as_array()) {
    Value::Texts texts;
    if (read_texts(*array, texts)) {
      value.shown = list_text(texts);
      value.content = std::move(texts);
    } else {
      value.shown = "[...]";
    }
  } else {
    value.shown = node.is_table() ? "{...}" : "a date or time";
  }
  return value;
}

std::vector<Entry> read_entries(const toml::table& table) {
  std::vector<Entry> entries;
  for (const auto& [key, node] : table) {
    entries.push_back({.key = text_of_key(key), .at = place_of_key(key, node), .value = read_value(node)});
  }
  std::ranges::stable_sort(entries, {}, &Entry::at);  // the library sorts by name
  return entries;
}

bool is_list_of_tables(const toml::node& node) {
  const toml::array* array = node.as_array();
  return array != nullptr && !array->empty() &&
         std::ranges::all_of(*array, [](const toml::node& element) { return element.is_table(); });
}

Document read_tables(const toml::table& root) {
  Document document;
  const auto add = [&document](std::string name, bool element, const toml::table& table, Place at) {
    document.sections.push_back(
        {.name = std::move(name), .element = element, .at = at, .entries = read_entries(table)});
  };
  for (const auto& [key, node] : root) {
    const std::string name = text_of_key(key);
    if (const toml::table* table = node.as_table()) {
      add(name, false, *table, place_of_key(key, node));
    } else if (is_list_of_tables(node)) {
      for (const toml::node& element : *node.as_array()) add(name, true, *element.as_table(), place(element.source()));
    } else {
      document.loose.push_back({.key = name, .at = place_of_key(key, node), .value = read_value(node)});
    }
  }
  std::ranges::stable_sort(document.sections, {}, &Section::at);
  std::ranges::stable_sort(document.loose, {}, &Entry::at);
  return document;
}

void check_form(std::string_view text, const std::string& name) {
  if (text.size() > document_bytes_max) {
    throw Error(Errc::bad_option,
                fmt::format("{}: this is no cluster file: it has more than {} bytes", name, document_bytes_max));
  }
  int line = 1;
  for (std::size_t at = 0; at <= text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (end - at > line_bytes_max) {
      throw Error(Errc::bad_option,
                  fmt::format("{}:{}:{}: the line is longer than {} bytes: lists may have line breaks "
                              "between their elements, and texts in three double quotes inside",
                              name, line, line_bytes_max + 1, line_bytes_max));
    }
    at = end + 1;
  }
}

/// Line number `line`, without blanks around it.
std::string_view line_of(std::string_view text, int line) {
  std::size_t at = 0;
  for (int n = 1; n < line && at < text.size(); ++n) at = std::min(text.find('\n', at), text.size() - 1) + 1;
  const std::string_view words = text.substr(at, std::min(text.find('\n', at), text.size()) - at);
  const std::size_t first = words.find_first_not_of(" \t\r");
  return first == words.npos ? std::string_view() : words.substr(first, words.find_last_not_of(" \t\r") + 1 - first);
}

/// The remedy for a line that the library cannot read. Not everybody who writes a cluster file knows TOML.
std::string remedy(std::string_view words, std::string_view problem, std::string_view tables) {
  const auto says = [problem](std::string_view word) { return problem.find(word) != problem.npos; };
  if (says("redefine")) return "it is there twice: keep one";
  if (says("utf-8")) return "save the file as UTF-8";
  if (says("nested")) return "nothing in a cluster file nests so deep";
  if (says("representable")) return "use a smaller number";
  const std::size_t equals = words.find('=');
  if (words.starts_with('[')) return fmt::format("tables are {}", tables);
  if (equals == words.npos) return "a line is a table, as [machine], or key = value, or a comment that begins with #";
  const std::size_t value = words.find_first_not_of(" \t", equals + 1);
  if (value == words.npos) return "a value must follow =";
  switch (words[value]) {
    case '"':
      return "a text ends with a double quote on its line; inside, a double quote is written \\\" and a backslash \\\\";
    case '\'':
      return "a text in single quotes ends on its line";
    case '[':
      return "a list is written [\"a\", \"b\"]";
    case '{':
      return "no key of a cluster file takes a table";
    default:
      return "texts stand in double quotes, as in program = \"./prog\" or grid = \"4x2\"; numbers, true and false do "
             "not";
  }
}

/// "decimal integer: expected digit, saw 'x'": a problem without the words that all begin with.
std::string_view plain(std::string_view description) {
  constexpr std::string_view beginning = "Error while parsing ";
  if (description.starts_with(beginning)) description.remove_prefix(beginning.size());
  return description;
}

}  // namespace

std::string in_quotes(std::string_view text) {
  std::string escaped = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      escaped += '\\';
      escaped += c;
    } else if (c == '\n') {
      escaped += "\\n";
    } else if (code < 0x20 || code == 0x7f) {
      escaped += fmt::format("\\u{:04x}", code);
    } else {
      escaped += c;
    }
    if (escaped.size() > shown_max + 8) break;
  }
  return shortened(escaped.size() > shown_max + 8 ? escaped : escaped + '"');
}

Document read_document(std::string_view text, const std::string& name, std::string_view tables) {
  check_form(text, name);
  try {
    return read_tables(toml::parse(text, name));
  } catch (const toml::parse_error& error) {
    const Place at = place(error.source());
    std::string_view words = line_of(text, at.line);
    if (std::string_view(error.description()).find("utf-8") != std::string_view::npos) words = "?";
    const std::string_view problem = plain(error.description());
    throw Error(Errc::bad_option, fmt::format("{}:{}:{}: {}: {}: {}", name, at.line, at.column, in_quotes(words),
                                              problem, remedy(words, problem, tables)));
  }
}

}  // namespace aplib::launch::cluster
