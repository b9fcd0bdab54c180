// SPDX-License-Identifier: MIT
// How programs end: exit(), abort() and their relatives end one instance, not the process. C's rules hold: exit
// handlers run in reverse order of registration, each once. Handlers may register more, and may call exit() themselves,
// which goes on with the rest. No frame is unwound.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <string>

#include "loader/program.hpp"

namespace aplib::loader {
class Instance;
struct TaskContext;
}  // namespace aplib::loader

namespace aplib::loader::libc {

/// What on_exit handlers are told and the status that the program ends with. exit() notes it itself; whoever takes
/// main's result notes that.
void note_exit_status(Instance& instance, int status) noexcept;

/// Calls what atexit, on_exit and __cxa_atexit registered, last first, until nothing is left. A handler that lets
/// an exception out, or calls exit() when nobody is in exit() yet (it leaves by Instance::leave), ends the call:
/// call again until it returns. Call from: a flow of the instance. Switches tasks: as the program does.
void run_exit_handlers(Instance& instance);

/// The same for at_quick_exit.
void run_quick_exit_handlers(Instance& instance);

/// The same for handlers of one image: `dso` is its __dso_handle. For dlclose.
void run_exit_handlers_of(Instance& instance, const void* dso);

/// Destructors of the flow's thread_locals, last made first, until nothing is left. Call from: the flow that owns
/// `context`, at its end.
void run_thread_exits(TaskContext& context);

/// Destructors of the flow's values of keys, in rounds, as POSIX has them. Call from: the flow that owns `context`, at
/// its end.
void run_key_destructors(TaskContext& context);

/// exit(): destructors of the flow's thread_locals; exit handlers, if no other task of the instance is left to need
/// what they destroy; then Instance::leave(), of main where a thread of the program calls. For other bindings that end
/// a program (err, error). Call from: a flow of the instance.
[[noreturn]] void exit_instance(Instance& instance, int status);

/// abort(): the program's handler of SIGABRT, if any; then ends the machine with status 134 and `text`, which names
/// what happened and what to do.
[[noreturn]] void abort_instance(Instance& instance, std::string text);

/// CellServices::fail() for callers with a text of their own making: it jumps past their frames, so the text is the
/// instance's from here on.
[[noreturn]] void fail_instance(Instance& instance, int status, std::string text);

/// Main of an executable. Nothing in its file says where main is. What does is the code at its entry, `_start`: it
/// calls libc's __libc_start_main with the address of main, and never returns. Programs get ours, which notes the
/// address and jumps back. So main is called, and left, as that of any other program. `start`: Program::start(). Call
/// from: the flow that will run main, inside until_exit().
int (*main_of(Instance& instance, Program::Definition start))(int, char**, char**);

// Threads that programs make themselves (pthread_create, std::thread, OpenMP): foreign to the machine, but flows of
// their instance.

/// Where the stack of a thread lies that a program has made. Empty on other threads. Async-signal-safe.
struct ThreadStack {
  char* low = nullptr;
  std::size_t bytes = 0;
};
[[nodiscard]] ThreadStack stack_of_program_thread() noexcept;

/// The calling thread was made by a program. False on the machine's own threads, hence in tasks.
bool on_program_thread() noexcept;

/// A thread of the calling flow's program that ends with it, as those that libraries keep. `bytes`: of its stack, 0: as
/// ever. False: none can be had.
bool make_pool_thread(void* (*routine)(void*), void* argument, std::size_t bytes = 0) noexcept;

/// The calling pool thread, and those that it makes, are not ended in the middle, or may be again.
void hold_end(bool held) noexcept;

/// A thread of a program, by what pthread_self() gives, or by the system's number if that is not 0.
struct ThreadName {
  pthread_t id{};
  pid_t number = 0;
};
/// Calls `use` with that thread's context, which stays meanwhile. False: the program has no such thread.
bool with_thread(Instance& instance, const ThreadName& name, const std::function<void(const TaskContext&)>& use);
/// Has the threads that the program has made take the signals that have come for them. Call from: any thread.
void interrupt_threads(Instance& instance);

/// Finds what signal handlers need to know of the process's files. Call from: any thread, before programs run.
void prepare_walks() noexcept;
/// The calling thread, which carries the running flow, is in a wait of libc that the flow's program has called, without
/// anything of the machine between. `interrupted`: the handler's third argument. Async-signal-safe.
[[nodiscard]] bool is_in_wait(const void* interrupted) noexcept;
/// Where main has called pthread_exit(): until the program's other threads have ended. Switches tasks: yes.
void await_threads(Instance& instance);
/// Some time of the wait for end_threads(). Call from: a thread that the program has made.
void wait_to_end() noexcept;

/// What pthread_self() gives the calling flow: to a task always the thread that carried it when it first asked.
[[nodiscard]] pthread_t own_thread() noexcept;

/// Ends the program's threads but the calling one. False: some do not end, and the instance must stay for them. Call
/// from: the last flow of the instance, after its last code. Lets other tasks run meanwhile.
[[nodiscard]] bool end_threads(Instance& instance);

/// What tasks of the program still hold that its next owner is told of: robust mutexes. Call from: the last flow of the
/// instance, after its last code.
void abandon_locks(Instance& instance) noexcept;
/// What the program has asked for by SEM_UNDO is done.
void undo_semaphores(Instance& instance) noexcept;

}  // namespace aplib::loader::libc
