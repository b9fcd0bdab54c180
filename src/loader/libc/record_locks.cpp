// SPDX-License-Identifier: MIT
// Record locks (fcntl, lockf) and flock. The kernel's record locks belong to the process, so cells would never exclude
// each other, and a database that two of them open would be spoiled without a word. Here they belong to the instance:
// it opens each file that it locks once more, and the open-file-description locks of that descriptor exclude other
// instances and the record locks of other processes alike. A flow that waits for a lock, of an open file (F_OFD_SETLKW,
// flock), too, lets other tasks run, because the holder may be on the same thread.
//
// Not kept: EDEADLK (a circle of waiting programs waits). F_GETLK tells -1 for a lock of a cell of another process, as
// the system does for such locks.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/descriptor.hpp"
#include "base/os/thread.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/state.hpp"
#include "loader/libc/streams.hpp"
#include "loader/libc/waiting.hpp"

namespace aplib::loader::libc {

/// The files an instance has locked records of.
struct RecordLocks {
  struct File {
    dev_t device;
    ino_t inode;
    os::GuardedFd holder;  // opened for this alone: its locks are the instance's
  };

  RecordLocks();
  ~RecordLocks();
  RecordLocks(const RecordLocks&) = delete;
  RecordLocks& operator=(const RecordLocks&) = delete;

