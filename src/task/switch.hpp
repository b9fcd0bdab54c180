// SPDX-License-Identifier: MIT
// Switches stacks. A switch keeps what belongs to a flow of control: callee-saved registers (Boost.Context), errno, the
// C++ exception state, and the loaded program it runs in; of programs also what computing has signalled. It tells ASan
// and TSan. (Valgrind learns of stacks when they are made, see stack.cpp.)
//
// A flow that waits may be resumed on another thread, because its cell has moved. So nothing here, and nothing in a
// function that calls switch_to(), may keep the address of a thread-local across the call. ThreadState has what is
// needed of the thread; the flow that switches hands it over.
#pragma once

#include <array>
#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <cstdint>

#include "arch/cpu.hpp"
#include "base/program_context.hpp"
#include "base/sanitizer.hpp"

#if APLIB_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if APLIB_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace aplib {

/// The C++ ABI's per-thread exception state (Itanium C++ ABI 2.2.2: caught exceptions, count of uncaught ones).
struct ExceptionState {
  void* caught = nullptr;
  unsigned int uncaught = 0;
};

struct Flow;

/// What a switch needs to know of the thread it runs on. Each processor has one; its addresses are those of the
/// thread's own errno and exception state.
struct ThreadState {
  int* errno_location = nullptr;
  /// What the C library declares to be at the same place for ever: compilers keep these addresses in registers and on
  /// stacks. errno's, h_errno's, and those of the tables of character classes.
  std::array<const void*, 5> kept_places{};
  ExceptionState* exceptions = nullptr;
  ProgramContext** program = nullptr;
  /// The masks of the flow that switches away would have raised what the other one has signalled, which sets it itself.
  bool flags_are_late = false;
  Flow* leaving = nullptr;   ///< The flow that is switching away, for the one that comes.
  Flow* arriving = nullptr;  ///< The flow that is switched to, for its first landing.
  Flow* ended = nullptr;     ///< The flow that was left for good; its stack is free once the thread is off it.

  /// Call once, on the thread itself.
  void attach() noexcept;
};

/// A flow of control with its own stack: a task, or the thread's own stack.
struct Flow {
  boost::context::detail::fcontext_t context = nullptr;  ///< Valid while the flow is not running.
  void (*body)(Flow&) = nullptr;                         ///< What the first switch to it runs.
  int saved_errno = 0;
  ExceptionState saved_exceptions;
  std::uint16_t saved_float_flags = 0;  ///< Where a program is left, or come to.
  ProgramContext* program = nullptr;    ///< Of the loaded program that it runs in. Not owned here.
#if APLIB_ASAN
  void* fake_stack = nullptr;
  const void* stack_low = nullptr;
  std::size_t stack_bytes = 0;
#endif
#if APLIB_TSAN
  void* fiber = nullptr;
#endif
};

namespace detail {

inline void landed([[maybe_unused]] Flow& self, boost::context::detail::transfer_t arrived) noexcept {
  auto* thread = static_cast<ThreadState*>(arrived.data);
  Flow& left = *thread->leaving;
  left.context = arrived.fctx;
  if (thread->flags_are_late) [[unlikely]] {
    thread->flags_are_late = false;
    set_float_flags(self.saved_float_flags);
  }
#if APLIB_ASAN
  // ASan tells the bounds of a thread's own stack, which are unknown until a flow leaves it.
  const void* low = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(self.fake_stack, &low, &bytes);
  if (left.stack_low == nullptr) {
    left.stack_low = low;
    left.stack_bytes = bytes;
  }
#endif
}

/// Jumps by arch::jump(), which is faster, where the code is optimized and no sanitizer needs to see a call.
inline boost::context::detail::transfer_t jump(boost::context::detail::fcontext_t to, void* data) noexcept {
#if defined(__OPTIMIZE__) && !APLIB_ASAN && !APLIB_TSAN
  const arch::Arrival arrived = arch::jump(to, data);
  return {arrived.from, arrived.data};
#else
  return boost::context::detail::jump_fcontext(to, data);
#endif
}

/// In one piece: member by member would take twice the instructions, at every switch.
inline void copy_state(ExceptionState& to, const ExceptionState& from) noexcept {
  __builtin_memcpy(&to, &from, sizeof to);
}

/// Exchanges what belongs to the thread, and what only programs use or have changed. Each flow of a program has a
/// context of its own.
inline void swap_program(ThreadState& thread, Flow& from, Flow& to) noexcept {
  from.saved_float_flags = float_flags();
  if (from.saved_float_flags != to.saved_float_flags) thread.flags_are_late = !set_float_flags(to.saved_float_flags);
  if (to.program != nullptr && to.program->swaps) {
    to.program->ops->swap(from.program, to.program);
  } else if (from.program != nullptr && from.program->swaps) {
    from.program->ops->swap(from.program, to.program);
  }
}

}  // namespace detail

/// Leaves `from`, the running flow, and continues `to`. Returns when a flow switches back to `from`, perhaps on another
/// thread. The result is the state of the thread that it returns on. `ends`: `from` never runs again.
inline ThreadState& switch_to(ThreadState& thread, Flow& from, Flow& to, [[maybe_unused]] bool ends = false) noexcept {
  int& thread_errno = *thread.errno_location;
  ExceptionState& exceptions = *thread.exceptions;
  from.saved_errno = thread_errno;
  detail::copy_state(from.saved_exceptions, exceptions);
  thread.leaving = &from;
  thread.arriving = &to;
  thread_errno = to.saved_errno;
  detail::copy_state(exceptions, to.saved_exceptions);
  *thread.program = to.program;
  if (from.program != to.program) detail::swap_program(thread, from, to);
#if APLIB_ASAN
  __sanitizer_start_switch_fiber(ends ? nullptr : &from.fake_stack, to.stack_low, to.stack_bytes);
#endif
#if APLIB_TSAN
  __tsan_switch_to_fiber(to.fiber, 0);
#endif
  const boost::context::detail::transfer_t arrived = detail::jump(to.context, &thread);
  detail::landed(from, arrived);
  return *static_cast<ThreadState*>(arrived.data);
}

/// The flow, which waits, goes on on another thread. Addresses of `from`'s places that its frames keep become those of
/// `to`'s: nothing else on a stack has these values. `top`: the end of the stack that it stands on.
void rebase_flow(Flow& flow, const char* top, const ThreadState& from, const ThreadState& to) noexcept;

/// Bytes of the stack that the waiting flow uses.
[[nodiscard]] inline std::size_t used_stack(const Flow& flow, const char* top) noexcept {
  return static_cast<std::size_t>(top - static_cast<const char*>(flow.context));
}

/// Prepares `flow`: the first switch to it calls `body(flow)` on the stack of `bytes` that ends at `top` and grows
/// downwards. `body` must never return; it leaves by a last switch_to(..., ends = true).
void prepare_flow(Flow& flow, void (*body)(Flow&), void* top, std::size_t bytes) noexcept;

/// Makes the thread's own stack a flow. REQUIRES: called on the thread.
void adopt_thread(Flow& flow) noexcept;

/// Frees what the sanitizers keep for a flow that has ended. REQUIRES: called from another flow.
void dispose_flow(Flow& flow) noexcept;

/// For debuggers, which walk the stack of a flow that does not run: the offset from Flow::context of its saved
/// registers. They follow each other; src/kernel/aplib_gdb.py has their names and order. Behind them lies the stack as
/// the flow finds it when it goes on. Versions of Boost.Context differ in what comes before. SIZE_MAX: this version
/// keeps them otherwise.
std::size_t parked_registers_offset() noexcept;

}  // namespace aplib
