// SPDX-License-Identifier: MIT
// Where the system's libraries lie, without loading one: the dynamic linker's cache.
#pragma once

#include <string>
#include <string_view>

namespace aplib::loader {

/// Path of the system's library `name` for this machine; empty: the system has none. Call from: any thread; blocks while files are read.
[[nodiscard]] std::string find_system_library(std::string_view name);

/// Looks `name` up in the bytes of a cache; empty: not there, or the bytes make no sense. Source of the format: glibc's ldconfig, "glibc-ld.so.cache1.1".
[[nodiscard]] std::string find_in_library_cache(std::string_view cache, std::string_view name);

}  // namespace aplib::loader
