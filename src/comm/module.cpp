// SPDX-License-Identifier: MIT
// What a module without remote memory answers.
#include "comm/module.hpp"

#include <fmt/format.h>

#include "aplib/error.hpp"

namespace aplib::comm {

void Module::no_remote_memory(const char* call) const {
  throw Error(Errc::bad_argument,
              fmt::format("{}: {}: this module cannot reach other processes' memory; ask reaches_memory() first",
                          name(), call));
}

}  // namespace aplib::comm
