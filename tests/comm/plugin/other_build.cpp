// SPDX-License-Identifier: MIT
// What a module of another build would bring along. It must never be asked for its kind: its classes may lie
// differently.
#include <cstdlib>

#include "comm/kind.hpp"

namespace aplib::comm {

std::unique_ptr<ModuleKind> shm_kind() { std::abort(); }

}  // namespace aplib::comm
