// SPDX-License-Identifier: MIT
// The one table of options. To add an option: a field in Options (include/aplib/options.hpp) and a row in
// options_table.cpp; the command line, APLIB_* variables, --help and docs/options.md follow (a test tells how to
// regenerate the page).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "aplib/options.hpp"

namespace aplib {

/// A row: what people see, and how text becomes the field's value and back.
struct OptionRow {
  OptionInfo info;
  /// Stores the value and returns "", or leaves the options alone and returns what is wrong and what to write instead.
  std::string (*apply)(Options& options, std::string_view value);
  /// Text that apply() accepts.
  std::string (*print)(const Options& options);
};

/// All rows, in the order of --help.
[[nodiscard]] std::span<const OptionRow> option_rows() noexcept;

}  // namespace aplib
