// SPDX-License-Identifier: MIT
// Moves a signal from the stack it was taken on (the processor's signal stack) to the stack that it interrupted, as
// if the kernel had delivered it there. On the signal stack a handler could neither switch tasks nor be interrupted
// by the next task's signal.
#pragma once

#include <csignal>

namespace aplib::arch {

/// Copies the kernel's signal frame below the interrupted code's stack pointer and changes `context` so that
/// returning from the running signal handler calls `handler(signal, info, context)` there; when that returns, the
/// interrupted code goes on as the (copied) context says. False, and nothing done: the stack has no room
/// (`stack_low`: its lowest usable byte; null: not known).
/// `context` must be what the kernel handed to the running handler. Async-signal-safe.
bool call_on_interrupted_stack(int signal, const siginfo_t& info, void* context,
                               void (*handler)(int, siginfo_t*, void*), const char* stack_low) noexcept;

}  // namespace aplib::arch
