// SPDX-License-Identifier: MIT
#include "memory/memory_map.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>

namespace aplib {

void for_each_mapping(const std::function<bool(const Mapping&)>& see) {
  std::ifstream maps("/proc/self/maps");
  // "7f0-7f1 rw-p 00000000 08:01 123   /usr/lib/libc.so.6"
  for (std::string line; std::getline(maps, line);) {
    char* end = nullptr;
    Mapping mapping;
    mapping.low = std::strtoull(line.c_str(), &end, 16);
    if (*end != '-') continue;
    mapping.high = std::strtoull(end + 1, &end, 16);
    if (end[0] != ' ' || end[1] == '\0' || end[2] == '\0') continue;
    mapping.readable = end[1] == 'r';
    mapping.writable = end[2] == 'w';
    if (const std::size_t name = line.find_first_of("/["); name != std::string::npos) mapping.name = line.substr(name);
    if (!see(mapping)) return;
  }
}

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

}  // namespace aplib
