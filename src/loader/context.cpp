// SPDX-License-Identifier: MIT
#include "loader/context.hpp"

#include <csetjmp>
#include <cstdlib>

#include "loader/exit_frame.hpp"
#include "loader/instance.hpp"
#include "loader/libc/end.hpp"
#include "loader/thread_state.hpp"
#include "loader/tls.hpp"

namespace aplib::loader {
namespace {

ProgramContext* inherit(ProgramContext& parent) { return new TaskContext(*static_cast<TaskContext&>(parent).instance); }

void run(ProgramContext& context, void (*entry)(void*), void* state) {
  auto& self = static_cast<TaskContext&>(context);
  const Outcome outcome = until_exit(self, [entry, state] {
    entry(state);
    return 0;
  });
  if (outcome.jumped) self.instance->host().task_exited(outcome.status);
}

void release(ProgramContext* context) { Instance::leave_for_good(static_cast<TaskContext*>(context)); }

void discard(ProgramContext* context) noexcept { Instance::drop(static_cast<TaskContext*>(context)); }

constexpr ProgramContextOps operations{inherit, run, release, discard, swap_thread_state};

}  // namespace

TaskContext::TaskContext(Instance& owner) : instance(&owner) {
  ops = &operations;
  const LibcState& state = owner.libc();
  swaps = state.thread_locale != nullptr || state.thread_directory >= 0 || state.thread_mask >= 0;
  start_static_tls(*this);
  owner.entered(*this);
}

TaskContext::~TaskContext() {
  for (char* block : tls_blocks) std::free(block);
}

}  // namespace aplib::loader
