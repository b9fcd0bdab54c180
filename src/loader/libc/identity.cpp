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
#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ulimit.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/os/descriptor.hpp"
#include "loader/context.hpp"
#include "loader/instance.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/end.hpp"
#include "loader/libc/signals.hpp"
#include "loader/libc/state.hpp"
#include "loader/libc/streams.hpp"
#include "loader/libc/waiting.hpp"

extern "C" {
ssize_t __readlink_chk(const char*, char*, std::size_t, std::size_t);
ssize_t __readlinkat_chk(int, const char*, char*, std::size_t, std::size_t);
char* __realpath_chk(const char*, char*, std::size_t);
}

namespace aplib::loader::libc {

namespace {

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

  // What threads of a process would be given by the system, and a thread that carries many cells must not be.
  std::mutex mutex;                 // of what follows
  std::optional<cpu_set_t> cores;   // sched_setaffinity
  std::optional<int> priority;      // nice
  std::optional<std::string> name;  // PR_SET_NAME, of the first thread
  std::map<int, rlimit64> limits;   // setrlimit, by resource
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
  if (group < 0) return failed(EINVAL);
  if (!means_own(instance, pid)) return ::setpgid(pid, group);  // a child
  Identity& own = shared_part(instance.libc().identity);
  if (own.session != 0) return failed(EPERM);
  own.group = group != 0 ? group : pid_of(instance);
  return 0;
}

int own_setpgrp(Instance& instance) { return own_setpgid(instance, 0, 0); }

pid_t own_setsid(Instance& instance) {
  Identity& own = shared_part(instance.libc().identity);
  const pid_t pid = pid_of(instance);
  if (own.group == pid) return failed(EPERM);
  own.group = own.session = pid;
  return pid;
}

int signal_number(Instance& instance, pid_t process, pid_t thread, int signal) {
  if (process <= 0 || thread <= 0) return failed(EINVAL);
  if (process != pid_of(instance)) return static_cast<int>(::syscall(SYS_tgkill, process, thread, signal));
  if (thread == thread_of(instance)) return send_signal(instance, signal, SI_TKILL);
  const int error = signal_thread(instance, {{}, thread}, signal, SI_TKILL, {});
  return error == 0 ? 0 : failed(error);
}

int own_tgkill(Instance& instance, pid_t process, pid_t thread, int signal) {
  return signal_number(instance, process, thread, signal);
}

// --- signals to groups

/// kill() of the group that the instance is in, as far as it knows it: its children, and itself.
int signal_own_group(Instance& instance, int signal) {
  signal_children(instance, signal);
  return send_signal(instance, signal, SI_USER);
}

int signal_by_number(Instance& instance, pid_t process, int signal) {
  if (process == INT_MIN) return failed(ESRCH);
  if (process == 0 || (process < -1 && process == -own_getpgid(instance, 0))) return signal_own_group(instance, signal);
  // Another cell's of this process.
  if (process < -1 && with_instance(
                          -process, [](Instance&, void*) {}, nullptr))
    process = -process;
  return signal_process(instance, process, signal, SI_USER);
}

int own_kill(Instance& instance, pid_t process, int signal) { return signal_by_number(instance, process, signal); }

int own_killpg(Instance& instance, pid_t group, int signal) {
  return group < 0 || group == 1 ? failed(EINVAL) : signal_by_number(instance, -group, signal);
}

// --- signals in BSD's words, which have the first of them in an int

sigset_t set_of(int word) noexcept {
  sigset_t set;
  sigemptyset(&set);
  std::memcpy(&set, &word, sizeof word);
  return set;
}

int change_word(Instance& instance, int how, int word) {
  const sigset_t set = set_of(word);
  sigset_t old;
  change_signal_mask(instance, how, &set, &old);
  std::memcpy(&word, &old, sizeof word);
  return word;
}
int own_sigblock(Instance& instance, int word) { return change_word(instance, SIG_BLOCK, word); }
int own_sigsetmask(Instance& instance, int word) { return change_word(instance, SIG_SETMASK, word); }
int own_siggetmask(Instance& instance) { return change_word(instance, SIG_BLOCK, 0); }

int own_sigpause(Instance& instance, int signal_or_word, int is_signal) {
  sigset_t mask = set_of(signal_or_word);
  if (is_signal != 0) {
    change_signal_mask(instance, SIG_BLOCK, nullptr, &mask);
    if (sigdelset(&mask, signal_or_word) != 0) return -1;
  }
  return suspend_with(instance, &mask);
}
int own_sigpause_by_word(Instance& instance, int word) { return own_sigpause(instance, word, 0); }
int own_sigpause_by_signal(Instance& instance, int signal) { return own_sigpause(instance, signal, 1); }

// --- and in X/Open's older ones

using SignalHandler = void (*)(int);

int change_one(Instance& instance, int how, int signal, sigset_t* before = nullptr) {
  sigset_t one;
  sigemptyset(&one);
  if (sigaddset(&one, signal) != 0) return -1;
  const int error = change_signal_mask(instance, how, &one, before);
  return error == 0 ? 0 : failed(error);
}

int own_sighold(Instance& instance, int signal) { return change_one(instance, SIG_BLOCK, signal); }
int own_sigrelse(Instance& instance, int signal) { return change_one(instance, SIG_UNBLOCK, signal); }

int own_sigignore(Instance& instance, int signal) {
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  return change_action(instance, signal, &action, nullptr);
}

SignalHandler own_sigset(Instance& instance, int signal, SignalHandler handler) {
  const bool holds = handler == SIG_HOLD;
  struct sigaction action {};
  struct sigaction old {};
  sigset_t before;
  sigemptyset(&before);
  action.sa_handler = handler;
  if (change_action(instance, signal, holds ? nullptr : &action, &old) != 0) return SIG_ERR;
  if (change_one(instance, holds ? SIG_BLOCK : SIG_UNBLOCK, signal, &before) != 0) return SIG_ERR;
  return sigismember(&before, signal) == 1 ? SIG_HOLD : old.sa_handler;
}

// Libc's own would take the kernel's mask; where no instance calls, nobody calls them.
int sigmask_of_nobody(int /*word*/) { return failed(EINVAL); }
int sigmask_of_nobody() { return failed(EINVAL); }
SignalHandler sigset_of_nobody(int /*signal*/, SignalHandler /*handler*/) { return SIG_ERR; }
int sigpause_of_nobody(int /*signal_or_word*/, int /*is_signal*/) { return failed(EINVAL); }

}  // namespace

