// SPDX-License-Identifier: MIT
// What the operating system's binary interface lays down for the machine: system calls, how a program is entered, and
// the frame of a signal.
//
// For the start stub (src/compile/start), which is one source file and has no C library. It defines
// aplib_start(stack), and APLIB_START_ENTRY stands once in that file.
//   system_call(number, a, b, c)  the result, or a negative errno
//   call_write, call_execve, call_exit_group
//   APLIB_START_ENTRY             _start: calls aplib_start with the stack pointer the kernel entered with (at argc)
//
// For the runtime:
//   map_low  for mmap: at addresses that fit into 31 bits, from 1 GiB on
#pragma once

#include <signal.h>

namespace aplib::arch {

/// Where a signal's handler has stopped a thread.
struct Interrupted {
  const void* instruction;
  const char* stack;
};
/// `context`: the handler's third argument. Async-signal-safe.
Interrupted interrupted(const void* context) noexcept;

/// Moves a signal from the stack it was taken on (the processor's signal stack) to the stack that it interrupted, as
/// if the kernel had delivered it there. On the signal stack a handler could neither switch tasks nor be interrupted
/// by the next task's signal.
/// Copies the kernel's signal frame below the interrupted code's stack pointer and changes `context` so that
/// returning from the running signal handler calls `handler(signal, info, context)` there; when that returns, the
/// interrupted code goes on as the (copied) context says. False, and nothing done: the stack has no room
/// (`stack_low`: its lowest usable byte; null: not known).
/// `context` must be what the kernel handed to the running handler. Async-signal-safe.
bool call_on_interrupted_stack(int signal, const siginfo_t& info, void* context,
                               void (*handler)(int, siginfo_t*, void*), const char* stack_low) noexcept;

/// Whether the thread is stopped after each instruction from now on, by SIGTRAP with TRAP_TRACE. Async-signal-safe.
void step(void* context, bool steps) noexcept;
/// The last instruction was a system call. Async-signal-safe.
[[nodiscard]] bool is_after_call(const void* context) noexcept;
/// The next instruction is a system call that steps must not go through: it may block SIGTRAP, or it begins a thread or
/// a program. Async-signal-safe.
[[nodiscard]] bool ends_steps(const void* context) noexcept;

enum class Waits : unsigned char { none, for_lock, for_others };

/// Whether the thread was in a system call that waits, of those that the kernel breaks off for a signal or begins again
/// after it. `context`: the handler's third argument. Async-signal-safe.
[[nodiscard]] Waits was_waiting(const void* context) noexcept;
/// The thread does not go on with a wait for a lock, or with waking others, if it was in one: another that waits there
/// is woken. Async-signal-safe.
void pass_on_wake(const void* context) noexcept;
/// Such a call ends with EINTR. Nothing if there was none. Async-signal-safe.
void break_off_wait(void* context) noexcept;

}  // namespace aplib::arch

#if defined(__x86_64__)
#include "arch/x86_64/system.hpp"
#else
#error "APlib does not know this machine yet: add a folder beside src/arch/x86_64 (ARCHITECTURE.md, Another machine)"
#endif
