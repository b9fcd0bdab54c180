// SPDX-License-Identifier: MIT
// x86-64: system calls, and the first instructions of a program. Source: System V ABI, AMD64 supplement, A.2.1 and
// 3.4.1.
#pragma once

#include <sys/mman.h>

namespace aplib::arch {

inline constexpr int map_low = MAP_32BIT;

inline constexpr long call_write = 1, call_execve = 59, call_exit_group = 231;

inline long system_call(long number, long a, long b, long c) {
  long result;
  asm volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
  return result;
}

}  // namespace aplib::arch

#define APLIB_START_ENTRY         \
  asm(".globl _start\n"           \
      ".type _start, @function\n" \
      "_start:\n"                 \
      "  xor %ebp, %ebp\n"        \
      "  mov %rsp, %rdi\n"        \
      "  and $-16, %rsp\n"        \
      "  call aplib_start\n"      \
      "  hlt\n"                   \
      ".size _start, .-_start\n")
