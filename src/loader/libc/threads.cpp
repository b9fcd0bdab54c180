// SPDX-License-Identifier: MIT
// Threads that a program makes itself, directly or inside a shared library (std::thread in libstdc++, OpenMP in
// libgomp). Each gets a context of the instance whose flow makes it, so that thread_locals, libc state and exit()
// are the instance's in it, and the instance stays as long as it runs.
//
// Libraries that all instances share call pthread_create by themselves, so this library puts its own before libc's
// (below, at the end).
#include "loader/libc/end.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <pthread.h>
#include <threads.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "aplib/error.hpp"
#include "aplib/export.hpp"
#include "loader/exit_frame.hpp"
#include "loader/instance.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/signals.hpp"

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
  int rounds = 0;
};

constinit thread_local bool made_by_program = false;

/// The thread's context must outlive destructors of the program's own keys, which the C library calls in up to four
/// rounds. So it goes in the third: later than any key that is set once, and before sanitizers, which leave in the
/// fourth.
constexpr int last_round = 3;

/// Destructors of the thread's thread_locals; they may call exit(), which ends but the one that does.
void run_exits_of_thread(TaskContext& context) {
  while (until_exit(context, [&context] {
           run_thread_exits(context);
           return 0;
         }).jumped) {
  }
}

void release(ProgramThread& thread) {
  TaskContext* const context = thread.context;
  CellServices& services = context->instance->services();  // outlives the instance, which may end here
  count_thread(*context->instance, -1);
  try {
    context->ops->release(context);
  } catch (const std::exception& error) {
    services.warn(fmt::format("the end of the program threw an exception: {}", error.what()));
    services.task_exited(static_cast<int>(ExitStatus::program_failed));
  }
  current_program_context = nullptr;
}

void end_round(void* state);

/// One for the process: it holds what dies with each thread.
pthread_key_t key_of_threads() {
  static const pthread_key_t key = [] {
    pthread_key_t made{};
    if (pthread_key_create(&made, end_round) != 0) {
      throw Error(Errc::exhausted,
                  "a program cannot make a thread: the process has no pthread key left; the limit is 1024 for all "
                  "instances together");
    }
    return made;
  }();
  return key;
}

void end_round(void* state) {
  std::unique_ptr<ProgramThread> thread(static_cast<ProgramThread*>(state));
  if (++thread->rounds < last_round) {
    pthread_setspecific(key_of_threads(), thread.release());
  } else {
    release(*thread);
  }
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
    problem = fmt::format("uncaught exception in a thread that the program made: {}", error.what());
  } catch (...) {
    problem = "uncaught exception in a thread that the program made, of a type not derived from std::exception";
  }
  if (problem.empty()) return 0;
  fail_instance(*thread.context->instance, static_cast<int>(ExitStatus::program_failed), std::move(problem));
}

void* run_thread(void* state) {
  auto* thread = static_cast<ProgramThread*>(state);
  TaskContext& context = *thread->context;
  made_by_program = true;
  current_program_context = &context;
  if (context.swaps) context.ops->swap(nullptr, &context);
  pthread_setspecific(key_of_threads(), thread);
  struct AtEnd {  // also when pthread_exit or a cancellation unwinds
    TaskContext& context;
    ~AtEnd() { run_exits_of_thread(context); }
  } at_end{context};
  void* result = nullptr;
  const Outcome outcome = until_exit(context, [thread, &result] { return run_routine(*thread, result); });
  if (outcome.jumped) context.instance->services().task_exited(outcome.status);
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

int create(pthread_t* id, const pthread_attr_t* attributes, Routine routine, void* argument) noexcept {
  TaskContext* const maker = here();
  if (maker == nullptr) return create_natively(id, attributes, routine, argument);
  Instance& instance = *maker->instance;
  std::unique_ptr<ProgramThread> thread;
  try {
    key_of_threads();
    instance.share_heap();
    thread = std::make_unique<ProgramThread>();
    thread->context = static_cast<TaskContext*>(maker->ops->inherit(*maker));
    inherit_signal_mask(*maker, *thread->context);
    count_thread(instance, 1);
  } catch (const std::exception& error) {  // memory, keys
    instance.services().warn(error.what());
    return EAGAIN;
  }
  thread->routine = routine;
  thread->argument = argument;
  const int error = create_natively(id, attributes, run_thread, thread.get());
  if (error == 0) {
    static_cast<void>(thread.release());  // the thread's own
  } else {
    count_thread(instance, -1);
    forget_signal_mask(*thread->context);
    thread->context->ops->discard(thread->context);
  }
  return error;
}

/// Libraries that keep threads of their own to work for whoever calls. Those threads serve all instances, one after
/// another, and never end, so they belong to none; openmp.cpp lends them a context where it can.
[[maybe_unused]] bool is_of_pool_library(const void* caller) noexcept {
  Dl_info info{};
  if (dladdr(caller, &info) == 0 || info.dli_fname == nullptr) return false;
  const std::string_view path = info.dli_fname;
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return std::ranges::any_of(std::array<std::string_view, 8>{"libgomp.", "libomp.", "libiomp5.", "libtbb",
                                                             "libopenblas", "libblis", "libmkl_", "libfftw3"},
                             [name](std::string_view pool) { return name.starts_with(pool); });
}

}  // namespace

bool on_program_thread() noexcept { return made_by_program; }

void warn_of_threads(Instance& instance) {
  if (const int threads = threads_of(instance); threads != 0) {
    instance.services().warn(
        fmt::format("the program's main part has ended, and {} thread{} that it made still run{}; it ends when they "
                    "have ended: join them before",
                    threads, threads == 1 ? "" : "s", threads == 1 ? "s" : ""));
  }
}

namespace {

int bound_pthread_create(pthread_t* id, const pthread_attr_t* attributes, Routine routine, void* argument) {
  return create(id, attributes, routine, argument);
}

[[noreturn]] void end_flow(Instance* instance, void* result) {
  if (instance == nullptr || on_program_thread()) ::pthread_exit(result);
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
      start);
  if (error == 0) return thrd_success;
  delete start;
  return error == ENOMEM ? thrd_nomem : thrd_error;
}

// The thread below a task is not the program's to give up.
bool is_thread_of_machine(pthread_t id) noexcept {
  return here() != nullptr && !on_program_thread() && pthread_equal(id, pthread_self()) != 0;
}

int bound_pthread_detach(pthread_t id) { return is_thread_of_machine(id) ? 0 : ::pthread_detach(id); }
int bound_thrd_detach(thrd_t id) { return is_thread_of_machine(id) ? thrd_success : ::thrd_detach(id); }

int bound_pthread_cancel(pthread_t id) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance != nullptr && is_thread_of_machine(id)) end_flow(instance, PTHREAD_CANCELED);
  return ::pthread_cancel(id);
}

}  // namespace

std::span<const Binding> threads_bindings() {
  static const Binding table[] = {
      Binding::of("pthread_create", bound_pthread_create), Binding::of("pthread_exit", bound_pthread_exit),
      Binding::of("pthread_detach", bound_pthread_detach), Binding::of("pthread_cancel", bound_pthread_cancel),
      Binding::of("thrd_create", bound_thrd_create),       Binding::of("thrd_exit", bound_thrd_exit),
      Binding::of("thrd_detach", bound_thrd_detach),
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
  if (here() == nullptr || is_of_pool_library(__builtin_return_address(0)))
    return create_natively(id, attributes, routine, argument);
  return create(id, attributes, routine, argument);
}
#endif
