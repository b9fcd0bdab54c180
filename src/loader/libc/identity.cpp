// SPDX-License-Identifier: MIT
// A program's pid, and what the system keeps for it by this number.
//
// Programs name scratch files and seed generators by getpid(). So each instance that asks gets a number that is nobody
// else's on the host: the kernel's number of a thread that sleeps as long as the instance lives. The kernel gives it
// to no other process meanwhile, /proc has it, and a signal from outside to it reaches the machine. The thread costs
// some 25 KiB; programs that never ask have none.
//
// The process that carries the cells is the parent: getppid() is one number for all ranks of a host, as under other
// launchers. Groups and sessions are only remembered: a new one would take the whole machine from its terminal.
#include "loader/libc/identity.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "loader/context.hpp"
#include "loader/instance.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/end.hpp"
#include "loader/libc/signals.hpp"
#include "loader/libc/state.hpp"

namespace aplib::loader::libc {

namespace {

int fail(int error) {
  errno = error;
  return -1;
}

/// A thread that only sleeps: its number is taken as long as it lives.
class Sleeper {
 public:
  /// Where the system has no thread more, pid() is 0.
  Sleeper() {
    const WithoutProgramContext none;  // it is the machine's
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, stack_bytes);
    pthread_attr_setguardsize(&attributes, 0);  // no mapping of its own for each
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // signals to the process are for others
    runs_ = pthread_create(&thread_, &attributes, sleep, this) == 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_attr_destroy(&attributes);
    if (runs_) pid_.wait(0);
  }
  ~Sleeper() {
    if (!runs_) return;
    ends_ = true;
    ends_.notify_one();
    pthread_join(thread_, nullptr);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

 private:
  static constexpr std::size_t stack_bytes = std::size_t{128} << 10;  // only what is touched takes memory

  static void* sleep(void* state) {
    auto& self = *static_cast<Sleeper*>(state);
    self.pid_ = ::gettid();
    self.pid_.notify_one();
    self.ends_.wait(false);
    return nullptr;
  }

  std::atomic<pid_t> pid_{0};
  std::atomic<bool> ends_{false};
  pthread_t thread_{};
  bool runs_ = false;
};

/// Who has which pid. Held while another instance is looked at, so that it does not end.
struct Pids {
  std::mutex mutex;
  std::map<pid_t, Instance*> instances;
};
Pids& pids() {
  static auto* const all = new Pids;  // instances may end late
  return *all;
}

}  // namespace

struct Identity {
  Identity() = default;
  ~Identity() {
    const std::lock_guard lock(pids().mutex);
    pids().instances.erase(pid);
  }
  Identity(const Identity&) = delete;
  Identity& operator=(const Identity&) = delete;

