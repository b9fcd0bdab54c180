// SPDX-License-Identifier: MIT
// Perror, err, warn, error, assert: messages that go to the standard error of the instance.
#include "loader/libc/tables.hpp"

namespace aplib::loader::libc {

std::span<const Binding> errors_bindings() { return {}; }

}  // namespace aplib::loader::libc
