// SPDX-License-Identifier: MIT
// Working directory and umask, per instance.
//
// The kernel keeps both per thread, once a thread asks for its own; context.hpp exchanges them when another program
// gets the thread. So whatever takes a relative path, in libc or below, needs nothing from us, and getcwd() is
// libc's.
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "loader/context.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/environ.hpp"

namespace aplib::loader::libc {

LibcState::~LibcState() {
  if (thread_directory >= 0) close(thread_directory);
}

namespace {

constexpr int path_only = O_PATH | O_DIRECTORY | O_CLOEXEC;

int fail(int error) {
  errno = error;
  return -1;
}

void warn_shared(Instance& instance, const char* call, int error) {
  instance.services().warn(
      std::string(call) +
      ": the system does not let a thread have a working directory and umask of its own (unshare: " +
      std::strerror(error) +
      "), so this program cannot change them without changing those of all cells; allow "
      "unshare(CLONE_FS), which container "
      "profiles may forbid, or start the machine in the right directory");
}

// The instance works in `directory` from now on and owns it; negative: opening it failed, errno says why.
int work_in(Instance& instance, const char* call, int directory) {
  if (directory < 0) return -1;
  LibcState& state = instance.libc();
  int error = faccessat(directory, ".", X_OK, AT_EACCESS) == 0 ? 0 : errno;
  if (error == 0) {
    const int before = state.thread_directory;
    state.thread_directory = directory;
    error = thread_state_changed(instance);
    if (error == 0) {
      if (before >= 0) close(before);
      return 0;
    }
    state.thread_directory = before;
    warn_shared(instance, call, error);
  }
  close(directory);
  return fail(error);
}

// The process's own umask. The call that returns it changes it, for all threads; /proc says it without.
mode_t process_mask() {
  std::ifstream status("/proc/thread-self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("Umask:")) return static_cast<mode_t>(std::strtoul(line.c_str() + 6, nullptr, 8));
  }
  return 022;
}

// Before libc itself changes the directory to and fro.
void have_own_directory(Instance& instance, const char* call) {
  if (instance.libc().thread_directory < 0) work_in(instance, call, open(".", path_only));
}

// --- what programs call

int own_chdir(const char* path) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::chdir(path);
  return work_in(*instance, "chdir", open(path, path_only));
}

int own_fchdir(int descriptor) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::fchdir(descriptor);
  if (descriptor < 0) return fail(EBADF);
  return work_in(*instance, "fchdir", openat(descriptor, ".", path_only));
}

mode_t own_umask(mode_t mask) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::umask(mask);
  LibcState& state = instance->libc();
  mask &= 0777;
  const int recorded = state.thread_mask;
  const mode_t before = recorded >= 0 ? static_cast<mode_t>(recorded) : process_mask();
  if (mask == before) return before;
  state.thread_mask = static_cast<int>(mask);
  if (const int error = thread_state_changed(*instance); error != 0) {
    state.thread_mask = recorded;
    warn_shared(*instance, "umask", error);
  }
  return before;
}

char* own_get_current_dir_name() {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::get_current_dir_name();
  const char* logical = find_variable(*state, "PWD");
  struct stat named {};
  struct stat current {};
  if (logical != nullptr && stat(logical, &named) == 0 && stat(".", &current) == 0 && named.st_dev == current.st_dev &&
      named.st_ino == current.st_ino)
    return ::strdup(logical);
  return ::getcwd(nullptr, 0);
}

int own_nftw(const char* path, __nftw_func_t function, int descriptors, int flags) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance != nullptr && (flags & FTW_CHDIR) != 0) have_own_directory(*instance, "nftw");
  return ::nftw(path, function, descriptors, flags);
}

FTS* own_fts_open(char* const* paths, int options, int (*compare)(const FTSENT**, const FTSENT**)) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance != nullptr && (options & FTS_NOCHDIR) == 0) have_own_directory(*instance, "fts_open");
  return ::fts_open(paths, options, compare);
}

}  // namespace

std::span<const Binding> files_bindings() {
  // The 64 forms are the same on x86-64.
  static const std::array table{
      Binding::of("chdir", &own_chdir),       Binding::of("fchdir", &own_fchdir),
      Binding::of("umask", &own_umask),       Binding::of("get_current_dir_name", &own_get_current_dir_name),
      Binding::of("nftw", &own_nftw),         Binding::of("nftw64", &own_nftw),
      Binding::of("fts_open", &own_fts_open), Binding::of("fts64_open", &own_fts_open),
  };
  return table;
}

}  // namespace aplib::loader::libc
