// SPDX-License-Identifier: MIT
// Adoption: the calling thread of a process that has no machine becomes the task of a machine with one cell. So a
// program of MPI runs without a launcher: at its first call it becomes rank 0 of 1, in its own process, wherever it is.
//
//   program's stack   main -> MPI_Init -> adopt ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~> returns; main goes on, as task 0
//   machine's stack                             -> run -> processor -> task 0 ~~/
//
// The machine lasts as long as the process. Its failure ends the process.
#include <cstddef>
#include <exception>
#include <memory>

#include "aplib/machine.hpp"
#include "aplib/options.hpp"
#include "kernel/debugger.hpp"
#include "kernel/machine_impl.hpp"
#include "task/stack.hpp"
#include "task/switch.hpp"

namespace aplib {
namespace {

struct Adoption {
  explicit Adoption(const Options& options) : machine(options), stacks(stack_bytes, nullptr, 0), stack(stacks.get()) {}

  static constexpr std::size_t stack_bytes = std::size_t{1} << 20;

  Machine machine;
  StackPool stacks;
  Stack stack;  ///< On which the machine runs.
  ThreadState thread;
  Flow program;  ///< The thread's own stack.
  Flow runner;
  Flow left;  ///< The task's stack, which the program leaves unused.
  const TaskControl* task = nullptr;
  std::exception_ptr problem;  ///< Why there is none.
};

Adoption* adoption = nullptr;  // never freed: destructors of globals may still call

void run_machine(Flow&) {
  try {
    static_cast<void>(adoption->machine.run([] {
      adoption->task = running_task();
      switch_to(adoption->thread, adoption->left, adoption->program);
    }));
  } catch (...) {
    adoption->problem = std::current_exception();
  }
  switch_to(adoption->thread, adoption->runner, adoption->program, true);
}

Options options_of_one_cell() {
  Options options = Options::from_environment();
  options.cells = {1, 1};
  options.threads = 1;
  options.bind = false;
  return options;
}

}  // namespace

void adopt_thread_as_cell(const char* call) {
  if (has_machine()) outside_task(call);
  auto made = std::make_unique<Adoption>(options_of_one_cell());
  MachineAccess::impl(made->machine).adopts = true;
  made->thread.attach();
  adopt_thread(made->program);
  prepare_flow(made->runner, run_machine, made->stack.top, made->stack.bytes());
  adoption = made.release();
  switch_to(adoption->thread, adoption->program, adoption->runner);
  if (adoption->task == nullptr) std::rethrow_exception(adoption->problem);
}

bool is_adopted(const TaskControl& task) noexcept { return adoption != nullptr && adoption->task == &task; }

}  // namespace aplib
