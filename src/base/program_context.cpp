// SPDX-License-Identifier: MIT
#include "base/program_context.hpp"

namespace aplib {

constinit thread_local ProgramContext* current_program_context = nullptr;

}  // namespace aplib
