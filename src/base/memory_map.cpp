// SPDX-License-Identifier: MIT
#include "base/memory_map.hpp"

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

}  // namespace aplib
