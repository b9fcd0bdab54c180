// SPDX-License-Identifier: MIT
// Threads that a program makes itself, directly or inside a library (std::thread in libstdc++, OpenMP in libgomp). Each
// gets a context of the instance whose flow makes it. So thread_locals, libc state and exit() in it are the instance's,
// and the instance stays as long as it runs. Libraries that all instances share call pthread_create by themselves, so
// this library puts its own before libc's (at the end of this file).
//
// When a program ends by exit() or the return of its main, its threads end with it, as with a process: a signal takes
// them out of what they do. Where main has ended by pthread_exit(), the program ends with its last thread. Libraries
// keep threads that wait for the program's next call: those of OpenMP, BLAS, TBB. Such a *pool thread* does not keep
// the program then.
#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <pthread.h>
#include <threads.h>
#include <unwind.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "aplib/export.hpp"
#include "arch/system.hpp"
#include "base/os/descriptor.hpp"
#include "base/os/thread.hpp"
#include "loader/context.hpp"
#include "loader/instance.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/end.hpp"
#include "loader/libc/signals.hpp"
#include "loader/libc/state.hpp"
#include "loader/libc/waiting.hpp"

// The sanitizers put their own pthread_create before libc's, which sets the new thread up for instrumented code;
// ours, called by theirs, would run such code too early. There, only the program's own calls are seen (they are
// bound), not those of shared libraries.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define APLIB_INTERPOSES_PTHREAD_CREATE 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define APLIB_INTERPOSES_PTHREAD_CREATE 0
#endif
#endif
#ifndef APLIB_INTERPOSES_PTHREAD_CREATE
#define APLIB_INTERPOSES_PTHREAD_CREATE 1
#endif