std::span<const Binding> identity_bindings() {
  static const std::array table{
      bound<::getpid, own_getpid>("getpid"),
      bound<::getpid, own_getpid>("__getpid"),
      Binding::of("getppid", &own_getppid),
      bound<::gettid, own_gettid>("gettid"),
      bound<::getpgid, own_getpgid>("getpgid"),
      bound<::getpgid, own_getpgid>("__getpgid"),
      bound<::getpgrp, own_getpgrp>("getpgrp"),
      bound<::getsid, own_getsid>("getsid"),
      bound<::setpgid, own_setpgid>("setpgid"),
      bound<::setpgid, own_setpgid>("__setpgid"),
      bound<::setpgrp, own_setpgrp>("setpgrp"),
      bound<::setsid, own_setsid>("setsid"),
      bound<::tgkill, own_tgkill>("tgkill"),
      bound<::kill, own_kill>("kill"),
      bound<::killpg, own_killpg>("killpg"),
      bound<static_cast<int (*)(int)>(sigmask_of_nobody), own_sigblock>("sigblock"),
      bound<static_cast<int (*)(int)>(sigmask_of_nobody), own_sigsetmask>("sigsetmask"),
      bound<static_cast<int (*)()>(sigmask_of_nobody), own_siggetmask>("siggetmask"),
      bound<static_cast<int (*)(int)>(sigmask_of_nobody), own_sigpause_by_word>("sigpause"),
      bound<static_cast<int (*)(int)>(sigmask_of_nobody), own_sigpause_by_signal>("__xpg_sigpause"),
      bound<sigpause_of_nobody, own_sigpause>("__sigpause"),
      bound<static_cast<int (*)(int)>(sigmask_of_nobody), own_sighold>("sighold"),
      bound<static_cast<int (*)(int)>(sigmask_of_nobody), own_sigrelse>("sigrelse"),
      bound<static_cast<int (*)(int)>(sigmask_of_nobody), own_sigignore>("sigignore"),
      bound<sigset_of_nobody, own_sigset>("sigset"),
  };
  return table;
}

