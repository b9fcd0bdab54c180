// SPDX-License-Identifier: MIT
// Parallel regions of OpenMP programs that gcc compiled. libgomp is shared by all instances and keeps its threads
// for whoever comes next: they belong to no instance. So the body of each region and task is wrapped: a thread of
// the pool gets a context of the instance for as long as it runs that body. It keeps it for the instance's next
// region, because threadprivate data must stay.
//
// The calls follow libgomp's own interface to compiled code (libgomp_g.h of gcc 12, "GOMP_" symbols); what is not
// wrapped (taskloop, tasks with a detach clause) runs without a context: its libc state is still the instance's,
// its thread-locals may not be.
#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>

#include "loader/exit_frame.hpp"
#include "loader/instance.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/end.hpp"

namespace aplib::loader::libc {

/// Contexts that threads of the pool have borrowed, by thread. They do not keep the instance alive, and go with it.
struct LentContexts {
  std::mutex mutex;
  std::map<pthread_t, std::unique_ptr<TaskContext>> of_thread;
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
  if (context != nullptr) instance.share_heap();
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

template <Call call, class Result, class... Rest>
Result bound_region(Body body, void* data, Rest... rest) {
  using Function = Result(Body, void*, Rest...);
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) std::abort();  // only programs are bound to this
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
  };
  return table;
}

}  // namespace aplib::loader::libc
