// SPDX-License-Identifier: MIT
// fork and exec, which a program in a shared process cannot have. A fork would duplicate the memory of every cell and
// leave all but one of them without a thread; an exec would end them all. And the program's own names, from its
// arguments.
//
// Children that a program starts: system, popen, posix_spawn. They see the instance's environment, working directory,
// umask, standard streams and blocked signals; other descriptors are the process's. Other tasks run while a program
// waits for a child.
//
// SIGCHLD. The kernel would send it to the process. A thread of ours looks for ends, and leaves the signal with the
// program whose child it was. What a program waits for it may see first: then that call leaves it.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/os/descriptor.hpp"
#include "base/os/thread.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/signals.hpp"
#include "loader/libc/state.hpp"
#include "loader/libc/streams.hpp"
#include "loader/libc/waiting.hpp"

namespace aplib::loader::libc {

namespace {

int refuse(const void* caller, const std::string& text, int error) {
  if (Instance* instance = calling(caller)) instance->services().warn(text);
  errno = error;
  return -1;
}

int refuse_fork(const void* caller, const char* name) {
  return refuse(
      caller,
      std::string(name) +
          ": a program that shares its process with other cells cannot duplicate it: the copy would hold the "
          "memory of all cells and the threads of none; start children with posix_spawn(), system() or popen(), or "
          "run this one with --processes",
      ENOSYS);
}

int refuse_exec(const void* caller, const char* name) {
  return refuse(caller,
                std::string(name) +
                    ": a program that shares its process with other cells cannot replace it: that would end them all; "
                    "start the other program as a child with posix_spawn(), system() or popen(), or run this one with "
                    "--processes",
                ENOSYS);
}

// --- refused

pid_t own_fork() { return refuse_fork(__builtin_return_address(0), "fork"); }
pid_t own_vfork() { return refuse_fork(__builtin_return_address(0), "vfork"); }
pid_t own_bare_fork() { return refuse_fork(__builtin_return_address(0), "_Fork"); }
int own_forkpty(int*, char*, const void*, const void*) { return refuse_fork(__builtin_return_address(0), "forkpty"); }
int own_daemon(int, int) { return refuse_fork(__builtin_return_address(0), "daemon"); }
int own_clone(int (*)(void*), void*, int, void*, ...) { return refuse_fork(__builtin_return_address(0), "clone"); }

/// Its descriptors 0, 1 and 2, its session and its terminal would become those of all cells.
int own_login_tty(int) {
  return refuse(__builtin_return_address(0),
                "login_tty: a program that shares its process with other cells cannot give it another terminal; run "
                "this one with --processes",
                EPERM);
}

int own_execve(const char*, char* const*, char* const*) { return refuse_exec(__builtin_return_address(0), "execve"); }
int own_execv(const char*, char* const*) { return refuse_exec(__builtin_return_address(0), "execv"); }
int own_execvp(const char*, char* const*) { return refuse_exec(__builtin_return_address(0), "execvp"); }
int own_execvpe(const char*, char* const*, char* const*) { return refuse_exec(__builtin_return_address(0), "execvpe"); }
int own_execl(const char*, const char*, ...) { return refuse_exec(__builtin_return_address(0), "execl"); }
int own_execlp(const char*, const char*, ...) { return refuse_exec(__builtin_return_address(0), "execlp"); }
int own_execle(const char*, const char*, ...) { return refuse_exec(__builtin_return_address(0), "execle"); }
int own_fexecve(int, char* const*, char* const*) { return refuse_exec(__builtin_return_address(0), "fexecve"); }
int own_execveat(int, const char*, char* const*, char* const*, int) {
  return refuse_exec(__builtin_return_address(0), "execveat");
}

}  // namespace

void start_program_name(Instance& instance) noexcept {
  static char nameless = '\0';  // nobody writes it: libc's is in main's own arguments
  LibcState& state = instance.libc();
  char* name = instance.argc() > 0 ? instance.argv()[0] : &nameless;
  char* slash = std::strrchr(name, '/');
  *state.program_name = name;
  *state.program_short_name = slash != nullptr ? slash + 1 : name;
}

std::span<const Binding> process_bindings() {
  static const std::array table{
      Binding::of("fork", &own_fork),
      Binding::of("__fork", &own_fork),
      Binding::of("__libc_fork", &own_fork),
      Binding::of("vfork", &own_vfork),
      Binding::of("__vfork", &own_vfork),
      Binding::of("_Fork", &own_bare_fork),
      Binding::of("forkpty", &own_forkpty),
      Binding::of("login_tty", &own_login_tty),
      Binding::of("daemon", &own_daemon),
      Binding::of("clone", &own_clone),
      Binding::of("__clone", &own_clone),
      Binding::of("execve", &own_execve),
      Binding::of("execv", &own_execv),
      Binding::of("execvp", &own_execvp),
      Binding::of("execvpe", &own_execvpe),
      Binding::of("execl", &own_execl),
      Binding::of("execlp", &own_execlp),
      Binding::of("execle", &own_execle),
      Binding::of("fexecve", &own_fexecve),
      Binding::of("execveat", &own_execveat),
      variable<&LibcState::program_name>("program_invocation_name"),
      variable<&LibcState::program_name>("__progname_full"),
      variable<&LibcState::program_short_name>("program_invocation_short_name"),
      variable<&LibcState::program_short_name>("__progname"),
  };
  return table;
}

// ---------------------------------------------------------------- children

struct ProcessPrivate {
  ProcessPrivate() = default;
  ~ProcessPrivate();
  ProcessPrivate(const ProcessPrivate&) = delete;
  ProcessPrivate& operator=(const ProcessPrivate&) = delete;

