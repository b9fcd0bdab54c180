// SPDX-License-Identifier: MIT
#include "launch/placeholders.hpp"

namespace aplib::launch {
namespace {

std::string replaced(std::string_view text, std::string_view name, std::string_view value) {
  std::string result;
  for (std::size_t at = 0;;) {
    const std::size_t found = text.find(name, at);
    result += text.substr(at, found - at);
    if (found == text.npos) return result;
    result += value;
    at = found + name.size();
  }
}

}  // namespace

std::string expand(std::string_view text, std::uint32_t cid, Grid grid) {
  std::string result = expand_cell(text, std::to_string(cid));
  result = replaced(result, "{x}", std::to_string(cid % grid.nx));
  result = replaced(result, "{y}", std::to_string(cid / grid.nx));
  return replaced(result, "{ncel}", std::to_string(grid.count()));
}

std::string expand_cell(std::string_view text, std::string_view cell) { return replaced(text, "{cid}", cell); }

}  // namespace aplib::launch
