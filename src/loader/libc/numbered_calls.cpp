// SPDX-License-Identifier: MIT
// syscall(): a call of the system by its number, which programs make where libc has no function for it, or had none for
// long. What libc has a function for does here what that function does in a cell. Others are the system's, with the
// instance's descriptors.
//
// No function of libc comes this way, nor does a program whose own instructions call the system.
#include <fmt/format.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>

#include "loader/context.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/end.hpp"
#include "loader/libc/signals.hpp"
#include "loader/libc/state.hpp"
#include "loader/libc/streams.hpp"
#include "loader/libc/waiting.hpp"

namespace aplib::loader::libc {

namespace {

using Words = std::array<long, 6>;

/// Calls that take and give what libc's functions do.
struct SameCall {
  long number;
  std::string_view function;
};
constexpr SameCall giving_int[] = {
    {SYS_accept, "accept"},
    {SYS_accept4, "accept4"},
    {SYS_alarm, "alarm"},
    {SYS_bind, "bind"},
    {SYS_chdir, "chdir"},
    {SYS_chroot, "chroot"},
    {SYS_clone, "clone"},
    {SYS_clone3, "clone"},
    {SYS_close, "close"},
    {SYS_close_range, "close_range"},
    {SYS_connect, "connect"},
    {SYS_creat, "creat"},
    {SYS_dup, "dup"},
    {SYS_dup2, "dup2"},
    {SYS_dup3, "dup3"},
    {SYS_epoll_create1, "epoll_create1"},
    {SYS_epoll_ctl, "epoll_ctl"},
    {SYS_epoll_wait, "epoll_wait"},
    {SYS_eventfd2, "eventfd"},
    {SYS_execve, "execve"},
    {SYS_execveat, "execveat"},
    {SYS_exit_group, "_exit"},
    {SYS_fchdir, "fchdir"},
    {SYS_fchmod, "fchmod"},
    {SYS_fchown, "fchown"},
    {SYS_fcntl, "fcntl"},
    {SYS_fdatasync, "fdatasync"},
    {SYS_flock, "flock"},
    {SYS_fork, "fork"},
    {SYS_fstat, "fstat"},
    {SYS_fsync, "fsync"},
    {SYS_ftruncate, "ftruncate"},
    {SYS_getitimer, "getitimer"},
    {SYS_getpgid, "getpgid"},
    {SYS_getpgrp, "getpgrp"},
    {SYS_getpid, "getpid"},
    {SYS_getppid, "getppid"},
    {SYS_getrlimit, "getrlimit"},
    {SYS_getrusage, "getrusage"},
    {SYS_getsid, "getsid"},
    {SYS_gettid, "gettid"},
    {SYS_inotify_init1, "inotify_init1"},
    {SYS_ioctl, "ioctl"},
    {SYS_kill, "kill"},
    {SYS_listen, "listen"},
    {SYS_madvise, "madvise"},
    {SYS_memfd_create, "memfd_create"},
    {SYS_mq_timedsend, "mq_timedsend"},
    {SYS_msgsnd, "msgsnd"},
    {SYS_mprotect, "mprotect"},
    {SYS_munmap, "munmap"},
    {SYS_nanosleep, "nanosleep"},
    {SYS_open, "open"},
    {SYS_openat, "openat"},
    {SYS_pause, "pause"},
    {SYS_personality, "personality"},
    {SYS_pipe, "pipe"},
    {SYS_pipe2, "pipe2"},
    {SYS_poll, "poll"},
    {SYS_prctl, "prctl"},
    {SYS_prlimit64, "prlimit64"},
    {SYS_recvmmsg, "recvmmsg"},
    {SYS_select, "select"},
    {SYS_semctl, "semctl"},
    {SYS_semop, "semop"},
    {SYS_semtimedop, "semtimedop"},
    {SYS_sendmmsg, "sendmmsg"},
    {SYS_setfsgid, "setfsgid"},
    {SYS_setfsuid, "setfsuid"},
    {SYS_setgid, "setgid"},
    {SYS_setgroups, "setgroups"},
    {SYS_setitimer, "setitimer"},
    {SYS_setns, "setns"},
    {SYS_setpgid, "setpgid"},
    {SYS_setpriority, "setpriority"},
    {SYS_setregid, "setregid"},
    {SYS_setresgid, "setresgid"},
    {SYS_setresuid, "setresuid"},
    {SYS_setreuid, "setreuid"},
    {SYS_setrlimit, "setrlimit"},
    {SYS_setsid, "setsid"},
    {SYS_setuid, "setuid"},
    {SYS_shmdt, "shmdt"},
    {SYS_shutdown, "shutdown"},
    {SYS_sigaltstack, "sigaltstack"},
    {SYS_sched_setaffinity, "sched_setaffinity"},
    {SYS_sched_setparam, "sched_setparam"},
    {SYS_sched_setscheduler, "sched_setscheduler"},
    {SYS_sched_yield, "sched_yield"},
    {SYS_socket, "socket"},
    {SYS_socketpair, "socketpair"},
    {SYS_tgkill, "tgkill"},
    {SYS_timerfd_create, "timerfd_create"},
    {SYS_umask, "umask"},
    {SYS_unshare, "unshare"},
    {SYS_vfork, "vfork"},
    {SYS_wait4, "wait4"},
};
constexpr SameCall giving_long[] = {
    {SYS_copy_file_range, "copy_file_range"},
    {SYS_lseek, "lseek"},
    {SYS_mmap, "mmap"},
    {SYS_mremap, "mremap"},
    {SYS_mq_timedreceive, "mq_timedreceive"},
    {SYS_msgrcv, "msgrcv"},
    {SYS_pread64, "pread64"},
    {SYS_preadv, "preadv"},
    {SYS_pwrite64, "pwrite64"},
    {SYS_pwritev, "pwritev"},
    {SYS_read, "read"},
    {SYS_readlink, "readlink"},
    {SYS_readv, "readv"},
    {SYS_recvfrom, "recvfrom"},
    {SYS_recvmsg, "recvmsg"},
    {SYS_sendfile, "sendfile"},
    {SYS_sendmsg, "sendmsg"},
    {SYS_sendto, "sendto"},
    {SYS_shmat, "shmat"},
    {SYS_splice, "splice"},
    {SYS_tee, "tee"},
    {SYS_times, "times"},
    {SYS_vmsplice, "vmsplice"},
    {SYS_write, "write"},
    {SYS_writev, "writev"},
};

/// What would be so for the thread that carries the cell, or for all cells.
constexpr SameCall refused[] = {
    {SYS_capset, "capset"},
    {SYS_landlock_restrict_self, "landlock_restrict_self"},
    {SYS_pivot_root, "pivot_root"},
    {SYS_seccomp, "seccomp"},
    {SYS_set_robust_list, "set_robust_list"},
    {SYS_timer_create, "timer_create by number"},
};

/// The thread whose scheduling is meant is the one that carries the cell.
bool means_carrier(Instance& instance, pid_t process) {
  return process == 0 ? !on_program_thread() : process == pid_of(instance);
}

int refuse_change(Instance& instance, std::string_view call) {
  instance.services().warn(fmt::format(
      "{} is refused (EPERM): it would be so for other cells of the process, too; run the program with --processes",
      call));
  return failed(EPERM);
}

/// Calls of which libc has no function that is bound: what opens a descriptor.
bool opens_descriptor(long number) noexcept {
  constexpr std::array opening{SYS_openat2,        SYS_eventfd,          SYS_epoll_create, SYS_inotify_init,
                               SYS_pidfd_open,     SYS_pidfd_getfd,      SYS_userfaultfd,  SYS_perf_event_open,
                               SYS_io_uring_setup, SYS_open_by_handle_at};
  return std::ranges::find(opening, number) != opening.end();
}

/// And what begins with one.
bool takes_descriptor(long number) noexcept {
  constexpr std::array taking{SYS_fallocate,       SYS_openat2,          SYS_statx,           SYS_getdents,
                              SYS_getdents64,      SYS_newfstatat,       SYS_fstatfs,         SYS_fadvise64,
                              SYS_readahead,       SYS_syncfs,           SYS_sync_file_range, SYS_getsockopt,
                              SYS_setsockopt,      SYS_getsockname,      SYS_getpeername,     SYS_timerfd_settime,
                              SYS_timerfd_gettime, SYS_inotify_add_watch};
  return std::ranges::find(taking, number) != taking.end();
}

/// The function of that name that programs get, as one that takes words; an int that it gives is the lower half of the
/// result. Null: libc's own.
using Function6 = long (*)(long, long, long, long, long, long);
Function6 function_of(std::string_view name) {
  const Binding* const binding = find_binding(name);
  return binding != nullptr ? reinterpret_cast<Function6>(const_cast<void*>(binding->function)) : nullptr;
}

long call_with(Function6 function, const Words& words) {
  return function(words[0], words[1], words[2], words[3], words[4], words[5]);
}

/// False: libc has no function for it, or its own is used.
template <class Calls>
bool call_same(const Calls& calls, long number, const Words& words, long& result) {
  const auto found = std::ranges::find(calls, number, &SameCall::number);
  const Function6 function = found != std::end(calls) ? function_of(found->function) : nullptr;
  if (function == nullptr) return false;
  result = call_with(function, words);
  return true;
}

// --- signals, whose sets and actions the system has in another form than libc

constexpr long system_set_bytes = 8;

/// Null: none is given.
sigset_t* read_set(long place, sigset_t& room) noexcept {
  if (place == 0) return nullptr;
  sigemptyset(&room);
  std::memcpy(&room, reinterpret_cast<const void*>(place), system_set_bytes);  // NOLINT: the program's
  return &room;
}
void write_set(const sigset_t& set, long place) noexcept {
  if (place != 0) std::memcpy(reinterpret_cast<void*>(place), &set, system_set_bytes);  // NOLINT: the program's
}

struct SystemAction {
  void (*handler)(int);
  unsigned long flags;
  void (*restorer)();
  unsigned long mask;
};

long set_action(Instance& instance, const Words& words) {
  constexpr unsigned long has_restorer = 0x04000000;
  const auto* const given = reinterpret_cast<const SystemAction*>(words[1]);  // NOLINT: the program's
  auto* const before = reinterpret_cast<SystemAction*>(words[2]);             // NOLINT: the program's
  struct sigaction action {};
  struct sigaction old {};
  if (given != nullptr) {
    action.sa_handler = given->handler;
    action.sa_flags = static_cast<int>(given->flags & ~has_restorer);
    std::memcpy(&action.sa_mask, &given->mask, sizeof given->mask);
  }
  if (change_action(instance, static_cast<int>(words[0]), given != nullptr ? &action : nullptr, &old) != 0) return -1;
  if (before != nullptr) {
    *before = {old.sa_handler, static_cast<unsigned long>(static_cast<unsigned>(old.sa_flags)), nullptr, 0};
    std::memcpy(&before->mask, &old.sa_mask, sizeof before->mask);
  }
  return 0;
}

long change_mask(Instance& instance, const Words& words) {
  sigset_t set;
  sigset_t old;
  change_signal_mask(instance, SIG_BLOCK, nullptr, &old);
  write_set(old, words[2]);  // before handlers, which may leave by longjmp
  const int error = change_signal_mask(instance, static_cast<int>(words[0]), read_set(words[1], set), nullptr);
  return error == 0 ? 0 : failed(error);
}

/// Which of the words has the size of a set in a call about signals; -1: it is none.
int place_of_set_size(long number) noexcept {
  switch (number) {
    case SYS_rt_sigaction:
    case SYS_rt_sigprocmask:
    case SYS_rt_sigtimedwait:
      return 3;
    case SYS_rt_sigpending:
    case SYS_rt_sigsuspend:
      return 1;
    case SYS_signalfd4:
      return 2;
    default:
      return -1;
  }
}

/// Nothing: not such a call.
std::optional<long> call_about_signals(Instance& instance, long number, const Words& words) {
  const int size_place = place_of_set_size(number);
  if (size_place >= 0 && words[static_cast<std::size_t>(size_place)] != system_set_bytes) return failed(EINVAL);
  sigset_t set;
  const auto* const info = reinterpret_cast<const siginfo_t*>(number == SYS_rt_tgsigqueueinfo ? words[3] : words[2]);
  switch (number) {
    case SYS_rt_sigaction:
      return set_action(instance, words);
    case SYS_rt_sigprocmask:
      return change_mask(instance, words);
    case SYS_rt_sigpending:
      write_set(pending_signals(instance), words[0]);
      return 0;
    case SYS_rt_sigsuspend:
      return words[0] != 0 ? suspend_with(instance, read_set(words[0], set)) : failed(EFAULT);
    case SYS_rt_sigtimedwait:
      if (words[0] == 0) return failed(EFAULT);
      return static_cast<int>(call_with(function_of("sigtimedwait"),
                                        {reinterpret_cast<long>(read_set(words[0], set)), words[1], words[2]}));
    case SYS_signalfd4:
      if (words[1] == 0) return failed(EINVAL);
      return static_cast<int>(
          call_with(function_of("signalfd"), {words[0], reinterpret_cast<long>(read_set(words[1], set)), words[3]}));
    case SYS_rt_sigqueueinfo:
      if (info == nullptr) return failed(EFAULT);
      return signal_process(instance, static_cast<pid_t>(words[0]), static_cast<int>(words[1]), info->si_code,
                            info->si_value);
    case SYS_rt_tgsigqueueinfo: {
      if (info == nullptr || words[0] != pid_of(instance)) return failed(info == nullptr ? EFAULT : EPERM);
      const int error = signal_thread(instance, {{}, static_cast<pid_t>(words[1])}, static_cast<int>(words[2]),
                                      info->si_code, info->si_value);
      return error == 0 ? 0 : failed(error);
    }
    default:
      return std::nullopt;
  }
}

/// Waits with a mask. Nothing: none of these.
std::optional<long> wait_with_mask(long number, Words words) {
  struct MaskOfSix {
    long set;
    long bytes;
  };
  sigset_t set;
  std::string_view function;
  std::size_t place = 4;
  switch (number) {
    case SYS_ppoll:
      function = "ppoll";
      place = 3;
      break;
    case SYS_pselect6:
      function = "pselect";
      place = 5;
      if (words[5] != 0) words[5] = reinterpret_cast<const MaskOfSix*>(words[5])->set;
      break;
    case SYS_epoll_pwait:
      function = "epoll_pwait";
      break;
    case SYS_epoll_pwait2:
      function = "epoll_pwait2";
      break;
    default:
      return std::nullopt;
  }
  words[place] = reinterpret_cast<long>(read_set(words[place], set));
  return static_cast<int>(call_with(function_of(function), words));
}

/// A thread's end that no other function of libc sees.
[[noreturn]] void end_thread(Instance& instance, const Words& words) {
  int flows = 0;
  instance.for_each_context([&flows](const TaskContext& flow) { flows += flow.of_pool ? 0 : 1; });
  call_with(function_of(on_program_thread() || flows > 1 ? "pthread_exit" : "_exit"),
            {on_program_thread() || flows > 1 ? 0 : words[0]});
  std::abort();  // it does not return
}

/// Operations on a futex that holds its owner's number.
bool has_owner(long operation) noexcept {
  constexpr std::array owned{FUTEX_LOCK_PI,   FUTEX_LOCK_PI2,        FUTEX_TRYLOCK_PI,
                             FUTEX_UNLOCK_PI, FUTEX_WAIT_REQUEUE_PI, FUTEX_CMP_REQUEUE_PI};
  return std::ranges::find(owned, operation) != owned.end();
}

/// Calls whose results libc's functions give in another form. Nothing: none of these.
std::optional<long> call_another_way(Instance& instance, long number, const Words& words) {
  const int error = errno_now();
  switch (number) {
    case SYS_tkill:
      return static_cast<int>(call_with(function_of("tgkill"), {pid_of(instance), words[0], words[1]}));
    case SYS_exit:
      end_thread(instance, words);
    case SYS_brk: {
      if (words[0] != 0) call_with(function_of("brk"), words);
      const long end = call_with(function_of("sbrk"), {});
      failed(error);
      return end;
    }
    case SYS_getpriority: {
      constexpr int none = 20;  // the system gives what is never negative
      failed(0);
      const auto priority = static_cast<int>(call_with(function_of("getpriority"), words));
      if (errno_now() != 0) return -1;
      failed(error);
      return none - priority;
    }
    case SYS_sched_getaffinity: {
      const long bytes = ::syscall(SYS_sched_getaffinity, ::getpid(), words[1], words[2]);
      if (bytes > 0 && static_cast<int>(call_with(function_of("sched_getaffinity"), words)) != 0) return -1;
      return bytes;
    }
    case SYS_sched_setattr: {
      struct Attributes {  // how it begins
        std::uint32_t bytes, policy;
        std::uint64_t flags;
        std::int32_t nice;
        std::uint32_t priority;
      };
      const auto* const given = reinterpret_cast<const Attributes*>(words[1]);
      if (given == nullptr || !means_carrier(instance, static_cast<pid_t>(words[0]))) return std::nullopt;
      const bool changes = static_cast<int>(given->policy) != ::sched_getscheduler(0) || given->priority != 0;
      return changes ? refuse_change(instance, "sched_setattr") : 0;
    }
    case SYS_clock_nanosleep: {
      const auto result = static_cast<int>(call_with(function_of("clock_nanosleep"), words));
      return result == 0 ? 0 : failed(result);
    }
    case SYS_futex:
      if (const long operation = words[1] & FUTEX_CMD_MASK; operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET) {
        if (Instance* const waiter = sharing_flow(instance)) return futex_in_turn(*waiter, words.data());
      } else if (has_owner(operation) && !on_program_thread()) {
        instance.services().warn(
            "a futex that inherits priority (FUTEX_LOCK_PI) is refused (ENOSYS): the system knows its owner as a "
            "thread, and that of the cell carries others, too; run the program with --processes");
        return failed(ENOSYS);
      }
      return std::nullopt;
    case SYS_preadv2:
    case SYS_pwritev2:  // the upper half of the place is in the lower one
      return call_with(function_of(number == SYS_preadv2 ? "preadv2" : "pwritev2"),
                       {words[0], words[1], words[2], words[3], words[5]});
    case SYS_waitid:
      return wait_for_one(instance, static_cast<idtype_t>(words[0]), static_cast<id_t>(words[1]),
                          reinterpret_cast<siginfo_t*>(words[2]), static_cast<int>(words[3]),
                          reinterpret_cast<rusage*>(words[4]));
    default:
      return wait_with_mask(number, words);
  }
}

long own_syscall(long number, ...) {
  Words words{};
  va_list arguments;
  va_start(arguments, number);
  for (long& word : words) word = va_arg(arguments, long);  // libc reads as many for every call
  va_end(arguments);
  // Functions of ours find the instance by the running flow.
  Instance* const instance = here() != nullptr ? here()->instance : nullptr;
  if (instance == nullptr) return ::syscall(number, words[0], words[1], words[2], words[3], words[4], words[5]);
  if (const auto done = call_about_signals(*instance, number, words)) return *done;
  if (const auto done = call_another_way(*instance, number, words)) return *done;
  const auto change = std::ranges::find(refused, number, &SameCall::number);
  if (change != std::end(refused)) return refuse_change(*instance, change->function);
  long result = 0;
  if (call_same(giving_int, number, words, result)) return static_cast<int>(result);
  if (call_same(giving_long, number, words, result)) return result;
  if (takes_descriptor(number) && is_standard(static_cast<int>(words[0])))
    words[0] = redirected(*instance, static_cast<int>(words[0]));
  result = ::syscall(number, words[0], words[1], words[2], words[3], words[4], words[5]);
  return opens_descriptor(number) ? note_lowest(instance, static_cast<int>(result)) : result;
}

// What these change is the thread's that carries the cell, or all cells'. Where nothing would change, they say so. A
// thread that the program has made may do so for itself.

constexpr unsigned long asks_personality = 0xffffffff;
int own_personality(Instance& instance, unsigned long kind) {
  if (on_program_thread()) return ::personality(kind);
  const int now = ::personality(asks_personality);
  const bool changes = kind != asks_personality && kind != static_cast<unsigned long>(now);
  return changes ? refuse_change(instance, "personality()") : now;
}
int own_chroot(Instance& instance, const char* /*path*/) { return refuse_change(instance, "chroot()"); }
int own_setns(Instance& instance, int space, int kind) {
  return on_program_thread() ? ::setns(space, kind) : refuse_change(instance, "setns()");
}
int own_unshare(Instance& instance, int what) {
  return what == 0 || on_program_thread() ? ::unshare(what) : refuse_change(instance, "unshare()");
}
int own_setfsuid(Instance& instance, uid_t user) {
  if (on_program_thread()) return ::setfsuid(user);
  const auto now = ::setfsuid(static_cast<uid_t>(-1));
  if (user != static_cast<uid_t>(-1) && user != static_cast<uid_t>(now)) refuse_change(instance, "setfsuid()");
  return now;
}
int own_setfsgid(Instance& instance, gid_t group) {
  if (on_program_thread()) return ::setfsgid(group);
  const auto now = ::setfsgid(static_cast<gid_t>(-1));
  if (group != static_cast<gid_t>(-1) && group != static_cast<gid_t>(now)) refuse_change(instance, "setfsgid()");
  return now;
}
int own_setscheduler(Instance& instance, pid_t process, int policy, const sched_param* parameters) {
  if (!means_carrier(instance, process)) return ::sched_setscheduler(process, policy, parameters);
  return policy == ::sched_getscheduler(0) && parameters->sched_priority == 0
             ? 0
             : refuse_change(instance, "sched_setscheduler()");
}
int own_setparam(Instance& instance, pid_t process, const sched_param* parameters) {
  if (!means_carrier(instance, process)) return ::sched_setparam(process, parameters);
  return parameters->sched_priority == 0 ? 0 : refuse_change(instance, "sched_setparam()");
}

}  // namespace

std::span<const Binding> numbered_calls_bindings() {
  static const std::array table{
      Binding::of("syscall", &own_syscall),
      bound<::personality, own_personality>("personality"),
      bound<::chroot, own_chroot>("chroot"),
      bound<::setns, own_setns>("setns"),
      bound<::unshare, own_unshare>("unshare"),
      bound<::setfsuid, own_setfsuid>("setfsuid"),
      bound<::setfsgid, own_setfsgid>("setfsgid"),
      bound<::sched_setscheduler, own_setscheduler>("sched_setscheduler"),
      bound<::sched_setscheduler, own_setscheduler>("__sched_setscheduler"),
      bound<::sched_setparam, own_setparam>("sched_setparam"),
  };
  return table;
}

}  // namespace aplib::loader::libc
