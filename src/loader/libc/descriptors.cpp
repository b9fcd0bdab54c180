// SPDX-License-Identifier: MIT
// Whose a descriptor is, and descriptors 0, 1 and 2, used without stdio. They belong to the process and so to all
// cells. What an instance writes to 1 and 2 goes to its host, which keeps lines whole. What it does to them by dup2 and
// close it does to its own outlets. Calls that are not here see the process's descriptors. An instance cannot close the
// runtime's descriptors (base/os/descriptor.hpp), nor another instance's.
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/os/descriptor.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/state.hpp"
#include "loader/libc/streams.hpp"
#include "loader/libc/waiting.hpp"

extern "C" {
ssize_t __read_chk(int, void*, std::size_t, std::size_t);
int __ttyname_r_chk(int, char*, std::size_t, std::size_t);
int __ptsname_r_chk(int, char*, std::size_t, std::size_t);
ssize_t __pread64_chk(int, void*, std::size_t, off64_t, std::size_t);
}

namespace aplib::loader::libc {

// ---------------------------------------------------------------- whose a descriptor is
// The process has one table of descriptors. What an instance opens is noted as its own, with the file that lies there,
// because libraries that all instances share close without our knowledge. A number that is known to be another
// instance's cannot be closed. Nobody's are those that shared libraries open: they may.

namespace {

constexpr std::size_t numbers_max = 65'536;  // higher ones are nobody's
constexpr std::uint32_t inherited = ~0U;     // from whoever started the process

/// By number: LibcState::number of who has it open, 0: nobody, and the file there.
std::array<std::atomic<std::uint32_t>, numbers_max> owners;
std::array<std::atomic<std::uint64_t>, numbers_max> files;
std::atomic<int> highest{STDERR_FILENO};

bool has_place(int descriptor) noexcept {
  return descriptor > STDERR_FILENO && static_cast<std::size_t>(descriptor) < numbers_max;
}

constexpr std::uint64_t is_file = std::uint64_t{1} << 63U;
constexpr std::uint64_t is_waited_for = std::uint64_t{1} << 62U;  // a pipe, socket or terminal

/// Of the file that is open at this number; 0: none is. Keeps errno.
std::uint64_t file_at(int descriptor) noexcept {
  const int kept = errno;
  struct stat64 status {};
  const bool found = ::fstat64(descriptor, &status) == 0;
  errno = kept;
  if (!found) return 0;
  const mode_t mode = status.st_mode;
  const bool waits = S_ISFIFO(mode) || S_ISSOCK(mode) || S_ISCHR(mode) || (mode & S_IFMT) == 0;  // 0: eventfd and kin
  return ((status.st_ino ^ (status.st_dev << 40U)) & ~is_waited_for) | is_file | (waits ? is_waited_for : 0);
}

/// 0: nobody's.
std::uint32_t owner_of(int descriptor) noexcept {
  if (!has_place(descriptor)) return 0;
  const auto place = static_cast<std::size_t>(descriptor);
  const std::uint32_t owner = owners[place].load(std::memory_order_relaxed);
  return owner != 0 && files[place].load(std::memory_order_relaxed) == file_at(descriptor) ? owner : 0;
}

void note(int descriptor, std::uint32_t owner) noexcept {
  if (!has_place(descriptor)) return;
  const auto place = static_cast<std::size_t>(descriptor);
  files[place].store(file_at(descriptor), std::memory_order_relaxed);
  owners[place].store(owner, std::memory_order_relaxed);
  int known = highest.load(std::memory_order_relaxed);
  while (known < descriptor && !highest.compare_exchange_weak(known, descriptor)) {
  }
}

bool is_own(Instance& instance, int descriptor) noexcept { return owner_of(descriptor) == instance.libc().number; }

bool is_inherited(int descriptor) noexcept { return owner_of(descriptor) == inherited; }

/// How many the instance has; also counts anew what shared libraries may have closed.
int count_own(Instance& instance) noexcept {
  int count = 0;
  for (int descriptor = STDERR_FILENO + 1; descriptor <= highest.load(); ++descriptor)
    count += static_cast<int>(is_own(instance, descriptor));
  return instance.libc().descriptors = count;
}

}  // namespace

bool is_of_another(Instance& instance, int descriptor) noexcept {
  const std::uint32_t owner = owner_of(descriptor);
  return owner != 0 && owner != inherited && owner != instance.libc().number;
}

bool has_room(Instance& instance) noexcept {
  const LibcState& state = instance.libc();
  constexpr int standard = 3;
  const int most = state.descriptors_max - standard;
  if (state.descriptors_max == 0 || state.descriptors < most || count_own(instance) < most) return true;
  failed(EMFILE);
  return false;
}

int note_new(Instance* instance, int descriptor) noexcept {
  if (instance == nullptr || descriptor < 0) return descriptor;
  if (is_own(*instance, descriptor) || has_room(*instance)) {
    note_opened(*instance, descriptor);
    return descriptor;
  }
  ::close(descriptor);
  return failed(EMFILE);
}

void note_inherited_descriptors() {
  for (const int descriptor : os::open_descriptors()) {
    if (!os::is_guarded(descriptor)) note(descriptor, inherited);
  }
}

bool may_wait(int descriptor) noexcept {
  std::uint64_t file = 0;
  if (is_standard(descriptor)) {  // the process's stay as they are
    static const std::array<std::uint64_t, 3> standard{file_at(0), file_at(1), file_at(2)};
    file = standard[static_cast<std::size_t>(descriptor)];
  } else if (has_place(descriptor) && owners[static_cast<std::size_t>(descriptor)].load() != 0) {
    file = files[static_cast<std::size_t>(descriptor)].load(std::memory_order_relaxed);
  } else {
    file = file_at(descriptor);
  }
  return (file & is_waited_for) != 0;
}

void note_opened(Instance& instance, int descriptor) noexcept {
  if (!has_place(descriptor)) return;
  if (!is_own(instance, descriptor)) ++instance.libc().descriptors;
  note(descriptor, instance.libc().number);
}

void note_closed(Instance& instance, int descriptor) noexcept {
  if (!has_place(descriptor)) return;
  if (owners[static_cast<std::size_t>(descriptor)].exchange(0) == instance.libc().number) --instance.libc().descriptors;
}

void close_descriptors(Instance& instance) noexcept {
  if (instance.libc().descriptors <= 0) return;
  for (int descriptor = STDERR_FILENO + 1; descriptor <= highest.load(); ++descriptor) {
    if (!is_own(instance, descriptor)) continue;
    note_closed(instance, descriptor);
    ::close(descriptor);
  }
}

namespace {

bool same_file(int one, int other) {
  struct stat64 a {};
  struct stat64 b {};
  return other >= 0 && ::fstat64(one, &a) == 0 && ::fstat64(other, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino && a.st_rdev == b.st_rdev;
}

}  // namespace

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
    from = redirected(instance, from);
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

int redirect_to(Instance& instance, int from, int number, int flags) {
  if (from == number || (flags & ~O_CLOEXEC) != 0) return failed(EINVAL);
  const int result = redirect_to(instance, from, number);
  if (result >= 0) outlet_of(instance, number).ends_at_exec = flags != 0;
  return result;
}

int close_outlet(Outlet& outlet) {
  if (outlet.leads == Outlet::Leads::nowhere) return failed(EBADF);
  if (outlet.leads == Outlet::Leads::to_file) give_up_record_locks(*outlet.instance, outlet.descriptor.get());
  redirect(outlet, Outlet::Leads::nowhere);
  return 0;
}

int note_lowest(Instance* instance, int descriptor, int least) {
  if (instance == nullptr || descriptor < 0) return descriptor;
  Outlet* const closed = closed_outlet(*instance, least);
  if (closed == nullptr) return note_new(instance, descriptor);
  const bool ends_at_exec = (::fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0;
  const int result = redirect_to(*instance, descriptor, static_cast<int>(closed->stream));
  const int error = errno;
  ::close(descriptor);
  errno = error;
  closed->ends_at_exec = ends_at_exec;
  return result;
}

// ---------------------------------------------------------------- descriptors 0, 1 and 2

namespace {

// The caller's outlet, or null: any other descriptor, or no instance.
Outlet* outlet_at(const void* caller, int descriptor) {
  if (!is_standard(descriptor)) return nullptr;
  Instance* instance = calling(caller);
  return instance == nullptr ? nullptr : &outlet_of(*instance, descriptor);
}

/// A descriptor of the process's that the first call opens, and that stays; -1: there is none to be had now.
template <int (*open)() noexcept>
int kept_open() noexcept {
  static std::atomic<int> kept{-1};
  int known = kept.load(std::memory_order_relaxed);  // relaxed: a number on its own
  if (known >= 0) return known;
  const int opened = open();
  if (opened < 0) return -1;
  os::guard_descriptor(opened);
  if (kept.compare_exchange_strong(known, opened, std::memory_order_relaxed)) return opened;
  os::unguard_descriptor(opened);  // another thread was first
  ::close(opened);
  return known;
}

int open_empty() noexcept { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }

/// The end of a pipe that nobody reads: what an output is where nobody may seek.
int open_output_pipe() noexcept {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return -1;
  ::close(ends[0]);
  return ends[1];
}

/// The process's descriptor behind an outlet that leads to the host: an empty file where a cell has no input.
int process_descriptor(const Outlet& outlet) {
  if (outlet.cell_stream != Stream::in) return static_cast<int>(outlet.cell_stream);
  const int input = outlet.instance->services().input();
  return input >= 0 ? input : kept_open<open_empty>();
}

bool is_regular(int descriptor) noexcept {
  struct stat64 status {};
  return ::fstat64(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

// The same for questions. A cell's output goes to a file by way of the host, as through the pipes of other launchers:
// there is no place in it to seek, and Fortran keeps nothing back, which MPI_Abort of another rank would lose.
int asked(const void* caller, int descriptor) {
  const Outlet* outlet = outlet_at(caller, descriptor);
  const int known = redirected(caller, descriptor);
  if (outlet == nullptr || outlet->leads != Outlet::Leads::to_cell || outlet->cell_stream == Stream::in) return known;
  return is_regular(known) ? kept_open<open_output_pipe>() : known;
}

/// write() on an outlet, whose reader may need this thread.
ssize_t write_to_outlet(const void* caller, Outlet& outlet, const void* bytes, std::size_t count) {
  if (outlet.waits) return write_in_turn(caller, outlet.descriptor.get(), bytes, count);
  pthread_testcancel();
  return write_outlet(outlet, static_cast<const char*>(bytes), count);
}

ssize_t own_write(int descriptor, const void* bytes, std::size_t count) {
  Outlet* outlet = outlet_at(__builtin_return_address(0), descriptor);
  if (outlet != nullptr) return write_to_outlet(__builtin_return_address(0), *outlet, bytes, count);
  return write_in_turn(__builtin_return_address(0), descriptor, bytes, count);
}

ssize_t write_pieces(const void* caller, int descriptor, const iovec* pieces, int count) {
  Outlet* outlet = outlet_at(caller, descriptor);
  if (outlet == nullptr) {
    return writev_in_turn(caller, descriptor, pieces, count);
  }
  if (outlet->waits) return writev_in_turn(caller, outlet->descriptor.get(), pieces, count);
  pthread_testcancel();
  if (outlet->leads == Outlet::Leads::to_file) return ::writev(outlet->descriptor.get(), pieces, count);
  std::string whole;
  for (int i = 0; i < count; ++i) whole.append(static_cast<const char*>(pieces[i].iov_base), pieces[i].iov_len);
  return write_outlet(*outlet, whole.data(), whole.size());
}

ssize_t own_writev(int descriptor, const iovec* pieces, int count) {
  return write_pieces(__builtin_return_address(0), descriptor, pieces, count);
}

/// pread(), pwritev() and their kin: what they are done on has a position, which the host's output has not.
template <auto native, class Type = decltype(plain(native))>
struct AtPosition;
template <auto native, class... Args>
struct AtPosition<native, Function<ssize_t, int, Args...>> {
  static ssize_t call(int descriptor, Args... args) { return run(__builtin_return_address(0), descriptor, args...); }
  static ssize_t run(const void* caller, int descriptor, Args... args) {
    const Outlet* const outlet = outlet_at(caller, descriptor);
    if (outlet != nullptr && outlet->leads == Outlet::Leads::to_cell && outlet->cell_stream != Stream::in)
      return failed(ESPIPE);
    return native(asked(caller, descriptor), args...);
  }
};

/// At -1 it is writev().
ssize_t own_pwritev2(int descriptor, const iovec* pieces, int count, off64_t place, int flags) {
  const void* const caller = __builtin_return_address(0);
  return place == -1 && flags == 0 && outlet_at(caller, descriptor) != nullptr
             ? write_pieces(caller, descriptor, pieces, count)
             : AtPosition<::pwritev64v2>::run(caller, descriptor, pieces, count, place, flags);
}

ssize_t read_in_turn(Outlet& outlet, void* bytes, std::size_t count) {
  if (sharing_flow(*outlet.instance) != nullptr && !await_outlet(outlet)) return -1;
  return read_outlet(outlet, static_cast<char*>(bytes), count);
}

ssize_t own_read(int descriptor, void* bytes, std::size_t count) {
  Outlet* outlet = outlet_at(__builtin_return_address(0), descriptor);
  if (outlet == nullptr) {
    return await_stream(__builtin_return_address(0), descriptor, POLLIN) ? ::read(descriptor, bytes, count) : -1;
  }
  return read_in_turn(*outlet, bytes, count);
}

ssize_t own_read_chk(int descriptor, void* bytes, std::size_t count, std::size_t room) {
  Outlet* outlet = outlet_at(__builtin_return_address(0), descriptor);
  if (count > room || (outlet == nullptr && await_stream(__builtin_return_address(0), descriptor, POLLIN)))
    return __read_chk(descriptor, bytes, count, room);
  return outlet != nullptr ? read_in_turn(*outlet, bytes, count) : -1;
}

ssize_t own_readv(int descriptor, const iovec* pieces, int count) {
  Outlet* outlet = outlet_at(__builtin_return_address(0), descriptor);
  if (outlet == nullptr)
    return await_stream(__builtin_return_address(0), descriptor, POLLIN) ? ::readv(descriptor, pieces, count) : -1;
  for (int i = 0; i < count; ++i) {  // one read gives no more than there is
    if (pieces[i].iov_len != 0) return read_in_turn(*outlet, pieces[i].iov_base, pieces[i].iov_len);
  }
  return 0;
}

int print_to_descriptor(const void* caller, int descriptor, int level, const char* format, va_list arguments) {
  Outlet* outlet = outlet_at(caller, descriptor);
  if (outlet == nullptr) return ::vdprintf(descriptor, format, arguments);
  const PrintedText text(level, format, arguments);
  return text ? static_cast<int>(write_to_outlet(caller, *outlet, text.view().data(), text.view().size())) : -1;
}
int print_unchecked(const void* caller, int descriptor, const char* format, va_list arguments) {
  return print_to_descriptor(caller, descriptor, PrintedText::unchecked, format, arguments);
}

// --- redirection

// The runtime needs descriptor `to`, whose place `from` is to take.
bool is_taken(const void* caller, const char* call, int from, int to) {
  if (from == to) return false;
  Instance* instance = calling(caller);
  if (instance == nullptr) return false;
  if (!os::is_guarded(to) && !is_of_another(*instance, to)) return false;
  instance->services().warn(fmt::format(
      "{}() to descriptor {} is refused (EBADF): that one is the machine's or another cell's, and all share one table "
      "of descriptors; have the system choose a free number (dup, or fcntl with F_DUPFD)",
      call, to));
  return true;
}

// --- what they are

template <auto native, class Type = decltype(plain(native))>
struct OnRedirected;
template <auto native, class Result, class... Args>
struct OnRedirected<native, Function<Result, int, Args...>> {
  static Result call(int descriptor, Args... args) {
    return native(redirected(__builtin_return_address(0), descriptor), args...);
  }
};

template <auto native>
Binding on_redirected(std::string_view name) noexcept {
  return Binding::of(name, &OnRedirected<native>::call);
}

}  // namespace

int refuse_async(Instance& instance, const char* call) {
  instance.services().warn(
      std::string(call) +
      " is refused (EINVAL): the system would send SIGIO to all cells of the process; use poll() or select(), or run "
      "the program with --processes");
  return failed(EINVAL);
}

namespace {

int own_ioctl(int descriptor, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  const void* const caller = __builtin_return_address(0);
  Outlet* const outlet = request == FIOCLEX || request == FIONCLEX ? outlet_at(caller, descriptor) : nullptr;
  if (Instance* const instance = request == FIOASYNC ? calling(caller) : nullptr)
    return *static_cast<int*>(argument) == 0 ? 0 : refuse_async(*instance, "ioctl(FIOASYNC)");
  if (outlet == nullptr) return ::ioctl(redirected(caller, descriptor), request, argument);
  return descriptor_flags(*outlet, F_SETFD, request == FIOCLEX ? FD_CLOEXEC : 0);
}

int own_epoll_ctl(int epoll, int operation, int descriptor, epoll_event* event) {
  const void* const caller = __builtin_return_address(0);
  return ::epoll_ctl(redirected(caller, epoll), operation, redirected(caller, descriptor), event);
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

/// -1: not 0, 1 or 2 of the program that calls, or a link to one that is not followed.
int followed_descriptor(const void* caller, const char* path, int flags) {
  Instance* const instance = (flags & AT_SYMLINK_NOFOLLOW) == 0 ? calling(caller) : nullptr;
  return instance == nullptr ? -1 : named_descriptor(*instance, path);
}

int stat_path(const void* caller, int folder, const char* path, struct stat64* status, int flags) {
  if (const int number = followed_descriptor(caller, path, flags); number >= 0)
    return ::fstat64(asked(caller, number), status) == 0 ? 0 : failed(ENOENT);
  const bool follows = (flags & AT_SYMLINK_NOFOLLOW) == 0;
  return ::fstatat64(redirected(caller, folder), SeenPath(follows ? calling(caller) : nullptr, path).get(), status,
                     flags);
}

int own_stat(const char* path, struct stat64* status) {
  return stat_path(__builtin_return_address(0), AT_FDCWD, path, status, 0);
}

int own_old_stat(int /*version*/, const char* path, struct stat64* status) {
  return stat_path(__builtin_return_address(0), AT_FDCWD, path, status, 0);
}

int own_fstatat(int folder, const char* path, struct stat64* status, int flags) {
  return stat_path(__builtin_return_address(0), folder, path, status, flags);
}

int own_old_fstatat(int /*version*/, int folder, const char* path, struct stat64* status, int flags) {
  return stat_path(__builtin_return_address(0), folder, path, status, flags);
}

int own_statx(int folder, const char* path, int flags, unsigned asked_for, struct statx* status) {
  const void* const caller = __builtin_return_address(0);
  if (const int number = followed_descriptor(caller, path, flags); number >= 0)
    return ::statx(asked(caller, number), "", flags | AT_EMPTY_PATH, asked_for, status) == 0 ? 0 : failed(ENOENT);
  return ::statx(redirected(caller, folder), path, flags, asked_for, status);
}

int own_faccessat(int folder, const char* path, int mode, int flags) {
  const void* const caller = __builtin_return_address(0);
  return ::faccessat(redirected(caller, folder), SeenPath(calling(caller), path).get(), mode, flags);
}

/// A call on a path that follows links.
template <auto native, class Type = decltype(plain(native))>
struct OnSeen;
template <auto native, class Result, class... Args>
struct OnSeen<native, Function<Result, const char*, Args...>> {
  static Result call(const char* path, Args... args) {
    return native(SeenPath(calling(__builtin_return_address(0)), path).get(), args...);
  }
};

template <auto native>
Binding on_seen(std::string_view name) noexcept {
  return Binding::of(name, &OnSeen<native>::call);
}

int own_linkat(int from_folder, const char* from, int folder, const char* path, int flags) {
  const void* const caller = __builtin_return_address(0);
  return ::linkat(redirected(caller, from_folder), from, redirected(caller, folder), path, flags);
}

int own_renameat(int from_folder, const char* from, int folder, const char* path) {
  const void* const caller = __builtin_return_address(0);
  return ::renameat(redirected(caller, from_folder), from, redirected(caller, folder), path);
}

int own_renameat2(int from_folder, const char* from, int folder, const char* path, unsigned flags) {
  const void* const caller = __builtin_return_address(0);
  return ::renameat2(redirected(caller, from_folder), from, redirected(caller, folder), path, flags);
}

int own_symlinkat(const char* target, int folder, const char* path) {
  return ::symlinkat(target, redirected(__builtin_return_address(0), folder), path);
}

int own_eventfd_read(int descriptor, eventfd_t* value) {
  const void* const caller = __builtin_return_address(0);
  descriptor = redirected(caller, descriptor);
  return await_stream(caller, descriptor, POLLIN) ? ::eventfd_read(descriptor, value) : -1;
}

int own_eventfd_write(int descriptor, eventfd_t value) {
  const void* const caller = __builtin_return_address(0);
  descriptor = redirected(caller, descriptor);
  return await_stream(caller, descriptor, POLLOUT) ? ::eventfd_write(descriptor, value) : -1;
}

int own_isatty(int descriptor) { return ::isatty(asked(__builtin_return_address(0), descriptor)); }

/// Copies inside the kernel would pass by the host. Programs read and write where this is refused. `descriptor` becomes
/// the kernel's number.
bool passes_host(const void* caller, int& descriptor) {
  const Outlet* const outlet = outlet_at(caller, descriptor);
  descriptor = redirected(caller, descriptor);
  return outlet != nullptr && outlet->leads == Outlet::Leads::to_cell;
}

ssize_t own_copy_file_range(int from, off64_t* from_offset, int to, off64_t* to_offset, std::size_t count,
                            unsigned flags) {
  const void* caller = __builtin_return_address(0);
  if (passes_host(caller, from) || passes_host(caller, to)) return failed(EINVAL);
  return ::copy_file_range(from, from_offset, to, to_offset, count, flags);
}

ssize_t own_splice(int from, off64_t* from_offset, int to, off64_t* to_offset, std::size_t count, unsigned flags) {
  const void* caller = __builtin_return_address(0);
  if (passes_host(caller, from) || passes_host(caller, to)) return failed(EINVAL);
  if (!await_stream(caller, from, POLLIN) || !await_stream(caller, to, POLLOUT)) return -1;
  return ::splice(from, from_offset, to, to_offset, count, flags);
}

ssize_t own_tee(int from, int to, std::size_t count, unsigned flags) {
  const void* caller = __builtin_return_address(0);
  if (passes_host(caller, from) || passes_host(caller, to)) return failed(EINVAL);
  if (!await_stream(caller, from, POLLIN) || !await_stream(caller, to, POLLOUT)) return -1;
  return ::tee(from, to, count, flags);
}

ssize_t own_vmsplice(int descriptor, const iovec* pieces, std::size_t count, unsigned flags) {
  if (passes_host(__builtin_return_address(0), descriptor)) return failed(EINVAL);
  return ::vmsplice(descriptor, pieces, count, flags);
}

ssize_t own_sendfile(int to, int from, off64_t* offset, std::size_t count) {
  const void* caller = __builtin_return_address(0);
  if (passes_host(caller, from) || passes_host(caller, to)) return failed(EINVAL);
  if (!await_stream(caller, to, POLLOUT)) return -1;
  return ::sendfile64(to, from, offset, count);
}

int own_dup(int descriptor) {
  const void* caller = __builtin_return_address(0);
  return note_lowest(calling(caller), ::dup(redirected(caller, descriptor)));
}

int own_dup2(int from, int to) {
  const void* caller = __builtin_return_address(0);
  if (is_taken(caller, "dup2", from, to)) return failed(EBADF);
  Instance* instance = is_standard(to) ? calling(caller) : nullptr;
  return instance == nullptr ? note_new(calling(caller), ::dup2(redirected(caller, from), to))
                             : redirect_to(*instance, from, to);
}

int own_dup3(int from, int to, int flags) {
  const void* caller = __builtin_return_address(0);
  if (is_taken(caller, "dup3", from, to)) return failed(EBADF);
  Instance* instance = is_standard(to) ? calling(caller) : nullptr;
  return instance == nullptr ? note_new(calling(caller), ::dup3(redirected(caller, from), to, flags))
                             : redirect_to(*instance, from, to, flags);
}

int own_close(int descriptor) {
  const void* caller = __builtin_return_address(0);
  Outlet* outlet = outlet_at(caller, descriptor);
  if (outlet == nullptr) {
    if (Instance* instance = calling(caller)) {
      if (os::is_guarded(descriptor) || is_of_another(*instance, descriptor)) return failed(EBADF);
      if (is_inherited(descriptor)) return 0;  // each process would close its own
      give_up_record_locks(*instance, descriptor);
      note_closed(*instance, descriptor);
    }
    return ::close(descriptor);
  }
  return close_outlet(*outlet);
}

// The process's table stays one (CLOSE_RANGE_UNSHARE): the cells' threads share it. A range without end closes what the
// program has opened, and leaves what is nobody's: libc opens some of that for a moment in other cells' calls.
int own_close_range(Instance& instance, unsigned first, unsigned last, int flags) {
  constexpr int known_flags = CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC;
  constexpr unsigned greatest = std::numeric_limits<int>::max();
  if (first > last || (flags & ~known_flags) != 0) return failed(EINVAL);
  const bool at_exec = (flags & CLOSE_RANGE_CLOEXEC) != 0;
  for (unsigned number = first; number <= std::min(last, 2U); ++number) {
    Outlet& outlet = outlet_of(instance, static_cast<int>(number));
    outlet.ends_at_exec = at_exec;
    if (!at_exec) redirect(outlet, Outlet::Leads::nowhere);
  }
  for (const int descriptor : os::open_descriptors()) {
    const auto number = static_cast<unsigned>(descriptor);
    if (number < first || number > last || os::is_guarded(descriptor) || is_inherited(descriptor)) continue;
    if (last >= greatest ? !is_own(instance, descriptor) : is_of_another(instance, descriptor)) continue;
    if (at_exec) {
      ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
      continue;
    }
    give_up_record_locks(instance, descriptor);
    note_closed(instance, descriptor);
    ::close(descriptor);
  }
  return 0;
}

void own_closefrom(Instance& instance, int first) {
  own_close_range(instance, static_cast<unsigned>(std::max(first, 0)), ~0U, 0);
}

}  // namespace

int redirected(Instance& instance, int descriptor) noexcept {
  if (!is_standard(descriptor)) return descriptor;
  const Outlet& outlet = outlet_of(instance, descriptor);
  if (outlet.leads == Outlet::Leads::to_cell) return process_descriptor(outlet);
  return outlet.leads == Outlet::Leads::to_file ? outlet.descriptor.get() : no_descriptor;
}

int redirected(const void* caller, int descriptor) noexcept {
  if (!is_standard(descriptor)) return descriptor;
  Instance* const instance = calling(caller);
  return instance == nullptr ? descriptor : redirected(*instance, descriptor);
}

int number_of(Instance& instance, int descriptor) noexcept {
  int number = 0;
  while (is_standard(number) && redirected(instance, number) != descriptor) ++number;
  return is_standard(number) ? number : descriptor;
}

int descriptor_flags(Outlet& outlet, int command, int flags) noexcept {
  if (outlet.leads == Outlet::Leads::nowhere) return failed(EBADF);
  if (command == F_SETFD) outlet.ends_at_exec = (flags & FD_CLOEXEC) != 0;
  return command == F_GETFD && outlet.ends_at_exec ? FD_CLOEXEC : 0;
}

std::span<const Binding> redirected_bindings() {
  static const std::array table{
      on_redirected<::fsync>("fsync"),
      on_redirected<::fdatasync>("fdatasync"),
      on_redirected<::ftruncate64>("ftruncate"),
      on_redirected<::ftruncate64>("ftruncate64"),
      on_redirected<::fallocate64>("fallocate"),
      on_redirected<::fallocate64>("fallocate64"),
      on_redirected<::posix_fallocate64>("posix_fallocate"),
      on_redirected<::posix_fallocate64>("posix_fallocate64"),
      on_redirected<::posix_fadvise64>("posix_fadvise"),
      on_redirected<::posix_fadvise64>("posix_fadvise64"),
      on_redirected<::fchmod>("fchmod"),
      on_redirected<::fchown>("fchown"),
      on_redirected<::futimens>("futimens"),
      on_redirected<::fstatfs64>("fstatfs"),
      on_redirected<::fstatfs64>("fstatfs64"),
      on_redirected<::fpathconf>("fpathconf"),
      on_redirected<::tcgetattr>("tcgetattr"),
      on_redirected<::tcsetattr>("tcsetattr"),
      on_redirected<::tcdrain>("tcdrain"),
      on_redirected<::tcflow>("tcflow"),
      on_redirected<::tcflush>("tcflush"),
      on_redirected<::tcsendbreak>("tcsendbreak"),
      on_redirected<::tcgetpgrp>("tcgetpgrp"),
      on_redirected<::tcsetpgrp>("tcsetpgrp"),
      on_redirected<::tcgetsid>("tcgetsid"),
      on_redirected<::ttyname_r>("ttyname_r"),
      on_redirected<__ttyname_r_chk>("__ttyname_r_chk"),
      on_redirected<::ptsname_r>("ptsname_r"),
      on_redirected<__ptsname_r_chk>("__ptsname_r_chk"),
      on_redirected<::grantpt>("grantpt"),
      on_redirected<::unlockpt>("unlockpt"),
      on_redirected<::fstatvfs64>("fstatvfs"),
      on_redirected<::fstatvfs64>("fstatvfs64"),
      on_redirected<::fchmodat>("fchmodat"),
      on_redirected<::fchownat>("fchownat"),
      on_redirected<::futimesat>("futimesat"),
      on_redirected<::utimensat>("utimensat"),
      on_redirected<::mkdirat>("mkdirat"),
      on_redirected<::mkfifoat>("mkfifoat"),
      on_redirected<::mknodat>("mknodat"),
      on_redirected<::unlinkat>("unlinkat"),
      on_redirected<::futimes>("futimes"),
      on_redirected<::fgetxattr>("fgetxattr"),
      on_redirected<::fsetxattr>("fsetxattr"),
      on_redirected<::flistxattr>("flistxattr"),
      on_redirected<::fremovexattr>("fremovexattr"),
      on_redirected<::syncfs>("syncfs"),
      on_redirected<::sync_file_range>("sync_file_range"),
      on_redirected<::readahead>("readahead"),
      on_redirected<::bind>("bind"),
      on_redirected<::listen>("listen"),
      on_redirected<::shutdown>("shutdown"),
      on_redirected<::getsockopt>("getsockopt"),
      on_redirected<::setsockopt>("setsockopt"),
      on_redirected<::getsockname>("getsockname"),
      on_redirected<::getpeername>("getpeername"),
      on_redirected<::sockatmark>("sockatmark"),
      on_redirected<::isfdtype>("isfdtype"),
      on_redirected<::timerfd_settime>("timerfd_settime"),
      on_redirected<::timerfd_gettime>("timerfd_gettime"),
      on_redirected<::inotify_add_watch>("inotify_add_watch"),
      on_redirected<::inotify_rm_watch>("inotify_rm_watch"),
  };
  return table;
}

std::span<const Binding> named_descriptors_bindings() {
  static const std::array table{
      Binding::of("stat", &own_stat),
      Binding::of("stat64", &own_stat),
      Binding::of("__xstat", &own_old_stat),
      Binding::of("__xstat64", &own_old_stat),
      Binding::of("fstatat", &own_fstatat),
      Binding::of("fstatat64", &own_fstatat),
      Binding::of("statx", &own_statx),
      Binding::of("faccessat", &own_faccessat),
      on_seen<::access>("access"),
      on_seen<::eaccess>("eaccess"),
      on_seen<::euidaccess>("euidaccess"),
      on_seen<::chmod>("chmod"),
      on_seen<::chown>("chown"),
      on_seen<::truncate64>("truncate"),
      on_seen<::truncate64>("truncate64"),
      on_seen<::statfs64>("statfs"),
      on_seen<::statfs64>("statfs64"),
      on_seen<::statfs64>("__statfs"),
      on_seen<::statvfs64>("statvfs"),
      on_seen<::statvfs64>("statvfs64"),
      on_seen<::pathconf>("pathconf"),
      on_redirected<::mq_getattr>("mq_getattr"),
      on_redirected<::mq_setattr>("mq_setattr"),
      on_redirected<::bindresvport>("bindresvport"),
      on_redirected<::getsourcefilter>("getsourcefilter"),
      on_redirected<::setsourcefilter>("setsourcefilter"),
      on_redirected<::getipv4sourcefilter>("getipv4sourcefilter"),
      on_redirected<::setipv4sourcefilter>("setipv4sourcefilter"),
  };
  return table;
}

std::span<const Binding> descriptors_bindings() {
  static const std::array table{
      Binding::of("write", &own_write),
      Binding::of("__write", &own_write),
      Binding::of("writev", &own_writev),
      Binding::of("pwrite", &AtPosition<::pwrite64>::call),
      Binding::of("pwrite64", &AtPosition<::pwrite64>::call),
      Binding::of("pwritev", &AtPosition<::pwritev64>::call),
      Binding::of("pwritev64", &AtPosition<::pwritev64>::call),
      Binding::of("pwritev2", &own_pwritev2),
      Binding::of("pwritev64v2", &own_pwritev2),
      Binding::of("pread", &AtPosition<::pread64>::call),
      Binding::of("pread64", &AtPosition<::pread64>::call),
      Binding::of("__pread_chk", &AtPosition<__pread64_chk>::call),
      Binding::of("__pread64_chk", &AtPosition<__pread64_chk>::call),
      Binding::of("preadv", &AtPosition<::preadv64>::call),
      Binding::of("preadv64", &AtPosition<::preadv64>::call),
      Binding::of("preadv2", &AtPosition<::preadv64v2>::call),
      Binding::of("preadv64v2", &AtPosition<::preadv64v2>::call),
      Binding::of("readv", &own_readv),
      Binding::of("read", &own_read),
      Binding::of("__read", &own_read),
      Binding::of("__read_chk", &own_read_chk),
      Binding::of("dprintf", &Formatted<print_unchecked, char, int>::with_dots),
      Binding::of("vdprintf", &Formatted<print_unchecked, char, int>::with_list),
      Binding::of("__dprintf_chk", &Formatted<print_to_descriptor, char, int, int>::with_dots),
      Binding::of("__vdprintf_chk", &Formatted<print_to_descriptor, char, int, int>::with_list),
      Binding::of("lseek", &own_lseek),
      Binding::of("lseek64", &own_lseek),
      Binding::of("fstat", &own_fstat),
      Binding::of("fstat64", &own_fstat),
      Binding::of("__fxstat", &own_old_fstat),
      Binding::of("__fxstat64", &own_old_fstat),
      Binding::of("isatty", &own_isatty),
      Binding::of("ioctl", &own_ioctl),
      Binding::of("epoll_ctl", &own_epoll_ctl),
      Binding::of("copy_file_range", &own_copy_file_range),
      Binding::of("splice", &own_splice),
      Binding::of("tee", &own_tee),
      Binding::of("vmsplice", &own_vmsplice),
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
      on_redirected<::scandirat64>("scandirat"),
      on_redirected<::scandirat64>("scandirat64"),
      on_redirected<::getdents64>("getdents64"),
      on_redirected<::getdirentries64>("getdirentries"),
      on_redirected<::getdirentries64>("getdirentries64"),
      on_redirected<::name_to_handle_at>("name_to_handle_at"),
      Binding::of("linkat", &own_linkat),
      Binding::of("renameat", &own_renameat),
      Binding::of("renameat2", &own_renameat2),
      Binding::of("symlinkat", &own_symlinkat),
      Binding::of("__fxstatat", &own_old_fstatat),
      Binding::of("__fxstatat64", &own_old_fstatat),
      Binding::of("eventfd_read", &own_eventfd_read),
      Binding::of("eventfd_write", &own_eventfd_write),
  };
  return table;
}

}  // namespace aplib::loader::libc
