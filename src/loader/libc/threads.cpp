// SPDX-License-Identifier: MIT
// Threads that a program makes itself, directly or inside a shared library (std::thread in libstdc++, OpenMP in
// libgomp). Each gets a context of the instance whose flow makes it. So thread_locals, libc state and exit() in it are
// the instance's, and the instance stays as long as it runs. Libraries that all instances share call pthread_create by
// themselves, so this library puts its own before libc's (at the end of this file).
//
// Parallel regions of OpenMP programs that gcc compiled. All instances share libgomp, which keeps its threads for the
// next caller: they belong to no instance. So the body of each region and task is wrapped, and a thread of the pool has
// a context of the instance while it runs that body. It keeps the context for the instance's next region, because
// threadprivate data must stay.
//
// What libgomp knows of a region, it keeps in the thread that began it. A task that waits in a region gives its thread
// to other cells, and may come back on another thread. So a region of one thread, which is what cells that share their
// threads have, runs without libgomp.
//
// The calls follow libgomp's own interface to compiled code (libgomp_g.h of gcc 12, "GOMP_" symbols). What is not
// wrapped (taskloop, tasks with a detach clause) runs without a context: its libc state is still the instance's, its
// thread-locals may not be.
#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <pthread.h>
#include <threads.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "aplib/error.hpp"
#include "aplib/export.hpp"
#include "loader/context.hpp"
#include "loader/instance.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/end.hpp"
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
    instance.begin_threads();
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
/// another, and never end, so they belong to none; lend() gives them a context where it can.
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
  constexpr int looks_max = 200;  // a fifth of a second: a thread that has done its work may be just about to end
  for (int look = 0; look < looks_max && threads_of(instance) != 0; ++look)
    instance.services().sleep(std::chrono::milliseconds(1));
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

// ---------------------------------------------------------------- parallel regions of OpenMP

/// Contexts that threads of the pool have borrowed, by thread. They do not keep the instance alive, and go with it. And
/// what else libgomp has once for all.
struct LentContexts {
  std::mutex mutex;
  std::map<pthread_t, std::unique_ptr<TaskContext>> of_thread;
  void* critical = nullptr;  ///< The lock of critical sections without a name; libgomp's own is the process's.
};

namespace {

using Body = void (*)(void*);

/// What wrapped code needs to know of the flow that made it.
struct Owner {
  Instance* instance;
  bool swaps;
};

TaskContext& lend(Instance& instance) {
  LentContexts& lent = shared_part(instance.libc().lent);
  const std::lock_guard lock(lent.mutex);
  std::unique_ptr<TaskContext>& context = lent.of_thread[pthread_self()];
  if (context == nullptr) {
    context = std::make_unique<TaskContext>(instance);
    instance.disown(*context);
  }
  return *context;
}

/// Runs `body(data)` as a flow of the owner's instance.
void run_owned(const Owner& owner, Body body, void* data) {
  TaskContext* const before = here();
  if (before != nullptr && before->instance == owner.instance) return body(data);
  TaskContext& context = lend(*owner.instance);
  context.swaps = context.swaps || owner.swaps;
  if (before != nullptr && before->swaps) before->ops->swap(before, nullptr);
  current_program_context = &context;
  if (context.swaps) context.ops->swap(nullptr, &context);
  const Outcome outcome = until_exit(context, [body, data] {
    body(data);
    return 0;
  });
  if (outcome.jumped) owner.instance->services().task_exited(outcome.status);
  if (context.swaps) context.ops->swap(&context, nullptr);
  current_program_context = before;
  if (before != nullptr && before->swaps) before->ops->swap(nullptr, before);
}

/// A parallel region's data in ours. libgomp looks at the first word of the data where the region has reductions.
struct Region {
  void* first = nullptr;
  Body body;
  void* data;
  Owner owner;

