// SPDX-License-Identifier: MIT
// x86-64: the core.
#pragma once

#include <emmintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "arch/cpu.hpp"

namespace aplib {

inline constexpr std::size_t cache_line_bytes = 64;
/// The prefetcher fetches lines in pairs.
inline constexpr std::size_t cache_pair_bytes = 128;

/// Tells the core that we poll. On the machines we measured it also keeps the polling side from pulling the line away
/// while the writer still fills it: a ring of cache lines goes from 64 to 41 ns one way.
inline void cpu_relax() noexcept { __builtin_ia32_pause(); }

/// Begins to bring the line of this address here, to be read. Any address will do.
inline void fetch_line(const void* address) noexcept { __builtin_prefetch(address); }

/// libc copies from 2112 bytes on by `rep movsb`. On AMD's Zen 3 and 4 that is 20 to 30 times as slow where the
/// destination begins 1 to 31 bytes behind the source, seen from their pages (glibc bug 30994): as when what a page
/// begins with goes to where malloc() has put it. What is shorter libc copies by vectors.
inline void copy_long(void* to, const void* from, std::size_t bytes) noexcept {
  constexpr std::size_t page = 4096;
  constexpr std::size_t short_bytes = 2048;
  const std::size_t apart = reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from);
  // What overlaps goes as with memmove(), which libc's memcpy() is.
  if (bytes > short_bytes && apart % page - 1 < 31 && apart >= bytes) [[unlikely]] {
    auto* into = static_cast<char*>(to);
    const auto* out_of = static_cast<const char*>(from);
    for (; bytes > short_bytes; bytes -= short_bytes, into += short_bytes, out_of += short_bytes) {
      std::size_t part = short_bytes;
      asm("" : "+r"(part));  // else the compiler copies by `rep movsq`
      std::memcpy(into, out_of, part);
    }
    to = into;
    from = out_of;
  }
  std::memcpy(to, from, bytes);
}

/// A core that stores to lines which another core has read last must first take them away from it, one by one, and the
/// other fetches each of them back from there: where the two share no cache, at 1 to 3 GB/s. These stores go past both.
inline void copy_past_caches(void* to, const void* from, std::size_t bytes) noexcept {
  auto* into = static_cast<char*>(to);
  const auto* out_of = static_cast<const char*>(from);
  for (; bytes >= cache_line_bytes; bytes -= cache_line_bytes) {
    constexpr std::size_t words = cache_line_bytes / sizeof(__m128i);
    __m128i line[words];
    std::memcpy(line, out_of, cache_line_bytes);
    for (std::size_t i = 0; i < words; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(into) + i, line[i]);
    into += cache_line_bytes;
    out_of += cache_line_bytes;
  }
  if (bytes != 0) std::memcpy(into, out_of, bytes);
  _mm_sfence();
}

inline std::uint64_t cycles() noexcept { return __builtin_ia32_rdtsc(); }

// Of the x87, which computes long doubles. A jump brings along its control word, and all of SSE's.
inline std::uint16_t float_flags() noexcept {
  constexpr std::uint16_t flags = 0x7f;
  std::uint16_t status = 0;
  asm volatile("fnstsw %0" : "=a"(status));
  return status & flags;
}

/// False: the masks are such that the next instruction of the x87 would raise some of them, so none is set.
inline bool set_float_flags(std::uint16_t flags) noexcept {
  asm volatile("fnclex");
  if (flags == 0) return true;
  struct {
    std::uint32_t control, status, rest[5];
  } environment;
  asm volatile("fnstenv %0" : "=m"(environment));
  const bool is_masked = (flags & ~environment.control) == 0;
  if (is_masked) environment.status |= flags;
  asm volatile("fldenv %0" : : "m"(environment));
  return is_masked;
}

}  // namespace aplib

namespace aplib::arch {

/// r12, r13, r14, r15; then rbx, rbp, rip.
inline constexpr std::size_t parked_words_before_entry = 4;

/// jump_fcontext() leaves by a jump, not by a return, so a plain call of it would put every return address
/// prediction that follows off by one: each return on the way up from a switch would be mispredicted. Entered by a
/// jump, with the return address pushed by hand, calls and returns stay in balance: 5 ns less for each switch. Only
/// in optimized builds without sanitizers: others need the frame pointer, or the call.
inline Arrival jump(void* to, void* data) noexcept {
  Arrival arrived;
  asm volatile(
      "lea -128(%%rsp), %%rsp\n\t"  // keep off the red zone
      "lea 1f(%%rip), %%rax\n\t"
      "push %%rax\n\t"
      "jmp jump_fcontext@PLT\n"
      "1:\n\t"
      "lea 128(%%rsp), %%rsp"
      : "=a"(arrived.from), "=d"(arrived.data), "+D"(to), "+S"(data)
      :
      : "rcx", "r8", "r9", "r10", "r11", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
        "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#ifdef __AVX512F__
        ,
        "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27",
        "xmm28", "xmm29", "xmm30", "xmm31", "k1", "k2", "k3", "k4", "k5", "k6", "k7"
#endif
  );
  return arrived;
}

}  // namespace aplib::arch
