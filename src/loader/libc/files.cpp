// SPDX-License-Identifier: MIT
// Working directory and umask, per instance. The kernel keeps both per thread, once a thread asks for its own;
// context.hpp exchanges them when another program gets the thread. So calls that take a relative path, in libc or
// below, need nothing from us, and getcwd() is libc's.
//
// Descriptors 0, 1 and 2, used without stdio. They belong to the process and so to all cells. What an instance writes
// to 1 and 2 goes to its host, which keeps lines whole. What it does to them by dup2 and close it does to its own
// outlets. Calls that are not here (fcntl, ioctl, poll) see the process's descriptors. An instance cannot close the
// runtime's descriptors (base/os/descriptor.hpp).
//
// Record locks (fcntl, lockf) and flock. The kernel's record locks belong to the process, so cells would never exclude
// each other, and a database that two of them open would be spoiled without a word. Here they belong to the instance:
// it opens each file that it locks once more, and the open-file-description locks of that descriptor exclude other
// instances and the record locks of other processes alike. A flow that waits for a lock lets other tasks run, because
// the holder may be on the same thread.
//
// Not kept: EDEADLK (a circle of waiting programs waits). F_GETLK tells the process's own number for a lock of another
// cell.
#include <fcntl.h>
#include <fmt/format.h>
#include <fts.h>
#include <ftw.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/os/descriptor.hpp"
#include "loader/context.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/state.hpp"
#include "loader/libc/streams.hpp"

extern "C" {
int __vasprintf_chk(char**, int, const char*, va_list);
ssize_t __read_chk(int, void*, std::size_t, std::size_t);
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
  return work_in(instance, "fchdir", os::GuardedFd(openat(descriptor, ".", path_only)));
}

