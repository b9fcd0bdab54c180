// SPDX-License-Identifier: MIT
// Adoption: the calling thread of a process that has no machine becomes the task of a machine with one cell. So a
// program of MPI runs without a launcher: at its first call it becomes rank 0 of 1, in its own process, wherever it is.
//
//   program's stack   main -> MPI_Init -> adopt ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~> returns; main goes on, as task 0
//   machine's stack                             -> run -> processor -> task 0 ~~/
//
// The machine lasts as long as the process. Its failure ends the process.
//
// A program that apcc has made is loaded by a cell of its own in such a process. If it needs the process for itself,
// because it forks, aprun, which it is started by, lends it its own instead.
//
// A process that a launcher keeps for a cell (aprun --processes) becomes that cell of the launcher's machine. It leaves
// the machine at MPI_Finalize, or at the latest when it exits.
#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "aplib/error.hpp"
#include "aplib/machine.hpp"
#include "aplib/options.hpp"
#include "cell/baton.hpp"
#include "cell/condition.hpp"
#include "kernel/debugger.hpp"
#include "kernel/machine_impl.hpp"
#include "kernel/process.hpp"
#include "kernel/process_run.hpp"
#include "kernel/program_threads.hpp"
#include "kernel/programs.hpp"
#include "loader/program.hpp"
#include "task/stack.hpp"
#include "task/switch.hpp"

namespace aplib {
namespace {

Options options_of_one_cell() {
  Options options = Options::from_environment();
  options.cells = {1, 1};
  return options;
}

Options of_one_thread(Options options) {
  options.threads = 1;
  options.bind = false;
  return options;
}

struct Adoption {
  explicit Adoption(std::unique_ptr<Membership> its_membership)
      : membership(std::move(its_membership)),
        machine(of_one_thread(membership != nullptr ? membership->options() : options_of_one_cell())),
        stacks(stack_bytes, nullptr, 0),
        stack(stacks.get()) {}

  static constexpr std::size_t stack_bytes = std::size_t{1} << 20;

  std::unique_ptr<Membership> membership;  ///< Null: the machine is the process's own.
  Machine machine;
  StackPool stacks;
  Stack stack;  ///< On which the machine runs.
  ThreadState thread;
  Flow program;  ///< The thread's own stack.
  Flow runner;
  Flow left;  ///< The task's stack, which the program leaves unused.
  const TaskControl* task = nullptr;
  std::exception_ptr problem;  ///< Why there is none.
  bool has_left = false;       ///< The launcher's machine.
  bool is_copy = false;        ///< The process has forked, and this is its child.
};

Adoption* adoption = nullptr;  // never freed: destructors of globals may still call
std::atomic<Cell*> cell_of_process{nullptr};

void run_machine(Flow&) {
  const auto body = [] {
    adoption->task = running_task();
    switch_to(adoption->thread, adoption->left, adoption->program);
  };
  try {
    static_cast<void>(adoption->membership != nullptr
                          ? run_process(adoption->machine, body, adoption->membership->process())
                          : adoption->machine.run(body));
  } catch (...) {
    adoption->problem = std::current_exception();
  }
  switch_to(adoption->thread, adoption->runner, adoption->program, true);
}

/// What has all that a process needs of the launcher and of modules; few processes do.
std::unique_ptr<Membership> join_machine(const char* invitation) {
  Dl_info own{};
  if (::dladdr(reinterpret_cast<const void*>(&run_machine), &own) == 0)
    throw Error(Errc::failed, "libaplib does not know where it lies");
  const std::string file = std::filesystem::path(own.dli_fname).parent_path() / APLIB_SUPPORT_FROM_LIBRARY / "join.so";
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto join =
      library == nullptr ? nullptr : reinterpret_cast<decltype(&aplib_join)>(::dlsym(library, "aplib_join"));
  if (join == nullptr) {
    const char* const why = ::dlerror();
    throw Error(Errc::failed, fmt::format("the process cannot join the machine of its launcher: {}; install APlib anew",
                                          why != nullptr ? why : file));
  }
  return std::unique_ptr<Membership>(join(invitation, true));
}

/// The machine is over: every cell has ended.
class Over final : public Condition {
 public:
  explicit Over(const Domain& domain) : domain_(domain) {}
  [[nodiscard]] bool holds() const noexcept override {
    return domain_.over.load(std::memory_order_acquire);  // acquire: as in Idle::await_ready()
  }
  [[nodiscard]] bool needs(std::uint32_t) const noexcept override { return false; }
  [[nodiscard]] std::string missing() const override { return "the other ranks, until each has called it, too"; }
  void let_go() noexcept override {}