  struct Pipe {
    std::FILE* stream;
    pid_t child;
  };
  std::mutex mutex;
  std::vector<Pipe> pipes;      // popen's
  std::vector<pid_t> children;  // posix_spawn's: what wait() waits for
  std::atomic<int> watched{0};  // of all
};

namespace {

/// The children of all instances that have not ended, as far as is known.
class ChildWatch {
 public:
  /// `waits`: the program itself waits for it.
  void add(Instance& instance, pid_t child, bool waits) {
    os::GuardedFd handle(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
    const std::lock_guard lock(mutex_);
    std::erase_if(children_, [child](const Child& each) { return each.pid == child && drop(each); });  // an old one
    children_.push_back({&instance, child, std::move(handle), waits});
    ++shared_part(instance.libc().process).watched;
    if (!runs_) {
      const WithoutProgramContext without;
      os::guard_descriptor(changed_.get());
      os::quiet_thread("aplib-children", [this] { run(); }).detach();
      runs_ = true;
    }
    changed_.signal();
  }
  /// Null: it is none of these.
  const Instance* maker_of(pid_t child) noexcept {
    const std::lock_guard lock(mutex_);
    for (const Child& each : children_) {
      if (each.pid == child) return each.instance;
    }
    const auto ended = std::ranges::find(ended_, child, &std::pair<pid_t, Instance*>::first);
    return ended != ended_.end() ? ended->second : nullptr;
  }
  void forget(const ProcessPrivate& part) noexcept {
    const std::lock_guard lock(mutex_);
    std::erase_if(ended_, [&part](const auto& each) { return each.second->libc().process.part == &part; });
    std::erase_if(children_, [&part](const Child& each) { return each.instance->libc().process.part == &part; });
  }
  /// `found` is what wait() told of its end. Only the first call for a child tells the program.
  void tell(const siginfo_t& found) {
    const std::lock_guard lock(mutex_);
    const auto child = std::ranges::find(children_, found.si_pid, &Child::pid);
    if (child == children_.end()) return;
    Instance& instance = *child->instance;
    sigval status{};
    status.sival_int = found.si_status;  // they lie at one place
    if (post_signal(instance, SIGCHLD, found.si_code, status, found.si_pid)) remind_of_signals(instance);
    constexpr std::size_t remembered = 32;  // what they have sent may be looked at a moment later
    if (ended_.size() >= remembered) ended_.erase(ended_.begin());
    ended_.emplace_back(child->pid, &instance);
    drop(*child);
    children_.erase(child);
  }

 private:
  struct Child {
    Instance* instance;
    pid_t pid;
    os::GuardedFd handle;  // none: it is gone, and whoever has waited for it will tell
    bool waits;
  };

  static bool drop(const Child& child) noexcept {
    --child.instance->libc().process.part->watched;
    return true;
  }
  /// The next child that has ended; si_pid is 0: none.
  siginfo_t find_end() {
    const std::lock_guard lock(mutex_);
    for (Child& child : children_) {
      siginfo_t found{};
      const bool is_lost =
          child.handle && ::waitid(P_PID, static_cast<id_t>(child.pid), &found, WEXITED | WNOHANG | WNOWAIT) != 0;
      if (is_lost) child.handle = os::GuardedFd();
      if (found.si_pid == 0) continue;
      if (child.waits && disowns_children(*child.instance))
        ::waitid(P_PID, static_cast<id_t>(child.pid), nullptr, WEXITED);
      return found;
    }
    return {};
  }
  [[noreturn]] void run() {
    while (true) {
      for (siginfo_t found = find_end(); found.si_pid != 0; found = find_end()) tell(found);
      std::vector<pollfd> polled{{changed_.get(), POLLIN, 0}};
      {
        const std::lock_guard lock(mutex_);
        for (const Child& child : children_) {
          if (child.handle) polled.push_back({child.handle.get(), POLLIN, 0});
        }
      }
      ::poll(polled.data(), polled.size(), -1);
      changed_.clear();
    }
  }

  std::mutex mutex_;
  std::vector<Child> children_;
  std::vector<std::pair<pid_t, Instance*>> ended_;
  os::EventFd changed_;
  bool runs_ = false;
};

ChildWatch& child_watch() {
  static auto* const watch = new ChildWatch;  // never destroyed: its thread may run to the end
  return *watch;
}

/// What wait() has told of a child, for the program's handler of SIGCHLD, which runs before the call returns.
void tell_end(Instance& instance, pid_t child, int status) {
  if (!WIFEXITED(status) && !WIFSIGNALED(status)) return;
  siginfo_t found{};
  found.si_pid = child;
  found.si_code = WIFEXITED(status) ? CLD_EXITED : WCOREDUMP(status) ? CLD_DUMPED : CLD_KILLED;
  found.si_status = WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status);
  child_watch().tell(found);
  deliver_pending_signals(instance);
}

/// What the child begins with besides files. The machine's threads block the signals that end it, for themselves; a
/// child blocks what the program does.
class Attributes {
 public:
  Attributes(Instance& instance, const posix_spawnattr_t* given) {
    if (given != nullptr) {
      attributes_ = *given;  // plain data in glibc
    } else {
      posix_spawnattr_init(&attributes_);
    }
    short flags = 0;
    posix_spawnattr_getflags(&attributes_, &flags);
    if ((flags & POSIX_SPAWN_SETSIGMASK) != 0) return;
    sigset_t blocked;
    sigemptyset(&blocked);
    change_signal_mask(instance, SIG_BLOCK, nullptr, &blocked);
    posix_spawnattr_setsigmask(&attributes_, &blocked);
    posix_spawnattr_setflags(&attributes_, static_cast<short>(flags | POSIX_SPAWN_SETSIGMASK));
  }
  [[nodiscard]] const posix_spawnattr_t* get() const noexcept { return &attributes_; }

