// SPDX-License-Identifier: MIT
// Dlopen, dlsym, dladdr, dl_iterate_phdr inside an instance.
#include "loader/libc/tables.hpp"

namespace aplib::loader::libc {

std::span<const Binding> dl_bindings() { return {}; }

}  // namespace aplib::loader::libc
