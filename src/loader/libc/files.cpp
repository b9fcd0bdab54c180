// SPDX-License-Identifier: MIT
// Working directory and umask, per instance. The kernel keeps both per thread, once a thread asks for its own;
// context.hpp exchanges them when another program gets the thread. So calls that take a relative path, in libc or
// below, need nothing from us, and getcwd() is libc's.
// And what calls open, which is noted as the instance's (descriptors.cpp).
#include <dirent.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <mntent.h>
#include <mqueue.h>
#include <netdb.h>
#include <pty.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/os/descriptor.hpp"
#include "loader/context.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/state.hpp"
#include "loader/libc/streams.hpp"
#include "loader/libc/waiting.hpp"

extern "C" {
int __open64_2(const char*, int);
int __openat64_2(int, const char*, int);
mqd_t __mq_open_2(const char*, int);
}

namespace aplib::loader::libc {

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

// The instance works in `directory` from now on; none: opening it failed, errno says why.
int work_in(Instance& instance, const char* call, os::GuardedFd directory) {
  if (!directory) return -1;
  if (faccessat(directory.get(), ".", X_OK, AT_EACCESS) != 0) return -1;
  LibcState& state = instance.libc();
  auto id = state.has_walked ? std::nullopt : os::id_of_directory(directory.get());
  std::swap(state.thread_directory, directory);
  std::swap(state.thread_directory_id, id);
  const int error = thread_state_changed(instance);
  if (error == 0) return 0;
  std::swap(state.thread_directory, directory);
  std::swap(state.thread_directory_id, id);
  warn_shared(instance, call, error);
  return fail(error);
}

// Before libc itself changes the directory to and fro.
void have_own_directory(Instance& instance, const char* call) {
  LibcState& state = instance.libc();
  if (state.has_walked) return;
  state.has_walked = true;
  work_in(instance, call, os::GuardedFd(open(".", path_only)));
}

// --- what programs call

int own_chdir(Instance& instance, const char* path) {
  return work_in(instance, "chdir", os::GuardedFd(open(path, path_only)));
}

int own_fchdir(Instance& instance, int descriptor) {
  if (descriptor < 0) return fail(EBADF);
  return work_in(instance, "fchdir", os::GuardedFd(openat(redirected(instance, descriptor), ".", path_only)));
}

mode_t own_umask(Instance& instance, mode_t mask) {
  LibcState& state = instance.libc();
  mask &= 0777;
  const int recorded = state.thread_mask;
  const mode_t before = recorded >= 0 ? static_cast<mode_t>(recorded) : mask_of_thread();
  if (mask == before) return before;
  state.thread_mask = static_cast<int>(mask);
  if (const int error = thread_state_changed(instance); error != 0) {
    state.thread_mask = recorded;
    warn_shared(instance, "umask", error);
  }
  return before;
}

char* own_get_current_dir_name(LibcState& state) {
  const char* logical = find_variable(state, "PWD");
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
      bound<::chdir, own_chdir>("chdir"),
      bound<::fchdir, own_fchdir>("fchdir"),
      bound<::umask, own_umask>("umask"),
      bound<::get_current_dir_name, own_get_current_dir_name>("get_current_dir_name"),
      Binding::of("nftw", &own_nftw),
      Binding::of("nftw64", &own_nftw),
      Binding::of("fts_open", &own_fts_open),
      Binding::of("fts64_open", &own_fts_open),
  };
  return table;
}

// ---------------------------------------------------------------- what calls open

namespace {

/// A call that returns a new descriptor.
template <auto native, class Type = decltype(plain(native))>
struct Opens;
template <auto native, class... Args>
struct Opens<native, Function<int, Args...>> {
  static int call(Args... arguments) {
    Instance* const instance = calling(__builtin_return_address(0));
    return note_lowest(instance, native(arguments...));
  }
};
template <auto native>
Binding opens(std::string_view name) noexcept {
  return Binding::of(name, &Opens<native>::call);
}

/// The same of one that has a descriptor of the program's before.
template <auto native, class Type = decltype(plain(native))>
struct OpensBeside;
template <auto native, class... Args>
struct OpensBeside<native, Function<int, int, Args...>> {
  static int call(int descriptor, Args... arguments) {
    const void* const caller = __builtin_return_address(0);
    return note_lowest(calling(caller), native(redirected(caller, descriptor), arguments...));
  }
};
template <auto native>
Binding opens_beside(std::string_view name) noexcept {
  return Binding::of(name, &OpensBeside<native>::call);
}

/// Of those that older versions of libc do not have.
template <long number, class... Args>
int kernel_call(Args... arguments) {
  return static_cast<int>(::syscall(number, arguments...));
}

mode_t mode_of(va_list arguments) { return va_arg(arguments, mode_t); }  // libc reads it where it is needed

int own_open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(arguments);
  va_end(arguments);
  Instance* const instance = calling(__builtin_return_address(0));
  return note_lowest(instance, open_in_turn(instance, AT_FDCWD, SeenPath(instance, path).get(), flags, mode));
}

