// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>

#include "comm/kind.hpp"

namespace aplib::comm::test {

/// The plug-ins of this build, and the example.
std::span<const FoundModule> own_modules();

/// The plug-in with that name. Throws std::runtime_error if there is none.
const ModuleKind& own_module(const std::string& name);

}  // namespace aplib::comm::test
