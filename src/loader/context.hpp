// SPDX-License-Identifier: MIT
// TaskContext: one task's (or one foreign thread's) view of the instance it runs in. The switch keeps aplib::current_program_context; everything the loader gives to programs
// (thread-locals, libc state, dl*) starts from here().
//
// Invariants: (1) an instance lives as long as it has a context; (2) a context is used only by the flow that owns it; (3) code of an instance runs only on flows
// that have a context of that instance, except signal handlers and threads made behind our back, for which calling() finds the instance by
// the address of the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/program_context.hpp"

namespace aplib::loader {

class Instance;
struct LibcState;

struct TaskContext : ProgramContext {
  explicit TaskContext(Instance& owner);
  ~TaskContext();
  TaskContext(const TaskContext&) = delete;
  TaskContext& operator=(const TaskContext&) = delete;

  Instance* instance;
  /// Thread-local blocks by image index of the instance; null: not touched yet.
  std::vector<char*> tls_blocks;
  /// Destructors registered by __cxa_thread_atexit_impl, run in reverse order when the task ends.
  struct ThreadExit {
    void (*function)(void*);
    void* argument;
  };
  std::vector<ThreadExit> thread_exits;
  std::unique_ptr<char[]>
      static_tls;              ///< Its initial-exec thread-locals while it does not run; null: the program has none.
  void* exit_frame = nullptr;  ///< Where exit() of this task lands; null: it was spawned by the program.
};

/// The running flow's context, or null outside programs.
inline TaskContext* here() noexcept { return static_cast<TaskContext*>(current_program_context); }

/// The instance whose code calls us. `caller`: __builtin_return_address(0) of the function bound into the program. Null: no instance at all.
Instance* calling(const void* caller) noexcept;

}  // namespace aplib::loader
