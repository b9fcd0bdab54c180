// SPDX-License-Identifier: MIT
// Signal, sigaction, raise: handlers per instance.
//
// The kernel has one table of handlers for the process, which is the machine's. A program has its own table, which
// serves what the program does to itself: raise(), kill(getpid(), ...), abort(), faults of its instructions, and its
// timers, and to what it is handed from outside (pass_to_programs()). Other signals from outside are the machine's.
//
// Two things differ from the kernel's delivery. A handler does not block its own signal while it runs; otherwise a
// program that leaves it by longjmp would never get a second one. A blocked signal waits for the flow of the instance
// that unblocks it.
#include "loader/libc/signals.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arch/system.hpp"
#include "base/os/descriptor.hpp"
#include "loader/instance.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/end.hpp"
#include "loader/libc/state.hpp"
#include "loader/libc/streams.hpp"
#include "loader/libc/waiting.hpp"

namespace aplib::loader::libc {

using Action = struct sigaction;

namespace {

struct Sent {
  int signal = 0;  ///< 0: to leave the program, with status `value`; `code`: handlers run.
  int code = SI_USER;
  sigval value{};
  pid_t sender = 0;                 ///< 0: the program itself.
  const TaskContext* to = nullptr;  ///< Null: whoever does not block it.
};

}  // namespace

struct SignalTable {
  /// A signalfd: a pipe into which its signals are written when they come.
  struct File {
    os::GuardedFd in;
    ino_t inode;
    sigset_t signals;
    pid_t owner;
    std::deque<int> unread;
  };
  std::vector<File> files;
  std::array<std::unique_ptr<Action>, NSIG> actions;  // none: the default
  std::map<const TaskContext*, sigset_t> blocked;     // only of flows that ever blocked any
  std::map<const TaskContext*, stack_t> stacks;       // sigaltstack's
  std::deque<Sent> pending;
  std::optional<Sent> sampled;          // of a timer that takes samples, when one is due
  const char* handler_stack = nullptr;  // where a handler that deliver_signals() has called begins
  bool leaves = false;                  // main has been asked to leave the program

