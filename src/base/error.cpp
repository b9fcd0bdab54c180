// SPDX-License-Identifier: MIT
#include "aplib/error.hpp"

namespace aplib {

// Out of line, so that every shared object agrees on one type_info and a catch works across them.
Error::~Error() = default;

}  // namespace aplib
