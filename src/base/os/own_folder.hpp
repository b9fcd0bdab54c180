// SPDX-License-Identifier: MIT
// The folder in which the runtime's processes of one user on this computer find each other.
#pragma once

#include <span>
#include <string>

namespace aplib::os {

/// $XDG_RUNTIME_DIR/aplib; where that is not set /tmp/aplib-UID, or $HOME/.aplib if a stranger has taken that. As
/// own_folder().
[[nodiscard]] std::string registry_folder();

/// The first of the folders that is this user's alone, made if missing. Throws Error(failed) with the reason for each.
[[nodiscard]] std::string own_folder(std::span<const std::string> candidates);

}  // namespace aplib::os
