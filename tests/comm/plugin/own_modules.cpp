// SPDX-License-Identifier: MIT
#include "own_modules.hpp"

#include <stdexcept>

namespace aplib::comm::test {

std::span<const FoundModule> own_modules() {
  static const std::vector<FoundModule> found = find_modules(EXAMPLE_MODULES);
  return found;
}

const ModuleKind& own_module(const std::string& name) {
  if (const ModuleKind* kind = kind_of(own_modules(), name)) return *kind;
  throw std::runtime_error(unknown_module(own_modules(), name));
}

}  // namespace aplib::comm::test
