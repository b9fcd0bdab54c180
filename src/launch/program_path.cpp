// SPDX-License-Identifier: MIT
#include "launch/program_path.hpp"

#include <fmt/format.h>

#include <algorithm>
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

/// What stands there instead of a program: "./x is a folder, not a program"; empty: nothing does.
std::string obstacle(const std::string& path) {
  using std::filesystem::file_type;
  std::error_code error;
  const file_type type = std::filesystem::status(path, error).type();
  if (type == file_type::not_found) return {};
  const char* what = type == file_type::directory                               ? "a folder"
                     : type == file_type::fifo                                  ? "a named pipe"
                     : type == file_type::socket                                ? "a socket"
                     : type == file_type::block || type == file_type::character ? "a device"
                                                                                : nullptr;
  if (what != nullptr) return fmt::format("{} is {}, not a program", path, what);
  return error ? fmt::format("cannot look for the program {}: {}", path, error.message()) : std::string();
}

}  // namespace

std::string find_program(const std::string& name, std::string_view search) {
  if (name.find('/') != name.npos) {
    if (std::string found = in_place(name); !found.empty()) return found;
    const std::string instead = obstacle(name);
    throw Error(Errc::bad_option, instead.empty() ? fmt::format("there is no program {}", name) : instead);
  }
  if (std::string found = in_place("./" + name); !name.empty() && !found.empty()) return found;
  for (std::size_t at = 0; at <= search.size() && !name.empty();) {
    const std::size_t end = std::min(search.find(':', at), search.size());
    const std::string_view folder = search.substr(at, end - at);
    // In PATH, an empty name is the current folder.
    if (!folder.empty()) {
      if (std::string found = in_place(fmt::format("{}/{}", folder, name)); !found.empty()) return found;
    }
    at = end + 1;
  }
  const std::string instead = name.empty() ? std::string() : obstacle("./" + name);
  throw Error(Errc::bad_option,
              fmt::format("there is no program \"{}\": looked in the current folder and in PATH ({}){}", name, search,
                          instead.empty() ? "" : "; " + instead));
}

bool is_interpreter(const std::string& file) {
  std::error_code ignored;
  const std::string name = std::filesystem::canonical(file, ignored).filename().string();
  const std::string_view base = std::string_view(name).substr(0, name.find_first_of("0123456789.-"));
  constexpr std::array<std::string_view, 5> known{"python", "pypy", "ruby", "julia", "octave"};
  return std::ranges::find(known, base) != known.end();
}

}  // namespace aplib::launch