// ---------------------------------------------------------------- names

namespace {

/// "/proc/self/file", or with the instance's pid: "/file"; else nothing.
std::string_view own_entry(Instance& instance, std::string_view path) {
  constexpr std::string_view folder = "/proc/";
  if (!path.starts_with(folder)) return {};
  path.remove_prefix(folder.size());
  const std::string_view who = path.substr(0, path.find('/'));
  path.remove_prefix(who.size());
  if (path != "/exe" && !path.starts_with("/fd/")) return {};
  return who == "self" || who == "thread-self" || who == fmt::to_string(pid_of(instance)) ? path : std::string_view();
}

}  // namespace

bool names_own_file(Instance& instance, const char* path) {
  return path != nullptr && own_entry(instance, path) == "/exe";
}

int named_descriptor(Instance& instance, const char* name) {
  constexpr std::array<std::string_view, 3> names{"stdin", "stdout", "stderr"};
  constexpr std::string_view folder = "/dev/";
  constexpr std::string_view numbers = "/fd/";
  if (name == nullptr) return -1;
  const std::string_view path(name);
  const bool is_device = path.starts_with(folder);
  if (const auto entry = is_device ? path.substr(folder.size() - 1) : own_entry(instance, path);
      entry.starts_with(numbers))
    return entry.size() == numbers.size() + 1 && is_standard(entry.back() - '0') ? entry.back() - '0' : -1;
  if (!is_device) return -1;
  const auto* const found = std::ranges::find(names, path.substr(folder.size()));
  return found != names.end() ? static_cast<int>(found - names.begin()) : -1;
}

SeenPath::SeenPath(Instance* instance, const char* path) : path_(path) {
  if (instance == nullptr || path == nullptr || *path != '/') return;
  if (names_own_file(*instance, path)) path_ = instance->program().path().c_str();
  const int number = named_descriptor(*instance, path);
  if (number >= 0) other_ = fmt::format("/proc/self/fd/{}", redirected(*instance, number));
}

namespace {

/// "/dev/stdin" is a link to "/proc/self/fd/0" for every program, and "/proc/self/fd/0" one to a file of its own.
class SeenLink {
 public:
  SeenLink(Instance& instance, const char* path)
      : seen_(path != nullptr && is_number(path) ? &instance : nullptr, path) {}
  [[nodiscard]] const char* get() const noexcept { return seen_.get(); }

 private:
  static bool is_number(std::string_view path) noexcept { return !path.empty() && is_standard(path.back() - '0'); }