  static void run(void* state) {
    const auto* region = static_cast<const Region*>(state);
    run_owned(region->owner, region->body, region->data);
  }
};

Owner owner_of(Instance& instance) {
  const TaskContext* context = here();
  if (context != nullptr) instance.begin_threads();
  return {&instance, context != nullptr && context->swaps};
}

enum class Call : std::size_t {
  parallel,
  parallel_reductions,
  loop_static,
  loop_dynamic,
  loop_guided,
  loop_nonmonotonic_dynamic,
  loop_nonmonotonic_guided,
  loop_runtime,
  loop_nonmonotonic_runtime,
  loop_maybe_nonmonotonic_runtime,
  sections,
  teams_reg,
  task,
  critical_name_start,
  critical_name_end,
  get_level,
  get_max_threads,
  count
};
constexpr std::array<const char*, static_cast<std::size_t>(Call::count)> names{
    "GOMP_parallel",
    "GOMP_parallel_reductions",
    "GOMP_parallel_loop_static",
    "GOMP_parallel_loop_dynamic",
    "GOMP_parallel_loop_guided",
    "GOMP_parallel_loop_nonmonotonic_dynamic",
    "GOMP_parallel_loop_nonmonotonic_guided",
    "GOMP_parallel_loop_runtime",
    "GOMP_parallel_loop_nonmonotonic_runtime",
    "GOMP_parallel_loop_maybe_nonmonotonic_runtime",
    "GOMP_parallel_sections",
    "GOMP_teams_reg",
    "GOMP_task",
    "GOMP_critical_name_start",
    "GOMP_critical_name_end",
    "omp_get_level",
    "omp_get_max_threads",
};

/// The library's own function. It is there: the program needs it, and the program was loaded.
void* native(Instance& instance, Call call) {
  static std::array<std::atomic<void*>, names.size()> found;
  std::atomic<void*>& known = found[static_cast<std::size_t>(call)];
  void* function = known.load(std::memory_order_relaxed);  // relaxed: it is the same whoever finds it
  if (function != nullptr) return function;
  const char* name = names[static_cast<std::size_t>(call)];
  for (const Library& library : instance.program().shared_libraries()) {
    if (function == nullptr && library.handle != nullptr) function = dlsym(library.handle, name);
  }
  if (function == nullptr) {
    if (void* libgomp = dlopen("libgomp.so.1", RTLD_LAZY)) function = dlsym(libgomp, name);
  }
  if (function == nullptr) {
    abort_instance(instance, std::string("the program calls ") + name + ", which libgomp.so.1 does not have here");
  }
  known.store(function, std::memory_order_relaxed);
  return function;
}

int ask(Instance& instance, Call call) { return reinterpret_cast<int (*)()>(native(instance, call))(); }

/// Whether the calling flow is all of a region of `threads`, as GOMP_parallel counts them, and in no other region.
bool is_alone(Instance& instance, unsigned threads) {
  if (threads > 1 || here() == nullptr || here()->instance != &instance) return false;
  return ask(instance, Call::get_level) == 0 && (threads == 1 || ask(instance, Call::get_max_threads) == 1);
}

template <Call call, class Result, class... Rest>
Result bound_region(Body body, void* data, Rest... rest) {
  using Function = Result(Body, void*, Rest...);
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) std::abort();  // only programs are bound to this
  if constexpr (call == Call::parallel) {
    if (is_alone(*instance, std::get<0>(std::tuple(rest...)))) return body(data);
  }
  Region region{nullptr, body, data, owner_of(*instance)};
  if constexpr (call == Call::parallel_reductions) std::memcpy(&region.first, data, sizeof region.first);
  return reinterpret_cast<Function*>(native(*instance, call))(Region::run, &region, rest...);
}

/// What stands before a task's arguments, in the memory that libgomp copies.
struct TaskHeader {
  Body body;
  void (*copy)(void*, void*);
  void* source;  // where `copy` copies from
  std::size_t offset;
  Owner owner;

