// SPDX-License-Identifier: MIT
// exit() from C++ frames that have something to destroy and to catch. libc declares exit() nothrow.
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "aplib/cellos.h"

namespace {

[[noreturn]] void quit_inside(const std::string& name) {
  try {
    const std::string longer = name + ", which does not fit the object itself";
    if (longer.empty()) throw std::runtime_error(longer);
    std::exit(0);
  } catch (...) {
    std::puts("caught");
    std::abort();
  }
}

}  // namespace

void cell_main() {
  if (getcid() % 2 == 0) {
    try {
      throw std::runtime_error("first");
    } catch (const std::exception& error) {
      quit_inside(error.what());  // also inside a handler
    }
  }
  std::printf("cell %d goes on\n", getcid());
}