 private:
  posix_spawnattr_t attributes_{};
};

/// What a shell is told so that what it becomes or starts has the program's limits, and ignores the signals that the
/// program does, which posix_spawn() has no words for. Not SIGCHLD: a shell would miss the ends of its children.
std::string shell_preparation(Instance& instance, const posix_spawnattr_t* given) {
  std::string commands = limits_for_shell(instance);
  short flags = 0;
  sigset_t defaults;
  sigemptyset(&defaults);
  if (given != nullptr && posix_spawnattr_getflags(given, &flags) == 0 && (flags & POSIX_SPAWN_SETSIGDEF) != 0)
    posix_spawnattr_getsigdefault(given, &defaults);
  std::string ignored;
  for (const int signal : ignored_signals(instance)) {
    if (signal != SIGCHLD && sigismember(&defaults, signal) != 1) ignored += fmt::format(" {}", signal);
  }
  if (!ignored.empty()) commands += "trap ''" + ignored + ";";
  return commands;
}

/// A child of the program. Returns 0 or errno.
int spawn(Instance& instance, pid_t& child, const char* path, const posix_spawn_file_actions_t* actions,
          const posix_spawnattr_t* given, char* const* arguments, char* const* environment) {
  const int error = ::posix_spawn(&child, path, actions, Attributes(instance, given).get(), arguments, environment);
  if (error == 0) give_limits(instance, child);
  return error;
}

/// posix_spawn() of a file that is there. Where that needs a shell to prepare it, one becomes it; but not where its
/// first argument is another name than the file's, which would be lost.
int start_child(Instance& instance, pid_t& child, const char* path, const posix_spawn_file_actions_t* actions,
                const posix_spawnattr_t* given, char* const* arguments, char* const* environment) {
  const auto name_of = [](std::string_view name) { return name.substr(name.rfind('/') + 1); };
  std::string commands = shell_preparation(instance, given);
  const bool has_name = arguments != nullptr && arguments[0] != nullptr && name_of(arguments[0]) == name_of(path);
  if (commands.empty() || !has_name || *path == '\0' || ::access(path, X_OK) != 0)
    return spawn(instance, child, path, actions, given, arguments, environment);
  commands += "exec \"$0\" \"$@\"";
  std::string file = std::strchr(path, '/') != nullptr ? path : std::string("./") + path;
  std::vector<char*> words{const_cast<char*>("sh"), const_cast<char*>("-c"), commands.data(), file.data()};
  for (char* const* each = arguments + 1; *each != nullptr; ++each) words.push_back(*each);
  words.push_back(nullptr);
  return spawn(instance, child, "/bin/sh", actions, given, words.data(), environment);
}

class FileActions {
 public:
  FileActions() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_init(&last_);
  }
  ~FileActions() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawn_file_actions_destroy(&last_);
  }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;

