// SPDX-License-Identifier: MIT
// Opening a plug-in file: what can be told before its code runs is checked first.
#pragma once

#include <string>

#include "aplib/comm_module.h"

namespace aplib::comm {

struct OpenedPlugin {
  const aplib_comm_plugin* exported = nullptr;  ///< Null: refused. Valid for the life of the process.
  std::string refusal{};                        ///< Why: "it is no shared object (ELF)".
};

/// Opens the file, runs its constructors, and checks what it exports. One that was accepted stays open for the life of the process. Call from: any thread.
[[nodiscard]] OpenedPlugin open_plugin(const std::string& file);

}  // namespace aplib::comm
