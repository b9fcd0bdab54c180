// SPDX-License-Identifier: MIT
// Reads Ninf's interface description language. docs/gridrpc.md has the language.
#pragma once

#include <string>
#include <string_view>

#include "gridrpc/interface.hpp"

namespace aplib::gridrpc {

/// Larger texts are refused.
inline constexpr std::size_t idl_bytes_max = std::size_t{1} << 20;
inline constexpr std::size_t parameters_max = 256;

/// With bodies: each function has what the stub does. A text that a server sends has none.
enum class Bodies : bool { none, needed };

/// `name` is the file's, for messages. The text may be anybody's. Throws Error(bad_option)
/// "NAME:line:column: "found": what is wrong: remedy".
[[nodiscard]] Interface read_interface(std::string_view text, const std::string& name, Bodies bodies = Bodies::needed);

}  // namespace aplib::gridrpc
