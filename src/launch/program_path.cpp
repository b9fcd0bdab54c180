// SPDX-License-Identifier: MIT
#include "launch/program_path.hpp"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <system_error>

#include "aplib/error.hpp"

namespace aplib::launch {
namespace {

constexpr std::array<std::string_view, 3> suffixes{"", ".so", ".cell"};

/// The file that is there under one of the suffixes; empty: none.
std::string in_place(const std::string& path) {
  for (const std::string_view suffix : suffixes) {
    const std::string candidate = path + std::string(suffix);
    std::error_code ignored;
    if (std::filesystem::is_regular_file(candidate, ignored)) return candidate;
  }
  return {};
}

}  // namespace

std::string find_program(const std::string& name, std::string_view search) {
  std::error_code ignored;
  if (name.find('/') != name.npos) {
    if (std::string found = in_place(name); !found.empty()) return found;
    throw Error(Errc::bad_option, std::filesystem::is_directory(name, ignored)
                                      ? fmt::format("{} is a folder, not a program", name)
                                      : fmt::format("there is no program {}", name));
  }
  if (std::string found = in_place("./" + name); !name.empty() && !found.empty()) return found;
  for (std::size_t at = 0; at <= search.size() && !name.empty();) {
    const std::size_t end = std::min(search.find(':', at), search.size());
    const std::string_view folder = search.substr(at, end - at);
    // In PATH an empty name is the current folder.
    if (!folder.empty()) {
      if (std::string found = in_place(fmt::format("{}/{}", folder, name)); !found.empty()) return found;
    }
    at = end + 1;
  }
  throw Error(Errc::bad_option,
              fmt::format("there is no program \"{}\": looked in the current folder and in PATH ({})", name, search));
}

}  // namespace aplib::launch
