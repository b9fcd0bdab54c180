// SPDX-License-Identifier: MIT
// Functions that return a static buffer or keep their place in one: strtok, strerror, asctime, ....
#include "loader/libc/tables.hpp"

namespace aplib::loader::libc {

std::span<const Binding> static_buffers_bindings() { return {}; }

}  // namespace aplib::loader::libc
