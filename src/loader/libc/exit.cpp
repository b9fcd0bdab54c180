// SPDX-License-Identifier: MIT
// Exit, atexit, abort and their relatives end a program, not the process.
//
// Frames of the program stay as they are when exit() runs handlers, as C requires: handlers may use what main() had on
// its stack. If other tasks of the instance still run, the handlers wait for the last of them (Instance::finish),
// because they destroy what those use. Threads that the program made end with it, as with a process, and it ends with
// one that calls exit().
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "loader/instance.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/end.hpp"
#include "loader/libc/signals.hpp"

namespace aplib::loader::libc {

namespace {

struct ExitHandler {
  enum class Kind : unsigned char { plain, with_argument, with_status };
  Kind kind = Kind::plain;
  void (*function)() = nullptr;  // of the type that `kind` says
  void* argument = nullptr;
  const void* dso = nullptr;  // null: no image's in particular

  void operator()(int status) const {
    switch (kind) {
      case Kind::plain:
        return function();
      case Kind::with_argument:
        return reinterpret_cast<void (*)(void*)>(function)(argument);
      case Kind::with_status:
        return reinterpret_cast<void (*)(int, void*)>(function)(status, argument);
    }
  }
};

// Threads of one program may register at once. One lock for all instances: it is held for the time of a push.
std::mutex lists_mutex;

}  // namespace

struct ExitLists {
  std::vector<ExitHandler> at_exit;
  std::vector<ExitHandler> at_quick_exit;
  int status = 0;
  std::deque<std::string> last_words;  // of flows that end the machine
};

namespace {

enum class Which : unsigned char { exit, quick_exit };

void add(Instance& instance, Which which, const ExitHandler& handler) {
  const std::lock_guard lock(lists_mutex);
  ExitLists& lists = instance.libc().exits.get();
  (which == Which::exit ? lists.at_exit : lists.at_quick_exit).push_back(handler);
}

struct Taken {
  ExitHandler handler;
  int status = 0;
};

/// Takes the last handler of `which` out of its list, of the image `dso` unless that is null.
std::optional<Taken> take_last(Instance& instance, Which which, const void* dso) {
  const std::lock_guard lock(lists_mutex);
  ExitLists* lists = instance.libc().exits.part;
  if (lists == nullptr) return std::nullopt;
  std::vector<ExitHandler>& handlers = which == Which::exit ? lists->at_exit : lists->at_quick_exit;
  for (std::size_t i = handlers.size(); i-- > 0;) {
    if (dso != nullptr && handlers[i].dso != dso) continue;
    const Taken taken{handlers[i], lists->status};
    handlers.erase(handlers.begin() + static_cast<std::ptrdiff_t>(i));
    return taken;
  }
  return std::nullopt;
}

void run(Instance& instance, Which which, const void* dso) {
  // One at a time: a handler may register others (they come next), or call exit(), which goes on here in a deeper
  // frame.
  while (const std::optional<Taken> taken = take_last(instance, which, dso)) taken->handler(taken->status);
}

}  // namespace

void note_exit_status(Instance& instance, int status) noexcept {
  const std::lock_guard lock(lists_mutex);
  if (ExitLists* lists = instance.libc().exits.part; lists != nullptr) lists->status = status;
}

void run_exit_handlers(Instance& instance) { run(instance, Which::exit, nullptr); }
void run_quick_exit_handlers(Instance& instance) { run(instance, Which::quick_exit, nullptr); }
void run_exit_handlers_of(Instance& instance, const void* dso) {
  run(instance, Which::exit, dso);
  while (take_last(instance, Which::quick_exit, dso)) {  // never called: as with exit(), their image goes first
  }
}

void run_thread_exits(TaskContext& context) {
  while (!context.thread_exits.empty()) {
    const TaskContext::ThreadExit last = context.thread_exits.back();
    context.thread_exits.pop_back();
    last.function(last.argument);
  }
  forget_signal_mask(context);
}

namespace {

/// A thread that the program has made ends it: main leaves what it does, unless that is a call of the machine.
[[noreturn]] void end_from_thread(Instance& instance, int status, bool runs_handlers) {
  constexpr auto patience = std::chrono::seconds(5);
  if (ask_main_to_leave(instance, status, runs_handlers)) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (std::chrono::steady_clock::now() < end || !is_main_asked_to_leave(instance)) wait_to_end();
    fail_instance(instance, status != 0 ? status : static_cast<int>(ExitStatus::program_failed),
                  fmt::format("a thread that the program made has called exit({}), and main() is in a call that it "
                              "cannot be taken out of, perhaps of MPI; that ends the machine",
                              status));
  }
  instance.leave(status, runs_handlers);
}

}  // namespace

void exit_instance(Instance& instance, int status) {
  TaskContext* const context = here();
  if (context != nullptr) run_thread_exits(*context);
  note_exit_status(instance, status);
  int tasks = 0;
  instance.for_each_context([&tasks](const TaskContext& context) { tasks += context.of_thread ? 0 : 1; });
  if (tasks <= 1) run_exit_handlers(instance);
  if (on_program_thread()) end_from_thread(instance, status, true);
  instance.leave(status, true);
}

namespace {

/// The text in the instance's keeping: what is said last is left by a jump, which destroys nothing.
const std::string& keep(Instance& instance, std::string&& text) {
  const std::lock_guard lock(lists_mutex);
  return instance.libc().exits.get().last_words.emplace_back(std::move(text));
}

}  // namespace