  void connect(int descriptor, int as) { posix_spawn_file_actions_adddup2(&actions_, descriptor, as); }
  /// Descriptors 0, 1 and 2 as the program has them, but those that `except` names. `has_own`: join() follows, which
  /// may name one that exec would close, so that one stays until then.
  void give_streams(Instance& instance, int except = -1, bool has_own = false) {
    for (int number = 0; number <= 2; ++number) {
      if (number != except) give(outlet_of(instance, number), number, has_own);
    }
  }
  /// And what the program asks for after that.
  void join(const posix_spawn_file_actions_t* given) {
    for (int number = 0; number <= 2; ++number) {
      if (ends_at_exec_[static_cast<std::size_t>(number)] && !makes(*given, number))
        posix_spawn_file_actions_addclose(&last_, number);
    }
    const auto bytes_of = [](const posix_spawn_file_actions_t& list) {
      return std::span(reinterpret_cast<const char*>(list.__actions),
                       static_cast<std::size_t>(list.__used) * action_bytes());
    };
    const auto ours = bytes_of(actions_);
    const auto theirs = bytes_of(*given);
    const auto last = bytes_of(last_);
    all_.assign(ours.begin(), ours.end());
    all_.insert(all_.end(), theirs.begin(), theirs.end());
    all_.insert(all_.end(), last.begin(), last.end());
    joined_.__used = joined_.__allocated = actions_.__used + given->__used + last_.__used;
    joined_.__actions = reinterpret_cast<decltype(joined_.__actions)>(all_.data());
  }
  [[nodiscard]] const posix_spawn_file_actions_t* get() const noexcept { return all_.empty() ? &actions_ : &joined_; }

