// SPDX-License-Identifier: MIT
// {cid}, {x}, {y} and {ncel} in texts that differ from cell to cell.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "aplib/options.hpp"

namespace aplib::launch {

/// `text` for cell `cid` of `grid`. What is no placeholder stays as it is.
[[nodiscard]] std::string expand(std::string_view text, std::uint32_t cid, Grid grid);

/// `text` with `cell` for {cid}, other placeholders untouched: for names of files.
[[nodiscard]] std::string expand_cell(std::string_view text, std::string_view cell);

[[nodiscard]] inline bool names_cell(std::string_view text) { return text.find("{cid}") != text.npos; }

}  // namespace aplib::launch
