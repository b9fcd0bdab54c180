// SPDX-License-Identifier: MIT
#include "loader/library_cache.hpp"

#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>

namespace aplib::loader {
namespace {

constexpr const char* cache_file = "/etc/ld.so.cache";
constexpr std::string_view magic = "glibc-ld.so.cache1.1";
constexpr std::int32_t x86_64_flags = 0x0303;  // for glibc, and of 64-bit x86

/// What follows the magic bytes.
struct Header {
  std::uint32_t entries;
  std::uint32_t string_bytes;
  std::uint8_t flags;
  std::array<std::uint8_t, 3> padding;
  std::uint32_t extensions;
  std::array<std::uint32_t, 3> unused;
};

struct Entry {
  std::int32_t flags;
  std::uint32_t name;  // both: offset of a string from the start of the cache
  std::uint32_t path;
  std::uint32_t system_version;
  std::uint64_t processor;  // 0: any x86-64
};

template <class T>
bool copy_at(std::string_view bytes, std::uint64_t offset, T& to) {
  if (offset > bytes.size() || sizeof to > bytes.size() - offset) return false;
  std::memcpy(&to, bytes.data() + offset, sizeof to);
  return true;
}

std::string_view text_at(std::string_view bytes, std::uint64_t offset) {
  if (offset >= bytes.size()) return {};
  const std::string_view rest = bytes.substr(offset);
  const std::size_t end = rest.find('\0');
  return end == std::string_view::npos ? std::string_view{} : rest.substr(0, end);
}

std::string read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::string find_in_library_cache(std::string_view cache, std::string_view name) {
  Header header{};
  if (!cache.starts_with(magic) || !copy_at(cache, magic.size(), header)) return {};
  std::uint64_t at = magic.size() + sizeof header;
  for (std::uint32_t i = 0; i < header.entries; ++i, at += sizeof(Entry)) {
    Entry entry{};
    if (!copy_at(cache, at, entry)) return {};
    if (entry.flags == x86_64_flags && entry.processor == 0 && text_at(cache, entry.name) == name) {
      return std::string(text_at(cache, entry.path));
    }
  }
  return {};
}

std::string find_system_library(std::string_view name) {
  const std::string cached = find_in_library_cache(read_file(cache_file), name);
  if (!cached.empty() && ::access(cached.c_str(), R_OK) == 0) return cached;
  for (const char* folder :
       {"/lib/x86_64-linux-gnu/", "/usr/lib/x86_64-linux-gnu/", "/lib64/", "/usr/lib64/", "/lib/", "/usr/lib/"}) {
    std::string path = folder + std::string(name);
    if (::access(path.c_str(), R_OK) == 0) return path;
  }
  return {};
}

}  // namespace aplib::loader
