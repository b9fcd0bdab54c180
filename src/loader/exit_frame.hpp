// SPDX-License-Identifier: MIT
// Where exit() of a program lands. libc declares it nothrow, so a C++ caller's frame would turn an exception that
// leaves it into std::terminate; and by the language it destroys no automatic objects. So it does not unwind: it
// jumps to the frame below the program.
#pragma once

#include <csetjmp>
#include <utility>

#include "loader/context.hpp"

namespace aplib::loader {

/// How a program, or a task of it, ended.
struct Outcome {
  int status = 0;
  bool jumped = false;  ///< By exit() or the like, not by return.
};

struct ExitFrame {
  std::jmp_buf place;
  int status = 0;
};

/// Runs `body`, an int(), until it returns or exit_to_frame(context, ...) is called inside. No object with a
/// destructor may live in this function's frame: the jump lands here.
template <class Body>
[[gnu::noinline]] Outcome until_exit(TaskContext& context, const Body& body) {
  ExitFrame frame;
  void* const outer = context.exit_frame;
  context.exit_frame = &frame;
  Outcome outcome;
  try {
    if (setjmp(frame.place) == 0) {
      outcome = {body(), false};
    } else {
      outcome = {frame.status, true};
    }
  } catch (...) {
    context.exit_frame = outer;
    throw;
  }
  context.exit_frame = outer;
  return outcome;
}

/// Ends the innermost until_exit() of the context. Call from: the flow that owns it, inside until_exit().
[[noreturn]] inline void exit_to_frame(TaskContext& context, int status) {
  auto* frame = static_cast<ExitFrame*>(context.exit_frame);
  frame->status = status;
  std::longjmp(frame->place, 1);
}

}  // namespace aplib::loader
