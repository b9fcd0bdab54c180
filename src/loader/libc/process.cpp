// SPDX-License-Identifier: MIT
// Fork, exec, brk: what a program in a shared process cannot do. A fork would duplicate the memory of every cell
// and leave all but one of them without a thread; an exec would end them all. And the program's own names, from its
// arguments.
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/state.hpp"

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
      Binding::datum("program_invocation_name", offsetof(LibcState, program_name)),
      Binding::datum("__progname_full", offsetof(LibcState, program_name)),
      Binding::datum("program_invocation_short_name", offsetof(LibcState, program_short_name)),
      Binding::datum("__progname", offsetof(LibcState, program_short_name)),
  };
  return table;
}

}  // namespace aplib::loader::libc
