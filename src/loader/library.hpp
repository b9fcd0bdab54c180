// SPDX-License-Identifier: MIT
// Which file a needed library is, and whether every instance gets its own copy of it or all share the process's one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "loader/elf_file.hpp"

namespace aplib::loader {

/// The user's word on libraries, by file name or soname, `*` and `?` allowed ("libgfortran.so*"). A private pattern
/// wins over a shared one.
struct SharingRules {
  std::vector<std::string> private_names;
  std::vector<std::string> shared_names;
};

enum class Sharing : std::uint8_t {
  shared,    ///< The process's own: of the system, or already loaded by it.
  separate,  ///< Every instance has its own copy.
};

struct Library {
  Sharing sharing = Sharing::shared;
  std::string path;                     ///< Separate: the file. Shared: what dlopen takes.
  std::shared_ptr<const ElfFile> file;  ///< Separate only.
  void* handle = nullptr;               ///< Shared only: dlopen's, kept for ever.
};

/// One element of the chain of those who need a library: the one that names it first, then who needs that one, up
/// to the program.
struct Requester {
  const ElfFile* file = nullptr;  ///< Null: the host itself asks.
  const Requester* needed_by = nullptr;
};

/// Finds `name` (a DT_NEEDED entry or an argument of dlopen) for `requester`.
///
/// Order, as ld.so's: a name with a slash is a path; else DT_RPATH of the chain (where the requester has no
/// DT_RUNPATH), LD_LIBRARY_PATH, DT_RUNPATH of the requester alone, the system's. $ORIGIN, $LIB and $PLATFORM are
/// replaced; files for other machines are passed over.
///
/// Sharing, the first that applies: some libraries are never separate, whatever the rules (libc and its parts,
/// ld-linux, libstdc++, libgcc_s, libaplib, sanitizer runtimes), and of those the process's own is taken, wherever
/// another lies; libaplib is always the one that this code is in. Then the rules. Then libgfortran is separate (its
/// units are state of the program). Then what RUNPATH, RPATH, LD_LIBRARY_PATH or a path find outside the system's
/// folders (/lib*, /usr/lib*, after resolving links) is separate; the rest, of the system or already loaded in the
/// process by that name, is shared.
///
/// Call from: any thread; blocks while files are read, and runs constructors of shared libraries that the process
/// has not yet loaded. Throws Error(failed) naming the library, who needs it, and where it was looked for.
Library find_library(std::string_view name, const Requester& requester, const SharingRules& rules);

/// True when one of `patterns` (with * and ?) is the whole of `name`.
bool matches_any(const std::vector<std::string>& patterns, std::string_view name);
// Where the system's libraries lie, without loading one: the dynamic linker's cache.

/// Path of the system's library `name` for this machine; empty: the system has none. Call from: any thread; blocks
/// while files are read.
[[nodiscard]] std::string find_system_library(std::string_view name);

/// Looks `name` up in the bytes of a cache; empty: not there, or the bytes make no sense. Source of the format:
/// glibc's ldconfig, "glibc-ld.so.cache1.1".
[[nodiscard]] std::string find_in_library_cache(std::string_view cache, std::string_view name);

}  // namespace aplib::loader