void fail_instance(Instance& instance, int status, std::string text) {
  const std::string& kept = keep(instance, std::move(text));
  instance.services().fail(status, kept);
  __builtin_unreachable();
}

void abort_instance(Instance& instance, std::string text) {
  const std::string& kept = keep(instance, std::move(text));
  call_abort_handler(instance);  // may jump
  constexpr int status_of_abort = 128 + SIGABRT;
  instance.services().fail(status_of_abort, kept);
  __builtin_unreachable();
}

namespace {

// The functions' own names in libc differ only by the prefix; their contracts are libc's.

[[noreturn]] void bound_exit(int status) {
  if (Instance* instance = calling(__builtin_return_address(0))) exit_instance(*instance, status);
  std::exit(status);
}

[[noreturn]] void bound__exit(int status) {
  if (Instance* instance = calling(__builtin_return_address(0))) {
    if (on_program_thread()) end_from_thread(*instance, status, false);
    instance->leave(status, false);
  }
  std::_Exit(status);
}

[[noreturn]] void bound_quick_exit(int status) {
  if (Instance* instance = calling(__builtin_return_address(0))) {
    run_quick_exit_handlers(*instance);
    if (on_program_thread()) end_from_thread(*instance, status, false);
    instance->leave(status, false);
  }
  std::quick_exit(status);
}

[[noreturn]] void bound_abort() {
  if (Instance* instance = calling(__builtin_return_address(0))) {
    abort_instance(*instance,
                   "the program called abort(), which ends the machine; what it printed before may say why, and a "
                   "debugger with a breakpoint on abort shows where");
  }
  std::abort();
}

int bound_atexit(Instance& instance, void (*function)()) {
  add(instance, Which::exit, {ExitHandler::Kind::plain, function, nullptr, nullptr});
  return 0;
}

int bound_at_quick_exit(Instance& instance, void (*function)()) {
  add(instance, Which::quick_exit, {ExitHandler::Kind::plain, function, nullptr, nullptr});
  return 0;
}

int bound_on_exit(void (*function)(int, void*), void* argument) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return on_exit(function, argument);
  add(*instance, Which::exit,
      {ExitHandler::Kind::with_status, reinterpret_cast<void (*)()>(function), argument, nullptr});
  return 0;
}

int bound_cxa_atexit(void (*function)(void*), void* argument, void* dso) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return -1;
  add(*instance, Which::exit,
      {ExitHandler::Kind::with_argument, reinterpret_cast<void (*)()>(function), argument, dso});
  return 0;
}

int bound_cxa_at_quick_exit(void (*function)(void*), void* dso) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return -1;
  add(*instance, Which::quick_exit,
      {ExitHandler::Kind::with_argument, reinterpret_cast<void (*)()>(function), nullptr, dso});
  return 0;
}

// Called by the fini code of each image with its own handle.
void bound_cxa_finalize(void* dso) {
  if (Instance* instance = calling(__builtin_return_address(0))) run_exit_handlers_of(*instance, dso);
}

int bound_cxa_thread_atexit(void (*function)(void*), void* argument, void* dso) {
  TaskContext* const context = here();
  if (context == nullptr) return -1;  // a thread that no instance knows: its thread_locals are never destroyed
  context->thread_exits.push_back({function, argument, dso});
  return 0;
}

}  // namespace

std::span<const Binding> exit_bindings() {
  static const Binding table[] = {
      Binding::of("exit", bound_exit),
      Binding::of("_exit", bound__exit),
      Binding::of("_Exit", bound__exit),
      Binding::of("quick_exit", bound_quick_exit),
      Binding::of("abort", bound_abort),
      bound<std::atexit, bound_atexit>("atexit"),
      bound<std::at_quick_exit, bound_at_quick_exit>("at_quick_exit"),
      Binding::of("on_exit", bound_on_exit),
      Binding::of("__cxa_atexit", bound_cxa_atexit),
      Binding::of("__cxa_at_quick_exit", bound_cxa_at_quick_exit),
      Binding::of("__cxa_finalize", bound_cxa_finalize),
      Binding::of("__cxa_thread_atexit_impl", bound_cxa_thread_atexit),
      Binding::of("__cxa_thread_atexit", bound_cxa_thread_atexit),
  };
  return table;
}

// ---------------------------------------------------------------- beginning

namespace {

using Main = decltype(LibcState::main);

// `init`: of executables that were linked before glibc 2.34, where it calls the constructors, which Instance does.
[[noreturn]] void own_start_main(Main main, int /*argc*/, char** /*argv*/, void (* /*init*/)(), void (* /*fini*/)(),
                                 void (* /*end_of_linker*/)(), void* /*stack_end*/) {
  TaskContext* const context = here();
  if (context == nullptr) std::abort();
  context->instance->libc().main = main;
  exit_to_frame(*context, 0);
}

}  // namespace

Main main_of(Instance& instance, Program::Definition start) {
  // The code there takes argc and argv from above the stack pointer, and hands them over unread.
  until_exit(*here(), [&instance, start] {
    reinterpret_cast<void (*)()>(instance.address_of(start))();
    return 0;
  });
  return instance.libc().main;
}

std::span<const Binding> start_bindings() {
  static const std::array table{Binding::of("__libc_start_main", &own_start_main)};
  return table;
}

}  // namespace aplib::loader::libc
