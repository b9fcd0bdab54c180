// SPDX-License-Identifier: MIT
// The folder in which the runtime's processes of one user on this computer find each other, and that of their program.
#pragma once

#include <sys/auxv.h>

#include <filesystem>
#include <span>
#include <string>
#include <system_error>

namespace aplib::os {

/// $XDG_RUNTIME_DIR/aplib; where that is not set /tmp/aplib-UID, or $HOME/.aplib if a stranger has taken that. As
/// own_folder().
[[nodiscard]] std::string registry_folder();

/// The first of the folders that is this user's alone, made if missing. Throws Error(failed) with the reason for each.
[[nodiscard]] std::string own_folder(std::span<const std::string> candidates);

/// The file of this process's program; where /proc is not mounted, by the name by which it was executed, which the
/// folder must still suit. Empty: not known.
[[nodiscard]] inline std::string own_program() {
  std::error_code error;
  const std::filesystem::path file = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) return file.string();
  const auto* const name = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));  // NOLINT(performance-no-int-to-ptr)
  return name == nullptr ? std::string() : std::filesystem::canonical(name, error).string();
}

}  // namespace aplib::os