  SeenPath seen_;
};

ssize_t copy_link(const std::string& path, char* buffer, std::size_t room) {
  const std::size_t bytes = std::min(path.size(), room);
  std::memcpy(buffer, path.data(), bytes);
  return static_cast<ssize_t>(bytes);
}

ssize_t own_readlink(Instance& instance, const char* path, char* buffer, std::size_t room) {
  return names_own_file(instance, path) ? copy_link(instance.program().path(), buffer, room)
                                        : ::readlink(SeenLink(instance, path).get(), buffer, room);
}

ssize_t own_readlinkat(Instance& instance, int folder, const char* path, char* buffer, std::size_t room) {
  return names_own_file(instance, path)
             ? copy_link(instance.program().path(), buffer, room)
             : ::readlinkat(redirected(instance, folder), SeenLink(instance, path).get(), buffer, room);
}

ssize_t own_readlink_chk(Instance& instance, const char* path, char* buffer, std::size_t room, std::size_t all) {
  return names_own_file(instance, path) ? copy_link(instance.program().path(), buffer, std::min(room, all))
                                        : __readlink_chk(SeenLink(instance, path).get(), buffer, room, all);
}

ssize_t own_readlinkat_chk(Instance& instance, int folder, const char* path, char* buffer, std::size_t room,
                           std::size_t all) {
  return names_own_file(instance, path)
             ? copy_link(instance.program().path(), buffer, std::min(room, all))
             : __readlinkat_chk(redirected(instance, folder), SeenLink(instance, path).get(), buffer, room, all);
}

char* own_realpath(Instance& instance, const char* path, char* room) {
  return ::realpath(SeenPath(&instance, path).get(), room);
}

char* own_realpath_chk(Instance& instance, const char* path, char* room, std::size_t bytes) {
  return __realpath_chk(SeenPath(&instance, path).get(), room, bytes);
}

char* own_canonicalize(Instance& instance, const char* path) { return own_realpath(instance, path, nullptr); }

unsigned long own_getauxval(Instance& instance, unsigned long kind) {
  return kind == AT_EXECFN ? reinterpret_cast<unsigned long>(instance.program().path().c_str()) : ::getauxval(kind);
}

// --- of threads

constexpr std::size_t name_bytes = 16;  // with the zero

std::string name_of(Instance& instance) {
  Identity& own = shared_part(instance.libc().identity);
  const std::lock_guard lock(own.mutex);
  if (own.name) return *own.name;
  const std::string& path = instance.program().path();
  return path.substr(path.rfind('/') + 1, name_bytes - 1);
}

void set_name(Instance& instance, const char* name) {
  Identity& own = shared_part(instance.libc().identity);
  const std::lock_guard lock(own.mutex);
  own.name = std::string(name, ::strnlen(name, name_bytes - 1));
}

int own_prctl(int option, ...) {
  std::array<unsigned long, 4> words{};
  va_list arguments;
  va_start(arguments, option);
  for (unsigned long& word : words) word = va_arg(arguments, unsigned long);  // libc reads as many for every option
  va_end(arguments);
  Instance* const instance = calling(__builtin_return_address(0));
  if (instance != nullptr) {
    auto* const text = reinterpret_cast<char*>(words[0]);  // NOLINT: of the options that have one
    switch (option) {
      case PR_SET_NAME:
        if (on_program_thread()) break;
        set_name(*instance, text);
        return 0;
      case PR_GET_NAME:
        if (on_program_thread()) break;
        std::strncpy(text, name_of(*instance).c_str(), name_bytes);
        return 0;
      case PR_SET_TIMERSLACK:
        return 0;  // it only promises less
      case PR_SET_CHILD_SUBREAPER:
      case PR_SET_IO_FLUSHER:
      case PR_SET_KEEPCAPS:
      case PR_SET_PDEATHSIG:
      case PR_SET_THP_DISABLE:
        if (words[0] == 0) return 0;  // as it is
        [[fallthrough]];
      case PR_SET_DUMPABLE:
        if (option == PR_SET_DUMPABLE && static_cast<long>(words[0]) == ::prctl(PR_GET_DUMPABLE)) return 0;
        [[fallthrough]];
      case PR_SET_SECCOMP:
      case PR_CAPBSET_DROP:
      case PR_SET_NO_NEW_PRIVS:
      case PR_SET_SECUREBITS:
      case PR_SET_SPECULATION_CTRL:
      case PR_SET_TSC:
        instance->services().warn(
            fmt::format("prctl({}) is refused (EINVAL): it would be so for all cells of the process; run the program "
                        "with --processes",
                        option));
        return failed(EINVAL);
      default:
        break;
    }
  }
  return ::prctl(option, words[0], words[1], words[2], words[3]);
}

/// The thread that carries the calling task, which has other cells to carry.
bool is_carrier(pthread_t thread) { return !on_program_thread() && pthread_equal(thread, own_thread()) != 0; }

int own_setname(Instance& instance, pthread_t thread, const char* name) {
  if (!is_carrier(thread)) return ::pthread_setname_np(thread, name);
  if (std::strlen(name) >= name_bytes) return ERANGE;
  set_name(instance, name);
  return 0;
}

int own_getname(Instance& instance, pthread_t thread, char* name, std::size_t room) {
  if (!is_carrier(thread)) return ::pthread_getname_np(thread, name, room);
  if (room < name_bytes) return ERANGE;
  std::strncpy(name, name_of(instance).c_str(), name_bytes);
  return 0;
}

// --- users

/// Threads of a process that another user's rights are wanted for all have them.
template <class Id, std::size_t count>
int change_user(Instance& instance, const char* call, const std::array<Id, count>& wanted,
                const std::array<Id, count>& now) {
  for (std::size_t i = 0; i < count; ++i) {
    if (wanted[i] == static_cast<Id>(-1) || wanted[i] == now[i]) continue;
    instance.services().warn(fmt::format(
        "{}() is refused (EPERM): all cells of the process would change their user or group; run the program with "
        "--processes",
        call));
    return failed(EPERM);
  }
  return 0;
}

int own_setuid(Instance& instance, uid_t user) {
  return change_user<uid_t, 1>(instance, "setuid", {user}, {::geteuid()});
}
int own_seteuid(Instance& instance, uid_t user) {
  return change_user<uid_t, 1>(instance, "seteuid", {user}, {::geteuid()});
}
int own_setreuid(Instance& instance, uid_t real, uid_t effective) {
  return change_user<uid_t, 2>(instance, "setreuid", {real, effective}, {::getuid(), ::geteuid()});
}
int own_setresuid(Instance& instance, uid_t real, uid_t effective, uid_t saved) {
  std::array<uid_t, 3> now{};
  ::getresuid(now.data(), &now[1], &now[2]);
  return change_user<uid_t, 3>(instance, "setresuid", {real, effective, saved}, now);
}
int own_setgid(Instance& instance, gid_t group) {
  return change_user<gid_t, 1>(instance, "setgid", {group}, {::getegid()});
}
int own_setegid(Instance& instance, gid_t group) {
  return change_user<gid_t, 1>(instance, "setegid", {group}, {::getegid()});
}
int own_setregid(Instance& instance, gid_t real, gid_t effective) {
  return change_user<gid_t, 2>(instance, "setregid", {real, effective}, {::getgid(), ::getegid()});
}
int own_setresgid(Instance& instance, gid_t real, gid_t effective, gid_t saved) {
  std::array<gid_t, 3> now{};
  ::getresgid(now.data(), &now[1], &now[2]);
  return change_user<gid_t, 3>(instance, "setresgid", {real, effective, saved}, now);
}

int own_setgroups(Instance& instance, std::size_t count, const gid_t* groups) {
  if (count > NGROUPS_MAX) return failed(EINVAL);
  std::vector<gid_t> wanted(groups, groups + count);
  std::vector<gid_t> now(static_cast<std::size_t>(std::max(::getgroups(0, nullptr), 0)));
  static_cast<void>(::getgroups(static_cast<int>(now.size()), now.data()));
  std::ranges::sort(wanted);
  std::ranges::sort(now);
  return wanted == now ? 0 : change_user<gid_t, 1>(instance, "setgroups", {1}, {0});
}
int own_initgroups(Instance& instance, const char* user, gid_t group) {
  int count = 1 << 16;  // the system's most
  std::vector<gid_t> all(static_cast<std::size_t>(count));
  if (::getgrouplist(user, group, all.data(), &count) < 0) return failed(EINVAL);
  return own_setgroups(instance, static_cast<std::size_t>(count), all.data());
}

}  // namespace