 private:
  /// Of one action, whose layout libc keeps to itself.
  static std::size_t action_bytes() {
    static const std::size_t bytes = [] {
      constexpr int first = 0x01020304;
      constexpr int second = 0x05060708;
      posix_spawn_file_actions_t two;
      posix_spawn_file_actions_init(&two);
      // Flags may be anything, where descriptors must be below the limit.
      posix_spawn_file_actions_addopen(&two, STDIN_FILENO, "/", first, 0);
      posix_spawn_file_actions_addopen(&two, STDIN_FILENO, "/", second, 0);
      const int* const words = reinterpret_cast<const int*>(two.__actions);
      const int* const at = std::find(words, words + 64, first);
      const auto distance = static_cast<std::size_t>(std::find(at, at + 64, second) - at) * sizeof *words;
      posix_spawn_file_actions_destroy(&two);
      return distance;
    }();
    return bytes;
  }
  /// The word that tells an action's kind, and what lies behind it: a descriptor, and in a copy's the new one.
  static const int* words_of(const posix_spawn_file_actions_t& list, int index) {
    return reinterpret_cast<const int*>(reinterpret_cast<const char*>(list.__actions) +
                                        static_cast<std::size_t>(index) * action_bytes());
  }
  /// After these actions, `number` is what one of them has made.
  static bool makes(const posix_spawn_file_actions_t& given, int number) {
    constexpr std::size_t descriptor = 2;
    constexpr std::size_t copy = 3;
    static const auto kinds = [] {
      posix_spawn_file_actions_t two;
      posix_spawn_file_actions_init(&two);
      posix_spawn_file_actions_adddup2(&two, STDIN_FILENO, STDOUT_FILENO);
      posix_spawn_file_actions_addopen(&two, STDIN_FILENO, "/", 0, 0);
      const std::pair found(*words_of(two, 0), *words_of(two, 1));
      posix_spawn_file_actions_destroy(&two);
      return found;
    }();
    for (int i = 0; i < given.__used; ++i) {
      const int* const words = words_of(given, i);
      if ((words[0] == kinds.first && words[copy] == number) ||
          (words[0] == kinds.second && words[descriptor] == number))
        return true;
    }
    return false;
  }
  void give(const Outlet& outlet, int number, bool has_own) {
    ends_at_exec_[static_cast<std::size_t>(number)] = outlet.ends_at_exec;
    if (outlet.leads == Outlet::Leads::nowhere || (outlet.ends_at_exec && !has_own)) {
      posix_spawn_file_actions_addclose(&actions_, number);
      return;
    }
    const int input = outlet.instance->services().input();
    const bool is_input = outlet.leads == Outlet::Leads::to_cell && outlet.cell_stream == Stream::in;
    if (is_input && input < 0) {
      posix_spawn_file_actions_addopen(&actions_, number, "/dev/null", O_RDONLY, 0);
      return;
    }
    const int from = outlet.leads == Outlet::Leads::to_file ? outlet.descriptor.get()
                     : is_input                             ? input
                                                            : static_cast<int>(outlet.cell_stream);
    // 1 for 2 and 2 for 1 at once would need a third place; nobody does that.
    if (from != number) connect(from, number);
  }

  posix_spawn_file_actions_t actions_{};
  posix_spawn_file_actions_t last_{};
  posix_spawn_file_actions_t joined_{};  // points into all_, and owns nothing
  std::array<bool, 3> ends_at_exec_{};
  std::vector<char> all_;
};

// "sh -c command". Returns 0 or errno. A shell takes the program's limits before it begins with the command.
int spawn_shell(Instance& instance, const char* command, const FileActions& actions, pid_t& child) {
  std::string all = shell_preparation(instance, nullptr) + command;
  std::array<char*, 5> arguments{const_cast<char*>("sh"), const_cast<char*>("-c"), const_cast<char*>("--"), all.data(),
                                 nullptr};
  std::array<char*, 1> nothing{nullptr};
  char** environment = *instance.libc().environ;
  return spawn(instance, child, "/bin/sh", actions.get(), nullptr, arguments.data(),
               environment != nullptr ? environment : nothing.data());
}

// One look: the child that ended (or what `options` ask for), 0, or the negative error.
[[gnu::noinline]] pid_t look_for(pid_t child, int& status, int options, rusage* usage) noexcept {
  const pid_t ended = ::wait4(child, &status, options | WNOHANG, usage);
  return ended >= 0 ? ended : -errno;
}

// The same for all children that the program has spawned, or those of a group (0: any).
pid_t look_for_any(Instance& instance, pid_t group, int& status, int options, rusage* usage) {
  ProcessPrivate& own = shared_part(instance.libc().process);
  const std::lock_guard lock(own.mutex);
  bool has_any = false;
  for (auto child = own.children.begin(); child != own.children.end();) {
    if (group != 0 && ::getpgid(*child) != group) {
      ++child;
      continue;
    }
    const pid_t found = look_for(*child, status, options, usage);
    const bool gone = found < 0 || (found > 0 && (WIFEXITED(status) || WIFSIGNALED(status)));
    has_any = has_any || !gone;
    child = gone ? own.children.erase(child) : child + 1;
    if (found > 0) return found;
  }
  return has_any ? 0 : -ECHILD;
}

