// SPDX-License-Identifier: MIT
#include "kernel/coroutine.hpp"

#include "cell/processor.hpp"
#include "kernel/machine_impl.hpp"

namespace aplib::api {

namespace {

StackPool& stacks_of(const TaskControl& task) noexcept {
  Cell& cell = *task.cell;
  return cell.program_stacks ? *cell.program_stacks : *cell.stacks;
}

/// The task stands on the stack of another flow while this lives, so that sanitizers find it there when it switches to
/// another task, and back.
class OnStackOf {
 public:
  OnStackOf([[maybe_unused]] Flow& task, [[maybe_unused]] const Flow& other) noexcept : task_(task) {
    copy(before_, task);
    copy(task, other);
  }
  ~OnStackOf() { copy(task_, before_); }
  OnStackOf(const OnStackOf&) = delete;
  OnStackOf& operator=(const OnStackOf&) = delete;

  static void copy([[maybe_unused]] Flow& to, [[maybe_unused]] const Flow& from) noexcept {
#if APLIB_ASAN
    to.stack_low = from.stack_low;
    to.stack_bytes = from.stack_bytes;
#endif
#if APLIB_TSAN
    to.fiber = from.fiber;
#endif
  }

 private:
  Flow& task_;
  Flow before_;
};

}  // namespace

Coroutine::Coroutine(const char* call, void (*body)(void* state), void* state)
    : stacks_(stacks_of(self_or_throw(call))), stack_(stacks_.get()) {
  const TaskControl& task = *running_task();
  own_.Flow::body = nullptr;
  own_.body = body;
  own_.state = state;
  const auto run = [](Flow& flow) {
    const auto& own = static_cast<Own&>(flow);
    own.body(own.state);
    __builtin_unreachable();
  };
  const std::size_t colour = stack_colour(stack_.bytes(), task.cell->id, task.id + 1);
  prepare_flow(own_, run, stack_.top - colour, stack_.bytes() - colour);
}

Coroutine::~Coroutine() {
  dispose_flow(own_);
  stacks_.put(stack_);
}

// It may be another one at each switch. Where threads of the program take turns at being the processor, its thread
// says nothing.
ThreadState& Coroutine::thread() noexcept {
  Processor& here = *running_task()->cell->processor;
  if (attached_ != &here || here.baton() != nullptr) [[unlikely]]
    thread_.attach();
  attached_ = here.baton() == nullptr ? &here : nullptr;
  return thread_;
}

void Coroutine::resume() noexcept {
  TaskControl& task = *running_task();
  ThreadState& here = thread();
  own_.program = resumer_.program = *here.program;
  OnStackOf::copy(resumer_, task);
  adopt_thread(resumer_);
  const OnStackOf standing(task, own_);
  task.aside = &stack_;
  switch_to(here, resumer_, own_);
  task.aside = nullptr;
}

void Coroutine::pause() noexcept { switch_to(thread(), own_, resumer_); }

void at_leaving(void (*leave)(void* rank, std::uint32_t task) noexcept) noexcept {
  detail::leave_memory.store(leave, std::memory_order_relaxed);  // relaxed: the same value each time
}

}  // namespace aplib::api
