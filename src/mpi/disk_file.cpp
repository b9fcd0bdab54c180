// SPDX-License-Identifier: MIT
#include "mpi/disk_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <sys/stat.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "mpi/error.hpp"

namespace aplib::mpi {

namespace {

int class_of_system_error(int error) {
  switch (error) {
    case ENOENT:
      return MPI_ERR_NO_SUCH_FILE;
    case ENAMETOOLONG:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
      return MPI_ERR_BAD_FILE;
    case EACCES:
    case EPERM:
      return MPI_ERR_ACCESS;
    case EROFS:
      return MPI_ERR_READ_ONLY;
    case EEXIST:
      return MPI_ERR_FILE_EXISTS;
    case EBUSY:
    case ETXTBSY:
      return MPI_ERR_FILE_IN_USE;
    case ENOSPC:
      return MPI_ERR_NO_SPACE;
    case EDQUOT:
      return MPI_ERR_QUOTA;
    default:
      return MPI_ERR_IO;
  }
}

/// Asks the system again when a signal has come in between. Returns what it says, or -1 with errno.
template <class Ask>
auto undisturbed(const Ask& ask) {
  while (true) {
    const auto answer = ask();
    if (answer >= 0 || errno != EINTR) return answer;
  }
}

// More than the system does at once.
constexpr Count bytes_at_once_max = Count{1} << 30;

struct flock range_of(short kind, Count first, Count bytes) noexcept {
  struct flock range {};
  range.l_type = kind;
  range.l_whence = SEEK_SET;
  range.l_start = first;
  range.l_len = bytes;
  return range;
}

}  // namespace

void fail_system(int rank, const char* what, const std::string& name, int error) {
  const char* const words = ::strerrordesc_np(error);
  const char* const code = ::strerrorname_np(error);
  fail(class_of_system_error(error),
       fmt::format("rank {} cannot {} {}: {} ({})", rank, what, name, words != nullptr ? words : "an unknown error",
                   code != nullptr ? code : std::to_string(error)));
}

// ---------------------------------------------------------------- open and closed

DiskFile::~DiskFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void DiskFile::open(int rank, const std::string& name, int flags, mode_t permissions) {
  rank_ = rank;
  name_ = name;
  std::error_code ignored;  // without a current folder the name is all there is
  full_name_ = std::filesystem::absolute(name, ignored).string();
  if (ignored) full_name_ = name;
  const auto open_with = [&](int all) {
    return undisturbed([&] { return ::open(name.c_str(), all | O_CLOEXEC, permissions); });
  };
  const bool writes_alone = (flags & O_ACCMODE) == O_WRONLY;
  if (writes_alone) descriptor_ = open_with((flags & ~O_ACCMODE) | O_RDWR);
  is_readable_ = descriptor_ >= 0 || !writes_alone;
  if (descriptor_ < 0) descriptor_ = open_with(flags);
  if (descriptor_ < 0) fail("open", errno);
  is_writable_ = (flags & O_ACCMODE) != O_RDONLY;
  struct stat state {};
  if (::fstat(descriptor_, &state) != 0) fail("look at", errno);
  if (S_ISDIR(state.st_mode)) fail("open", EISDIR);
  if (::lseek(descriptor_, 0, SEEK_CUR) < 0) {
    mpi::fail(MPI_ERR_UNSUPPORTED_OPERATION,
              fmt::format("rank {} cannot open {}: it is a pipe or a terminal, where data have no offset; open a file",
                          rank, name));
  }
  has_size_ = S_ISREG(state.st_mode);
}

void DiskFile::close() {
  if (descriptor_ < 0) return;
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0 && errno != EINTR) fail("close", errno);  // it is closed anyway
}

// ---------------------------------------------------------------- data

Count DiskFile::read(void* to, Count bytes, Count offset) const {
  Count done = 0;
  while (done < bytes) {
    const auto wanted = static_cast<std::size_t>(std::min(bytes - done, bytes_at_once_max));
    const ssize_t got =
        undisturbed([&] { return ::pread(descriptor_, static_cast<char*>(to) + done, wanted, offset + done); });
    if (got < 0) fail("read", errno);
    if (got == 0) break;
    done += got;
  }
  return done;
}

void DiskFile::write(const void* from, Count bytes, Count offset) const {
  for (Count done = 0; done < bytes;) {
    const auto wanted = static_cast<std::size_t>(std::min(bytes - done, bytes_at_once_max));
    const ssize_t put = undisturbed(
        [&] { return ::pwrite(descriptor_, static_cast<const char*>(from) + done, wanted, offset + done); });
    if (put < 0) fail("write to", errno);
    if (put == 0) fail("write to", ENOSPC);  // what a system says that takes nothing, and has no error
    done += put;
  }
}

Count DiskFile::size() const {
  struct stat state {};
  if (::fstat(descriptor_, &state) != 0) fail("look at", errno);
  return state.st_size;
}

void DiskFile::set_size(Count bytes) const {
  if (undisturbed([&] { return ::ftruncate(descriptor_, bytes); }) != 0) fail("set the size of", errno);
}

// The system's own fallback, where the file system cannot, writes into each block: nobody else may write meanwhile.
void DiskFile::reserve(Count bytes) const {
  int error = EINTR;
  while (error == EINTR) error = ::posix_fallocate(descriptor_, 0, bytes);
  if (error != 0) fail("reserve space for", error);
}

void DiskFile::flush() const {
  const auto is_a_device = [] { return errno == EINVAL || errno == EROFS; };  // has nothing to be flushed
  if (undisturbed([&] { return ::fsync(descriptor_); }) != 0 && !is_a_device()) fail("flush", errno);
}

// ---------------------------------------------------------------- locks

bool DiskFile::can_lock() const noexcept {
  struct flock range = range_of(is_writable_ ? F_WRLCK : F_RDLCK, 0, 1);
  return ::fcntl(descriptor_, F_OFD_GETLK, &range) == 0;
}

RangeLock::RangeLock(const DiskFile& file, Kind kind, Count first, Count bytes)
    : file_(file), first_(first), bytes_(bytes) {
  const bool is_shared = kind == Kind::shared && file.is_readable_;  // a shared one wants a file that can be read
  struct flock range = range_of(is_shared ? F_RDLCK : F_WRLCK, first, bytes);
  if (undisturbed([&] { return ::fcntl(file.descriptor_, F_OFD_SETLKW, &range); }) != 0)
    file.fail("lock a part of", errno);
}

RangeLock::~RangeLock() {
  struct flock range = range_of(F_UNLCK, first_, bytes_);
  ::fcntl(file_.descriptor_, F_OFD_SETLK, &range);
}

}  // namespace aplib::mpi