namespace aplib::loader::libc {

namespace {

using Routine = void* (*)(void*);
using Create = int(pthread_t*, const pthread_attr_t*, Routine, void*);

/// What a thread of a program is given, and what it keeps until its end.
struct ProgramThread {
  TaskContext* context;
  Routine routine;
  void* argument;
  ThreadStack stack;
  pthread_t id{};
  std::atomic<pid_t> number{0};
  std::atomic<bool> over{false};   ///< Its instance has ended.
  std::atomic<bool> asked{false};  ///< To end. It has not answered yet.
  std::atomic<bool> stays{false};  ///< For ever, where it is.
  std::atomic<bool> rests{false};  ///< Until all others rest, too.
  int times_asked = 0;
  bool makes = false;  ///< It makes a thread, and holds OwnThreads::mutex.
};

}  // namespace

/// The threads of an instance that have not ended. At the program's end they leave together: as long as one runs, it
/// may join, detach or signal another, or use what lies on its stack.
struct OwnThreads {
  std::mutex mutex;
  std::vector<ProgramThread*> all;
  std::atomic<std::uint32_t> leave{0};  ///< Not 0: they do.
};

namespace {

/// What the calling thread runs for a program; null: it is none that a program has made.
constinit thread_local ProgramThread* this_thread = nullptr;

/// A cancellation that comes from now on, or has not been heeded, would unwind the runtime's own functions.
void refuse_cancellation() noexcept { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr); }

/// libc's functions that lock register beforehand how to unlock, and longjmp() out of them does that: for a lock that
/// the thread still waited for, too.
void forget_cleanups() noexcept { *os::cleanup_list() = nullptr; }

/// The program is over, and the thread runs no more of it. [signal handler]
void rest(ProgramThread& thread) noexcept {
  refuse_cancellation();
  forget_cleanups();
  OwnThreads& threads = *thread.context->instance->libc().threads.part;
  thread.rests.store(true, std::memory_order_relaxed);  // relaxed: who reads it too early asks once more
  // relaxed: it is all that this says
  while (threads.leave.load(std::memory_order_relaxed) == 0) os::futex_wait(threads.leave, 0, std::nullopt);
}

/// Where the program is over, the calling thread leaves it.
void leave_if_over() noexcept {
  if (this_thread == nullptr || !this_thread->over.load(std::memory_order_relaxed)) return;  // relaxed: else next time
  TaskContext& context = *this_thread->context;
  if (context.exit_frame == nullptr) return;
  rest(*this_thread);
  exit_to_frame(context, 0);
}

/// Destructors of the thread's thread_locals and keys; they may call exit(), which ends but the one that does. After
/// the program's end none runs.
void run_exits_of_thread(TaskContext& context) {
  const auto is_over = [] { return this_thread != nullptr && this_thread->over.load(std::memory_order_relaxed); };
  while (!is_over() && until_exit(context, [&context] {
                         run_thread_exits(context);
                         run_key_destructors(context);
                         return 0;
                       }).jumped) {
  }
  if (!is_over()) return;
  context.thread_exits.clear();
  context.key_values.clear();
}

void release(ProgramThread& thread) {
  TaskContext* const context = thread.context;
  CellServices& services = context->instance->services();  // outlives the instance, which may end here
  this_thread = nullptr;
  {
    OwnThreads& threads = *context->instance->libc().threads.part;
    const std::lock_guard lock(threads.mutex);
    std::erase(threads.all, &thread);
  }
  try {
    context->ops->release(context);
  } catch (const std::exception& error) {
    services.warn(fmt::format("the end of the program threw an exception: {}", error.what()));
    services.task_exited(static_cast<int>(ExitStatus::program_failed));
  }
  current_program_context = nullptr;
}

/// The thread's routine; what it throws ends the machine, in words. (A forced unwinding is caught as a reference to
/// nothing, which UBSan takes for an error.)
__attribute__((no_sanitize("undefined"))) int run_routine(ProgramThread& thread, void*& result) {
  std::string problem;
  try {
    result = thread.routine(thread.argument);
  } catch (const abi::__forced_unwind&) {
    throw;  // pthread_exit, cancellation
  } catch (const std::exception& error) {
    thread.context->instance->terminate();
    problem =
        fmt::format("uncaught exception in a thread that the program made: {}{}", error.what(), os::remedy_of(error));
  } catch (...) {
    thread.context->instance->terminate();
    problem = "uncaught exception in a thread that the program made, of a type not derived from std::exception";
  }
  if (problem.empty()) return 0;
  fail_instance(*thread.context->instance, static_cast<int>(ExitStatus::program_failed), std::move(problem));
}

/// Of the calling thread; empty: there is no memory to find it out.
ThreadStack own_stack() noexcept {
  ThreadStack stack;
  pthread_attr_t own;
  if (::pthread_getattr_np(pthread_self(), &own) != 0) return stack;
  void* low = nullptr;
  if (pthread_attr_getstack(&own, &low, &stack.bytes) == 0) stack.low = static_cast<char*>(low);
  pthread_attr_destroy(&own);
  return stack;
}

void* run_thread(void* state) {
  const std::unique_ptr<ProgramThread> thread(static_cast<ProgramThread*>(state));
  TaskContext& context = *thread->context;
  const std::shared_ptr<void> kept = context.instance->services().thread_begins();
  thread->stack = own_stack();
  thread->number = ::gettid();
  current_program_context = &context;
  if (context.swaps) context.ops->swap(nullptr, &context);
  start_thread_files(*context.instance);
  start_thread_locale(*context.instance);
  measure_thread(context);
  if (char* const low = thread->stack.low) context.instance->allow_code_on(low, low + thread->stack.bytes);
  struct AtEnd {  // also when pthread_exit or a cancellation unwinds
    ProgramThread& thread;
    ~AtEnd() {
      run_exits_of_thread(*thread.context);
      release(thread);
    }
  } at_end{*thread};
  void* result = nullptr;
  this_thread = thread.get();
  thread->asked.store(false, std::memory_order_relaxed);  // what came before has not been seen
  const Outcome outcome = until_exit(context, [&thread, &result] { return run_routine(*thread, result); });
  if (thread->over.load(std::memory_order_relaxed)) {  // relaxed: what it says does not matter any more
    rest(*thread);
    // Nobody is left to join it.
    pthread_detach(pthread_self());
  } else if (outcome.jumped) {
    context.instance->services().task_exited(outcome.status);
  }
  return result;
}

#if APLIB_INTERPOSES_PTHREAD_CREATE
int create_natively(pthread_t* id, const pthread_attr_t* attributes, Routine routine, void* argument) {
  static const auto next = reinterpret_cast<Create*>(dlsym(RTLD_NEXT, "pthread_create"));
  return next != nullptr ? next(id, attributes, routine, argument) : ENOSYS;
}
#else
int create_natively(pthread_t* id, const pthread_attr_t* attributes, Routine routine, void* argument) {
  return ::pthread_create(id, attributes, routine, argument);
}
#endif

/// Libraries that keep threads for the next call.
bool keeps_threads(std::string_view path) noexcept {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return std::ranges::any_of(
      std::array<std::string_view, 11>{"libgomp.", "libomp.", "libgc.", "libguile-", "libiomp5.", "libtbb",
                                       "libglib-2.", "libopenblas", "libblis", "libmkl_", "libfftw3"},
      [name](std::string_view pool) { return name.starts_with(pool); });
}

/// `caller` is code of a library of the instance that keeps threads, or null: ours.
bool is_for_pool(const Instance& instance, const void* caller) noexcept {
  if (caller == nullptr) return true;
  const LoadedImage* const image = instance.image_at(caller);
  return image != nullptr && image != instance.images().data() && keeps_threads(image->file->path());
}

/// What a thread that `maker` makes is given. Throws.
std::unique_ptr<ProgramThread> prepare(TaskContext& maker, Routine routine, void* argument, bool of_pool) {
  auto thread = std::make_unique<ProgramThread>();
  thread->context = static_cast<TaskContext*>(maker.ops->inherit(maker));
  thread->context->of_thread = true;
  thread->context->of_pool = of_pool;
  thread->routine = routine;
  thread->argument = argument;
  inherit_signal_mask(maker, *thread->context);
  return thread;
}

void take_back(ProgramThread& thread) noexcept {
  forget_signal_mask(*thread.context);
  thread.context->ops->discard(thread.context);
}

/// The calling thread is not ended while this lives.
class Making {
 public:
  Making() noexcept { tell(true); }
  ~Making() { tell(false); }
  Making(const Making&) = delete;
  Making& operator=(const Making&) = delete;

