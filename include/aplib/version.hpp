// SPDX-License-Identifier: MIT
// Version of these headers. Before 1.0, minor versions may be incompatible.
#pragma once

#define APLIB_VERSION_MAJOR 0
#define APLIB_VERSION_MINOR 1
#define APLIB_VERSION_PATCH 0

namespace aplib {
inline constexpr const char* version = "0.1.0";
}
