// SPDX-License-Identifier: MIT
// Thread-locals of instances. General and local dynamic: the module number that relocation stores is ours
// (own_module() + the image's number), and so is the __tls_get_addr that programs call: it finds the block of the
// running task's context. Initial-exec: a pool in every thread's static block, whose contents the switch exchanges.
//
// Source: Drepper, "ELF Handling For Thread-Local Storage". TLS descriptors: arch/tls_descriptor.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "loader/context.hpp"

namespace aplib::loader {

/// What a reference passes to __tls_get_addr (tls_index in the ABI), and what a TLS descriptor's second word points to.
struct TlsIndex {
  std::uint64_t module;
  std::uint64_t offset;
};

/// Module numbers of instances' images have this bit; the system's have not.
inline constexpr std::uint64_t own_module_bit = std::uint64_t{1} << 63;
constexpr std::uint64_t own_module(std::uint32_t module) noexcept { return own_module_bit | module; }

/// What programs' references to __tls_get_addr are bound to.
void* tls_get_addr(const TlsIndex* index);

/// Takes `bytes` of the pool of initial-exec thread-locals for good. Returns their offset from the thread pointer
/// (negative). Throws Error(exhausted) naming `path` and the flag that needs no pool. Call from: any thread.
std::int64_t reserve_static_tls(const char* path, std::uint64_t bytes, std::uint64_t alignment);

inline constexpr std::size_t static_tls_pool_bytes = 2048;
/// The calling thread's pool.
char* static_tls_pool() noexcept;
/// Bytes of it that are given out.
std::size_t static_tls_used() noexcept;
/// Puts the initial contents of the instance's initial-exec thread-locals into a context that is about to run for
/// the first time; nothing for programs that have none.
void start_static_tls(TaskContext& context);

}  // namespace aplib::loader