  Action& action(int signal) {
    std::unique_ptr<Action>& own = actions[static_cast<std::size_t>(signal)];
    if (own == nullptr) own = std::make_unique<Action>();
    return *own;
  }
  /// Null: none was ever set.
  [[nodiscard]] const Action* find(int signal) const noexcept {
    return actions[static_cast<std::size_t>(signal)].get();
  }
};

namespace {

// Threads of one program may come at once. One lock for all instances, never held while code of a program runs.
std::mutex tables_mutex;

bool is_signal(int signal) noexcept { return signal > 0 && signal < NSIG; }

bool has_handler(const Action& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 || (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

std::string name_of(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

[[noreturn]] void end_by(Instance& instance, int signal) {
  constexpr const char* refused =
      "the program wrote {} ({}, which it neither handles nor ignores); that ends the machine";
  if (signal == SIGPIPE)
    fail_instance(instance, 128 + signal, fmt::format(refused, "to a pipe or socket that has no reader", "SIGPIPE"));
  if (signal == SIGXFSZ)
    fail_instance(instance, 128 + signal, fmt::format(refused, "beyond the limit of ulimit -f", "SIGXFSZ"));
  fail_instance(instance, 128 + signal,
                fmt::format("the program sent itself {}, which it has no handler for; that ends the machine (exit() "
                            "would end this cell alone)",
                            name_of(signal)));
}

void default_action(Instance& instance, int signal) {
  switch (signal) {
    case SIGCHLD:
    case SIGURG:
    case SIGWINCH:
    case SIGCONT:
      return;
    case SIGSTOP:
    case SIGTSTP:
    case SIGTTIN:
    case SIGTTOU:
    case SIGTRAP:  // a debugger's business
      ::raise(signal);
      return;
    default:
      end_by(instance, signal);
  }
}

void call(Instance& instance, int signal, siginfo_t* info, void* context, const Action& action) {
  TaskContext::HandlersRun& run = here()->handlers_run;
  ++run.all;
  if ((action.sa_flags & SA_RESTART) == 0) ++run.without_restart;
  if ((action.sa_flags & static_cast<int>(SA_RESETHAND)) != 0) {
    const Action none{};
    static_cast<void>(change_action(instance, signal, &none, nullptr));
  }
  if ((action.sa_flags & SA_SIGINFO) != 0) {
    action.sa_sigaction(signal, info, context);
  } else {
    action.sa_handler(signal);
  }
}

Action action_of(Instance& instance, int signal) {
  const std::lock_guard lock(tables_mutex);
  const SignalTable* table = instance.libc().signals.part;
  const Action* action = table != nullptr ? table->find(signal) : nullptr;
  return action != nullptr ? *action : Action{};
}

siginfo_t info_of(Instance& instance, const Sent& sent) {
  siginfo_t info{};
  info.si_signo = sent.signal;
  info.si_code = sent.code;
  info.si_pid = sent.sender != 0 ? sent.sender : pid_of(instance);
  info.si_uid = getuid();
  info.si_value = sent.value;
  return info;
}

void act(Instance& instance, const Sent& sent, void* interrupted = nullptr) {
  if (sent.signal == 0) {
    here()->thread_exits.clear();  // a process destroys those of the thread that calls exit()
    instance.leave(sent.value.sival_int, sent.code != 0);
  }
  const Action action = action_of(instance, sent.signal);
  if (!has_handler(action)) {
    if (action.sa_handler == SIG_DFL) default_action(instance, sent.signal);
    return;
  }
  siginfo_t info{};
  if ((action.sa_flags & SA_SIGINFO) != 0) info = info_of(instance, sent);
  ucontext_t context;
  getcontext(&context);
  call(instance, sent.signal, &info, interrupted != nullptr ? interrupted : &context, action);
}

/// Takes a pending signal of the calling flow for which `wanted(table, signal)`: the lowest, and of these the first.
template <class Wanted>
std::optional<Sent> take_pending(Instance& instance, Wanted wanted) {
  const std::lock_guard lock(tables_mutex);
  SignalTable* table = instance.libc().signals.part;
  if (table == nullptr) return std::nullopt;
  auto first = table->pending.end();
  for (auto each = table->pending.begin(); each != table->pending.end(); ++each) {
    if (each->to != nullptr && each->to != here()) continue;
    if ((first == table->pending.end() || each->signal < first->signal) && wanted(*table, each->signal)) first = each;
  }
  if (first == table->pending.end()) return std::nullopt;
  const Sent taken = *first;
  table->pending.erase(first);
  return taken;
}

bool is_blocked(const SignalTable& table, int signal, const TaskContext* flow) noexcept {
  const auto blocked = table.blocked.find(flow);
  return blocked != table.blocked.end() && sigismember(&blocked->second, signal) == 1;
}

void deliver_pending(Instance& instance, void* interrupted = nullptr) {
  while (const std::optional<Sent> sent = take_pending(
             instance, [](const SignalTable& table, int signal) { return !is_blocked(table, signal, here()); }))
    act(instance, *sent, interrupted);
}

/// False: the program has closed it, it is full, or it is for other signals.
bool write_to(SignalTable::File& file, const Sent& sent) {
  if (sigismember(&file.signals, sent.signal) != 1) return false;
  signalfd_siginfo info{};
  int unread = 0;
  pollfd room{file.in.get(), POLLOUT, 0};
  if (::ioctl(file.in.get(), FIONREAD, &unread) != 0 || os::poll_now(&room, 1) != 1 || room.revents != POLLOUT)
    return false;
  while (file.unread.size() * sizeof info > static_cast<std::size_t>(unread)) file.unread.pop_front();
  if (sent.signal < SIGRTMIN && std::ranges::find(file.unread, sent.signal) != file.unread.end()) return true;
  info.ssi_signo = static_cast<std::uint32_t>(sent.signal);
  info.ssi_code = sent.code;
  info.ssi_pid = static_cast<std::uint32_t>(sent.sender != 0 ? sent.sender : file.owner);
  info.ssi_uid = getuid();
  info.ssi_status = info.ssi_int = sent.value.sival_int;
  info.ssi_ptr = reinterpret_cast<std::uintptr_t>(sent.value.sival_ptr);
  if (::write(file.in.get(), &info, sizeof info) != sizeof info) return false;
  file.unread.push_back(sent.signal);
  return true;
}

bool write_to_files(SignalTable& table, const Sent& sent) {
  const bool blocked = std::ranges::any_of(table.blocked, [&sent](const auto& each) {
    return (sent.to == nullptr || sent.to == each.first) && sigismember(&each.second, sent.signal) == 1;
  });
  return blocked && std::ranges::any_of(table.files, [&sent](SignalTable::File& file) { return write_to(file, sent); });
}

/// Of the real-time ones all are kept, of the others one.
void post(SignalTable& table, const Sent& sent) {
  if (!table.files.empty() && write_to_files(table, sent)) return;
  const bool is_there = sent.signal < SIGRTMIN && std::ranges::any_of(table.pending, [&sent](const Sent& each) {
                          return each.signal == sent.signal && each.to == sent.to;
                        });
  if (!is_there) table.pending.push_back(sent);
}

bool is_deliverable(const SignalTable& table, const Sent& sent, const TaskContext* flow) noexcept {
  return (sent.to == nullptr || sent.to == flow) && !is_blocked(table, sent.signal, flow);
}

/// For `flow`.
bool has_undelivered(const SignalTable& table, const TaskContext* flow) noexcept {
  return std::ranges::any_of(table.pending, [&](const Sent& sent) { return is_deliverable(table, sent, flow); });
}

/// What the program waits for goes on after the signal's handler.
bool restarts(const SignalTable& table, int signal) noexcept {
  const Action* const action = table.find(signal);
  return action == nullptr || (action->sa_flags & SA_RESTART) != 0;
}

/// What the program has set the stack of a handler to.
void set_handler_stack(Instance& instance, const char* stack) noexcept {
  const std::lock_guard lock(tables_mutex);
  if (SignalTable* table = instance.libc().signals.part) table->handler_stack = stack;
}

// A handler may have switched tasks, and the cell may have moved: what the kernel restores must be this thread's.
void restore_here(void* context) noexcept {
  stack_t own{};
  if (sigaltstack(nullptr, &own) == 0) static_cast<ucontext_t*>(context)->uc_stack = own;
}

// On the stack of the program.
void run_pending_handlers(int /*signal*/, siginfo_t* /*info*/, void* context) {
  Instance& instance = *here()->instance;
  const int saved_errno = errno_now();
  set_handler_stack(instance, static_cast<const char*>(__builtin_frame_address(0)));
  deliver_pending(instance, context);
  set_handler_stack(instance, nullptr);
  failed(saved_errno);
  restore_here(context);
}

// On the stack of the code that faulted, by call_on_interrupted_stack.
void run_fault_handler(int signal, siginfo_t* info, void* context) {
  Instance& instance = *here()->instance;
  call(instance, signal, info, context, action_of(instance, signal));
  if (signal == SIGABRT) {  // a library called abort(), which now ends the process
    const std::string text =
        fmt::format("aplib: {}: abort() was called by a library; the program's handler of SIGABRT has returned\n",
                    here()->instance->services().name());
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  }
  restore_here(context);
}

}  // namespace

bool deliver_fault(int signal, const siginfo_t& info, void* context, const char* stack_low) noexcept {
  const TaskContext* flow = here();
  if (flow == nullptr || !is_signal(signal)) return false;
  // Caused by an instruction; or by abort() in a library, which sends it to its own thread.
  const bool own = info.si_code > 0 || (signal == SIGABRT && info.si_code == SI_TKILL);
  const SignalTable* table = flow->instance->libc().signals.part;
  const Action* action = table != nullptr ? table->find(signal) : nullptr;
  if (!own || action == nullptr || !has_handler(*action)) return false;
  return arch::call_on_interrupted_stack(signal, info, context, run_fault_handler, stack_low);
}

namespace {

// On the stack of the code that wrote.
void act_on_refusal(int signal, siginfo_t* /*info*/, void* context) {
  const int saved_errno = errno_now();
  send_signal(*here()->instance, signal, SI_TKILL);
  failed(saved_errno);
  restore_here(context);
}

}  // namespace

bool deliver_refusal(int signal, bool ignores, const siginfo_t& info, void* context, const char* stack_low) noexcept {
  const TaskContext* const flow = here();
  if (flow == nullptr) return false;
  const SignalTable* const table = flow->instance->libc().signals.part;
  const Action* const action = table != nullptr ? table->find(signal) : nullptr;
  const bool is_default = action == nullptr || (!has_handler(*action) && action->sa_handler == SIG_DFL);
  if (action == nullptr && ignores) return false;
  pollfd output{STDOUT_FILENO, 0, 0};
  if (is_default && os::poll_now(&output, 1) == 1 && (output.revents & POLLERR) != 0) return false;
  return arch::call_on_interrupted_stack(signal, info, context, act_on_refusal, stack_low);
}

// A handler that the program has left by longjmp does not end: then the stack is above it.
bool deliver_signals(const char* stack, int signal, const siginfo_t& info, void* context,
                     const char* stack_low) noexcept {
  TaskContext* const flow = here();
  if (flow == nullptr) return false;
  {
    const std::lock_guard lock(tables_mutex);
    SignalTable* const table = flow->instance->libc().signals.part;
    if (table == nullptr || (table->handler_stack != nullptr && stack < table->handler_stack)) return false;
    if (table->sampled) post(*table, *std::exchange(table->sampled, std::nullopt));
    if (!has_undelivered(*table, flow)) return false;
    const bool breaks_off = std::ranges::any_of(table->pending, [&](const Sent& sent) {
      return is_deliverable(*table, sent, flow) && !restarts(*table, sent.signal);
    });
    if (breaks_off) arch::break_off_wait(context);
  }
  return arch::call_on_interrupted_stack(signal, info, context, run_pending_handlers, stack_low);
}

bool post_signal(Instance& instance, int signal, int code, sigval value, pid_t sender, bool by_default) {
  {
    const std::lock_guard lock(tables_mutex);
    SignalTable& table = instance.libc().signals.get();
    const Action* const action = table.find(signal);
    const bool blocked = std::ranges::any_of(
        table.blocked, [signal](const auto& each) { return sigismember(&each.second, signal) == 1; });
    if (blocked || (action != nullptr && has_handler(*action))) {
      post(table, {signal, code, value, sender});
      return true;
    }
    if (action != nullptr && action->sa_handler == SIG_IGN) return false;
  }
  if (by_default) default_action(instance, signal);
  return false;
}

bool disowns_children(Instance& instance) noexcept {
  const std::lock_guard lock(tables_mutex);
  const SignalTable* const table = instance.libc().signals.part;
  const Action* const action = table != nullptr ? table->find(SIGCHLD) : nullptr;
  if (action == nullptr) return false;
  return (action->sa_flags & SA_NOCLDWAIT) != 0 || (!has_handler(*action) && action->sa_handler == SIG_IGN);
}

std::vector<int> ignored_signals(Instance& instance) {
  std::vector<int> ignored;
  const std::lock_guard lock(tables_mutex);
  const SignalTable* const table = instance.libc().signals.part;
  for (int signal = 1; table != nullptr && signal < NSIG; ++signal) {
    const Action* const action = table->find(signal);
    if (action != nullptr && !has_handler(*action) && action->sa_handler == SIG_IGN) ignored.push_back(signal);
  }
  return ignored;
}

void note_sample(Instance& instance, int signal, int code, sigval value) {
  const std::lock_guard lock(tables_mutex);
  SignalTable& table = instance.libc().signals.get();
  const Action* const action = table.find(signal);
  if (action == nullptr || !has_handler(*action)) return;  // a sample would end the machine at any time
  table.sampled = Sent{signal, code, value};
}

bool has_pending_signals(Instance& instance) noexcept {
  std::ptrdiff_t flows = 0;
  instance.for_each_context([&flows](const TaskContext& flow) { flows += flow.of_pool ? 0 : 1; });
  const std::lock_guard lock(tables_mutex);
  const SignalTable* const table = instance.libc().signals.part;
  return table != nullptr && std::ranges::any_of(table->pending, [&](const Sent& sent) {
           if (sent.to != nullptr) return !is_blocked(*table, sent.signal, sent.to);
           return flows > std::ranges::count_if(table->blocked, [&sent](const auto& each) {
                    return sigismember(&each.second, sent.signal) == 1;
                  });
         });
}

std::optional<bool> signal_restarts(const TaskContext& thread, bool& takes_shared) noexcept {
  const std::lock_guard lock(tables_mutex);
  const SignalTable* const table = thread.instance->libc().signals.part;
  if (table == nullptr) return std::nullopt;
  const auto main = std::ranges::find_if(table->blocked,
                                         [&thread](const auto& each) { return thread.instance->is_main(each.first); });
  std::optional<bool> all_restart;
  bool takes = false;
  for (const Sent& sent : table->pending) {
    if (!is_deliverable(*table, sent, &thread)) continue;
    const bool is_shared = sent.to == nullptr;
    if (is_shared && (!takes_shared || main == table->blocked.end() || sigismember(&main->second, sent.signal) != 1))
      continue;
    takes = takes || is_shared;
    all_restart = all_restart.value_or(true) && restarts(*table, sent.signal);
  }
  takes_shared = takes_shared && !takes;
  return all_restart;
}

bool ask_main_to_leave(Instance& instance, int status, bool runs_handlers) noexcept {
  bool is_there = false;
  try {
    instance.for_each_context([&](TaskContext& context) {
      if (!instance.is_main(&context)) return;
      sigval value{};
      value.sival_int = status;
      is_there = true;
      const std::lock_guard lock(tables_mutex);
      SignalTable& table = instance.libc().signals.get();
      if (!std::exchange(table.leaves, true)) post(table, {0, runs_handlers ? 1 : 0, value, 0, &context});
    });
    return is_there && remind_of_signals(instance);
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool is_main_asked_to_leave(Instance& instance) noexcept {
  const std::lock_guard lock(tables_mutex);
  const SignalTable* const table = instance.libc().signals.part;
  return table != nullptr && std::ranges::any_of(table->pending, [](const Sent& sent) { return sent.signal == 0; });
}

void call_abort_handler(Instance& instance) {
  if (has_handler(action_of(instance, SIGABRT))) act(instance, {SIGABRT, SI_TKILL});
}

void inherit_signal_mask(const TaskContext& from, const TaskContext& to) {
  const std::lock_guard lock(tables_mutex);
  SignalTable* table = from.instance->libc().signals.part;
  if (table == nullptr) return;
  const auto found = table->blocked.find(&from);
  if (found != table->blocked.end()) table->blocked.insert_or_assign(&to, found->second);
}

void forget_signal_mask(const TaskContext& context) noexcept {
  const std::lock_guard lock(tables_mutex);
  SignalTable* const table = context.instance->libc().signals.part;
  if (table == nullptr) return;
  table->blocked.erase(&context);
  table->stacks.erase(&context);
  std::erase_if(table->pending, [&context](const Sent& sent) { return sent.to == &context; });
}

namespace {

/// By the calling flow. Another may take it.
bool post_if_blocked(Instance& instance, const Sent& sent) {
  const std::lock_guard lock(tables_mutex);
  SignalTable* const table = instance.libc().signals.part;
  if (table == nullptr || !is_blocked(*table, sent.signal, here())) return false;
  post(*table, sent);
  return true;
}

}  // namespace

int send_signal(Instance& instance, int signal, int code, sigval value) {
  if (signal == 0) return 0;
  if (!is_signal(signal)) return failed(EINVAL);
  const Sent sent{signal, code, value, 0, code == SI_TKILL ? here() : nullptr};
  const bool is_posted = signal != SIGKILL && signal != SIGSTOP && post_if_blocked(instance, sent);
  if (!is_posted) act(instance, sent);
  if (is_posted && sent.to == nullptr && has_pending_signals(instance) && !remind_of_signals(instance))
    return failed(EAGAIN);
  return 0;
}

int signal_thread(Instance& instance, const ThreadName& thread, int signal, int code, sigval value) {
  if (signal < 0 || signal >= NSIG) return EINVAL;
  bool is_own = false;
  bool is_posted = false;
  bool is_ignored = signal == 0;
  const bool is_there = with_thread(instance, thread, [&](const TaskContext& to) {
    is_own = &to == here();
    if (is_own || signal == 0) return;
    const std::lock_guard lock(tables_mutex);
    SignalTable& table = instance.libc().signals.get();
    const Action* const action = table.find(signal);
    is_posted = is_blocked(table, signal, &to) || (action != nullptr && has_handler(*action));
    if (is_posted) post(table, {signal, code, value, 0, &to});
    is_ignored = action != nullptr && action->sa_handler == SIG_IGN;
  });
  if (!is_there) return ESRCH;
  if (is_own) return send_signal(instance, signal, code, value) == 0 ? 0 : EINVAL;
  if (is_posted) return remind_of_signals(instance) ? 0 : EAGAIN;
  if (!is_ignored) default_action(instance, signal);
  return 0;
}

int signal_process(Instance& instance, pid_t process, int signal, int code, sigval value) {
  if (process == pid_of(instance)) return send_signal(instance, signal, code, value);
  if (signal < 0 || signal >= NSIG) return failed(EINVAL);
  struct Mail {
    Sent sent;
    bool is_fatal = false;
  } mail{{signal, code, value, pid_of(instance)}};
  const bool is_cell = with_instance(
      process,
      [](Instance& other, void* state) {
        auto& [sent, is_fatal] = *static_cast<Mail*>(state);
        const int number = sent.signal;
        if (number == 0) return;
        bool is_posted = false;
        std::unique_lock lock(tables_mutex);
        SignalTable* table = other.libc().signals.part;
        const Action* action = table != nullptr ? table->find(number) : nullptr;
        const bool is_caught = action != nullptr && has_handler(*action);
        const bool is_blocked = table != nullptr && std::ranges::any_of(table->blocked, [number](const auto& flow) {
                                  return sigismember(&flow.second, number) == 1;
                                });
        if (is_caught || is_blocked) {
          post(*table, sent);
          is_posted = true;
        } else {
          is_fatal = (action == nullptr || action->sa_handler == SIG_DFL) && number != SIGCHLD && number != SIGURG &&
                     number != SIGWINCH && number != SIGCONT;
        }
        lock.unlock();
        if (is_posted) remind_of_signals(other);
      },
      &mail);
  if (!is_cell) return code == SI_QUEUE ? ::sigqueue(process, signal, value) : ::kill(process, signal);
  if (mail.is_fatal) {
    fail_instance(
        instance, 128 + signal,
        fmt::format("the program sent {} to process {}, which is another cell and has no handler for it; that "
                    "ends the machine",
                    name_of(signal), process));
  }
  return 0;
}

int change_signal_mask(Instance& instance, int how, const sigset_t* set, sigset_t* old) {
  {
    const std::lock_guard lock(tables_mutex);
    sigset_t& blocked = instance.libc().signals.get().blocked[here()];
    if (old != nullptr) *old = blocked;
    if (set == nullptr) return 0;
    switch (how) {
      case SIG_BLOCK:
        sigorset(&blocked, &blocked, set);
        break;
      case SIG_UNBLOCK:
        for (int signal = 1; signal < NSIG; ++signal) {
          if (sigismember(set, signal) == 1) sigdelset(&blocked, signal);
        }
        break;
      case SIG_SETMASK:
        blocked = *set;
        break;
      default:
        return EINVAL;
    }
    sigdelset(&blocked, SIGKILL);
    sigdelset(&blocked, SIGSTOP);
  }
  deliver_pending(instance);
  return 0;
}

sigset_t pending_signals(Instance& instance) noexcept {
  const std::lock_guard lock(tables_mutex);
  sigset_t set;
  sigemptyset(&set);
  if (const SignalTable* table = instance.libc().signals.part) {
    for (const Sent& sent : table->pending) {
      if (sent.to == nullptr || sent.to == here()) sigaddset(&set, sent.signal);
    }
  }
  return set;
}

void deliver_pending_signals(Instance& instance) { deliver_pending(instance); }
void deliver_signals_here(Instance& instance, void* interrupted) { deliver_pending(instance, interrupted); }

unsigned long handlers_run(EndedBy which) noexcept {
  const TaskContext* const flow = here();
  if (flow == nullptr || which == EndedBy::nothing) return 0;
  return which == EndedBy::all ? flow->handlers_run.all : flow->handlers_run.without_restart;
}

int change_action(Instance& instance, int signal, const Action* action, Action* old) {
  if (!is_signal(signal) || ((signal == SIGKILL || signal == SIGSTOP) && action != nullptr)) return failed(EINVAL);
  if (action != nullptr) note_outside_signal(instance, signal, action->sa_handler != SIG_DFL);
  const std::lock_guard lock(tables_mutex);
  SignalTable& table = instance.libc().signals.get();
  const Action* const there = table.find(signal);
  const Action before = there != nullptr ? *there : Action{};
  if (action != nullptr) table.action(signal) = *action;
  if (old != nullptr) *old = before;
  return 0;
}

namespace {

using Handler = void (*)(int);

/// Null: no instance calls, and the process's own action is meant.
int action_of(Instance* instance, int signal, const Action* action, Action* old) {
  return instance != nullptr ? change_action(*instance, signal, action, old) : ::sigaction(signal, action, old);
}

int bound_sigaction(int signal, const Action* action, Action* old) {
  return action_of(calling(__builtin_return_address(0)), signal, action, old);
}

Handler set_handler(Instance* instance, int signal, Handler handler, int flags) {
  Action action{};
  action.sa_handler = handler;
  action.sa_flags = flags;
  Action old{};
  return action_of(instance, signal, &action, &old) == 0 ? old.sa_handler : SIG_ERR;
}

Handler bound_signal(int signal, Handler handler) {
  return set_handler(calling(__builtin_return_address(0)), signal, handler, SA_RESTART);
}

Handler bound_sysv_signal(int signal, Handler handler) {
  return set_handler(calling(__builtin_return_address(0)), signal, handler,
                     static_cast<int>(SA_RESETHAND) | SA_NODEFER);
}

int bound_raise(int signal) {
  Instance* instance = calling(__builtin_return_address(0));
  return instance != nullptr ? send_signal(*instance, signal, SI_TKILL) : ::raise(signal);
}

int own_sigqueue(Instance& instance, pid_t process, int signal, sigval value) {
  return signal_process(instance, process, signal, SI_QUEUE, value);
}

int own_pthread_kill(Instance& instance, pthread_t thread, int signal) {
  return signal_thread(instance, {thread, 0}, signal, SI_TKILL, {});
}

int own_pthread_sigqueue(Instance& instance, pthread_t thread, int signal, sigval value) {
  return signal_thread(instance, {thread, 0}, signal, SI_QUEUE, value);
}

int bound_siginterrupt(int signal, int flag) {
  Instance* instance = calling(__builtin_return_address(0));
  Action action{};
  if (!is_signal(signal) || action_of(instance, signal, nullptr, &action) != 0) return failed(EINVAL);
  action.sa_flags = flag != 0 ? action.sa_flags & ~SA_RESTART : action.sa_flags | SA_RESTART;
  return action_of(instance, signal, &action, nullptr);
}

void take_into_files(SignalTable& table) {
  std::erase_if(table.pending, [&table](const Sent& sent) { return write_to_files(table, sent); });
}

int bound_signalfd(int descriptor, const sigset_t* signals, int flags) {
  Instance* const instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::signalfd(descriptor, signals, flags);
  note_awaited_signals(*instance, *signals);
  const pid_t owner = pid_of(*instance);
  struct stat64 status {};
  if (descriptor != -1) {
    if (::fstat64(redirected(*instance, descriptor), &status) != 0) return -1;
    const std::lock_guard lock(tables_mutex);
    SignalTable& table = instance->libc().signals.get();
    const auto file = std::ranges::find(table.files, status.st_ino, &SignalTable::File::inode);
    if (file == table.files.end()) return failed(EINVAL);
    file->signals = *signals;
    take_into_files(table);
    return descriptor;
  }
  int ends[2] = {-1, -1};
  if ((flags & ~(SFD_CLOEXEC | SFD_NONBLOCK)) != 0) return failed(EINVAL);
  if (::pipe2(ends, flags) != 0) return -1;
  os::GuardedFd in(::fcntl(ends[1], F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  ::close(ends[1]);
  if (!in || ::fcntl(in.get(), F_SETFL, O_NONBLOCK) != 0 || ::fstat64(in.get(), &status) != 0) {
    ::close(ends[0]);
    return failed(EMFILE);
  }
  {
    const std::lock_guard lock(tables_mutex);
    SignalTable& table = instance->libc().signals.get();
    std::erase_if(table.files, [](const SignalTable::File& file) {  // those that the program has closed
      pollfd room{file.in.get(), POLLOUT, 0};
      return os::poll_now(&room, 1) == 1 && (room.revents & POLLERR) != 0;
    });
    table.files.push_back({std::move(in), status.st_ino, *signals, owner, {}});
    take_into_files(table);
  }
  return note_lowest(instance, ends[0]);
}

// A task's signals are taken on the processor's signal stack and handed over to its own: what the program sets is told
// back, no more.
int own_sigaltstack(Instance& instance, const stack_t* stack, stack_t* old) {
  constexpr int flags = static_cast<int>(SS_DISABLE | (1U << 31U));  // the last is Linux's SS_AUTODISARM
  if (stack != nullptr && (stack->ss_flags & ~(flags | SS_ONSTACK)) != 0) return failed(EINVAL);
  const bool is_one = stack != nullptr && (stack->ss_flags & SS_DISABLE) == 0;
  if (is_one && stack->ss_size < static_cast<std::size_t>(::sysconf(_SC_MINSIGSTKSZ))) return failed(ENOMEM);
  const std::lock_guard lock(tables_mutex);
  std::map<const TaskContext*, stack_t>& stacks = instance.libc().signals.get().stacks;
  const auto found = stacks.find(here());
  if (old != nullptr) *old = found != stacks.end() ? found->second : stack_t{nullptr, SS_DISABLE, 0};
  if (is_one) {
    stacks.insert_or_assign(here(), stack_t{stack->ss_sp, stack->ss_flags & ~SS_ONSTACK, stack->ss_size});
  } else if (stack != nullptr && found != stacks.end()) {
    stacks.erase(found);
  }
  return 0;
}

}  // namespace

std::span<const Binding> signals_bindings() {
  static const Binding table[] = {
      Binding::of("sigaction", bound_sigaction),
      Binding::of("__sigaction", bound_sigaction),
      Binding::of("signal", bound_signal),
      Binding::of("bsd_signal", bound_signal),
      Binding::of("ssignal", bound_signal),
      Binding::of("sysv_signal", bound_sysv_signal),
      Binding::of("__sysv_signal", bound_sysv_signal),
      Binding::of("raise", bound_raise),
      Binding::of("gsignal", bound_raise),
      bound<::sigqueue, own_sigqueue>("sigqueue"),
      bound<::pthread_kill, own_pthread_kill>("pthread_kill"),
      bound<::pthread_sigqueue, own_pthread_sigqueue>("pthread_sigqueue"),
      Binding::of("siginterrupt", bound_siginterrupt),
      bound<::sigaltstack, own_sigaltstack>("sigaltstack"),
      Binding::of("signalfd", bound_signalfd),
  };
  return table;
}

// ---------------------------------------------------------------- masks
// Blocked and awaited signals. Each flow of an instance has a mask, for the signals that the program sends to itself;
// the kernel's masks, which belong to threads that carry many cells, stay as they are.

namespace {

using Clock = std::chrono::steady_clock;

/// Lets others run until `arrived()`, which only they can bring about. False: `deadline` is over.
template <class Arrived>
bool wait_until(Instance& instance, const char* function, std::optional<Clock::time_point> deadline, Arrived arrived) {
  if (arrived()) return true;
  if (!deadline && !next_timer(instance) && !may_be_signalled(instance)) {
    if (arrived()) return true;  // from a child that has just ended
    instance.services().warn(fmt::format(
        "{}() waits for a signal that only another task, thread or child of the program can send (raise, or "
        "kill of its own process): from outside, only SIGUSR1, SIGUSR2 and SIGTERM come",
        function));
  }
  // There is nothing that could wake it: raise() of another flow leaves only a mark.
  constexpr auto first_look = std::chrono::microseconds(50);
  constexpr auto last_look = std::chrono::milliseconds(5);
  std::chrono::nanoseconds pause = first_look;
  while (!arrived()) {
    if (deadline && Clock::now() >= *deadline) return false;
    const ErrnoKept kept;
    instance.services().sleep(pause);
    expire_timers(instance);
    pause = std::min<std::chrono::nanoseconds>(pause * 2, last_look);
  }
  return true;
}

std::optional<Sent> wait_for_one_of(Instance& instance, const char* function, const sigset_t& set,
                                    std::optional<Clock::time_point> deadline) {
  std::optional<Sent> found;
  note_awaited_signals(instance, set);
  const auto is_in = [&set](const SignalTable&, int signal) { return sigismember(&set, signal) == 1; };
  wait_until(instance, function, deadline, [&] { return (found = take_pending(instance, is_in)).has_value(); });
  return found;
}

int wait_for_handler(Instance& instance, const char* function) {
  const unsigned long before = handlers_run(EndedBy::all);
  wait_until(instance, function, std::nullopt, [&] {
    deliver_pending(instance);  // another cell may have sent it
    return handlers_run(EndedBy::all) != before;
  });
  return failed(EINTR);
}

int bound_sigprocmask(Instance& instance, int how, const sigset_t* set, sigset_t* old) {
  const int error = change_signal_mask(instance, how, set, old);
  return error == 0 ? 0 : failed(error);
}

int bound_sigpending(Instance& instance, sigset_t* set) {
  sigset_t blocked;
  change_signal_mask(instance, SIG_BLOCK, nullptr, &blocked);
  note_awaited_signals(instance, blocked);
  *set = pending_signals(instance);
  return 0;
}

int bound_pause() {
  Instance* instance = calling(__builtin_return_address(0));
  return instance != nullptr ? wait_for_handler(*instance, "pause") : ::pause();
}

}  // namespace

int suspend_with(Instance& instance, const sigset_t* mask) {
  sigset_t own;
  const unsigned long before = handlers_run(EndedBy::all);
  change_signal_mask(instance, SIG_SETMASK, mask, &own);  // may deliver what has waited
  wait_until(instance, "sigsuspend", std::nullopt, [&] {
    deliver_pending(instance);
    return handlers_run(EndedBy::all) != before;
  });
  change_signal_mask(instance, SIG_SETMASK, &own, nullptr);
  return failed(EINTR);
}

namespace {

int bound_sigwait(Instance& instance, const sigset_t* set, int* signal) {
  *signal = wait_for_one_of(instance, "sigwait", *set, std::nullopt)->signal;
  return 0;
}

int give_info(Instance& instance, const Sent& sent, siginfo_t* info) {
  if (info != nullptr) *info = info_of(instance, sent);
  return sent.signal;
}

int bound_sigwaitinfo(Instance& instance, const sigset_t* set, siginfo_t* info) {
  return give_info(instance, *wait_for_one_of(instance, "sigwaitinfo", *set, std::nullopt), info);
}

int bound_sigtimedwait(Instance& instance, const sigset_t* set, siginfo_t* info, const timespec* timeout) {
  std::optional<Clock::time_point> deadline;
  if (timeout != nullptr) {
    deadline = Clock::now() + std::chrono::seconds(timeout->tv_sec) + std::chrono::nanoseconds(timeout->tv_nsec);
  }
  const std::optional<Sent> sent = wait_for_one_of(instance, "sigtimedwait", *set, deadline);
  return sent ? give_info(instance, *sent, info) : failed(EAGAIN);
}

}  // namespace

std::span<const Binding> signal_masks_bindings() {
  static const Binding table[] = {
      bound<::pthread_sigmask, change_signal_mask>("pthread_sigmask"),
      bound<::sigprocmask, bound_sigprocmask>("sigprocmask"),
      bound<::sigpending, bound_sigpending>("sigpending"),
      Binding::of("pause", bound_pause),
      bound<::sigsuspend, suspend_with>("sigsuspend"),
      bound<::sigwait, bound_sigwait>("sigwait"),
      bound<::sigwaitinfo, bound_sigwaitinfo>("sigwaitinfo"),
      bound<::sigtimedwait, bound_sigtimedwait>("sigtimedwait"),
  };
  return table;
}

}  // namespace aplib::loader::libc
