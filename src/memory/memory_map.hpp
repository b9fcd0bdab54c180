// SPDX-License-Identifier: MIT
// The mappings of this process, as the system tells them: /proc/self/maps.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace aplib {

struct Mapping {
  std::uintptr_t low = 0;
  std::uintptr_t high = 0;
  bool readable = false;
  bool writable = false;
  std::string name;  ///< "/usr/lib/libc.so.6", "[heap]", or empty.
};

/// Calls `see` for each, by rising addresses, until it returns false. Takes some 100 us. Any thread.
void for_each_mapping(const std::function<bool(const Mapping&)>& see);

/// What kind of memory an address is of, for people. Any thread.
std::string describe_memory(const void* address);

}  // namespace aplib
