// SPDX-License-Identifier: MIT
// What kind of memory an address is of, for people.
#include <fmt/format.h>

#include <fstream>
#include <string>

#include "cell/one_sided.hpp"

namespace aplib::one_sided {

std::string describe_memory(const void* address) {
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  if (address == nullptr) return "NULL";
  std::ifstream maps("/proc/self/maps");
  std::string file;  // of this mapping; of nameless memory right behind a file's (its .bss) that file
  std::uintptr_t file_end = 0;
  // "7f0-7f1 rw-p 00000000 08:01 123   /usr/lib/libc.so.6"
  for (std::string line; std::getline(maps, line);) {
    char* end = nullptr;
    const std::uintptr_t low = std::strtoull(line.c_str(), &end, 16);
    if (*end != '-') continue;
    const std::uintptr_t high = std::strtoull(end + 1, nullptr, 16);
    const std::size_t name = line.find_first_of("/[");
    if (name != std::string::npos || low != file_end) file = name == std::string::npos ? "" : line.substr(name);
    file_end = high;
    if (place < low || place >= high) continue;
    if (file.starts_with("/"))
      return fmt::format(
          "in {}, whose globals all cells of this process share (compile the program by apcc and run it "
          "by aprun, then each cell has its own)",
          file);
    if (file.starts_with("[stack")) return "on a stack that is not a task's";
    return "memory of the C library's heap or mapped by the program, of which other cells have no equal";
  }
  return "not mapped";
}

}  // namespace aplib::one_sided
