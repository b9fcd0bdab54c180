// SPDX-License-Identifier: MIT
// An interface without an IDL: functions of a library, by what its debug information says of their types.
#pragma once

#include <span>
#include <string>

namespace aplib::gridrpc {

/// What stands where a type does not say how many elements there are.
enum class Sizes : bool {
  refused,
  left_open,  ///< A word that users replace, and that is no parameter.
};

/// An IDL text. A function's result is its last parameter, OUT. `library` is a shared library, `names` are of its
/// functions. Throws Error(bad_option): "LIBRARY: FUNCTION: cause: remedy".
[[nodiscard]] std::string draft_interface(const std::string& library, std::span<const std::string> names, Sizes sizes);

}  // namespace aplib::gridrpc