mode_t own_umask(Instance& instance, mode_t mask) {
  LibcState& state = instance.libc();
  mask &= 0777;
  const int recorded = state.thread_mask;
  const mode_t before = recorded >= 0 ? static_cast<mode_t>(recorded) : process_mask();
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

// ---------------------------------------------------------------- descriptors 0, 1 and 2

namespace {

// The caller's outlet, or null: any other descriptor, or no instance.
Outlet* outlet_at(const void* caller, int descriptor) {
  if (!is_standard(descriptor)) return nullptr;
  Instance* instance = calling(caller);
  return instance == nullptr ? nullptr : &outlet_of(*instance, descriptor);
}

ssize_t own_write(int descriptor, const void* bytes, std::size_t count) {
  Outlet* outlet = outlet_at(__builtin_return_address(0), descriptor);
  if (outlet == nullptr) return ::write(descriptor, bytes, count);
  return write_outlet(*outlet, static_cast<const char*>(bytes), count);
}

ssize_t own_writev(int descriptor, const iovec* pieces, int count) {
  Outlet* outlet = outlet_at(__builtin_return_address(0), descriptor);
  if (outlet == nullptr) return ::writev(descriptor, pieces, count);
  if (outlet->leads == Outlet::Leads::to_file) return ::writev(outlet->descriptor.get(), pieces, count);
  std::string whole;
  for (int i = 0; i < count; ++i) whole.append(static_cast<const char*>(pieces[i].iov_base), pieces[i].iov_len);
  return write_outlet(*outlet, whole.data(), whole.size());
}

ssize_t own_pwrite(int descriptor, const void* bytes, std::size_t count, off64_t position) {
  Outlet* outlet = outlet_at(__builtin_return_address(0), descriptor);
  if (outlet == nullptr) return ::pwrite64(descriptor, bytes, count, position);
  if (outlet->leads == Outlet::Leads::to_file) return ::pwrite64(outlet->descriptor.get(), bytes, count, position);
  errno = ESPIPE;
  return -1;
}

ssize_t own_read(int descriptor, void* bytes, std::size_t count) {
  Outlet* outlet = outlet_at(__builtin_return_address(0), descriptor);
  if (outlet == nullptr) return ::read(descriptor, bytes, count);
  return read_outlet(*outlet, static_cast<char*>(bytes), count);
}

ssize_t own_read_chk(int descriptor, void* bytes, std::size_t count, std::size_t room) {
  Outlet* outlet = outlet_at(__builtin_return_address(0), descriptor);
  if (outlet == nullptr || count > room) return __read_chk(descriptor, bytes, count, room);
  return read_outlet(*outlet, static_cast<char*>(bytes), count);
}

// `level` < 0: unchecked.
int print(const void* caller, int descriptor, int level, const char* format, va_list arguments) {
  Outlet* outlet = outlet_at(caller, descriptor);
  if (outlet == nullptr) return ::vdprintf(descriptor, format, arguments);
  char* made = nullptr;
  const int length =
      level < 0 ? ::vasprintf(&made, format, arguments) : __vasprintf_chk(&made, level, format, arguments);
  if (length < 0) return -1;
  const std::unique_ptr<char, void (*)(void*)> text(made, &std::free);
  return static_cast<int>(write_outlet(*outlet, text.get(), static_cast<std::size_t>(length)));
}
int print_unchecked(const void* caller, int descriptor, const char* format, va_list arguments) {
  return print(caller, descriptor, -1, format, arguments);
}

// --- redirection

bool same_file(int one, int other) {
  struct stat64 a {};
  struct stat64 b {};
  return other >= 0 && ::fstat64(one, &a) == 0 && ::fstat64(other, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino && a.st_rdev == b.st_rdev;
}

// The process's descriptor behind an outlet that leads to the host.
int process_descriptor(const Outlet& outlet) {
  return outlet.cell_stream == Stream::in ? outlet.instance->services().input() : static_cast<int>(outlet.cell_stream);
}

// dup2() with an outlet as the new descriptor.
int redirect_to(Instance& instance, int from, int number) {
  Outlet& outlet = outlet_of(instance, number);
  if (from == number) {
    if (outlet.leads != Outlet::Leads::nowhere) return number;
    errno = EBADF;
    return -1;
  }
  if (is_standard(from)) {
    const Outlet& other = outlet_of(instance, from);
    if (other.leads == Outlet::Leads::to_cell) {
      redirect(outlet, Outlet::Leads::to_cell);
      outlet.cell_stream = other.cell_stream;
      return number;
    }
    from = other.descriptor.get();
  } else if (number != 0 ? same_file(from, number) : same_file(from, instance.services().input())) {
    // It restores what it has saved by dup(1).
    redirect(outlet, Outlet::Leads::to_cell);
    return number;
  }
  os::GuardedFd descriptor(::fcntl(from, F_DUPFD_CLOEXEC, 3));
  if (!descriptor) return -1;
  redirect(outlet, Outlet::Leads::to_file, std::move(descriptor));
  return number;
}

// The process's descriptor that `descriptor` of the caller stands for.
int translated(const void* caller, int descriptor) {
  const Outlet* outlet = outlet_at(caller, descriptor);
  if (outlet == nullptr) return descriptor;
  return outlet->leads == Outlet::Leads::to_cell ? process_descriptor(*outlet) : outlet->descriptor.get();
}

// The runtime needs descriptor `to`, whose place `from` is to take.
bool is_taken(const void* caller, const char* call, int from, int to) {
  if (from == to || !os::is_guarded(to)) return false;
  Instance* instance = calling(caller);
  if (instance == nullptr) return false;
  instance->services().warn(
      fmt::format("{}() to descriptor {} is refused (EBADF): the machine needs that one, and cells share one table of "
                  "descriptors; have the system choose a free number (dup, or fcntl with F_DUPFD)",
                  call, to));
  return true;
}

// --- what they are

// The same for questions: an empty file answers for the input of a cell that has none.
int asked(const void* caller, int descriptor) {
  static const os::GuardedFd empty(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Outlet* outlet = outlet_at(caller, descriptor);
  if (outlet == nullptr) return descriptor;
  const int known = translated(caller, descriptor);
  return known < 0 && outlet->leads == Outlet::Leads::to_cell ? empty.get() : known;
}

off64_t own_lseek(int descriptor, off64_t offset, int whence) {
  return ::lseek64(asked(__builtin_return_address(0), descriptor), offset, whence);
}

int own_fstat(int descriptor, struct stat64* status) {
  return ::fstat64(asked(__builtin_return_address(0), descriptor), status);
}

int own_old_fstat(int /*version*/, int descriptor, struct stat64* status) {
  return ::fstat64(asked(__builtin_return_address(0), descriptor), status);
}

int own_isatty(int descriptor) { return ::isatty(asked(__builtin_return_address(0), descriptor)); }

// Copies inside the kernel would pass by the host. Programs read and write where this is refused.
ssize_t own_copy_file_range(int from, off64_t* from_offset, int to, off64_t* to_offset, std::size_t count,
                            unsigned flags) {
  const void* caller = __builtin_return_address(0);
  if (outlet_at(caller, from) != nullptr || outlet_at(caller, to) != nullptr) return fail(EINVAL);
  return ::copy_file_range(from, from_offset, to, to_offset, count, flags);
}

ssize_t own_splice(int from, off64_t* from_offset, int to, off64_t* to_offset, std::size_t count, unsigned flags) {
  const void* caller = __builtin_return_address(0);
  if (outlet_at(caller, from) != nullptr || outlet_at(caller, to) != nullptr) return fail(EINVAL);
  return ::splice(from, from_offset, to, to_offset, count, flags);
}

ssize_t own_sendfile(int to, int from, off64_t* offset, std::size_t count) {
  const void* caller = __builtin_return_address(0);
  if (outlet_at(caller, from) != nullptr || outlet_at(caller, to) != nullptr) return fail(EINVAL);
  return ::sendfile64(to, from, offset, count);
}

int own_dup(int descriptor) { return ::dup(translated(__builtin_return_address(0), descriptor)); }

int own_dup2(int from, int to) {
  const void* caller = __builtin_return_address(0);
  if (is_taken(caller, "dup2", from, to)) return fail(EBADF);
  Instance* instance = is_standard(to) ? calling(caller) : nullptr;
  return instance == nullptr ? ::dup2(translated(caller, from), to) : redirect_to(*instance, from, to);
}

int own_dup3(int from, int to, int flags) {
  const void* caller = __builtin_return_address(0);
  if (is_taken(caller, "dup3", from, to)) return fail(EBADF);
  Instance* instance = is_standard(to) && from != to ? calling(caller) : nullptr;
  return instance == nullptr ? ::dup3(translated(caller, from), to, flags) : redirect_to(*instance, from, to);
}

int own_close(int descriptor) {
  const void* caller = __builtin_return_address(0);
  Outlet* outlet = outlet_at(caller, descriptor);
  if (outlet == nullptr) {
    if (Instance* instance = calling(caller)) {
      if (os::is_guarded(descriptor)) return fail(EBADF);
      give_up_record_locks(*instance, descriptor);
    }
    return ::close(descriptor);
  }
  if (outlet->leads == Outlet::Leads::nowhere) return fail(EBADF);
  redirect(*outlet, Outlet::Leads::nowhere);
  return 0;
}

// The process's table stays one (CLOSE_RANGE_UNSHARE): the cells' threads share it. A range without end is meant for
// what a program has inherited. There is nothing of that kind, but there is what other cells have open, and what libc
// opens for a moment in their calls; so from 3 on all stay open.
int own_close_range(Instance& instance, unsigned first, unsigned last, int flags) {
  constexpr int known_flags = CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC;
  constexpr unsigned greatest = std::numeric_limits<int>::max();
  if (first > last || (flags & ~known_flags) != 0) return fail(EINVAL);
  if ((flags & CLOSE_RANGE_CLOEXEC) != 0) return ::close_range(first, last, CLOSE_RANGE_CLOEXEC);
  for (unsigned number = first; number <= std::min(last, 2U); ++number)
    redirect(outlet_of(instance, static_cast<int>(number)), Outlet::Leads::nowhere);
  if (last >= greatest) return 0;
  for (const int descriptor : os::open_descriptors()) {
    const auto number = static_cast<unsigned>(descriptor);
    if (number < first || number > last || os::is_guarded(descriptor)) continue;
    give_up_record_locks(instance, descriptor);
    ::close(descriptor);
  }
  return 0;
}

void own_closefrom(Instance& instance, int first) {
  own_close_range(instance, static_cast<unsigned>(std::max(first, 0)), ~0U, 0);
}

}  // namespace

std::span<const Binding> descriptors_bindings() {
  static const std::array table{
      Binding::of("write", &own_write),
      Binding::of("__write", &own_write),
      Binding::of("writev", &own_writev),
      Binding::of("pwrite", &own_pwrite),
      Binding::of("pwrite64", &own_pwrite),
      Binding::of("read", &own_read),
      Binding::of("__read", &own_read),
      Binding::of("__read_chk", &own_read_chk),
      Binding::of("dprintf", &Formatted<print_unchecked, char, int>::with_dots),
      Binding::of("vdprintf", &Formatted<print_unchecked, char, int>::with_list),
      Binding::of("__dprintf_chk", &Formatted<print, char, int, int>::with_dots),
      Binding::of("__vdprintf_chk", &Formatted<print, char, int, int>::with_list),
      Binding::of("lseek", &own_lseek),
      Binding::of("lseek64", &own_lseek),
      Binding::of("fstat", &own_fstat),
      Binding::of("fstat64", &own_fstat),
      Binding::of("__fxstat", &own_old_fstat),
      Binding::of("__fxstat64", &own_old_fstat),
      Binding::of("isatty", &own_isatty),
      Binding::of("copy_file_range", &own_copy_file_range),
      Binding::of("splice", &own_splice),
      Binding::of("sendfile", &own_sendfile),
      Binding::of("sendfile64", &own_sendfile),
      Binding::of("dup", &own_dup),
      Binding::of("dup2", &own_dup2),
      Binding::of("__dup2", &own_dup2),
      Binding::of("dup3", &own_dup3),
      Binding::of("close", &own_close),
      Binding::of("__close", &own_close),
      bound<::close_range, own_close_range>("close_range"),
      bound<::closefrom, own_closefrom>("closefrom"),
  };
  return table;
}

// ---------------------------------------------------------------- locks

/// The files an instance has locked records of.
struct RecordLocks {
  struct File {
    dev_t device;
    ino_t inode;
    os::GuardedFd holder;  // opened for this alone: its locks are the instance's
  };

  std::mutex mutex;  // threads of the program may lock at once
  std::vector<File> files;
};

namespace {

using std::chrono::microseconds;

constexpr microseconds first_pause{20};
constexpr microseconds longest_pause{2000};

/// Tasks may have been switched, and the thread with them, so the place of errno must not be known from before.
[[gnu::noinline]] int failed(int error) noexcept {
  errno = error;
  return -1;
}
[[gnu::noinline]] int error_now() noexcept { return errno; }

/// Calls `attempt` until it ends with something else than "another has it". Returns its result, errno set. Switches
/// tasks: between attempts.
template <class Attempt>
int wait_for(Instance& instance, const Attempt& attempt) {
  for (microseconds pause = first_pause;; pause = std::min(pause * 2, longest_pause)) {
    const int result = attempt();
    if (result == 0) return 0;
    const int error = error_now();
    if (error != EAGAIN && error != EACCES) return failed(error);
    instance.services().sleep(pause);
  }
}

std::vector<RecordLocks::File>::iterator find_file(RecordLocks& locks, const struct stat& status) {
  return std::ranges::find_if(locks.files, [&](const RecordLocks::File& file) {
    return file.device == status.st_dev && file.inode == status.st_ino;
  });
}

/// The descriptor that holds the instance's locks on the file of `descriptor`; -1, errno set, when it cannot be had.
int holder_of(Instance& instance, int descriptor, const struct stat& status) {
  RecordLocks& locks = shared_part(instance.libc().locks);
  const std::lock_guard lock(locks.mutex);
  if (const auto known = find_file(locks, status); known != locks.files.end()) return known->holder.get();
  const std::string path = fmt::format("/proc/self/fd/{}", descriptor);
  os::UniqueFd holder;
  // Reading and writing, for locks of both kinds; what the program may not do, it cannot lock for either.
  for (const int mode : {O_RDWR, O_WRONLY, O_RDONLY}) {
    holder.reset(::open(path.c_str(), mode | O_CLOEXEC | O_NOCTTY));
    if (holder) break;
  }
  if (holder && holder.get() <= STDERR_FILENO)  // those numbers have a meaning
    holder = os::UniqueFd(::fcntl(holder.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!holder) return -1;
  locks.files.push_back({status.st_dev, status.st_ino, os::GuardedFd(std::move(holder))});
  return locks.files.back().holder.get();
}

/// What fcntl() does for F_SETLK, F_SETLKW and F_GETLK.
int lock_record(Instance& instance, int descriptor, int command, struct flock& asked) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return -1;
  if (!S_ISREG(status.st_mode)) return ::fcntl(descriptor, command, &asked);
  const int mode = ::fcntl(descriptor, F_GETFL) & O_ACCMODE;
  if (command != F_GETLK &&
      ((asked.l_type == F_RDLCK && mode == O_WRONLY) || (asked.l_type == F_WRLCK && mode == O_RDONLY)))
    return failed(EBADF);
  struct flock record = asked;
  record.l_pid = 0;
  if (record.l_whence == SEEK_CUR) {  // the holder has a position of its own
    const off_t position = ::lseek(descriptor, 0, SEEK_CUR);
    if (position < 0) return -1;
    record.l_start += position;
    record.l_whence = SEEK_SET;
  }
  const int holder = holder_of(instance, descriptor, status);
  if (holder < 0) return failed(ENOLCK);
  if (command == F_SETLK) return ::fcntl(holder, F_OFD_SETLK, &record);
  if (command == F_SETLKW) return wait_for(instance, [&] { return ::fcntl(holder, F_OFD_SETLK, &record); });
  if (::fcntl(holder, F_OFD_GETLK, &record) != 0) return -1;
  if (record.l_type == F_UNLCK) {
    asked.l_type = F_UNLCK;
    return 0;
  }
  asked = record;
  if (asked.l_pid < 0) asked.l_pid = ::getpid();
  return 0;
}

int own_fcntl(int descriptor, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);  // libc reads it so for every command
  va_end(arguments);
  if (command != F_SETLK && command != F_SETLKW && command != F_GETLK) return ::fcntl(descriptor, command, argument);
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr || argument == nullptr) return ::fcntl(descriptor, command, argument);
  return lock_record(*instance, descriptor, command, *static_cast<struct flock*>(argument));
}

int own_lockf(Instance& instance, int descriptor, int command, off_t length) {
  struct flock record {};
  record.l_type = command == F_ULOCK ? F_UNLCK : F_WRLCK;
  record.l_whence = SEEK_CUR;
  record.l_len = length;
  switch (command) {
    case F_TEST:
      record.l_type = F_RDLCK;  // as libc does: a lock that others may read beside is none
      if (lock_record(instance, descriptor, F_GETLK, record) != 0) return -1;
      return record.l_type == F_UNLCK ? 0 : failed(EACCES);
    case F_ULOCK:
    case F_TLOCK:
      return lock_record(instance, descriptor, F_SETLK, record);
    case F_LOCK:
      return lock_record(instance, descriptor, F_SETLKW, record);
    default:
      return failed(EINVAL);
  }
}

/// libc declares flock nothrow, so what stops the machine must not come out of it: the program is left by a jump.
int wait_for_flock(Instance& instance, int descriptor, int operation) noexcept {
  try {
    return wait_for(instance, [&] { return ::flock(descriptor, operation | LOCK_NB); });
  } catch (...) {
  }
  instance.leave(0, false);
}

// These locks belong to the open file, which is the instance's as it is; only waiting is not libc's.
int own_flock(int descriptor, int operation) {
  Instance* instance = calling(__builtin_return_address(0));
  const bool waits = (operation & LOCK_NB) == 0 && (operation & (LOCK_SH | LOCK_EX)) != 0;
  return instance == nullptr || !waits ? ::flock(descriptor, operation)
                                       : wait_for_flock(*instance, descriptor, operation);
}

}  // namespace

void give_up_record_locks(Instance& instance, int descriptor) noexcept {
  if (instance.libc().locks.part == nullptr) return;
  const int error = errno;
  RecordLocks& locks = *instance.libc().locks.part;
  struct stat status {};
  if (::fstat(descriptor, &status) == 0) {
    const std::lock_guard lock(locks.mutex);
    if (const auto file = find_file(locks, status); file != locks.files.end() && file->holder.get() != descriptor)
      locks.files.erase(file);
  }
  errno = error;
}

std::span<const Binding> record_locks_bindings() {
  static const std::array table{
      Binding::of("fcntl", &own_fcntl),   Binding::of("fcntl64", &own_fcntl),   Binding::of("__fcntl", &own_fcntl),
      bound<::lockf, own_lockf>("lockf"), bound<::lockf, own_lockf>("lockf64"), Binding::of("flock", &own_flock),
  };
  return table;
}

}  // namespace aplib::loader::libc
