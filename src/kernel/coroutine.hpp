// SPDX-License-Identifier: MIT
// Coroutine: a function that a task carries out on a second stack, piece by piece: it pauses where it would wait, and
// the task does something else until it resumes it. While it runs it is the task, and what it calls may wait as that.
// Any task of the cell may resume it the next time.
#pragma once

#include "aplib/export.hpp"
#include "cell/cell.hpp"

namespace aplib::api {

class APLIB_API Coroutine {
 public:
  /// `body(state)` begins with the first resume(), and never returns. Its stack is one of the calling task's kind.
  /// Throws Error(exhausted). Call from: task.
  Coroutine(const char* call, void (*body)(void* state), void* state);
  /// What lies on its stack is not destroyed. REQUIRES: it does not run; the cell lives.
  ~Coroutine();
  Coroutine(const Coroutine&) = delete;
  Coroutine& operator=(const Coroutine&) = delete;

  /// Returns when the body pauses. REQUIRES: it does not run. Call from: task.
  void resume() noexcept;
  /// Call from: the body.
  void pause() noexcept;

 private:
  struct Own : Flow {
    void (*body)(void* state) = nullptr;
    void* state = nullptr;
  };

  [[nodiscard]] ThreadState& thread() noexcept;

  StackPool& stacks_;
  Stack stack_;
  Own own_;
  Flow resumer_;  // where resume() was called
  ThreadState thread_;
  const Processor* attached_ = nullptr;  // whose thread that is
};

/// When a task of a cell with a rank of MPI leaves its memory for good: see detail::leave_memory. For all machines.
APLIB_API void at_leaving(void (*leave)(void* rank, std::uint32_t task) noexcept) noexcept;

}  // namespace aplib::api