std::span<const Binding> names_bindings() {
  static const std::array table{
      bound<::readlink, own_readlink>("readlink"),
      bound<::readlinkat, own_readlinkat>("readlinkat"),
      bound<__readlink_chk, own_readlink_chk>("__readlink_chk"),
      bound<__readlinkat_chk, own_readlinkat_chk>("__readlinkat_chk"),
      bound<::realpath, own_realpath>("realpath"),
      bound<__realpath_chk, own_realpath_chk>("__realpath_chk"),
      bound<::canonicalize_file_name, own_canonicalize>("canonicalize_file_name"),
      bound<::getauxval, own_getauxval>("getauxval"),
      bound<::getauxval, own_getauxval>("__getauxval"),
      Binding::of("prctl", &own_prctl),
      bound<::pthread_setname_np, own_setname>("pthread_setname_np"),
      bound<::pthread_getname_np, own_getname>("pthread_getname_np"),
      bound<::setuid, own_setuid>("setuid"),
      bound<::seteuid, own_seteuid>("seteuid"),
      bound<::setreuid, own_setreuid>("setreuid"),
      bound<::setresuid, own_setresuid>("setresuid"),
      bound<::setgid, own_setgid>("setgid"),
      bound<::setegid, own_setegid>("setegid"),
      bound<::setregid, own_setregid>("setregid"),
      bound<::setresgid, own_setresgid>("setresgid"),
      bound<::setgroups, own_setgroups>("setgroups"),
      bound<::initgroups, own_initgroups>("initgroups"),
  };
  return table;
}

