// SPDX-License-Identifier: MIT
// When are two files, perhaps on two hosts, the same program?
#pragma once

#include <string>

#include "launch/control/protocol.hpp"

namespace aplib::launch {

/// By build-id where the file has one, else by size and a sum over all bytes. Looks at the file's own bytes alone; what is no ELF file has no build-id. Throws
/// Error(failed) when it cannot be read.
[[nodiscard]] FileIdentity identify_file(const std::string& path);

/// For people: "build-id 4f3a...", "4711 bytes, sum 1b2c...".
[[nodiscard]] std::string identity_text(const FileIdentity& identity);

}  // namespace aplib::launch