  std::mutex mutex;  // threads of the program may lock at once
  std::vector<File> files;
  Instance* instance = nullptr;  // set with the first file
};

namespace {

/// Those of all instances. Its mutex is locked before one of theirs.
struct Lockers {
  std::mutex mutex;
  std::vector<RecordLocks*> all;
};
Lockers& lockers() {
  static auto* const all = new Lockers;  // instances may end late
  return *all;
}

}  // namespace

RecordLocks::RecordLocks() {
  const std::lock_guard lock(lockers().mutex);
  lockers().all.push_back(this);
}
RecordLocks::~RecordLocks() {
  const std::lock_guard lock(lockers().mutex);
  std::erase(lockers().all, this);
}

namespace {

/// Calls `attempt` until it ends with something else than "another has it". Returns its result, errno set. Switches
/// tasks: between attempts.
template <class Attempt>
int wait_for(Instance& instance, const Attempt& attempt) {
  int result = 0;
  const Waited how = wait_in_turn(instance, std::nullopt, EndedBy::without_restart, [&] {
    result = attempt();
    return result == 0 || (errno_now() != EAGAIN && errno_now() != EACCES);
  });
  return how == Waited::interrupted ? failed(EINTR) : result;
}

std::vector<RecordLocks::File>::iterator find_file(RecordLocks& locks, const struct stat& status) {
  return std::ranges::find_if(locks.files, [&](const RecordLocks::File& file) {
    return file.device == status.st_dev && file.inode == status.st_ino;
  });
}

/// The descriptor that holds the instance's locks on the file of `descriptor`; -1, errno set, when it cannot be had.
/// With the mutex held, for as long as the descriptor is used: another thread may give up the locks, and it.
int holder_of(RecordLocks& locks, int descriptor, const struct stat& status) {
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
  if (!holder) return failed(ENOLCK);
  struct stat opened {};
  // A thread that waits for a lock does not keep others from closing the file.
  if (::fstat(holder.get(), &opened) != 0 || opened.st_dev != status.st_dev || opened.st_ino != status.st_ino)
    return failed(EBADF);
  locks.files.push_back({status.st_dev, status.st_ino, os::GuardedFd(std::move(holder))});
  return locks.files.back().holder.get();
}

/// `holder` has this lock, as the system says it of locks whose owner is no process: the pid is the only thing that it
/// does not say.
bool has_lock(int holder, const struct flock& record) {
  std::istringstream lines(os::read_file(fmt::format("/proc/self/fdinfo/{}", holder)).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    std::array<char, 16> type{};
    long start = 0;
    if (std::sscanf(line.c_str(), "lock: %*d: OFDLCK %*s %15s %*d %*s %ld", type.data(), &start) != 2) continue;
    const bool writes = std::string_view(type.data()) == "WRITE";
    if (start == record.l_start && writes == (record.l_type == F_WRLCK)) return true;
  }
  return false;
}

/// The pid of the other cell of this process that has this lock; -1: none has.
pid_t pid_of_owner(const RecordLocks& asking, const struct stat& status, const struct flock& record) {
  const std::lock_guard lock(lockers().mutex);
  for (RecordLocks* const each : lockers().all) {
    if (each == &asking) continue;
    const std::lock_guard held(each->mutex);
    const auto file = find_file(*each, status);
    if (file != each->files.end() && has_lock(file->holder.get(), record)) return pid_of(*each->instance);
  }
  return -1;
}

/// What fcntl() does for F_SETLK, F_SETLKW and F_GETLK.
int lock_record(Instance& instance, int descriptor, int command, struct flock& asked) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return -1;
  if (!S_ISREG(status.st_mode)) {
    if (command != F_SETLKW) return ::fcntl(descriptor, command, &asked);
    return wait_for(instance, [&] { return ::fcntl(descriptor, F_SETLK, &asked); });  // another process has it
  }
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
  RecordLocks& locks = shared_part(instance.libc().locks);
  const auto ask = [&](int question) {  // none of them waits
    const std::lock_guard lock(locks.mutex);
    locks.instance = &instance;
    const int holder = holder_of(locks, descriptor, status);
    return holder < 0 ? -1 : ::fcntl(holder, question, &record);
  };
  if (command == F_SETLK) return ask(F_OFD_SETLK);
  if (command == F_SETLKW) return wait_for(instance, [&] { return ask(F_OFD_SETLK); });
  if (ask(F_OFD_GETLK) != 0) return -1;
  if (record.l_type == F_UNLCK) {
    asked.l_type = F_UNLCK;
    return 0;
  }
  asked = record;
  if (asked.l_pid < 0) asked.l_pid = pid_of_owner(locks, status, record);
  return 0;
}

int own_fcntl(int descriptor, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);  // libc reads it so for every command
  va_end(arguments);
  Instance* instance = calling(__builtin_return_address(0));
  if (instance != nullptr && is_standard(descriptor) && (command == F_GETFD || command == F_SETFD)) {
    const auto flags = static_cast<int>(reinterpret_cast<std::uintptr_t>(argument));
    return descriptor_flags(outlet_of(*instance, descriptor), command, flags);
  }
  descriptor = redirected(__builtin_return_address(0), descriptor);
  if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) {
    const auto least = std::min<std::uintptr_t>(reinterpret_cast<std::uintptr_t>(argument), STDERR_FILENO + 1);
    return note_lowest(instance, ::fcntl(descriptor, command, argument), static_cast<int>(least));
  }
  if (command == F_SETFL && (reinterpret_cast<std::uintptr_t>(argument) & O_ASYNC) != 0 && instance != nullptr)
    return refuse_async(*instance, "fcntl(F_SETFL, O_ASYNC)");
  if (instance == nullptr || argument == nullptr) return ::fcntl(descriptor, command, argument);
  switch (command) {
    case F_SETLK:
    case F_SETLKW:
    case F_GETLK:
      return lock_record(*instance, descriptor, command, *static_cast<struct flock*>(argument));
    case F_OFD_SETLKW:  // belongs to the open file, as flock's do
      return wait_for(*instance, [&] { return ::fcntl(descriptor, F_OFD_SETLK, argument); });
    default:
      return ::fcntl(descriptor, command, argument);
  }
}

int own_lockf(int descriptor, int command, off_t length) {
  const void* const caller = __builtin_return_address(0);
  Instance* const program = calling(caller);
  if (program == nullptr) return ::lockf(descriptor, command, length);
  Instance& instance = *program;
  descriptor = redirected(caller, descriptor);
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

/// No cancellation point: libc declares flock nothrow.
int wait_for_flock(Instance& instance, int descriptor, int operation) {
  const os::CancellationDisabled uncancelled;
  return wait_for(instance, [&] { return ::flock(descriptor, operation | LOCK_NB); });
}

// These locks belong to the open file, which is the instance's as it is; only waiting is not libc's.
int own_flock(int descriptor, int operation) {
  Instance* instance = calling(__builtin_return_address(0));
  descriptor = redirected(__builtin_return_address(0), descriptor);
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
      Binding::of("fcntl", &own_fcntl), Binding::of("fcntl64", &own_fcntl), Binding::of("__fcntl", &own_fcntl),
      Binding::of("lockf", &own_lockf), Binding::of("lockf64", &own_lockf), Binding::of("flock", &own_flock),
  };
  return table;
}

}  // namespace aplib::loader::libc
