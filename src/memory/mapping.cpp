// SPDX-License-Identifier: MIT
#include "memory/mapping.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "aplib/error.hpp"
#include "base/os/map_at.hpp"

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
  if (address == nullptr) return "NULL";
  // What lies right behind a file's last page in the list of mappings is its .bss, or anything: the linker knows.
  if (Dl_info object; dladdr(address, &object) != 0) {
    return fmt::format(
        "in {}, whose globals all cells of this process share (compile the program by apcc and run it by aprun, then "
        "each cell has its own)",
        object.dli_fname);
  }
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  std::string text = "not mapped";
  for_each_mapping([&](const Mapping& mapping) {
    if (place >= mapping.high) return true;
    if (place < mapping.low) return false;
    text = mapping.name.starts_with("[stack")
               ? "on a stack that is not a task's"
               : "memory of the C library's heap or mapped by the program, of which other cells have no equal";
    return false;
  });
  return text;
}

// ---------------------------------------------------------------- reserved ranges

namespace {

constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

}  // namespace

ReservedRange::ReservedRange(std::uint64_t bytes, std::uint64_t alignment, char* low, std::uint64_t room)
    : bytes_(bytes) {
  if (low != nullptr) {
    // Instances of a cell lie one after the other, so the first try nearly always finds its place; what is in the
    // way is passed in doubling steps.
    std::uint64_t step = alignment;
    for (std::uint64_t offset = 0; offset + bytes <= room; offset += step, step *= 2) {
      char* const wanted = low + align_up(offset, alignment);
      if (os::map_at(wanted, bytes, PROT_NONE, flags)) {
        base_ = wanted;
        return;
      }
      if (errno != EEXIST) break;
    }
  }
  const std::uint64_t slack = alignment > 4096 ? alignment : 0;
  void* got = mmap(nullptr, bytes + slack, PROT_NONE, flags, -1, 0);
  if (got == MAP_FAILED) {
    throw Error(
        Errc::exhausted,
        fmt::format(
            "no address space for an instance of {} KiB: {}; start fewer cells, or raise vm.max_map_count (sysctl) "
            "and the limit on address space (ulimit -v)",
            bytes / 1024, std::strerror(errno)));
  }
  base_ = static_cast<char*>(got);
  if (slack != 0) {
    const auto address = reinterpret_cast<std::uint64_t>(got);
    const std::uint64_t before = align_up(address, alignment) - address;
    if (before != 0) munmap(base_, before);
    if (slack != before) munmap(base_ + before + bytes, slack - before);
    base_ += before;
  }
}

ReservedRange::ReservedRange(ReservedRange&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

ReservedRange& ReservedRange::operator=(ReservedRange&& other) noexcept {
  if (this != &other) {
    release();
    base_ = std::exchange(other.base_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void ReservedRange::release() noexcept {
  if (base_ != nullptr) munmap(base_, bytes_);
  base_ = nullptr;
}

}  // namespace aplib
