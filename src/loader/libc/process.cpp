// SPDX-License-Identifier: MIT
// Fork, exec, system, popen, getpid: what a program in a shared process can and cannot do.
//
// A fork would duplicate the memory of every cell and leave all but one of them without a thread; an exec would end them all. Both are refused. Children by
// posix_spawn, system and popen are fine: they see the instance's environment, working directory and umask, and the process's descriptors.
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "loader/libc/caller.hpp"
#include "loader/libc/environ.hpp"
#include "loader/libc/start.hpp"
#include "loader/libc/tables.hpp"

namespace aplib::loader {

struct ProcessPrivate {
  struct Pipe {
    std::FILE* stream;
    pid_t child;
  };
  std::mutex mutex;
  std::vector<Pipe> pipes;  // popen's
};

namespace libc {
namespace {

int refuse(const void* caller, const std::string& text, int error) {
  if (Instance* instance = calling(caller)) instance->host().warn(text);
  errno = error;
  return -1;
}

int refuse_fork(const void* caller, const char* name) {
  return refuse(
      caller,
      std::string(name) +
          ": a program that shares its process with other cells cannot duplicate it: the copy would hold the "
          "memory of all cells and the threads of none; start children with posix_spawn(), system() or popen()",
      ENOSYS);
}

int refuse_exec(const void* caller, const char* name) {
  return refuse(caller,
                std::string(name) +
                    ": a program that shares its process with other cells cannot replace it: that would end them all; "
                    "start the other program as a child with posix_spawn(), system() or popen()",
                ENOSYS);
}

// --- refused

pid_t own_fork() { return refuse_fork(__builtin_return_address(0), "fork"); }
pid_t own_vfork() { return refuse_fork(__builtin_return_address(0), "vfork"); }
pid_t own_bare_fork() { return refuse_fork(__builtin_return_address(0), "_Fork"); }
int own_forkpty(int*, char*, const void*, const void*) { return refuse_fork(__builtin_return_address(0), "forkpty"); }
int own_daemon(int, int) { return refuse_fork(__builtin_return_address(0), "daemon"); }
int own_clone(int (*)(void*), void*, int, void*, ...) { return refuse_fork(__builtin_return_address(0), "clone"); }

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

constexpr const char* break_refused =
    ": the break belongs to the process's one heap and a program that shares the process cannot move it; use malloc() "
    "or "
    "mmap()";

int own_brk(void*) { return refuse(__builtin_return_address(0), std::string("brk") + break_refused, ENOMEM); }

void* own_sbrk(std::intptr_t change) {
  if (change == 0) return ::sbrk(0);
  refuse(__builtin_return_address(0), std::string("sbrk") + break_refused, ENOMEM);
  return reinterpret_cast<void*>(-1);  // NOLINT: what sbrk() returns
}

// --- children

class FileActions {
 public:
  FileActions() { posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;

  void connect(int descriptor, int as) { posix_spawn_file_actions_adddup2(&actions_, descriptor, as); }
  /// Standard input as the program's own.
  void give_input(Instance& instance) {
    const int input = instance.host().input();
    if (input < 0) {
      posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    } else if (input != STDIN_FILENO) {
      connect(input, STDIN_FILENO);
    }
  }
  [[nodiscard]] const posix_spawn_file_actions_t* get() const noexcept { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

// Descriptors that stay closed to children of other cells.
class Pipe {
 public:
  Pipe() : error_(pipe2(ends_.data(), O_CLOEXEC) == 0 ? 0 : errno) {}
  ~Pipe() {
    for (const int end : ends_) {
      if (end >= 0) close(end);
    }
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  [[nodiscard]] int error() const noexcept { return error_; }
  [[nodiscard]] int end(std::size_t which) const noexcept { return ends_[which]; }
  void release(std::size_t which) noexcept { ends_[which] = -1; }

 private:
  std::array<int, 2> ends_{-1, -1};
  int error_;
};

// "sh -c command". Returns 0 or errno.
int spawn_shell(Instance& instance, const char* command, const FileActions& actions, pid_t& child) {
  std::array<char*, 5> arguments{const_cast<char*>("sh"), const_cast<char*>("-c"), const_cast<char*>("--"),
                                 const_cast<char*>(command), nullptr};
  std::array<char*, 1> nothing{nullptr};
  char** environment = instance.libc().environ;
  return posix_spawn(&child, "/bin/sh", actions.get(), nullptr, arguments.data(),
                     environment != nullptr ? environment : nothing.data());
}

// Other tasks run meanwhile. Returns what waitpid() would.
pid_t wait_for(Instance& instance, pid_t child, int& status) {
  using namespace std::chrono_literals;
  std::chrono::nanoseconds pause = 50us;
  for (;;) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended != 0 && !(ended < 0 && errno == EINTR)) return ended;
    instance.host().sleep(pause);
    pause = std::min<std::chrono::nanoseconds>(pause * 2, 10ms);
  }
}

int own_system(const char* command) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::system(command);
  if (command == nullptr) return 1;  // there is a shell
  FileActions actions;
  actions.give_input(*instance);
  pid_t child = 0;
  if (const int error = spawn_shell(*instance, command, actions, child); error != 0) {
    errno = error;
    return error == ENOENT ? 127 << 8 : -1;
  }
  int status = 0;
  return wait_for(*instance, child, status) < 0 ? -1 : status;
}

std::FILE* own_popen(const char* command, const char* mode) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::popen(command, mode);
  const bool reads = std::strchr(mode, 'r') != nullptr;
  const bool writes = std::strchr(mode, 'w') != nullptr;
  if (reads == writes || std::strspn(mode, "rwe") != std::strlen(mode)) {
    errno = EINVAL;
    return nullptr;
  }
  const std::size_t ours = reads ? 0 : 1;
  Pipe pipe;
  if (pipe.error() != 0) {
    errno = pipe.error();
    return nullptr;
  }
  FileActions actions;
  if (reads) actions.give_input(*instance);
  actions.connect(pipe.end(1 - ours), reads ? STDOUT_FILENO : STDIN_FILENO);
  std::FILE* stream = fdopen(pipe.end(ours), reads ? "r" : "w");
  if (stream == nullptr) return nullptr;
  pipe.release(ours);  // the stream's now
  pid_t child = 0;
  if (const int error = spawn_shell(*instance, command, actions, child); error != 0) {
    std::fclose(stream);
    errno = error;
    return nullptr;
  }
  ProcessPrivate& own = shared_part(instance->libc().process);
  const std::lock_guard lock(own.mutex);
  own.pipes.push_back({stream, child});
  return stream;
}

int own_pclose(std::FILE* stream) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::pclose(stream);
  pid_t child = -1;
  {
    ProcessPrivate& own = shared_part(instance->libc().process);
    const std::lock_guard lock(own.mutex);
    const auto pipe = std::ranges::find(own.pipes, stream, &ProcessPrivate::Pipe::stream);
    if (pipe != own.pipes.end()) {
      child = pipe->child;
      own.pipes.erase(pipe);
    }
  }
  std::fclose(stream);
  if (child < 0) {
    errno = ECHILD;
    return -1;
  }
  int status = 0;
  return wait_for(*instance, child, status) < 0 ? -1 : status;
}

// posix_spawn() itself is libc's: it looks at nothing of ours. This one looks for the file in PATH.
int own_posix_spawnp(pid_t* child, const char* file, const posix_spawn_file_actions_t* actions,
                     const posix_spawnattr_t* attributes, char* const* arguments, char* const* environment) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::posix_spawnp(child, file, actions, attributes, arguments, environment);
  if (std::strchr(file, '/') != nullptr || *file == '\0')
    return ::posix_spawn(child, file, actions, attributes, arguments, environment);
  const char* path = find_variable(instance->libc(), "PATH");
  std::string_view rest = path != nullptr ? path : "/bin:/usr/bin";
  int result = ENOENT;
  for (bool more = true; more;) {
    const std::size_t colon = rest.find(':');
    more = colon != std::string_view::npos;
    const std::string_view folder = rest.substr(0, colon);
    if (more) rest.remove_prefix(colon + 1);
    const std::string candidate = folder.empty() ? std::string(file) : std::string(folder) + '/' + file;
    const int error = ::posix_spawn(child, candidate.c_str(), actions, attributes, arguments, environment);
    if (error == EACCES) result = error;
    const bool elsewhere = error == EACCES || error == ENOENT || error == ENOTDIR || error == ESTALE ||
                           error == ENODEV || error == ETIMEDOUT;
    if (!elsewhere) return error;
  }
  return result;
}

}  // namespace

void start_program_name(Instance& instance) noexcept {
  static char nameless = '\0';  // nobody writes it: libc's is in main's own arguments
  LibcState& state = instance.libc();
  char* name = instance.argc() > 0 ? instance.argv()[0] : &nameless;
  char* slash = std::strrchr(name, '/');
  state.program_name = name;
  state.program_short_name = slash != nullptr ? slash + 1 : name;
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
      Binding::of("brk", &own_brk),
      Binding::of("sbrk", &own_sbrk),
      Binding::of("__sbrk", &own_sbrk),
      Binding::of("system", &own_system),
      Binding::of("popen", &own_popen),
      Binding::of("pclose", &own_pclose),
      Binding::of("posix_spawnp", &own_posix_spawnp),
      Binding::datum("program_invocation_name", offsetof(LibcState, program_name)),
      Binding::datum("__progname_full", offsetof(LibcState, program_name)),
      Binding::datum("program_invocation_short_name", offsetof(LibcState, program_short_name)),
      Binding::datum("__progname", offsetof(LibcState, program_short_name)),
  };
  return table;
}

}  // namespace libc
}  // namespace aplib::loader