int own_openat(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(arguments);
  va_end(arguments);
  Instance* const instance = calling(__builtin_return_address(0));
  folder = redirected(__builtin_return_address(0), folder);
  return note_lowest(instance, open_in_turn(instance, folder, SeenPath(instance, path).get(), flags, mode));
}

int own_creat(const char* path, mode_t mode) {
  Instance* const instance = calling(__builtin_return_address(0));
  constexpr int flags = O_CREAT | O_WRONLY | O_TRUNC;
  return note_lowest(instance, open_in_turn(instance, AT_FDCWD, SeenPath(instance, path).get(), flags, mode));
}

int own_checked_open(const char* path, int flags) {
  Instance* const instance = calling(__builtin_return_address(0));
  const bool forgets_mode = (flags & (O_CREAT | O_TMPFILE)) != 0;  // libc ends the process
  return note_lowest(instance, forgets_mode
                                   ? __open64_2(path, flags)
                                   : open_in_turn(instance, AT_FDCWD, SeenPath(instance, path).get(), flags, 0));
}

int own_checked_openat(int folder, const char* path, int flags) {
  Instance* const instance = calling(__builtin_return_address(0));
  folder = redirected(__builtin_return_address(0), folder);
  const bool forgets_mode = (flags & (O_CREAT | O_TMPFILE)) != 0;
  return note_lowest(instance, forgets_mode ? __openat64_2(folder, path, flags)
                                            : open_in_turn(instance, folder, SeenPath(instance, path).get(), flags, 0));
}

int note_pair(Instance& instance, int result, int* pair) {
  if (result != 0) return result;
  const int second = pair[1];
  pair[0] = note_lowest(&instance, pair[0]);
  if (pair[0] < 0) {
    ::close(second);
    return -1;
  }
  pair[1] = note_lowest(&instance, second);
  if (pair[1] >= 0) return 0;
  if (is_standard(pair[0])) {
    redirect(outlet_of(instance, pair[0]), Outlet::Leads::nowhere);
  } else {
    note_closed(instance, pair[0]);
    ::close(pair[0]);
  }
  return fail(EMFILE);
}

int own_pipe(Instance& instance, int* pair) { return note_pair(instance, ::pipe(pair), pair); }
int own_pipe2(Instance& instance, int* pair, int flags) { return note_pair(instance, ::pipe2(pair, flags), pair); }
int own_socketpair(Instance& instance, int domain, int type, int protocol, int* pair) {
  return note_pair(instance, ::socketpair(domain, type, protocol, pair), pair);
}

int own_openpty(Instance& instance, int* control, int* terminal, char* name, const termios* settings,
                const winsize* size) {
  int pair[2] = {-1, -1};
  const int result = note_pair(instance, ::openpty(&pair[0], &pair[1], name, settings, size), pair);
  if (result == 0) *control = pair[0];
  if (result == 0) *terminal = pair[1];
  return result;
}

mqd_t own_mq_open(const char* name, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(arguments);
  mq_attr* const attributes = va_arg(arguments, mq_attr*);
  va_end(arguments);
  return note_lowest(calling(__builtin_return_address(0)), ::mq_open(name, flags, mode, attributes));
}

int own_mq_close(Instance& instance, mqd_t queue) {
  if (is_standard(queue)) return close_outlet(outlet_of(instance, queue));
  if (is_of_another(instance, queue)) return fail(EBADF);
  note_closed(instance, queue);
  return ::mq_close(queue);
}

std::FILE* own_setmntent(Instance& instance, const char* path, const char* mode) {
  return track_lowest(instance, ::setmntent(path, mode), mode);
}

int own_endmntent(Instance& instance, std::FILE* file) {
  if (file != nullptr) close_file(instance, file);
  return 1;
}

// A folder has the kernel's number, by which libc reads it, also where that is one of the program's 0, 1 and 2.

DIR* own_opendir(Instance& instance, const char* path) {
  DIR* const folder = ::opendir(path);
  if (folder == nullptr) return nullptr;
  Outlet* const closed = closed_outlet(instance);
  if (closed == nullptr) return note_new(&instance, ::dirfd(folder)) >= 0 ? folder : nullptr;
  redirect(*closed, Outlet::Leads::to_file, os::GuardedFd(::dirfd(folder)));
  closed->ends_at_exec = true;
  return folder;
}

