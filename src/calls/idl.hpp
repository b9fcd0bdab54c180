// SPDX-License-Identifier: MIT
// Reads descriptions of functions: Ninf's interface description language, which docs/gridrpc.md has, and signatures of
// one line. A type is one of that language, or C's name of one.
#pragma once

#include <string>
#include <string_view>

#include "calls/interface.hpp"

namespace aplib::calls {

/// Larger texts are refused.
inline constexpr std::size_t idl_bytes_max = std::size_t{1} << 20;
inline constexpr std::size_t parameters_max = 256;

/// With bodies: each function has what the stub does. A text that a server sends has none.
enum class Bodies : bool { none, needed };

/// `name` is the file's, for messages. The text may be anybody's. Throws Error(bad_option)
/// "NAME:line:column: "found": what is wrong: remedy".
[[nodiscard]] Interface read_interface(std::string_view text, const std::string& name, Bodies bodies = Bodies::needed);

/// "name(PARAMETER,...)->TYPE", each parameter as in that language, or as in C: "int", "double const x[n]",
/// "char const* name". Names may be left out. Without "->" the result is void; a name alone takes nothing. Throws
/// Error(bad_option) "entry "TEXT", column N: "found": what is wrong: remedy".
[[nodiscard]] Function read_signature(std::string_view text);

}  // namespace aplib::calls