 private:
  static void tell(bool makes) noexcept {
    if (this_thread != nullptr) this_thread->makes = makes;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
};

/// What a thread is made with: its stack has room for stop_this_thread(), unless the program has brought the stack.
class WithRoom {
 public:
  explicit WithRoom(const pthread_attr_t* asked) noexcept : used_(asked) {
    constexpr std::size_t stack_min = std::size_t{64} << 10;
    if (asked == nullptr) return;
    void* place = nullptr;
    std::size_t bytes = 0;
    if (pthread_attr_getstack(asked, &place, &bytes) != 0 || bytes == 0 || bytes >= stack_min) return;
    const bool is_brought = reinterpret_cast<std::uintptr_t>(place) + bytes != 0;  // glibc: it has an end
    if (is_brought) return;
    wider_ = *asked;  // and what it points to, as long as the call lasts
    if (pthread_attr_setstacksize(&wider_, stack_min) == 0) used_ = &wider_;
  }
  [[nodiscard]] const pthread_attr_t* get() const noexcept { return used_; }

 private:
  const pthread_attr_t* used_;
  pthread_attr_t wider_{};
};

int create(pthread_t* id, const pthread_attr_t* attributes, Routine routine, void* argument,
           const void* caller) noexcept {
  TaskContext* const maker = here();
  if (maker == nullptr) return create_natively(id, attributes, routine, argument);
  Instance& instance = *maker->instance;
  leave_if_over();
  std::unique_ptr<ProgramThread> thread;
  const Making making;
  OwnThreads* threads = nullptr;
  std::unique_lock<std::mutex> known;
  try {
    instance.begin_threads();
    threads = &shared_part(instance.libc().threads);
    known = std::unique_lock(threads->mutex);  // so that the new thread does not end before it is known
    threads->all.reserve(threads->all.size() + 1);
    thread = prepare(*maker, routine, argument, is_for_pool(instance, caller));
  } catch (const std::exception& error) {  // memory
    instance.services().warn(error.what());
    return EAGAIN;
  }
  const int error = create_natively(id, WithRoom(attributes).get(), run_thread, thread.get());
  if (error != 0) {
    take_back(*thread);
    return error;
  }
  thread->id = *id;
  threads->all.push_back(thread.release());  // the thread's own; reserved above
  return 0;
}

/// A library that all instances share, and that keeps threads to work for whoever calls. They serve all instances, one
/// after another, and belong to none.
[[maybe_unused]] bool is_shared_pool(const void* caller) noexcept {
  Dl_info info{};
  return dladdr(caller, &info) != 0 && info.dli_fname != nullptr && keeps_threads(info.dli_fname);
}

}  // namespace

bool make_pool_thread(Routine routine, void* argument, std::size_t bytes) noexcept {
  pthread_t id{};
  pthread_attr_t attributes;
  if (::pthread_attr_init(&attributes) != 0) return false;
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  if (bytes != 0) ::pthread_attr_setstacksize(&attributes, bytes);
  const int error = create(&id, &attributes, routine, argument, nullptr);
  ::pthread_attr_destroy(&attributes);
  return error == 0;
}

bool on_program_thread() noexcept { return this_thread != nullptr; }

// The kernel's thread lives as long as the machine, so all that libc takes of a pthread_t works with it.
pthread_t own_thread() noexcept {
  TaskContext* const flow = here();
  if (flow == nullptr || flow->of_thread) return ::pthread_self();
  if (!flow->thread) flow->thread = ::pthread_self();
  return *flow->thread;
}

ThreadStack stack_of_program_thread() noexcept {
  const ProgramThread* const thread = this_thread;
  return thread != nullptr ? thread->stack : ThreadStack{};
}

// ---------------------------------------------------------------- the end of threads

namespace {

struct Code {
  const void* low = nullptr;
  const void* high = nullptr;
  [[nodiscard]] bool has(const void* place) const noexcept { return low <= place && place < high; }
};

/// The file of the process that has this address.
Code file_of(const void* address) noexcept {
  struct dl_find_object found {};
  if (_dl_find_object(const_cast<void*>(address), &found) != 0) return {};
  return {found.dlfo_map_start, found.dlfo_map_end};
}

Code code_of_libc;
Code own_code;
const void* yield_of_libc = nullptr;

/// A walk from where a thread was interrupted to its program's code.
struct StackWalk {
  const Instance& instance;
  const void* begin;
  int own = 0;  ///< Functions of ours that it has come by.
  bool begun = false;
  bool is_direct = true;  ///< They were one after the other.
  bool arrived = false;
};

_Unwind_Reason_Code walk_on(_Unwind_Context* frame, void* state) {
  auto& walk = *static_cast<StackWalk*>(state);
  const void* const at = reinterpret_cast<const void*>(_Unwind_GetIP(frame));
  if (at == walk.begin) walk.begun = true;
  if (!walk.begun) return _URC_NO_REASON;  // the handler
  if (walk.instance.image_at(at) != nullptr) {
    walk.arrived = true;
    return _URC_END_OF_STACK;
  }
  if (own_code.has(at)) {
    ++walk.own;
    return _URC_NO_REASON;
  }
  if (walk.own > 0) walk.is_direct = false;
  return code_of_libc.has(at) ? _URC_NO_REASON : _URC_END_OF_STACK;
}

enum class Through : unsigned char { nothing, function_of_ours, functions_of_ours };

/// By what the program has come to the place in libc where a thread was interrupted; nothing: not from the program.
Through came_from(const Instance& instance, const void* at) noexcept {
  StackWalk walk{instance, at};
  _Unwind_Backtrace(walk_on, &walk);
  if (!walk.arrived) return Through::nothing;
  return walk.own <= 1 && walk.is_direct ? Through::function_of_ours : Through::functions_of_ours;
}

/// The same, of a wait; nothing: it was elsewhere.
Through came_to_wait(const Instance& instance, const void* interrupted) noexcept {
  if (arch::was_waiting(interrupted) == arch::Waits::none) return Through::nothing;
  return came_from(instance, arch::interrupted(interrupted).instruction);
}

/// In libc's function, where threads that spin are nearly all the time. It is a few instructions.
bool is_in_yield(const void* at) noexcept {
  constexpr std::ptrdiff_t function_bytes = 16;
  const auto* const yield = reinterpret_cast<const char*>(yield_of_libc);
  const std::ptrdiff_t distance = static_cast<const char*>(at) - yield;
  return yield != nullptr && distance >= 0 && distance < function_bytes;
}

/// The thread that was interrupted runs code of the program's own, or waits in libc, which it has called itself or by a
/// function of ours: so it is not in the middle of what others need. Who waits for a lock may hold another one.
bool is_interruptible(const Instance& instance, const void* interrupted) noexcept {
  const void* const at = arch::interrupted(interrupted).instruction;
  if (instance.image_at(at) != nullptr) return true;
  if (is_in_yield(at)) return came_from(instance, at) == Through::function_of_ours;
  const Through through = came_to_wait(instance, interrupted);
  return through == Through::function_of_ours ||
         (through == Through::functions_of_ours && arch::was_waiting(interrupted) == arch::Waits::for_others);
}

/// Stops a thread that a program has made. Nobody else's: programs' handlers are not the kernel's (signals.cpp).
/// `restarts`: what the thread waits for goes on.
int stop_signal(bool restarts) noexcept { return SIGRTMAX - (restarts ? 1 : 2); }

sigset_t stop_signals() noexcept {
  sigset_t both;
  sigemptyset(&both);
  sigaddset(&both, stop_signal(true));
  sigaddset(&both, stop_signal(false));
  return both;
}

}  // namespace

void prepare_walks() noexcept {
  code_of_libc = file_of(::dlsym(RTLD_DEFAULT, "gnu_get_libc_version"));
  own_code = file_of(reinterpret_cast<const void*>(&prepare_walks));
  yield_of_libc = ::dlsym(RTLD_DEFAULT, "sched_yield");
}

bool is_in_wait(const void* interrupted) noexcept {
  const TaskContext* const flow = here();
  return flow != nullptr && !flow->of_thread && came_to_wait(*flow->instance, interrupted) == Through::function_of_ours;
}

void await_threads(Instance& instance) {
  wait_in_turn(instance, std::nullopt, EndedBy::nothing, [&instance] {
    int threads = 0;
    instance.for_each_context(
        [&threads](const TaskContext& each) { threads += each.of_thread && !each.of_pool ? 1 : 0; });
    return threads == 0;
  });
}

void wait_to_end() noexcept {
  leave_if_over();
  refuse_cancellation();
  const timespec a_while{0, 10'000'000};
  ::nanosleep(&a_while, nullptr);
}

void hold_end(bool held) noexcept {
  sigset_t end;
  sigemptyset(&end);
  sigaddset(&end, stop_signal(true));
  ::pthread_sigmask(held ? SIG_BLOCK : SIG_UNBLOCK, &end, nullptr);
}

namespace {

/// As those whose calls of the machine wait do.
[[noreturn]] void stay(ProgramThread& thread) noexcept {
  refuse_cancellation();
  thread.stays.store(true, std::memory_order_relaxed);  // relaxed: who reads it too early asks once more
  sigset_t all;
  sigfillset(&all);
  while (true) ::sigsuspend(&all);
}

/// The thread takes its signals, or leaves its routine where it stands, if it may. Else it goes on, and is asked again.
void stop_this_thread(int, siginfo_t*, void* interrupted) {
  ProgramThread* const thread = this_thread;
  if (thread == nullptr) return;
  TaskContext& context = *thread->context;
  const ErrnoKept kept;
  const bool stops =
      !thread->makes && context.exit_frame != nullptr && is_interruptible(*context.instance, interrupted);
  if (stops && thread->over.load(std::memory_order_relaxed)) {
    if (context.instance->services().leave_call()) stay(*thread);
    arch::pass_on_wake(interrupted);
    rest(*thread);
    exit_to_frame(context, 0);
  }
  thread->asked.store(false, std::memory_order_relaxed);
  if (!stops) return;
  const sigset_t both = stop_signals();
  ::pthread_sigmask(SIG_UNBLOCK, &both, nullptr);  // a handler may leave by longjmp()
  deliver_signals_here(*context.instance, interrupted);
}

void prepare_stops() {
  static const bool prepared = [] {
    struct sigaction action {};
    action.sa_sigaction = stop_this_thread;
    action.sa_mask = stop_signals();  // they queue, and would fill the stack
    action.sa_flags = SA_SIGINFO;
    if (::sigaction(stop_signal(false), &action, nullptr) != 0) return false;
    action.sa_flags |= SA_RESTART;
    return ::sigaction(stop_signal(true), &action, nullptr) == 0;
  }();
  static_cast<void>(prepared);
}

constexpr int asked_max = 10'000;

/// For threads that do not answer: they may not get a core for long. ThreadSanitizer keeps signals from threads that
/// wait in code that it does not know.
#if defined(__SANITIZE_THREAD__)
constexpr auto patience = std::chrono::seconds(0);
#else
constexpr auto patience = std::chrono::seconds(5);
#endif

/// False: it has been asked so often that it is not worth while. A thread that has not answered is not asked again:
/// signals queue, and all are taken at the same place.
bool ask_to_end(ProgramThread& thread) noexcept {
  thread.over.store(true, std::memory_order_relaxed);
  if (thread.stays.load(std::memory_order_relaxed) || thread.rests.load(std::memory_order_relaxed)) return false;
  if (thread.asked.load(std::memory_order_relaxed)) return true;
  if (thread.times_asked == asked_max) return false;
  ++thread.times_asked;
  thread.asked.store(true, std::memory_order_relaxed);
  ::pthread_kill(thread.id, stop_signal(true));
  return true;
}

}  // namespace

bool end_threads(Instance& instance) {
  OwnThreads* const threads = instance.libc().threads.part;
  if (threads == nullptr) return true;
  stop_timers(instance);  // their calls have threads
  prepare_stops();
  struct Leave {
    OwnThreads& threads;
    ~Leave() {
      threads.leave.store(1, std::memory_order_relaxed);  // relaxed: see rest()
      os::futex_wake(threads.leave);
    }
  };
  const auto until = [&](std::chrono::nanoseconds time, const auto& is_done) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (!is_done() && std::chrono::steady_clock::now() < end) {
      instance.services().sleep(std::chrono::microseconds(100));
    }
  };
  {
    const Leave together{*threads};
    until(patience, [threads] {
      const std::lock_guard lock(threads->mutex);
      bool is_hopeful = false;
      for (ProgramThread* thread : threads->all) is_hopeful = ask_to_end(*thread) || is_hopeful;
      return !is_hopeful;
    });
  }
  until(std::chrono::seconds(1), [threads] {
    const std::lock_guard lock(threads->mutex);
    return std::ranges::none_of(threads->all, [](const ProgramThread* thread) {
      return thread->rests.load(std::memory_order_relaxed);  // relaxed: see rest()
    });
  });
  const std::lock_guard lock(threads->mutex);
  return threads->all.empty();
}

