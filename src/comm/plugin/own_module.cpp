// SPDX-License-Identifier: MIT
// What a module of APlib's own exports. Compiled once for each, with APLIB_KIND, the function that makes its kind, and
// APLIB_BUILD (kind.hpp, src/comm/CMakeLists.txt).
#include "comm/kind.hpp"

extern "C" {
extern __attribute__((visibility("default"))) const aplib::comm::OwnModule aplib_own_module;
const aplib::comm::OwnModule aplib_own_module = {APLIB_BUILD, aplib::comm::APLIB_KIND};
}