/// The wait for a child that a handler of the program's ends, unless its flags have SA_RESTART.
class ChildWait {
 public:
  explicit ChildWait(Instance& instance) : instance_(instance) {}
  /// Before another look, by which a child that has just ended is found.
  void pass() {
    using namespace std::chrono_literals;
    const ErrnoKept kept;
    instance_.services().sleep(pause_);
    expire_timers(instance_);
    deliver_pending_signals(instance_);
    pause_ = std::min<std::chrono::nanoseconds>(pause_ * 2, 10ms);
  }
  [[nodiscard]] bool is_interrupted() const noexcept { return handlers_run(EndedBy::without_restart) != before_; }

 private:
  Instance& instance_;
  const unsigned long before_ = handlers_run(EndedBy::without_restart);
  std::chrono::nanoseconds pause_{50'000};
};

// waitpid() while other tasks run. Of all children, or those of a group, it sees those of the instance.
// `own`: the program made it by a call that waits for it, and gets its status whatever it does with SIGCHLD.
pid_t wait_for(Instance& instance, pid_t child, int* status, int options, rusage* usage, bool own = false) {
  for (ChildWait wait(instance);; wait.pass()) {
    int found_status = 0;
    const pid_t found = child <= 0 ? look_for_any(instance, child < -1 ? -child : 0, found_status, options, usage)
                                   : look_for(child, found_status, options, usage);
    if (found > 0) {
      if (status != nullptr) *status = found_status;
      tell_end(instance, found, found_status);
      if (!own && disowns_children(instance)) continue;  // the system would have taken it away
      return found;
    }
    if (found < 0 && found != -EINTR) return failed(-found);
    if ((options & WNOHANG) != 0) return 0;
    if (!own && wait.is_interrupted()) return failed(EINTR);
  }
}

// What system() and pclose() return.
int status_of(Instance& instance, pid_t child) {
  int status = 0;
  return wait_for(instance, child, &status, 0, nullptr, true) < 0 ? -1 : status;
}

int own_system(Instance& instance, const char* command) {
  if (command == nullptr) return 1;  // there is a shell
  FileActions actions;
  actions.give_streams(instance);
  pid_t child = 0;
  if (const int error = spawn_shell(instance, command, actions, child); error != 0) {
    errno = error;
    return error == ENOENT ? 127 << 8 : -1;
  }
  child_watch().add(instance, child, false);
  return status_of(instance, child);
}

std::FILE* own_popen(Instance& instance, const char* command, const char* mode) {
  const bool reads = std::strchr(mode, 'r') != nullptr;
  const bool writes = std::strchr(mode, 'w') != nullptr;
  if (reads == writes || std::strspn(mode, "rwe") != std::strlen(mode)) {
    errno = EINVAL;
    return nullptr;
  }
  const std::size_t ours = reads ? 0 : 1;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return nullptr;  // closed to children of other cells
  os::UniqueFd our_end(ends[ours]);
  const os::UniqueFd their_end(ends[1 - ours]);
  FileActions actions;
  const int theirs = reads ? STDOUT_FILENO : STDIN_FILENO;
  actions.give_streams(instance, theirs);
  actions.connect(their_end.get(), theirs);
  std::FILE* stream = fdopen(our_end.get(), reads ? "r" : "w");
  if (stream == nullptr) return nullptr;
  static_cast<void>(our_end.release());  // the stream's now
  // Of the pipe's two numbers, the child's end has had the lower one where the program writes.
  const Outlet* const lower = writes ? closed_outlet(instance) : nullptr;
  stream = track_lowest(instance, stream, mode, lower != nullptr ? static_cast<int>(lower->stream) + 1 : 0);
  if (stream == nullptr) return nullptr;
  pid_t child = 0;
  if (const int error = spawn_shell(instance, command, actions, child); error != 0) {
    close_file(instance, stream);
    errno = error;
    return nullptr;
  }
  child_watch().add(instance, child, false);
  ProcessPrivate& own = shared_part(instance.libc().process);
  const std::lock_guard lock(own.mutex);
  std::erase_if(own.pipes, [stream](const ProcessPrivate::Pipe& each) { return each.stream == stream; });  // fclose()d
  own.pipes.push_back({stream, child});
  return stream;
}

int own_pclose(Instance& instance, std::FILE* stream) {
  pid_t child = -1;
  {
    ProcessPrivate& own = shared_part(instance.libc().process);
    const std::lock_guard lock(own.mutex);
    const auto pipe = std::ranges::find(own.pipes, stream, &ProcessPrivate::Pipe::stream);
    if (pipe != own.pipes.end()) {
      child = pipe->child;
      own.pipes.erase(pipe);
    }
  }
  close_file(instance, stream);
  if (child < 0) {
    errno = ECHILD;
    return -1;
  }
  return status_of(instance, child);
}

// Notes a child that was spawned with `error` 0.
int spawned(Instance& instance, int error, pid_t child) {
  if (error != 0) return error;
  child_watch().add(instance, child, true);
  ProcessPrivate& own = shared_part(instance.libc().process);
  const std::lock_guard lock(own.mutex);
  std::erase(own.children, child);  // an old one of that number was waited for by other means
  own.children.push_back(child);
  return 0;
}

int own_posix_spawn(Instance& instance, pid_t* child, const char* file, const posix_spawn_file_actions_t* actions,
                    const posix_spawnattr_t* given, char* const* arguments, char* const* environment) {
  FileActions streams;
  streams.give_streams(instance, -1, actions != nullptr);
  if (actions != nullptr) streams.join(actions);
  pid_t made = 0;
  const int error = start_child(instance, made, file, streams.get(), given, arguments, environment);
  if (error == 0 && child != nullptr) *child = made;
  return spawned(instance, error, made);
}

int own_posix_spawnp(Instance& instance, pid_t* child, const char* file, const posix_spawn_file_actions_t* actions,
                     const posix_spawnattr_t* given, char* const* arguments, char* const* environment) {
  FileActions streams;
  streams.give_streams(instance, -1, actions != nullptr);
  if (actions != nullptr) streams.join(actions);
  actions = streams.get();
  pid_t made = 0;
  const auto end = [&](int error) {
    if (error == 0 && child != nullptr) *child = made;
    return spawned(instance, error, made);
  };
  const auto start = [&](const char* path) {
    return start_child(instance, made, path, actions, given, arguments, environment);
  };
  if (std::strchr(file, '/') != nullptr || *file == '\0') return end(start(file));
  const char* path = find_variable(instance.libc(), "PATH");
  std::string_view rest = path != nullptr ? path : "/bin:/usr/bin";
  int result = ENOENT;
  for (bool more = true; more;) {
    const std::size_t colon = rest.find(':');
    more = colon != std::string_view::npos;
    const std::string_view folder = rest.substr(0, colon);
    if (more) rest.remove_prefix(colon + 1);
    const std::string candidate = folder.empty() ? std::string(file) : std::string(folder) + '/' + file;
    const int error = start(candidate.c_str());
    if (error == EACCES) result = error;
    const bool elsewhere = error == EACCES || error == ENOENT || error == ENOTDIR || error == ESTALE ||
                           error == ENODEV || error == ETIMEDOUT;
    if (!elsewhere) return end(error);
  }
  return result;
}

pid_t own_wait(Instance& instance, int* status) { return wait_for(instance, -1, status, 0, nullptr); }

pid_t own_waitpid(Instance& instance, pid_t child, int* status, int options) {
  return wait_for(instance, child, status, options, nullptr);
}

// One look, at children of the instance where `kind` names several. 0, or the error.
int look_for_one(Instance& instance, idtype_t kind, id_t id, siginfo_t& found, int options, rusage* usage) {
  const auto look = [&](idtype_t which, id_t number) {
    return ::syscall(SYS_waitid, which, number, &found, options | WNOHANG, usage) == 0 ? 0 : errno;
  };
  if (kind != P_ALL && kind != P_PGID) return look(kind, id);
  ProcessPrivate& own = shared_part(instance.libc().process);
  const std::lock_guard lock(own.mutex);
  bool has_any = false;
  for (const pid_t child : own.children) {
    if (kind == P_PGID && id != 0 && ::getpgid(child) != static_cast<pid_t>(id)) continue;
    if (look(P_PID, static_cast<id_t>(child)) != 0) continue;
    has_any = true;
    if (found.si_pid == 0) continue;
    const bool ended = found.si_code == CLD_EXITED || found.si_code == CLD_KILLED || found.si_code == CLD_DUMPED;
    if (ended && (options & WNOWAIT) == 0) std::erase(own.children, pid_t{found.si_pid});
    return 0;
  }
  return has_any ? 0 : ECHILD;
}

}  // namespace