bool with_thread(Instance& instance, const ThreadName& name, const std::function<void(const TaskContext&)>& use) {
  bool found = false;
  const auto take = [&](const TaskContext& context) {
    found = true;
    use(context);
  };
  instance.for_each_context([&](TaskContext& context) {
    if (!instance.is_main(&context)) return;
    const bool is_meant = name.number != 0 ? name.number == pid_of(instance)
                                           : context.thread && pthread_equal(*context.thread, name.id) != 0;
    if (is_meant) take(context);
  });
  OwnThreads* const threads = std::atomic_ref(instance.libc().threads.part).load(std::memory_order_acquire);
  if (found || threads == nullptr) return found;
  const std::lock_guard lock(threads->mutex);
  for (const ProgramThread* const thread : threads->all) {
    if (name.number != 0 ? thread->number == name.number : pthread_equal(thread->id, name.id) != 0)
      take(*thread->context);
  }
  return found;
}

void interrupt_threads(Instance& instance) {
  OwnThreads* const threads = std::atomic_ref(instance.libc().threads.part).load(std::memory_order_acquire);
  if (threads == nullptr) return;
  prepare_stops();
  const std::lock_guard lock(threads->mutex);
  bool takes_shared = true;
  for (const ProgramThread* const thread : threads->all) {
    if (const std::optional<bool> restarts = signal_restarts(*thread->context, takes_shared))
      ::pthread_kill(thread->id, stop_signal(*restarts));
  }
}

