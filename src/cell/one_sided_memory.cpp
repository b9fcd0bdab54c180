// SPDX-License-Identifier: MIT
// What kind of memory an address is of, for people.
#include <fmt/format.h>

#include <string>

#include "base/memory_map.hpp"
#include "cell/one_sided.hpp"

namespace aplib::one_sided {

std::string describe_memory(const void* address) {
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  if (address == nullptr) return "NULL";
  std::string text = "not mapped";
  std::string name;  // of this mapping; of nameless memory right behind a file's (its .bss) that file
  std::uintptr_t end = 0;
  for_each_mapping([&](const Mapping& mapping) {
    if (!mapping.name.empty() || mapping.low != end) name = mapping.name;
    end = mapping.high;
    if (place < mapping.low || place >= mapping.high) return true;
    if (name.starts_with("/")) {
      text = fmt::format(
          "in {}, whose globals all cells of this process share (compile the program by apcc and run it by aprun, then "
          "each cell has its own)",
          name);
    } else if (name.starts_with("[stack")) {
      text = "on a stack that is not a task's";
    } else {
      text = "memory of the C library's heap or mapped by the program, of which other cells have no equal";
    }
    return false;
  });
  return text;
}

}  // namespace aplib::one_sided
