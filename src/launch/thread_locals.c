/* SPDX-License-Identifier: MIT */
/* Below the thread pointer, where the code of executables expects thread-locals of their own. Every thread pays for it,
 * and few programs need more than some hundred bytes. Linkers put the section of common ones behind all others, next to
 * the thread pointer. In assembly, because clang makes no thread-local a common one. */
#include "launch/thread_locals.h"

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

__asm__(".section .tcommon, \"awT\", %nobits\n"
        ".globl aplib_thread_locals\n"
        ".hidden aplib_thread_locals\n"
        ".type aplib_thread_locals, %object\n"
        ".size aplib_thread_locals, " TEXT(APLIB_THREAD_LOCALS_BYTES) "\n"
        ".balign 64\n"
        "aplib_thread_locals: .zero " TEXT(APLIB_THREAD_LOCALS_BYTES) "\n"
        ".text\n");