int wait_for_one(Instance& instance, idtype_t kind, id_t id, siginfo_t* info, int options, rusage* usage) {
  for (ChildWait wait(instance);; wait.pass()) {
    siginfo_t found{};
    const int error = look_for_one(instance, kind, id, found, options, usage);
    if (error != 0 && error != EINTR) return failed(error);
    if (found.si_pid != 0 || (options & WNOHANG) != 0) {
      if (info != nullptr) *info = found;
      const bool ended = found.si_code == CLD_EXITED || found.si_code == CLD_KILLED || found.si_code == CLD_DUMPED;
      if (ended && found.si_pid != 0) child_watch().tell(found);
      deliver_pending_signals(instance);
      return 0;
    }
    if (wait.is_interrupted()) return failed(EINTR);
  }
}

namespace {

int own_waitid(Instance& instance, idtype_t kind, id_t id, siginfo_t* info, int options) {
  return wait_for_one(instance, kind, id, info, options, nullptr);
}

pid_t own_wait3(Instance& instance, int* status, int options, rusage* usage) {
  return wait_for(instance, -1, status, options, usage);
}

pid_t own_wait4(Instance& instance, pid_t child, int* status, int options, rusage* usage) {
  return wait_for(instance, child, status, options, usage);
}

}  // namespace

