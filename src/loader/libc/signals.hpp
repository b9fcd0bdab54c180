// SPDX-License-Identifier: MIT
// Signal handlers of programs: each instance has a table. Only what an instance does to itself reaches them: raise()
// and its relatives, and faults of its own instructions.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstddef>
#include <optional>
#include <vector>

namespace aplib::loader {
class Instance;
struct TaskContext;
}  // namespace aplib::loader

namespace aplib::loader::libc {

struct ThreadName;

/// The process's fault handler asks this first. If code of an instance caused the fault, and the instance has a handler
/// for it, returns true, and returning from the process's handler starts the instance's on the interrupted code's own
/// stack. There it may switch tasks, siglongjmp, or return.
///
/// `context`: the handler's third argument, as the kernel gave it. `stack_low`: lowest usable byte of the stack
/// that was interrupted, null: not known. Async-signal-safe. Call from: a signal handler.
bool deliver_fault(int signal, const siginfo_t& info, void* context, const char* stack_low) noexcept;

/// The same for a signal that the kernel sends to a thread whose write it has refused (SIGPIPE, SIGXFSZ): the program's
/// handler runs, or the program ignores or blocks it, or the cell that wrote ends the machine and says so. False where
/// the process `ignores` it and the program has not said otherwise, as after trap '' XFSZ in a shell. False also where
/// nobody reads the standard output of the process: that ends the process, as it ends every filter.
bool deliver_refusal(int signal, bool ignores, const siginfo_t& info, void* context, const char* stack_low) noexcept;

/// To a thread that carries cells: stops it for a moment, because a signal has come for a program, or because its
/// program has computed for long. The process ignores it elsewhere.
inline constexpr int interrupt_signal = SIGURG;

/// The process's handler of interrupt_signal asks this when it has stopped code of a program's own, or a wait
/// (is_in_wait()). If a signal has come for that program, returns true, and returning from the handler starts the
/// program's. `stack`: the stack pointer that was interrupted; else as deliver_fault().
bool deliver_signals(const char* stack, int signal, const siginfo_t& info, void* context,
                     const char* stack_low) noexcept;

/// A signal has come for the program from one of its timers, or of a child's end. `sender`: 0: itself. False: it
/// ignores it. Without a handler it ends the machine, if `by_default`; that unwinds or jumps. Call from: any thread.
bool post_signal(Instance& instance, int signal, int code, sigval value, pid_t sender = 0, bool by_default = true);
/// A signal that has come from outside: leaves it for all programs, `count` or more that have not ended, if each
/// handles it (timers.cpp); or for the one whose child, or a child of that, is `sender`. False: nothing is left. Call
/// from: any thread of the machine's own.
bool pass_to_programs(int signal, std::size_t count, pid_t sender);
/// The program that has made `process`, or one that it comes from. Null: none, or both are gone. What is found is good
/// for comparing, since it may end. Call from: any thread.
const Instance* maker_of(pid_t process);
/// What the program ignores.
std::vector<int> ignored_signals(Instance& instance);
/// A sample, which is left at the next interrupt_signal to a thread that runs the program.
void note_sample(Instance& instance, int signal, int code, sigval value);
/// The program has said that nobody waits for its children. Call from: any thread.
bool disowns_children(Instance& instance) noexcept;
/// Others than its timers may send it some: its threads, and the ends of its children.
bool may_be_signalled(Instance& instance) noexcept;
/// Some have come and have not been delivered. Call from: any thread.
bool has_pending_signals(Instance& instance) noexcept;
/// Nothing has come for a thread that the program has made; else whether what it waits for is to go on afterwards.
/// `takes_shared`: what has come for whichever flow does not block it counts, where main does; false afterwards if it
/// has counted. Call from: any thread, while that one lives.
std::optional<bool> signal_restarts(const TaskContext& thread, bool& takes_shared) noexcept;
/// The interrupted code of the calling thread, which the program has made: calls the handlers of what has come for it.
/// They may leave by longjmp() or pthread_exit(). Call from: a signal handler.
void deliver_signals_here(Instance& instance, void* interrupted);

/// Has main leave the program as Instance::leave(), as soon as it would take a signal. False: it has ended, or there is
/// no memory. Call from: another flow of the instance.
bool ask_main_to_leave(Instance& instance, int status, bool runs_handlers) noexcept;
/// Main has been asked to leave the program, and does not yet.
bool is_main_asked_to_leave(Instance& instance) noexcept;

/// Calls the instance's own handler of SIGABRT, if it has one.
void call_abort_handler(Instance& instance);

/// A new flow starts with its maker's blocked signals; an ended one leaves nothing behind.
void inherit_signal_mask(const TaskContext& from, const TaskContext& to);
void forget_signal_mask(const TaskContext& context) noexcept;

// For the bindings. All may be called from any flow of the instance; errors are set in errno unless returned.

int change_action(Instance& instance, int signal, const struct sigaction* action, struct sigaction* old);
/// The program sends `signal` to itself: calls the handler, or does what the kernel does without one. `code`:
/// SI_USER and so on.
int send_signal(Instance& instance, int signal, int code, sigval value = {});
/// kill() and sigqueue(): to itself as send_signal(). Another cell of this process gets it soon; one without a handler
/// ends the machine. To others: the system's.
int signal_process(Instance& instance, pid_t process, int signal, int code, sigval value = {});
/// To the children that the program has spawned, and that are of the process's group.
void signal_children(Instance& instance, int signal);
/// pthread_kill(), tgkill(), pthread_sigqueue(): returns the error. The handler runs on that thread.
int signal_thread(Instance& instance, const ThreadName& thread, int signal, int code, sigval value);
/// As pthread_sigmask: returns the error. Signals that waited and are free now are delivered.
int change_signal_mask(Instance& instance, int how, const sigset_t* set, sigset_t* old);
sigset_t pending_signals(Instance& instance) noexcept;
/// sigsuspend().
int suspend_with(Instance& instance, const sigset_t* mask);
/// Calls the handlers of signals that have come for the calling flow and are not blocked.
void deliver_pending_signals(Instance& instance);

/// Which handlers end a wait (signal(7)): of calls that SA_RESTART begins again, those without it.
enum class EndedBy : unsigned char { nothing, without_restart, all };
/// How many of those the calling flow has called so far.
[[nodiscard]] unsigned long handlers_run(EndedBy which) noexcept;

}  // namespace aplib::loader::libc
