// SPDX-License-Identifier: MIT
// Pages of docs/ that programs write from the tables of the library.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace aplib::testing_support {

/// A table's cell: '|' separates the columns.
inline std::string table_cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

/// The same in the type of code, or nothing.
inline std::string table_code(std::string_view text) {
  return text.empty() ? std::string() : fmt::format("`{}`", table_cell(text));
}

/// What main() of such a program does: writes the page to stdout; with --check FILE, compares instead. `source` is
/// what the page is written from.
inline int write_or_check(int argc, char** argv, const std::string& page, const char* source) {
  if (argc == 1) {
    std::fputs(page.c_str(), stdout);
    return 0;
  }
  if (argc != 3 || std::string_view(argv[1]) != "--check") {
    std::fprintf(stderr, "usage: %s [--check FILE]\n", argv[0]);
    return 2;
  }
  std::ifstream in(argv[2]);
  const std::string found{std::istreambuf_iterator<char>(in), {}};
  if (found == page) return 0;
  std::fprintf(stderr, "%s differs from %s; write it again with:\n  %s > %s\n", argv[2], source, argv[0], argv[2]);
  return 1;
}

}  // namespace aplib::testing_support