ProcessPrivate::~ProcessPrivate() { child_watch().forget(*this); }

// A child that has just been made may send something before its maker is noted.
const Instance* maker_of(pid_t process) {
  constexpr int generations = 8;
  constexpr int moments = 100;
  for (int moment = 0; moment < moments; ++moment) {
    pid_t ancestor = process;
    for (int i = 0; i < generations && ancestor > 1 && ancestor != ::getpid(); ++i) {
      if (const Instance* const maker = child_watch().maker_of(ancestor)) return maker;
      ancestor = os::state_of(fmt::format("{}", ancestor)).parent;
    }
    if (ancestor != ::getpid()) return child_watch().maker_of(process);  // it may have ended meanwhile
    if (process == ancestor) return nullptr;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return nullptr;
}

bool may_be_signalled(Instance& instance) noexcept {
  if (std::atomic_ref(instance.libc().threads.part).load() != nullptr || takes_outside_signals(instance)) return true;
  const ProcessPrivate* const own = std::atomic_ref(instance.libc().process.part).load();
  return own != nullptr && own->watched.load() != 0;
}

void signal_children(Instance& instance, int signal) {
  ProcessPrivate& own = shared_part(instance.libc().process);
  const std::lock_guard lock(own.mutex);
  std::vector<pid_t> children = own.children;
  for (const ProcessPrivate::Pipe& each : own.pipes) children.push_back(each.child);
  for (const pid_t child : children) {
    if (::getpgid(child) == ::getpgrp()) ::kill(child, signal);
  }
}

std::span<const Binding> children_bindings() {
  static const std::array table{
      bound<::system, own_system>("system"),
      bound<::popen, own_popen>("popen"),
      bound<::pclose, own_pclose>("pclose"),
      bound<::posix_spawn, own_posix_spawn>("posix_spawn"),
      bound<::posix_spawnp, own_posix_spawnp>("posix_spawnp"),
      bound<::wait, own_wait>("wait"),
      bound<::wait, own_wait>("__wait"),
      bound<::waitpid, own_waitpid>("waitpid"),
      bound<::waitpid, own_waitpid>("__waitpid"),
      bound<::waitid, own_waitid>("waitid"),
      bound<::wait3, own_wait3>("wait3"),
      bound<::wait4, own_wait4>("wait4"),
  };
  return table;
}

}  // namespace aplib::loader::libc
