// SPDX-License-Identifier: MIT
// TaskContext: one task's (or one foreign thread's) view of the instance it runs in. The switch keeps
// aplib::current_program_context; everything the loader gives to programs (thread-locals, libc state, dl*) starts
// from here().
//
// Invariants: (1) an instance lives as long as it has a context; (2) a context is used only by the flow that owns
// it; (3) code of an instance runs only on flows that have a context of that instance, except signal handlers and
// threads made behind our back, for which calling() finds the instance by the address of the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/program_context.hpp"

namespace aplib::loader {

class Instance;

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

/// The instance whose code calls us. `caller`: __builtin_return_address(0) of the function bound into the program.
/// Null: no instance at all.
Instance* calling(const void* caller) noexcept;
// State that the kernel or libc keeps per thread and a program believes to be its own: locale, working directory,
// umask, initial-exec thread-locals. Cells share threads, so the switch exchanges it (ProgramContextOps::swap), but
// only from and to contexts that have changed any of it.

/// The instance's thread_locale, thread_directory or thread_mask was changed: applies it to the calling thread and
/// has every context of the instance swap from now on. Returns 0, or errno when the thread cannot have a working
/// directory of its own (unshare(CLONE_FS) forbidden). Call from: a flow of the instance.
int thread_state_changed(Instance& instance) noexcept;

/// ProgramContextOps::swap.
void swap_thread_state(ProgramContext* from, ProgramContext* to) noexcept;

}  // namespace aplib::loader