  std::once_flag once;
  std::atomic<pid_t> pid{0};
  std::unique_ptr<Sleeper> sleeper;
  std::atomic<pid_t> group{0};  // 0: the process's
  std::atomic<pid_t> session{0};
};

pid_t pid_of(Instance& instance) {
  Identity& own = shared_part(instance.libc().identity);
  if (const pid_t known = own.pid.load(); known != 0) return known;
  std::call_once(own.once, [&] {
    constexpr pid_t above_all = 1 << 22;  // what the kernel gives is less
    static std::atomic<pid_t> next{above_all};
    own.sleeper = std::make_unique<Sleeper>();
    pid_t pid = own.sleeper->pid();
    if (pid == 0) {
      pid = ++next;
      instance.services().warn(
          "getpid: the system has no thread more whose number could be the pid of a cell, so it is only unique among "
          "the cells of this process; raise the limit of threads (ulimit -u, kernel.threads-max, pids.max)");
    }
    const std::lock_guard lock(pids().mutex);
    pids().instances.emplace(pid, &instance);
    own.pid = pid;
  });
  return own.pid;
}

bool with_instance(pid_t pid, void (*use)(Instance& instance, void* state), void* state) {
  const std::lock_guard lock(pids().mutex);
  const auto found = pids().instances.find(pid);
  if (found == pids().instances.end()) return false;
  use(*found->second, state);
  return true;
}

namespace {

// --- numbers

pid_t own_getpid(Instance& instance) { return pid_of(instance); }

pid_t own_getppid() { return calling(__builtin_return_address(0)) != nullptr ? ::getpid() : ::getppid(); }

/// The first thread of a process has the process's number.
pid_t thread_of(Instance& instance) { return instance.is_main(here()) ? pid_of(instance) : ::gettid(); }

pid_t own_gettid(Instance& instance) { return thread_of(instance); }

bool means_own(Instance& instance, pid_t pid) { return pid == 0 || pid == pid_of(instance); }

pid_t own_getpgid(Instance& instance, pid_t pid) {
  if (!means_own(instance, pid)) return ::getpgid(pid);
  const pid_t group = shared_part(instance.libc().identity).group;
  return group != 0 ? group : ::getpgrp();
}

pid_t own_getpgrp(Instance& instance) { return own_getpgid(instance, 0); }

pid_t own_getsid(Instance& instance, pid_t pid) {
  if (!means_own(instance, pid)) return ::getsid(pid);
  const pid_t session = shared_part(instance.libc().identity).session;
  return session != 0 ? session : ::getsid(0);
}

int own_setpgid(Instance& instance, pid_t pid, pid_t group) {
  if (group < 0) return fail(EINVAL);
  if (!means_own(instance, pid)) return ::setpgid(pid, group);  // a child
  Identity& own = shared_part(instance.libc().identity);
  if (own.session != 0) return fail(EPERM);
  own.group = group != 0 ? group : pid_of(instance);
  return 0;
}

int own_setpgrp(Instance& instance) { return own_setpgid(instance, 0, 0); }

pid_t own_setsid(Instance& instance) {
  Identity& own = shared_part(instance.libc().identity);
  const pid_t pid = pid_of(instance);
  if (own.group == pid) return fail(EPERM);
  own.group = own.session = pid;
  return pid;
}

int signal_thread(Instance& instance, pid_t process, pid_t thread, int signal) {
  if (process != pid_of(instance)) return static_cast<int>(::syscall(SYS_tgkill, process, thread, signal));
  if (thread == thread_of(instance)) return send_signal(instance, signal, SI_TKILL);
  if (signal == 0) return static_cast<int>(::syscall(SYS_tgkill, ::getpid(), thread, 0));
  instance.services().warn(
      "tgkill() of another thread is not available in a loaded program (it returns ENOSYS): signals are the machine's; "
      "use a condition variable or a pipe to wake a thread");
  return fail(ENOSYS);
}

int own_tgkill(Instance& instance, pid_t process, pid_t thread, int signal) {
  return signal_thread(instance, process, thread, signal);
}

/// Calls that libc has no function for, or had none for long.
long own_syscall(long number, ...) {
  std::array<long, 6> words{};
  va_list arguments;
  va_start(arguments, number);
  for (long& word : words) word = va_arg(arguments, long);  // libc reads as many for every call
  va_end(arguments);
  Instance* const instance = calling(__builtin_return_address(0));
  if (instance != nullptr) {
    switch (number) {
      case SYS_getpid:
        return pid_of(*instance);
      case SYS_getppid:
        return ::getpid();
      case SYS_gettid:
        return thread_of(*instance);
      case SYS_tgkill:
        return signal_thread(*instance, static_cast<pid_t>(words[0]), static_cast<pid_t>(words[1]),
                             static_cast<int>(words[2]));
      case SYS_tkill:
        return signal_thread(*instance, pid_of(*instance), static_cast<pid_t>(words[0]), static_cast<int>(words[1]));
      case SYS_kill:
        return signal_process(*instance, static_cast<pid_t>(words[0]), static_cast<int>(words[1]), SI_USER);
      default:
        break;
    }
  }
  return ::syscall(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

}  // namespace

std::span<const Binding> identity_bindings() {
  static const std::array table{
      bound<::getpid, own_getpid>("getpid"),    bound<::getpid, own_getpid>("__getpid"),
      Binding::of("getppid", &own_getppid),     bound<::gettid, own_gettid>("gettid"),
      bound<::getpgid, own_getpgid>("getpgid"), bound<::getpgid, own_getpgid>("__getpgid"),
      bound<::getpgrp, own_getpgrp>("getpgrp"), bound<::getsid, own_getsid>("getsid"),
      bound<::setpgid, own_setpgid>("setpgid"), bound<::setpgid, own_setpgid>("__setpgid"),
      bound<::setpgrp, own_setpgrp>("setpgrp"), bound<::setsid, own_setsid>("setsid"),
      bound<::tgkill, own_tgkill>("tgkill"),    Binding::of("syscall", &own_syscall),
  };
  return table;
}

}  // namespace aplib::loader::libc
