// SPDX-License-Identifier: MIT
// What a flow of control carries along when it runs code of a loaded program. The switch (src/task) moves it; what
// it means is the loader's business. Flows that run no loaded program have none, and pay one pointer store per
// switch.
#pragma once

#include <cstdint>

namespace aplib {

struct ProgramContext;

/// What can be asked of a context without knowing the loader.
struct ProgramContextOps {
  /// A context for a task that the owner of `parent` spawns. Never null. May throw Error(exhausted). Call from: the
  /// spawning task.
  ProgramContext* (*inherit)(ProgramContext& parent);
  /// Runs entry(state), the body of a task that was spawned with `context`; exit() of the program ends it too.
  /// Exceptions pass through.
  void (*run)(ProgramContext& context, void (*entry)(void*), void* state);
  /// The task that owns `context` has run to its end, on its own stack and still able to switch. May run
  /// destructors of the program.
  void (*release)(ProgramContext* context);
  /// What ends the task that owns `context` cannot unwind its stack: leaves the program's frames by a jump to where
  /// exit() lands. `completes`: exit handlers and destructors of globals run, as after exit(). Call from: the task, on
  /// its own stack. Never returns.
  void (*abandon)(ProgramContext& context, int status, bool completes);
  /// Gives up a context whose task never ran.
  void (*discard)(ProgramContext* context) noexcept;
  /// Either may be null. Exchanges state that belongs to the thread and that one of the two has changed
  /// (initial-exec thread-locals, locale, working directory). Called by the switch when Flow::thread_state says so
  /// of either, before it leaves.
  void (*swap)(ProgramContext* from, ProgramContext* to) noexcept;
};

/// Base of the loader's TaskContext.
struct ProgramContext {
  const ProgramContextOps* ops = nullptr;
  /// Set by the loader when `swap` must be called at switches from and to this context.
  bool swaps = false;
  /// Its code may keep addresses of the thread's own memory, so its cell keeps its thread.
  bool stays = false;
};

/// The running flow's context, or null. Initial-exec: one load relative to the thread pointer. Like every
/// thread-local: never keep its address across a call that may switch.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local ProgramContext* current_program_context;

/// What runs while it lives is none of the program's.
class WithoutProgramContext {
 public:
  WithoutProgramContext() noexcept : context_(current_program_context) { current_program_context = nullptr; }
  ~WithoutProgramContext() { current_program_context = context_; }
  WithoutProgramContext(const WithoutProgramContext&) = delete;
  WithoutProgramContext& operator=(const WithoutProgramContext&) = delete;

 private:
  ProgramContext* const context_;
};

}  // namespace aplib
