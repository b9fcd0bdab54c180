// SPDX-License-Identifier: MIT
// What the machine's ABI says of program files, and how their code reaches thread-locals.
//   elf_machine            e_machine of its files
//   machine_name           as people call it
//   platform               what $PLATFORM stands for in library paths
//   multiarch_folder       where Debian and its kin keep its libraries
//   library_cache_flags    its entries in /etc/ld.so.cache
//   relocation_kind(type)  what a dynamic relocation asks for
//
// By TLS descriptors code reaches a thread-local without a call of __tls_get_addr. The first word of a descriptor is a
// function, the second what that function needs.
#pragma once

#include <cstdint>

namespace aplib::arch {

/// What is stored at a relocation's place; its addend is added unless said otherwise.
enum class RelocationKind : std::uint8_t {
  none,             ///< Nothing.
  base,             ///< The image's base.
  symbol,           ///< The symbol's address.
  slot,             ///< The symbol's address, without an addend.
  symbol_size,      ///< The symbol's size.
  resolver,         ///< What the function at base + addend returns.
  copy,             ///< The symbol's contents.
  tls_module,       ///< The number of the thread-local's module.
  tls_offset,       ///< The thread-local's offset in its module's block.
  tls_from_thread,  ///< The thread-local's offset from the thread pointer.
  tls_descriptor,   ///< Two words: a function and what it needs to find the thread-local.
  unknown,          ///< One that a position-independent file does not have.
};

}  // namespace aplib::arch

extern "C" {
/// The first word of the descriptors that the loader writes. Called by the ABI's own rules, which differ from C's:
/// it gets the descriptor and keeps every register but the result's. Returns the offset from the thread pointer,
/// which it asks the function below for.
[[gnu::visibility("hidden")]] void aplib_tls_descriptor_resolver();

/// (loader/context.cpp) `argument`: the second word.
[[gnu::visibility("hidden")]] std::uint64_t aplib_tls_descriptor_offset(const void* argument);
}

#if defined(__x86_64__)
#include "arch/x86_64/elf.hpp"
#else
#error "APlib does not know this machine yet: add a folder beside src/arch/x86_64 (ARCHITECTURE.md, Another machine)"
#endif