// ---------------------------------------------------------------- limits, priority, cores

namespace {

// --- cores. The thread that carries a cell stays where it is: what the cell sets, it is told back. Before that, it has
// those of the process, also where its thread is bound to one of them.

/// `bytes` of a set, as the system reads it; nothing where no core is in it that the process may use.
std::optional<cpu_set_t> usable(std::size_t bytes, const cpu_set_t* given) {
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  std::memcpy(&wanted, given, std::min(bytes, sizeof wanted));
  cpu_set_t there;
  if (::sched_getaffinity(::getpid(), sizeof there, &there) == 0) CPU_AND(&wanted, &wanted, &there);
  return CPU_COUNT(&wanted) > 0 ? std::optional(wanted) : std::nullopt;
}

int bind(Instance& instance, std::size_t bytes, const cpu_set_t* given) {
  const std::optional<cpu_set_t> cores = usable(bytes, given);
  if (!cores) return EINVAL;
  Identity& own = shared_part(instance.libc().identity);
  const std::lock_guard lock(own.mutex);
  own.cores = cores;
  return 0;
}

/// False: it has set none.
bool tell_cores(Instance& instance, std::size_t bytes, cpu_set_t* cores) {
  if (instance.libc().identity.part == nullptr) return false;
  Identity& own = shared_part(instance.libc().identity);
  const std::lock_guard lock(own.mutex);
  if (!own.cores) return false;
  std::memset(cores, 0, bytes);
  std::memcpy(cores, &*own.cores, std::min(bytes, sizeof *own.cores));
  return true;
}

/// The call is about the first thread of the program, or a task of it.
bool means_task(Instance& instance, pid_t pid) {
  return pid == 0 ? !on_program_thread() : pid == pid_of(instance) || (!on_program_thread() && pid == ::gettid());
}

int own_sched_setaffinity(Instance& instance, pid_t pid, std::size_t bytes, const cpu_set_t* cores) {
  if (!means_task(instance, pid)) return ::sched_setaffinity(pid, bytes, cores);
  const int error = bind(instance, bytes, cores);
  return error == 0 ? 0 : failed(error);
}

int own_sched_getaffinity(Instance& instance, pid_t pid, std::size_t bytes, cpu_set_t* cores) {
  const bool own = means_task(instance, pid);
  if (own && tell_cores(instance, bytes, cores)) return 0;
  return ::sched_getaffinity(own ? ::getpid() : pid, bytes, cores);
}

int own_pthread_setaffinity(Instance& instance, pthread_t thread, std::size_t bytes, const cpu_set_t* cores) {
  return is_carrier(thread) ? bind(instance, bytes, cores) : ::pthread_setaffinity_np(thread, bytes, cores);
}

int own_pthread_getaffinity(Instance& instance, pthread_t thread, std::size_t bytes, cpu_set_t* cores) {
  if (!is_carrier(thread)) return ::pthread_getaffinity_np(thread, bytes, cores);
  if (tell_cores(instance, bytes, cores)) return 0;
  if (::sched_getaffinity(::getpid(), bytes, cores) == 0) return 0;
  return errno_now();
}

// --- priority

constexpr int least_nice = -20;
constexpr int most_nice = 19;

int priority_of(Instance& instance) {
  Identity& own = shared_part(instance.libc().identity);
  const std::lock_guard lock(own.mutex);
  if (own.priority) return *own.priority;
  return ::getpriority(PRIO_PROCESS, 0);
}

int set_priority(Instance& instance, int priority, int error) {
  priority = std::clamp(priority, least_nice, most_nice);
  if (priority < priority_of(instance) && ::geteuid() != 0) return failed(error);
  Identity& own = shared_part(instance.libc().identity);
  const std::lock_guard lock(own.mutex);
  own.priority = priority;
  return 0;
}

int own_getpriority(Instance& instance, int which, id_t who) {
  if (which != PRIO_PROCESS || !means_task(instance, static_cast<pid_t>(who)))
    return ::getpriority(static_cast<__priority_which>(which), who);
  errno = 0;
  return priority_of(instance);
}

int own_setpriority(Instance& instance, int which, id_t who, int priority) {
  if (which != PRIO_PROCESS || !means_task(instance, static_cast<pid_t>(who)))
    return ::setpriority(static_cast<__priority_which>(which), who, priority);
  return set_priority(instance, priority, EACCES);
}

int own_nice(Instance& instance, int change) {
  if (set_priority(instance, priority_of(instance) + change, EPERM) != 0) return -1;
  errno = 0;
  return priority_of(instance);
}

// --- limits

/// A lower limit of these keeps a program from harm; of the others, null, it may just be meant well.
const char* felt_limit(int resource) noexcept {
  switch (resource) {
    case RLIMIT_AS:
      return "RLIMIT_AS";
    case RLIMIT_DATA:
      return "RLIMIT_DATA";
    case RLIMIT_CPU:
      return "RLIMIT_CPU";
    case RLIMIT_FSIZE:
      return "RLIMIT_FSIZE";
    case RLIMIT_NPROC:
      return "RLIMIT_NPROC";
    default:
      return nullptr;
  }
}

int get_limit(Instance& instance, int resource, rlimit64& limit) {
  {
    Identity& own = shared_part(instance.libc().identity);
    const std::lock_guard lock(own.mutex);
    if (const auto set = own.limits.find(resource); set != own.limits.end()) {
      limit = set->second;
      return 0;
    }
  }
  return ::getrlimit64(static_cast<__rlimit_resource>(resource), &limit);
}

int set_limit(Instance& instance, int resource, const rlimit64& limit) {
  rlimit64 before{};
  if (get_limit(instance, resource, before) != 0) return -1;
  if (limit.rlim_cur > limit.rlim_max) return failed(EINVAL);
  if (limit.rlim_max > before.rlim_max && ::geteuid() != 0) return failed(EPERM);
  rlimit64 process{};
  ::getrlimit64(static_cast<__rlimit_resource>(resource), &process);
  if (limit.rlim_cur > process.rlim_cur) {  // more than all have: nobody is hurt by it
    process.rlim_cur = std::min(limit.rlim_cur, process.rlim_max);
    ::setrlimit64(static_cast<__rlimit_resource>(resource), &process);
  } else if (const char* const name = felt_limit(resource); name != nullptr && limit.rlim_cur < process.rlim_cur) {
    instance.services().warn(
        fmt::format("setrlimit({}): the limit is told back, but the system does not keep it, because it would be one "
                    "for all cells of the process together; where it matters, run the program with --processes",
                    name));
  }
  if (resource == RLIMIT_NOFILE)
    instance.libc().descriptors_max = static_cast<int>(std::clamp<rlim64_t>(limit.rlim_cur, 1, 1 << 30));
  Identity& own = shared_part(instance.libc().identity);
  const std::lock_guard lock(own.mutex);
  own.limits[resource] = limit;
  return 0;
}

}  // namespace

