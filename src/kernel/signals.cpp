// SPDX-License-Identifier: MIT
#include "kernel/signals.hpp"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <csignal>
#include <ctime>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>

#include "aplib/error.hpp"
#include "arch/system.hpp"
#include "cell/domain.hpp"
#include "cell/processor.hpp"
#include "kernel/machine_impl.hpp"
#include "kernel/one_sided_network.hpp"
#include "kernel/programs.hpp"
#include "loader/context.hpp"
#include "loader/instance.hpp"
#include "loader/known_images.hpp"
#include "loader/libc/end.hpp"
#include "loader/libc/signals.hpp"
#include "memory/slot.hpp"

namespace aplib {

namespace {

constexpr std::array fault_signals{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
constexpr std::array stop_signals{SIGINT, SIGTERM};
constexpr std::array write_signals{SIGPIPE, SIGXFSZ};  // the kernel's, to the thread whose write it refuses
constexpr std::size_t signal_stack_bytes = 64 * 1024;

// Read by handlers, hence atomics; changed under the mutex.
std::mutex scopes_mutex;
std::array<std::atomic<Domain*>, 64> active_domains;
int fault_scopes = 0;
int stop_scopes = 0;
struct sigaction old_faults[fault_signals.size()];
struct sigaction old_stops[stop_signals.size()];
struct sigaction old_writes[write_signals.size()];

struct sigaction old_interrupt;

/// The task may have been away, so the place of errno must not be known from before.
[[gnu::noinline]] void set_errno(int error) noexcept { errno = error; }

std::atomic<pid_t> first_to_fail{0};  // the thread whose failure ends the process

/// Several threads may fail at once. The first one tells why, and its end is theirs. They wait for it, but not for
/// ever, because it may have gone on by a handler of the user's.
void let_the_first_fail() noexcept {
  const pid_t self = gettid();
  pid_t first = 0;
  if (first_to_fail.compare_exchange_strong(first, self) || first == self) return;
  constexpr timespec others_wait{1, 0};
  nanosleep(&others_wait, nullptr);
}

// Text without allocation or locks: handlers may call nothing else.
class Line {
 public:
  Line& operator<<(const char* text) noexcept {
    while (*text != '\0' && used_ < sizeof bytes_) bytes_[used_++] = *text++;
    return *this;
  }
  Line& operator<<(std::uint64_t number) noexcept { return put(number, 10); }
  Line& hex(std::uint64_t number) noexcept { return (*this << "0x").put(number, 16); }
  void print() noexcept {
    used_ = std::min(used_, sizeof bytes_ - 1);
    *this << "\n";
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, bytes_, used_);
  }

 private:
  Line& put(std::uint64_t number, unsigned base) noexcept {
    char digits[24];
    int n = 0;
    do {
      digits[n++] = "0123456789abcdef"[number % base];
      number /= base;
    } while (number != 0);
    while (n > 0 && used_ < sizeof bytes_) bytes_[used_++] = digits[--n];
    return *this;
  }
  char bytes_[512];
  std::size_t used_ = 0;
};

const char* name_of_signal(int signal) noexcept {
  switch (signal) {
    case SIGSEGV:
      return "SIGSEGV, bad memory access";
    case SIGBUS:
      return "SIGBUS, bad memory access";
    case SIGFPE:
      return "SIGFPE, bad arithmetic (integer division by zero?)";
    case SIGILL:
      return "SIGILL, bad instruction";
    case SIGTRAP:
      return "SIGTRAP, trap";
    case SIGABRT:
      return "SIGABRT, abort";
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    default:
      return "signal";
  }
}

void name_task(Line& line, const TaskControl& task) noexcept {
  const Domain& domain = task.cell->processor->domain();
  if (task.cell->id == domain.cell_count) {
    line << "host program";
  } else {
    line << "cell " << task.cell->id;
  }
  line << " task " << task.id << ": ";
}

/// Names the other cell when a task's access went to an address in that cell's slot.
void name_other_cell(Line& line, const TaskControl& task, std::uintptr_t address) noexcept {
  const std::size_t cell = SlotPlan::cell_around(address);
  if (cell == task.cell->id || cell >= task.cell->processor->domain().cell_count) return;
  line << ", which is memory of cell " << cell
       << " (a put, get or atomic of what that cell does not have, or not yet: let all cells meet in sync(0, 0) first)";
}

/// Tells where a pointer went through an int, as in old programs that call what they have not declared.
void name_cut_pointer(Line& line, std::uintptr_t address) noexcept {
  constexpr std::uintptr_t near_null = std::uintptr_t{1} << 20;
  const auto extended = static_cast<std::uintptr_t>(static_cast<std::intptr_t>(static_cast<std::int32_t>(address)));
  const bool fits = address == static_cast<std::uint32_t>(address) || address == extended;
  if (address < near_null || address >= ~near_null || !fits) return;
  line << ", which looks like a pointer that was cut to 32 bits (was a function that returns it called without a "
          "declaration? -Werror=implicit-function-declaration finds it)";
}

/// Tells of a frame that went past the guard in one step.
void name_large_frame(Line& line, const Cell& cell, const Stack& stack, const char* address,
                      const void* context) noexcept {
  constexpr std::size_t near = std::size_t{8} << 20;
  constexpr std::size_t largest = std::size_t{1} << 30;
  constexpr std::size_t below_frame = 4096;  // what a call writes, and functions that call no other
  const char* const top = arch::interrupted(context).stack;
  const bool is_in_frame = top < stack.low && address + below_frame >= top;
  const auto below = reinterpret_cast<std::uintptr_t>(stack.low) - reinterpret_cast<std::uintptr_t>(address);
  if (below == 0 || below > (is_in_frame ? largest : near)) return;
  line << ", which is " << below / 1024 << " KiB below the task's stack (is a frame larger than what was left of it? "
       << (cell.is_program_stack(stack) ? "program-stack" : "stack-size") << " makes it larger)";
}

/// Ends the process if a thread that a program has made has overflowed its stack.
void tell_thread_overflow(int signal, const char* address) noexcept {
  // glibc's guard is a page, unless the program says otherwise.
  constexpr std::size_t below_max = std::size_t{64} << 10;
  const loader::libc::ThreadStack stack = loader::libc::stack_of_program_thread();
  if ((signal != SIGSEGV && signal != SIGBUS) || stack.low == nullptr || address >= stack.low ||
      address < stack.low - below_max)
    return;
  Line line;
  line << "aplib: ";
  if (const Cell* const cell = loader::here()->instance->services().cell()) line << "cell " << cell->id << ": ";
  line << "a thread that the program made: stack overflow: it used more than its " << stack.bytes / 1024
       << " KiB; raise pthread_attr_setstacksize, or the variable OMP_STACKSIZE for OpenMP, or ulimit -s"
       << end_of_report;
  let_the_first_fail();
  line.print();
  _exit(static_cast<int>(ExitStatus::stack_overflow));
}

/// A line of its own, since paths may be long.
void tell_changed_file() noexcept {
  const loader::TaskContext* const here = loader::here();
  const char* const file = here != nullptr ? here->instance->changed_file() : nullptr;
  if (file == nullptr) return;
  Line line;
  (line << "aplib: " << file << changed_file_text).print();
}

bool on_step(const siginfo_t& info, void* context) noexcept;

void on_fault(int signal, siginfo_t* info, void* context) noexcept {
  if (signal == SIGTRAP) {
    const int saved_errno = errno;
    const bool is_step = on_step(*info, context);
    set_errno(saved_errno);
    if (is_step) return;
  }
  const TaskControl* task = task_of_thread();
  if (const RemoteAccess* access = detail::current_remote_access) {
    Line line;
    line << "aplib: cell " << access->by << ": " << access->what << ": " << name_of_signal(signal) << " at address ";
    line.hex(reinterpret_cast<std::uintptr_t>(info->si_addr)) << ", in the " << access->bytes << " bytes from ";
    line.hex(reinterpret_cast<std::uintptr_t>(access->address))
        << " of cell " << access->cell
        << ", where that cell has no such memory, or not yet: let all cells meet in sync(0, 0) first" << end_of_report;
    let_the_first_fail();
    line.print();
  } else if (task != nullptr) {
    const char* address = static_cast<const char*>(info->si_addr);
    const Stack& stack = task->aside != nullptr ? *task->aside : task->stack;
    Line line;
    line << "aplib: ";
    name_task(line, *task);
    if ((signal == SIGSEGV || signal == SIGBUS) && address < stack.low &&
        address >= stack.low - StackPool::guard_bytes(stack.bytes())) {
      line << "stack overflow: it used more than its " << (stack.bytes() / 1024)
           << (task->cell->is_program_stack(stack)
                   ? " KiB; raise program-stack (APLIB_PROGRAM_STACK or --program-stack)"
                   : " KiB; raise stack-size (APLIB_STACK_SIZE or --stack-size)")
           << end_of_report;
      let_the_first_fail();
      line.print();
      _exit(static_cast<int>(ExitStatus::stack_overflow));
    }
    if (loader::libc::deliver_fault(signal, *info, context, stack.low)) return;  // the program has a handler of its own
    line << name_of_signal(signal);
    if (signal == SIGSEGV || signal == SIGBUS) {
      (line << " at address ").hex(reinterpret_cast<std::uintptr_t>(address));
      name_other_cell(line, *task, reinterpret_cast<std::uintptr_t>(address));
      name_cut_pointer(line, reinterpret_cast<std::uintptr_t>(address));
      name_large_frame(line, *task->cell, stack, address, context);
    }
    line << end_of_report << " (a debugger or a core file shows where)";
    let_the_first_fail();
    line.print();
  } else {
    tell_thread_overflow(signal, static_cast<const char*>(info->si_addr));
    if (loader::libc::deliver_fault(signal, *info, context, nullptr)) return;  // on a thread that a program made
  }
  if (info->si_code > 0) tell_changed_file();
  // The action that was there before us is next: usually the default, which ends the process with this signal.
  for (std::size_t i = 0; i < fault_signals.size(); ++i) {
    if (fault_signals[i] == signal) sigaction(signal, &old_faults[i], nullptr);
  }
  if (signal == SIGABRT || signal == SIGTRAP || info->si_code <= 0)
    raise(signal);  // sent, or caused by an instruction that is over: none will fault again
}

void on_stop(int signal, siginfo_t* info, void* /*context*/) noexcept {
  const int saved_errno = errno;
  bool first = false;
  bool is_told = false;  // whoever sends it says why
  for (auto& place : active_domains) {
    Domain* domain = place.load(std::memory_order_acquire);  // acquire: the domain's construction
    if (domain == nullptr) continue;
    int none = 0;
    // relaxed: read after the threads are joined
    if (domain->signal.compare_exchange_strong(none, signal, std::memory_order_relaxed)) first = true;
    // A sender outside of our namespace has the number 0.
    if (info->si_code <= 0 && info->si_pid != 0 && info->si_pid == domain->node) is_told = true;
    domain->stop();
  }
  if (!first) _exit(128 + signal);  // the second time: some task does not listen
  if (!is_told) {
    Line line;
    line << "aplib: " << name_of_signal(signal) << ": stopping the machine; once more ends the program at once";
    line.print();
  }
  errno = saved_errno;
}

/// The thread runs code of the program itself, rather than of a library that others share and that may be in the middle
/// of something.
bool is_in_program(const arch::Interrupted& at) noexcept {
  const loader::TaskContext* const flow = loader::here();
  loader::FoundImage image;
  return flow != nullptr && loader::find_image(at.instruction, image) && image.instance == flow->instance;
}

/// Nothing of ours below the program's code could be in the middle of something. Tasks of one cell count on switching
/// in calls only, and threads of the program share its processor otherwise (cell/baton.hpp).
bool can_give_way(const TaskControl& task, const arch::Interrupted& at) noexcept {
  const Cell& cell = *task.cell;
  return current_program_context == task.program && !task.ready && task.aside == nullptr && cell.live_tasks == 1 &&
         cell.callbacks == 0 && !cell.has_threads && !cell.processor->is_host() && at.stack >= task.stack.low &&
         at.stack <= task.stack.top;  // else a stack of the program's making
}

// On the stack of the program.
void give_way(int /*signal*/, siginfo_t* /*info*/, void* /*context*/) {
  const int saved_errno = errno;
  Processor::give_way(*running_task());
  set_errno(saved_errno);
}

/// The lowest byte of the interrupted stack; null where that is not the task's.
const char* low_of(const TaskControl* task, const arch::Interrupted& at) noexcept {
  const bool on_own = task != nullptr && at.stack >= task->stack.low && at.stack <= task->stack.top;
  return on_own ? task->stack.low : nullptr;
}

/// What on_interrupt() came for, where the thread runs code of the program or a wait of its. `signal`: as the kernel
/// gave it.
void stop_program(int signal, const siginfo_t& info, void* context, const arch::Interrupted& at, bool computes) {
  const TaskControl* const task = running_task();  // null: the main one of a program with threads that call
  const char* const low = low_of(task, at);
  if (!loader::libc::deliver_signals(at.stack, signal, info, context, low) && computes && task != nullptr &&
      can_give_way(*task, at))
    static_cast<void>(arch::call_on_interrupted_stack(signal, info, context, give_way, low));
}

/// A thread that a signal has found at the end of a system call, in libc or another library that cells share. A loop of
/// stat() or read() is mostly in the kernel, so signals hardly ever find the program's own code. The thread goes on to
/// there by single steps. Most need a few; a thread that needs many is left alone for some time, since each step costs
/// some microseconds.
struct Steps {
  const loader::TaskContext* flow = nullptr;  ///< Null: no steps.
  unsigned left = 0;
  unsigned pauses = 0;  ///< Signals that are to be let pass.
  unsigned vain = 0;    ///< Tries, less those that were not.
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Steps steps;

// A debugger would be told of each step.
void begin_steps(void* context) noexcept {
  constexpr unsigned most = 500;
  if (!arch::is_after_call(context)) return;
  if (steps.pauses != 0) {
    --steps.pauses;
    return;
  }
  const loader::TaskContext* const flow = loader::here();
  const bool blocks = sigismember(&static_cast<ucontext_t*>(context)->uc_sigmask, SIGTRAP) == 1;
  if (flow != nullptr && !blocks && !arch::ends_steps(context) && !loader::was_traced_lately()) {
    steps.flow = flow;
    steps.left = most;
    arch::step(context, true);
  }
}

void end_steps(void* context, bool in_vain) noexcept {
  constexpr unsigned most = 7;
  steps.flow = nullptr;
  steps.vain = in_vain ? std::min(steps.vain + 1, most) : steps.vain - (steps.vain != 0 ? 1 : 0);
  steps.pauses = (1U << steps.vain) - 1;
  arch::step(context, false);
}

/// False: the signal means something else.
bool on_step(const siginfo_t& info, void* context) noexcept {
  if (info.si_code != TRAP_TRACE || steps.flow == nullptr) return false;
  const arch::Interrupted at = arch::interrupted(context);
  if (steps.flow != loader::here()) {
    end_steps(context, true);
  } else if (is_in_program(at)) {
    end_steps(context, false);
    stop_program(SIGTRAP, info, context, at, true);
  } else if (--steps.left == 0 || arch::ends_steps(context)) {
    end_steps(context, true);
  }
  return true;
}

void on_interrupt(int signal, siginfo_t* info, void* context) noexcept {
  const int saved_errno = errno;
  const arch::Interrupted at = arch::interrupted(context);
  const bool computes = is_in_program(at);
  if (computes || loader::libc::is_in_wait(context)) {
    if (steps.flow != nullptr) end_steps(context, false);
    stop_program(signal, *info, context, at, computes);
  } else if (steps.flow == nullptr) {
    begin_steps(context);
  }
  errno = saved_errno;
}

/// At the end of a call that the kernel has refused.
void on_refused_write(int signal, siginfo_t* info, void* context) noexcept {
  const int saved_errno = errno;
  const arch::Interrupted at = arch::interrupted(context);
  const struct sigaction& before = old_writes[signal == write_signals[0] ? 0 : 1];
  const bool is_plain = (before.sa_flags & SA_SIGINFO) == 0;
  const bool ignores = is_plain && before.sa_handler == SIG_IGN;
  const bool is_kernels = info->si_code == SI_USER && info->si_pid == getpid();
  const bool is_taken =
      is_kernels && loader::libc::deliver_refusal(signal, ignores, *info, context, low_of(running_task(), at));
  errno = saved_errno;
  if (is_taken || ignores) return;
  const struct sigaction by_default {};
  const bool is_default = is_plain && before.sa_handler == SIG_DFL;
  if (is_default || (before.sa_flags & static_cast<int>(SA_RESETHAND)) != 0) sigaction(signal, &by_default, nullptr);
  if (is_default) {
    raise(signal);  // which comes once this has returned
  } else if (!is_plain) {
    before.sa_sigaction(signal, info, context);
  } else {
    before.sa_handler(signal);
  }
}

std::terminate_handler old_terminate = nullptr;

[[noreturn]] void on_terminate() noexcept {
  Processor::end_terminating_task();
  let_the_first_fail();
  if (old_terminate != nullptr) old_terminate();
  std::abort();
}

}  // namespace

FaultScope::FaultScope() {
  const std::lock_guard lock(scopes_mutex);
  if (fault_scopes++ != 0) return;
  old_terminate = std::set_terminate(on_terminate);
  struct sigaction action {};
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  action.sa_sigaction = on_fault;
  for (std::size_t i = 0; i < fault_signals.size(); ++i) sigaction(fault_signals[i], &action, &old_faults[i]);
  struct sigaction interrupt {};
  sigemptyset(&interrupt.sa_mask);
  interrupt.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  interrupt.sa_sigaction = on_interrupt;
  sigaction(loader::libc::interrupt_signal, &interrupt, &old_interrupt);
  struct sigaction refusal {};
  sigemptyset(&refusal.sa_mask);
  refusal.sa_flags = SA_SIGINFO | SA_ONSTACK;
  refusal.sa_sigaction = on_refused_write;
  for (std::size_t i = 0; i < write_signals.size(); ++i) sigaction(write_signals[i], &refusal, &old_writes[i]);
}

FaultScope::~FaultScope() {
  const std::lock_guard lock(scopes_mutex);
  if (--fault_scopes != 0) return;
  if (std::get_terminate() == on_terminate) std::set_terminate(old_terminate);
  for (std::size_t i = 0; i < fault_signals.size(); ++i) sigaction(fault_signals[i], &old_faults[i], nullptr);
  for (std::size_t i = 0; i < write_signals.size(); ++i) sigaction(write_signals[i], &old_writes[i], nullptr);
  sigaction(loader::libc::interrupt_signal, &old_interrupt, nullptr);
}

StopScope::StopScope(Domain& domain) : domain_(domain) {
  const std::lock_guard lock(scopes_mutex);
  for (auto& place : active_domains) {
    Domain* none = nullptr;
    if (place.compare_exchange_strong(none, &domain, std::memory_order_release)) break;  // release: to the handlers
  }
  if (stop_scopes++ != 0) return;
  struct sigaction stop {};
  sigemptyset(&stop.sa_mask);
  stop.sa_flags = SA_SIGINFO | SA_ONSTACK;  // no SA_RESTART: a host program that reads its input shall notice
  stop.sa_sigaction = on_stop;
  for (std::size_t i = 0; i < stop_signals.size(); ++i) {
    sigaction(stop_signals[i], nullptr, &old_stops[i]);
    if ((old_stops[i].sa_flags & SA_SIGINFO) == 0 && old_stops[i].sa_handler == SIG_DFL)
      sigaction(stop_signals[i], &stop, nullptr);
  }
}

StopScope::~StopScope() {
  const std::lock_guard lock(scopes_mutex);
  for (auto& place : active_domains) {
    Domain* ours = &domain_;
    if (place.compare_exchange_strong(ours, nullptr, std::memory_order_relaxed))
      break;  // relaxed: nothing is published
  }
  if (--stop_scopes != 0) return;
  for (std::size_t i = 0; i < stop_signals.size(); ++i) sigaction(stop_signals[i], &old_stops[i], nullptr);
}

SignalStack::SignalStack() {
  stack_t old{};
  if (sigaltstack(nullptr, &old) == 0 && (old.ss_flags & SS_DISABLE) == 0)
    return;  // the thread has one (a sanitizer's, say)
  void* memory = mmap(nullptr, signal_stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;  // then a stack overflow is an ordinary fault
  memory_ = memory;
  stack_t stack{};
  stack.ss_sp = memory_;
  stack.ss_size = signal_stack_bytes;
  sigaltstack(&stack, nullptr);
}

SignalStack::~SignalStack() {
  if (memory_ == nullptr) return;
  stack_t off{};
  off.ss_flags = SS_DISABLE;
  sigaltstack(&off, nullptr);
  munmap(memory_, signal_stack_bytes);
}

}  // namespace aplib