namespace {

int bound_pthread_create(pthread_t* id, const pthread_attr_t* attributes, Routine routine, void* argument) {
  return create(id, attributes, routine, argument, __builtin_return_address(0));
}

[[noreturn]] void end_flow(Instance* instance, void* result) {
  if (instance == nullptr || on_program_thread()) ::pthread_exit(result);
  here()->ends_as_thread = true;
  instance->leave(0, true);  // a task: the thread below it carries others
}

void bound_pthread_exit(void* result) { end_flow(calling(__builtin_return_address(0)), result); }

void bound_thrd_exit(int result) {
  end_flow(calling(__builtin_return_address(0)), reinterpret_cast<void*>(static_cast<std::intptr_t>(result)));
}

/// A C11 thread's routine in a POSIX thread's clothes; libc's own thrd_join takes the result apart like this.
struct C11Start {
  thrd_start_t routine;
  void* argument;
};

int bound_thrd_create(thrd_t* id, thrd_start_t routine, void* argument) {
  auto* start = new (std::nothrow) C11Start{routine, argument};
  if (start == nullptr) return thrd_nomem;
  const int error = create(
      id, nullptr,
      [](void* state) -> void* {
        const C11Start copy = *static_cast<C11Start*>(state);
        delete static_cast<C11Start*>(state);
        return reinterpret_cast<void*>(static_cast<std::intptr_t>(copy.routine(copy.argument)));
      },
      start, __builtin_return_address(0));
  if (error == 0) return thrd_success;
  delete start;
  return error == ENOMEM ? thrd_nomem : thrd_error;
}

// The thread below a task is not the program's to give up.
bool is_thread_of_machine(pthread_t id) noexcept {
  return here() != nullptr && !on_program_thread() && pthread_equal(id, own_thread()) != 0;
}

pthread_t bound_pthread_self() { return own_thread(); }

int bound_pthread_detach(pthread_t id) { return is_thread_of_machine(id) ? 0 : ::pthread_detach(id); }
int bound_thrd_detach(thrd_t id) { return is_thread_of_machine(id) ? thrd_success : ::thrd_detach(id); }

/// Collectors and interpreters ask where their stack is. A task's is not its thread's.
int bound_pthread_getattr_np(pthread_t id, pthread_attr_t* attributes) {
  const int error = ::pthread_getattr_np(id, attributes);
  if (error != 0 || !is_thread_of_machine(id)) return error;
  const CellServices::FlowStack stack = here()->instance->services().stack();
  if (stack.low == nullptr) return 0;
  return ::pthread_attr_setstack(attributes, stack.low, static_cast<std::size_t>(stack.top - stack.low));
}

int bound_pthread_cancel(pthread_t id) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::pthread_cancel(id);
  if (is_thread_of_machine(id)) {
    if (here()->cancellation.state == PTHREAD_CANCEL_ENABLE) end_flow(instance, PTHREAD_CANCELED);
    here()->cancellation.pending = true;
    return 0;
  }
  bool is_main = false;  // its thread carries others, too
  with_thread(*instance, {id, 0}, [&](const TaskContext& thread) { is_main = instance->is_main(&thread); });
  if (!is_main) return ::pthread_cancel(id);
  instance->services().warn(
      "pthread_cancel: the program's first thread is cancelled by itself alone, because the thread that carries it "
      "carries other cells; run the program with --processes");
  return ENOSYS;
}