std::string limits_for_shell(Instance& instance) {
  constexpr std::tuple<int, char, rlim64_t> options[] = {
      {RLIMIT_CPU, 't', 1},    {RLIMIT_FSIZE, 'f', 512}, {RLIMIT_DATA, 'd', 1024}, {RLIMIT_STACK, 's', 1024},
      {RLIMIT_CORE, 'c', 512}, {RLIMIT_NOFILE, 'n', 1},  {RLIMIT_AS, 'v', 1024}};
  std::string commands;
  if (std::atomic_ref(instance.libc().identity.part).load(std::memory_order_acquire) == nullptr) return commands;
  Identity& own = shared_part(instance.libc().identity);
  const std::lock_guard lock(own.mutex);
  for (const auto& [resource, letter, unit] : options) {
    const auto set = own.limits.find(resource);
    if (set == own.limits.end()) continue;
    for (const auto& [kind, limit] : {std::pair('S', set->second.rlim_cur), std::pair('H', set->second.rlim_max)})
      commands += fmt::format("ulimit -{} -{} {};", kind, letter,
                              limit == RLIM64_INFINITY ? "unlimited" : fmt::to_string(limit / unit));
  }
  return commands;
}

void give_limits(Instance& instance, pid_t child) noexcept {
  if (std::atomic_ref(instance.libc().identity.part).load(std::memory_order_acquire) == nullptr) return;
  Identity& own = shared_part(instance.libc().identity);
  const std::lock_guard lock(own.mutex);
  for (const auto& [resource, limit] : own.limits)
    ::prlimit64(child, static_cast<__rlimit_resource>(resource), &limit, nullptr);
  if (own.priority) ::setpriority(PRIO_PROCESS, static_cast<id_t>(child), *own.priority);
}

