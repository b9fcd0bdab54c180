// SPDX-License-Identifier: MIT
#include "aplib/options.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <vector>

#include "aplib/error.hpp"
#include "base/options_table.hpp"
#include "base/text.hpp"

namespace aplib {
namespace {

constexpr std::string_view variable_prefix = "APLIB_";

const OptionRow* find_row(std::string_view name, std::string_view OptionInfo::*column) {
  for (const OptionRow& row : option_rows()) {
    if (row.info.*column == name) return &row;
  }
  return nullptr;
}

/// What a mistyped name is compared as: "APLIB_Stack_Size" as "stack-size".
std::string plain_name(std::string_view name) {
  if (name.starts_with(variable_prefix)) name.remove_prefix(variable_prefix.size());
  std::string plain(name);
  for (char& c : plain) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '_') c = '-';
  }
  return plain;
}

/// unknown option "thread": did you mean "threads"? known options: cells, threads, ...
[[noreturn]] void throw_unknown(std::string_view kind, std::string_view name, std::string_view OptionInfo::*column) {
  std::vector<std::string_view> names, spellings;
  for (const OptionRow& row : option_rows()) {
    names.push_back(row.info.name);
    spellings.push_back(row.info.*column);
  }
  std::string hint;
  if (const auto meant = text::nearest(plain_name(name), names)) {
    hint = fmt::format(" did you mean \"{}\"?", find_row(*meant, &OptionInfo::name)->info.*column);
  }
  throw Error(Errc::bad_option,
              fmt::format("unknown {} \"{}\":{} known {}s: {}", kind, name, hint, kind, text::join(spellings)));
}

const OptionRow& row_of(std::string_view name) {
  const OptionRow* row = find_row(name, &OptionInfo::name);
  if (row == nullptr) throw_unknown("option", name, &OptionInfo::name);
  return *row;
}

void apply(const OptionRow& row, std::string_view subject, Options& options, std::string_view value) {
  const std::string problem = row.apply(options, value);
  if (!problem.empty()) throw Error(Errc::bad_option, fmt::format("{}: {}", subject, problem));
}

}  // namespace

void Options::set(std::string_view name, std::string_view value) {
  apply(row_of(name), fmt::format("option {}", name), *this, value);
}

std::string Options::get(std::string_view name) const { return row_of(name).print(*this); }

void Options::check() const {
  Options scratch;
  for (const OptionRow& row : option_rows()) {
    apply(row, fmt::format("option {}", row.info.name), scratch, row.print(*this));
  }
}

void Options::set_from_environment() {
  Options changed = *this;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (!text.starts_with(variable_prefix) || equals == text.npos) continue;
    const std::string_view variable = text.substr(0, equals);
    const std::string_view value = text.substr(equals + 1);
    const OptionRow* row = find_row(variable, &OptionInfo::variable);
    if (row == nullptr) throw_unknown("variable", variable, &OptionInfo::variable);
    if (!value.empty()) apply(*row, variable, changed, value);
  }
  *this = std::move(changed);
}

Options Options::from_environment() {
  Options options;
  options.set_from_environment();
  return options;
}

}  // namespace aplib