DIR* own_fdopendir(Instance& instance, int descriptor) { return ::fdopendir(redirected(instance, descriptor)); }

int own_dirfd(Instance& instance, DIR* folder) { return number_of(instance, ::dirfd(folder)); }

int own_closedir(Instance& instance, DIR* folder) {
  const int descriptor = ::dirfd(folder);
  if (const int number = number_of(instance, descriptor); number != descriptor) {
    Outlet& outlet = outlet_of(instance, number);
    static_cast<void>(outlet.descriptor.release());
    redirect(outlet, Outlet::Leads::nowhere);
  } else if (os::is_guarded(descriptor) || is_of_another(instance, descriptor)) {
    return fail(EBADF);  // the program has closed it by its number, which another has now
  }
  note_closed(instance, descriptor);
  return ::closedir(folder);
}

}  // namespace

std::span<const Binding> opened_bindings() {
  // The 64 forms are the same on x86-64.
  static const std::array table{
      Binding::of("open", &own_open),
      Binding::of("open64", &own_open),
      Binding::of("__open", &own_open),
      Binding::of("__open64", &own_open),
      Binding::of("openat", &own_openat),
      Binding::of("openat64", &own_openat),
      Binding::of("__open_2", &own_checked_open),
      Binding::of("__open64_2", &own_checked_open),
      Binding::of("__openat_2", &own_checked_openat),
      Binding::of("__openat64_2", &own_checked_openat),
      Binding::of("creat", &own_creat),
      Binding::of("creat64", &own_creat),
      opens<::mkstemp64>("mkstemp"),
      opens<::mkstemp64>("mkstemp64"),
      opens<::mkostemp64>("mkostemp"),
      opens<::mkostemp64>("mkostemp64"),
      opens<::mkstemps64>("mkstemps"),
      opens<::mkstemps64>("mkstemps64"),
      opens<::mkostemps64>("mkostemps"),
      opens<::mkostemps64>("mkostemps64"),
      opens<::shm_open>("shm_open"),
      opens<::memfd_create>("memfd_create"),
      opens<::socket>("socket"),
      opens<::epoll_create>("epoll_create"),
      opens<::epoll_create1>("epoll_create1"),
      opens<::eventfd>("eventfd"),
      opens<::timerfd_create>("timerfd_create"),
      opens<::inotify_init>("inotify_init"),
      opens<::inotify_init1>("inotify_init1"),
      opens<::posix_openpt>("posix_openpt"),
      opens<::getpt>("getpt"),
      opens<::fanotify_init>("fanotify_init"),
      opens<::rcmd>("rcmd"),
      opens<::rcmd_af>("rcmd_af"),
      opens<::rexec>("rexec"),
      opens<::rexec_af>("rexec_af"),
      opens<::rresvport>("rresvport"),
      opens<::rresvport_af>("rresvport_af"),
      opens<kernel_call<SYS_pidfd_open, pid_t, unsigned>>("pidfd_open"),
      opens<kernel_call<SYS_fsopen, const char*, unsigned>>("fsopen"),
      opens_beside<kernel_call<SYS_pidfd_getfd, int, int, unsigned>>("pidfd_getfd"),
      opens_beside<kernel_call<SYS_open_tree, int, const char*, unsigned>>("open_tree"),
      opens_beside<kernel_call<SYS_fspick, int, const char*, unsigned>>("fspick"),
      opens_beside<kernel_call<SYS_fsmount, int, unsigned, unsigned>>("fsmount"),
      opens_beside<::open_by_handle_at>("open_by_handle_at"),
      Binding::of("mq_open", &own_mq_open),
      opens<__mq_open_2>("__mq_open_2"),
      bound<::mq_close, own_mq_close>("mq_close"),
      bound<::openpty, own_openpty>("openpty"),
      bound<::setmntent, own_setmntent>("setmntent"),
      bound<::setmntent, own_setmntent>("__setmntent"),
      bound<::endmntent, own_endmntent>("endmntent"),
      bound<::endmntent, own_endmntent>("__endmntent"),
      bound<::pipe, own_pipe>("pipe"),
      bound<::pipe, own_pipe>("__pipe"),
      bound<::pipe2, own_pipe2>("pipe2"),
      bound<::socketpair, own_socketpair>("socketpair"),
      bound<::opendir, own_opendir>("opendir"),
      bound<::fdopendir, own_fdopendir>("fdopendir"),
      bound<::dirfd, own_dirfd>("dirfd"),
      bound<::closedir, own_closedir>("closedir"),
  };
  return table;
}

}  // namespace aplib::loader::libc
