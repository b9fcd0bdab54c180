// SPDX-License-Identifier: MIT
// x86-64: program files. Source: System V ABI, AMD64 supplement; glibc's ldconfig for the cache.
#pragma once

#include <elf.h>

#include <cstdint>
#include <string_view>

#include "arch/elf.hpp"

namespace aplib::arch {

inline constexpr unsigned elf_machine = EM_X86_64;
inline constexpr std::string_view machine_name = "x86-64";
inline constexpr std::string_view platform = "x86_64";
inline constexpr std::string_view multiarch_folder = "x86_64-linux-gnu";
inline constexpr std::int32_t library_cache_flags = 0x0303;  // for glibc, and of 64-bit x86

constexpr RelocationKind relocation_kind(std::uint32_t type) noexcept {
  constexpr std::uint32_t relative64 = 38;  // R_X86_64_RELATIVE64, which not every elf.h has
  switch (type) {
    case R_X86_64_NONE:
      return RelocationKind::none;
    case R_X86_64_RELATIVE:
    case relative64:
      return RelocationKind::base;
    case R_X86_64_64:
      return RelocationKind::symbol;
    case R_X86_64_GLOB_DAT:
    case R_X86_64_JUMP_SLOT:
      return RelocationKind::slot;
    case R_X86_64_SIZE64:
      return RelocationKind::symbol_size;
    case R_X86_64_IRELATIVE:
      return RelocationKind::resolver;
    case R_X86_64_COPY:
      return RelocationKind::copy;
    case R_X86_64_DTPMOD64:
      return RelocationKind::tls_module;
    case R_X86_64_DTPOFF64:
      return RelocationKind::tls_offset;
    case R_X86_64_TPOFF64:
      return RelocationKind::tls_from_thread;
    case R_X86_64_TLSDESC:
      return RelocationKind::tls_descriptor;
    default:
      return RelocationKind::unknown;
  }
}

}  // namespace aplib::arch