  static void run(void* state) {
    auto* header = static_cast<TaskHeader*>(state);
    run_owned(header->owner, header->body, static_cast<char*>(state) + header->offset);
  }
  static void copy_all(void* to, void* from) {
    auto* header = static_cast<TaskHeader*>(from);
    std::memcpy(to, header, sizeof *header);
    header->copy(static_cast<char*>(to) + header->offset, header->source);
  }
};

using CopyArguments = void (*)(void*, void*);
using TaskFunction = void(Body, void*, CopyArguments, long, long, bool, unsigned, void**, int, void*);

void bound_task(Body body, void* data, CopyArguments copy, long bytes, long alignment, bool at_all, unsigned flags,
                void** depend, int priority, void* detach) {
  constexpr unsigned flag_detach = 1U << 13;
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) std::abort();  // only programs are bound to this
  auto* const function = reinterpret_cast<TaskFunction*>(native(*instance, Call::task));
  if ((flags & flag_detach) != 0) {  // libgomp writes into the data
    return function(body, data, copy, bytes, alignment, at_all, flags, depend, priority, detach);
  }
  const auto aligned = std::max<std::size_t>(static_cast<std::size_t>(alignment), alignof(TaskHeader));
  const std::size_t offset = (sizeof(TaskHeader) + aligned - 1) / aligned * aligned;
  const std::size_t all = offset + static_cast<std::size_t>(bytes);
  const std::unique_ptr<char[], void (*)(void*)> block(
      static_cast<char*>(std::aligned_alloc(aligned, (all + aligned - 1) / aligned * aligned)), std::free);
  if (block == nullptr) abort_instance(*instance, "no memory for a task of OpenMP");
  ::new (block.get()) TaskHeader{body, copy, data, offset, owner_of(*instance)};
  if (copy == nullptr && bytes != 0) std::memcpy(block.get() + offset, data, static_cast<std::size_t>(bytes));
  function(TaskHeader::run, block.get(), copy != nullptr ? TaskHeader::copy_all : nullptr, static_cast<long>(all),
           static_cast<long>(aligned), at_all, flags, depend, priority, detach);
}

template <Call call>
void bound_critical() {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) std::abort();  // only programs are bound to this
  reinterpret_cast<void (*)(void**)>(native(*instance, call))(&shared_part(instance->libc().lent).critical);
}

template <Call call, class Result, class... Rest>
Binding region() {
  return Binding::of(names[static_cast<std::size_t>(call)], bound_region<call, Result, Rest...>);
}

}  // namespace

std::span<const Binding> openmp_bindings() {
  static const Binding table[] = {
      region<Call::parallel, void, unsigned, unsigned>(),
      region<Call::parallel_reductions, unsigned, unsigned, unsigned>(),
      region<Call::loop_static, void, unsigned, long, long, long, long, unsigned>(),
      region<Call::loop_dynamic, void, unsigned, long, long, long, long, unsigned>(),
      region<Call::loop_guided, void, unsigned, long, long, long, long, unsigned>(),
      region<Call::loop_nonmonotonic_dynamic, void, unsigned, long, long, long, long, unsigned>(),
      region<Call::loop_nonmonotonic_guided, void, unsigned, long, long, long, long, unsigned>(),
      region<Call::loop_runtime, void, unsigned, long, long, long, unsigned>(),
      region<Call::loop_nonmonotonic_runtime, void, unsigned, long, long, long, unsigned>(),
      region<Call::loop_maybe_nonmonotonic_runtime, void, unsigned, long, long, long, unsigned>(),
      region<Call::sections, void, unsigned, unsigned, unsigned>(),
      region<Call::teams_reg, void, unsigned, unsigned, unsigned>(),
      Binding::of(names[static_cast<std::size_t>(Call::task)], bound_task),
      Binding::of("GOMP_critical_start", bound_critical<Call::critical_name_start>),
      Binding::of("GOMP_critical_end", bound_critical<Call::critical_name_end>),
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