 private:
  const Domain& domain_;
};

/// The cell ends, as others see it. The process serves the machine until all cells have ended.
void leave(TaskControl& self, const char* call, int status) {
  if (std::exchange(adoption->has_left, true)) return;
  Cell& cell = *self.cell;
  if (Baton* const baton = cell.processor->baton()) baton->close();
  Domain& domain = cell.processor->domain();
  cell.status = status;
  ++cell.ended_from_kernel;
  cell.processor->end_cell(cell);
  const Over over(domain);
  if (!over.holds() && Processor::wait_condition(self, call, over) != Wake::done) return;  // the launcher ends us
  Machine::Impl::of(domain).process->end();
  adoption->membership->leave();
}

void leave_at_exit(int status, void*) {
  if (adoption->is_copy) return;
  Baton* const baton = adoption->task->cell->baton.load(std::memory_order_relaxed);  // relaxed: our thread writes it
  if (baton != nullptr && baton->is_main_thread()) baton->close();
  TaskControl* const self = running_task();
  if (self != nullptr && self == adoption->task) leave(*self, "exit", status);
}

/// A child of the process is no cell: what it inherits of the machine is the parent's.
void forget_in_child() noexcept {
  adoption->is_copy = true;
  cell_of_process.store(nullptr, std::memory_order_relaxed);  // relaxed: there is no other thread
  detail::current_processor = nullptr;
}

}  // namespace

void adopt_thread_as_cell(const char* call) {
  if (adoption != nullptr && adoption->is_copy) {
    throw Error(Errc::bad_argument,
                fmt::format("{}: called in a child that the rank's process has forked; only that process may", call));
  }
  if (has_machine()) outside_task(call);
  const char* const invitation = std::getenv(join_variable);
  auto made = std::make_unique<Adoption>(invitation != nullptr ? join_machine(invitation) : nullptr);
  Machine::Impl& machine = MachineAccess::impl(made->machine);
  machine.adopts = true;
  machine.program_stack_bytes = machine.options.program_stack_bytes;  // for what it calls on a second stack
  made->thread.attach();
  adopt_thread(made->program);
  prepare_flow(made->runner, run_machine, made->stack.top, made->stack.bytes());
  adoption = made.release();
  if (adoption->membership != nullptr) {
    adoption->membership->begin(adoption->machine);
    ::pthread_atfork(nullptr, nullptr, forget_in_child);
  }
  switch_to(adoption->thread, adoption->program, adoption->runner);
  if (adoption->task == nullptr) std::rethrow_exception(adoption->problem);
  cell_of_process.store(adoption->task->cell, std::memory_order_release);  // release: its making
  if (adoption->membership != nullptr) ::on_exit(leave_at_exit, nullptr);
}

bool is_adopted(const TaskControl& task) noexcept { return adoption != nullptr && adoption->task == &task; }

Cell* adopted_cell() noexcept {
  return cell_of_process.load(std::memory_order_acquire);  // acquire: its making
}

std::string run_as_this_process(const std::string& file, std::span<char* const> arguments) {
  const std::optional<std::uint64_t> entries = loader::entries_of(file);
  if (!entries) return file + " was not made by apcc";
  void* const image = ::dlopen(std::filesystem::absolute(file).c_str(), RTLD_NOW | RTLD_GLOBAL);
  link_map* map = nullptr;
  if (image == nullptr || ::dlinfo(image, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0) return ::dlerror();
  using Main = int(int argc, char* const* argv, char** environment);
  Main* const main = *reinterpret_cast<Main* const*>(map->l_addr + *entries);  // the first word
  if (main == nullptr) return file + " has no main()";
  std::exit(main(static_cast<int>(arguments.size()), arguments.data(), environ));
}

void api::leave_machine(const char* call) {
  TaskControl& self = self_or_throw(call);
  if (is_adopted(self) && adoption->membership != nullptr) leave(self, call, 0);
}

}  // namespace aplib