// libc keeps these in the thread, which carries other cells, too.
int own_setcancelstate(Instance& instance, int state, int* before) {
  if (here() == nullptr || here()->of_thread) return ::pthread_setcancelstate(state, before);
  if (state != PTHREAD_CANCEL_ENABLE && state != PTHREAD_CANCEL_DISABLE) return EINVAL;
  TaskContext::Cancellation& own = here()->cancellation;
  const int old = std::exchange(own.state, state);
  if (before != nullptr) *before = old;
  if (own.pending && state == PTHREAD_CANCEL_ENABLE) end_flow(&instance, PTHREAD_CANCELED);
  return 0;
}

int own_setcanceltype(Instance& /*instance*/, int type, int* before) {
  if (here() == nullptr || here()->of_thread) return ::pthread_setcanceltype(type, before);
  if (type != PTHREAD_CANCEL_DEFERRED && type != PTHREAD_CANCEL_ASYNCHRONOUS) return EINVAL;
  const int old = std::exchange(here()->cancellation.type, type);
  if (before != nullptr) *before = old;
  return 0;
}

/// libc has noted on this stack what longjmp() is to do while the routine runs. It may wait, and the next flow of the
/// thread would find the note, and perhaps leave its own behind.
void run_once() {
  const auto routine = here()->once;
  void* const noted = std::exchange(*os::cleanup_list(), nullptr);
  routine();
  *os::cleanup_list() = noted;  // perhaps of another thread
}