namespace {

// The 64 forms are the same on x86-64.

int own_getrlimit(Instance& instance, int resource, rlimit64* limit) { return get_limit(instance, resource, *limit); }

int own_setrlimit(Instance& instance, int resource, const rlimit64* limit) {
  return set_limit(instance, resource, *limit);
}

int own_getdtablesize(Instance& instance) {
  rlimit64 limit{};
  get_limit(instance, RLIMIT_NOFILE, limit);
  return static_cast<int>(std::min<rlim64_t>(limit.rlim_cur, INT_MAX));
}

long own_sysconf(Instance& instance, int name) {
  return name == _SC_OPEN_MAX ? own_getdtablesize(instance) : ::sysconf(name);
}

/// The words that old programs know.
long own_ulimit(int command, ...) {
  constexpr long block = 512;
  constexpr int get_descriptors = 4;
  va_list arguments;
  va_start(arguments, command);
  const long blocks = va_arg(arguments, long);  // libc reads it for one command
  va_end(arguments);
  Instance* const instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::ulimit(command, blocks);
  rlimit64 limit{};
  if (command == get_descriptors) return own_getdtablesize(*instance);
  if (command != UL_GETFSIZE && command != UL_SETFSIZE) return failed(EINVAL);
  get_limit(*instance, RLIMIT_FSIZE, limit);
  if (command == UL_GETFSIZE)
    return limit.rlim_cur == RLIM64_INFINITY ? LONG_MAX : static_cast<long>(limit.rlim_cur) / block;
  limit.rlim_cur = limit.rlim_max = static_cast<rlim64_t>(blocks) * block;
  return set_limit(*instance, RLIMIT_FSIZE, limit) == 0 ? blocks : -1;
}

int own_prlimit(Instance& instance, pid_t pid, int resource, const rlimit64* limit, rlimit64* before) {
  if (!means_own(instance, pid)) return ::prlimit64(pid, static_cast<__rlimit_resource>(resource), limit, before);
  rlimit64 old{};
  if (get_limit(instance, resource, old) != 0) return -1;
  if (limit != nullptr && set_limit(instance, resource, *limit) != 0) return -1;
  if (before != nullptr) *before = old;
  return 0;
}

}  // namespace

std::span<const Binding> limits_bindings() {
  static const std::array table{
      bound<::sched_setaffinity, own_sched_setaffinity>("sched_setaffinity"),
      bound<::sched_getaffinity, own_sched_getaffinity>("sched_getaffinity"),
      bound<::pthread_setaffinity_np, own_pthread_setaffinity>("pthread_setaffinity_np"),
      bound<::pthread_getaffinity_np, own_pthread_getaffinity>("pthread_getaffinity_np"),
      bound<::nice, own_nice>("nice"),
      bound<::getpriority, own_getpriority>("getpriority"),
      bound<::setpriority, own_setpriority>("setpriority"),
      bound<::getrlimit64, own_getrlimit>("getrlimit"),
      bound<::getrlimit64, own_getrlimit>("getrlimit64"),
      bound<::setrlimit64, own_setrlimit>("setrlimit"),
      bound<::setrlimit64, own_setrlimit>("setrlimit64"),
      bound<::prlimit64, own_prlimit>("prlimit"),
      bound<::prlimit64, own_prlimit>("prlimit64"),
      bound<::sysconf, own_sysconf>("sysconf"),
      bound<::sysconf, own_sysconf>("__sysconf"),
      bound<::getdtablesize, own_getdtablesize>("getdtablesize"),
      Binding::of("ulimit", &own_ulimit),
  };
  return table;
}

}  // namespace aplib::loader::libc