int own_once(Instance& /*instance*/, pthread_once_t* control, void (*routine)()) {
  TaskContext* const flow = here();
  if (flow == nullptr) return ::pthread_once(control, routine);
  flow->once = routine;
  return ::pthread_once(control, run_once);
}

}  // namespace

std::span<const Binding> threads_bindings() {
  static const Binding table[] = {
      Binding::of("pthread_self", bound_pthread_self),
      Binding::of("thrd_current", bound_pthread_self),
      Binding::of("pthread_create", bound_pthread_create),
      Binding::of("pthread_exit", bound_pthread_exit),
      Binding::of("pthread_detach", bound_pthread_detach),
      Binding::of("pthread_cancel", bound_pthread_cancel),
      Binding::of("thrd_create", bound_thrd_create),
      Binding::of("thrd_exit", bound_thrd_exit),
      Binding::of("thrd_detach", bound_thrd_detach),
      Binding::of("pthread_getattr_np", bound_pthread_getattr_np),
      bound<::pthread_once, own_once>("pthread_once"),
      bound<::pthread_once, own_once>("__pthread_once"),
      bound<::pthread_setcancelstate, own_setcancelstate>("pthread_setcancelstate"),
      bound<::pthread_setcanceltype, own_setcanceltype>("pthread_setcanceltype"),
      bound<::pthread_once, own_once>("call_once"),
      variable<&LibcState::stack_end>("__libc_stack_end"),
  };
  return table;
}

}  // namespace aplib::loader::libc

#if APLIB_INTERPOSES_PTHREAD_CREATE
// Found before libc's by every library of a process that is linked with this one. Threads that no program makes
// cost one load more.
extern "C" APLIB_API int pthread_create(pthread_t* id, const pthread_attr_t* attributes, void* (*routine)(void*),
                                        void* argument) noexcept {
  using namespace aplib::loader;
  using namespace aplib::loader::libc;
  if (here() == nullptr || is_shared_pool(__builtin_return_address(0)))
    return create_natively(id, attributes, routine, argument);
  return create(id, attributes, routine, argument, __builtin_return_address(0));
}
#endif
