// SPDX-License-Identifier: MIT
#include "launch/files/target.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "aplib/error.hpp"

namespace aplib::launch::files {
namespace {

constexpr int parts_max = 64;  // transfers that write one file at the same time

/// The hidden name of the file until it is whole, the same each time, so that nothing that a killed process leaves
/// stays for longer than until the next transfer. `number`: others write the same file at this time.
std::string part_name(const std::string& name, int number) {
  const std::string end = number == 1 ? std::string(".aplib-part") : fmt::format(".{}.aplib-part", number);
  std::string begin = name;
  constexpr std::size_t room = 40;
  if (begin.size() > NAME_MAX - room) {
    comm::Sha256 sum;
    sum.add(std::as_bytes(std::span(name)));
    begin.resize(NAME_MAX - room);
    const comm::Digest digest = sum.digest();
    for (const std::byte byte : std::span(digest).first(8))
      begin += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  }
  return "." + begin + end;
}

bool set_time(int descriptor, std::int64_t time) {
  constexpr std::int64_t second = 1'000'000'000;
  std::int64_t seconds = time / second;
  if (time % second < 0) --seconds;
  timespec times[2]{};
  times[0].tv_nsec = UTIME_OMIT;
  times[1].tv_sec = static_cast<time_t>(seconds);
  times[1].tv_nsec = static_cast<long>(time - seconds * second);
  return ::futimens(descriptor, times) == 0;
}

bool is_nobody_elses(int folder, const std::string& name, int file) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(file, &opened) == 0 && S_ISREG(opened.st_mode) && opened.st_nlink == 1 &&
         opened.st_uid == ::geteuid() && ::fstatat(folder, name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
}

os::UniqueFd open_to_read(int folder, const std::string& name) {
  os::UniqueFd file(::openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (file && (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode))) file.reset();
  return file;
}

/// As a link of /proc, because the system gives a file without a name one only so.
std::string link_of(int descriptor) { return fmt::format("/proc/self/fd/{}", descriptor); }

}  // namespace

std::optional<comm::Sha256> sum_of(int descriptor, std::uint64_t bytes) {
  comm::Sha256 sum;
  std::vector<std::byte> block(static_cast<std::size_t>(std::min<std::uint64_t>(bytes, std::uint64_t{256} << 10)));
  for (std::uint64_t at = 0; at < bytes;) {
    const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(block.size(), bytes - at));
    const ssize_t got = ::pread(descriptor, block.data(), wanted, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    sum.add(std::span(block).first(static_cast<std::size_t>(got)));
    at += static_cast<std::uint64_t>(got);
  }
  return sum;
}

Target::Target(std::string folder) : folder_(folder.empty() ? "." : std::move(folder)) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  root_.reset(::open(folder_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root_) fail("", error ? error.value() : errno);
  parent_fd_.reset(::fcntl(root_.get(), F_DUPFD_CLOEXEC, 3));
  if (!parent_fd_) fail("", errno);
}

std::string Target::full(std::string_view path) const {
  if (path.empty()) return shown(folder_);
  return shown(folder_ == "." ? std::string(path) : fmt::format("{}/{}", folder_, path));
}

void Target::fail(std::string_view path, int error) const {
  const char* remedy = error == ENOSPC || error == EDQUOT ? "; make room there, or choose another folder"
                       : error == EACCES || error == EPERM || error == EROFS
                           ? "; choose a folder that this user may write to"
                           : "";
  throw Error(Errc::failed, fmt::format("cannot write {}: {}{}", full(path), os::text_of(error), remedy));
}

std::optional<std::uint64_t> Target::free_bytes() const {
  struct statvfs disk {};
  if (::fstatvfs(root_.get(), &disk) != 0) return std::nullopt;
  return static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
}

os::UniqueFd Target::step(int from, const std::string& name, std::string_view path, bool make) {
  if (make && ::mkdirat(from, name.c_str(), 0777) != 0 && errno != EEXIST) fail(path, errno);
  os::UniqueFd folder(::openat(from, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder && (errno == ENOTDIR || errno == ELOOP)) {
    throw Error(Errc::failed,
                fmt::format("cannot write {}: {} on the way there is no folder, or a symbolic link, which "
                            "is not followed; name the folder where it leads",
                            full(path), shown(name)));
  }
  return folder;
}

void Target::go_to(std::string_view parent, bool make) {
  if (parent == parent_ && parent_fd_) return;
  os::UniqueFd at;
  for (std::size_t begin = 0; begin < parent.size();) {
    const std::size_t end = std::min(parent.find('/', begin), parent.size());
    at = step(at ? at.get() : root_.get(), std::string(parent.substr(begin, end - begin)), parent.substr(0, end), make);
    if (!at) {
      if (make) fail(parent.substr(0, end), errno);
      parent_fd_.reset();
      return;
    }
    begin = end + 1;
  }
  if (!at) at.reset(::fcntl(root_.get(), F_DUPFD_CLOEXEC, 3));
  if (!at) fail(parent, errno);
  parent_ = parent;
  parent_fd_ = std::move(at);
}

Target::Place Target::find(const std::string& path, bool make) {
  const std::size_t slash = path.rfind('/');
  go_to(slash == path.npos ? std::string_view() : std::string_view(path).substr(0, slash), make);
  return {parent_fd_.get(), slash == path.npos ? path : path.substr(slash + 1)};
}

std::optional<struct stat> Target::look(const std::string& path) {
  const Place place = find(path, false);
  struct stat status {};
  if (place.folder < 0) return std::nullopt;
  if (::fstatat(place.folder, place.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) return status;
  if (errno != ENOENT) fail(path, errno);
  return std::nullopt;
}

std::optional<comm::Digest> Target::sum(const std::string& path) {
  const Place place = find(path, false);
  if (place.folder < 0) return std::nullopt;
  const os::UniqueFd file = open_to_read(place.folder, place.name);
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) return std::nullopt;
  const auto sum = sum_of(file.get(), static_cast<std::uint64_t>(status.st_size));
  if (!sum) return std::nullopt;
  return sum->digest();
}

std::optional<std::pair<std::uint64_t, comm::Digest>> Target::left(const std::string& path) {
  const Place place = find(path, false);
  if (place.folder < 0) return std::nullopt;
  const std::string name = part_name(place.name, 1);
  const os::UniqueFd file = open_to_read(place.folder, name);
  struct stat status {};
  if (!file || !is_nobody_elses(place.folder, name, file.get()) || ::fstat(file.get(), &status) != 0)
    return std::nullopt;
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  const auto sum = bytes == 0 ? std::nullopt : sum_of(file.get(), bytes);
  if (!sum) return std::nullopt;
  return std::pair(bytes, sum->digest());
}

Part Target::begin(const std::string& path, bool resume, std::uint64_t from) {
  const Place place = find(path, true);
  Part part;
  part.folder_.reset(::fcntl(place.folder, F_DUPFD_CLOEXEC, 3));
  if (!part.folder_) fail(path, errno);
  if (!resume) {
    part.file_.reset(::openat(place.folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (part.file_) return part;
    // Not every file system has files without a name.
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL) fail(path, errno);
  }
  for (int number = 1; number <= parts_max; ++number) {
    const std::string name = part_name(place.name, number);
    os::UniqueFd file(
        ::openat(place.folder, name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
    if (!file && errno != ELOOP && errno != EISDIR && errno != ENXIO) fail(path, errno);
    if (!file || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) continue;
    if (!is_nobody_elses(place.folder, name, file.get())) continue;
    struct stat status {};
    if (::fstat(file.get(), &status) != 0 || static_cast<std::uint64_t>(status.st_size) < from ||
        ::ftruncate(file.get(), static_cast<off_t>(from)) != 0)
      continue;
    part.file_ = std::move(file);
    part.name_ = name;
    part.stays_ = resume;
    return part;
  }
  throw Error(Errc::failed, fmt::format("cannot write {}: others write it, too; wait until they are done", full(path)));
}

/// What to do where a file is already. False: nothing.
bool Target::settle(const Place& place, const std::string& path, Existing existing, const comm::Digest& sum) {
  struct stat status {};
  const bool is_folder =
      ::fstatat(place.folder, place.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
  if (is_folder) fail(path, EISDIR);
  if (existing == Existing::replace) return true;
  if (this->sum(path) == sum) return false;
  throw Error(Errc::failed, differs(path));
}

std::string Target::differs(const std::string& path) const {
  return fmt::format(
      "{} is there and differs; remove it, choose another target, or let it be replaced (apctl sync, aprun --replace, "
      "replace = true)",
      full(path));
}

bool Target::place(Part part, const std::string& path, std::uint32_t mode, std::int64_t time, Existing existing,
                   const comm::Digest& sum) {
  const Place place = find(path, true);
  part.stays_ = false;  // it is whole: there is nothing to resume
  if (::fchmod(part.file_.get(), mode & 0777) != 0 || !set_time(part.file_.get(), time)) fail(path, errno);
  const std::string from = link_of(part.file_.get());
  if (part.name_.empty()) {
    const auto link = [&](const std::string& name) {
      return ::linkat(AT_FDCWD, from.c_str(), place.folder, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
    };
    if (link(place.name)) return true;
    if (errno != EEXIST) fail(path, errno);
    if (!settle(place, path, existing, sum)) return false;
    for (int number = 1; part.name_.empty(); ++number) {
      if (link(part_name(place.name, number))) {
        part.name_ = part_name(place.name, number);
      } else if (errno != EEXIST || number == parts_max) {
        fail(path, errno);
      }
    }
  } else {
    const unsigned flags = existing == Existing::refuse ? RENAME_NOREPLACE : 0;
    if (::renameat2(place.folder, part.name_.c_str(), place.folder, place.name.c_str(), flags) == 0) {
      part.name_.clear();
      return true;
    }
    if (errno == EINVAL && existing == Existing::refuse &&
        ::linkat(place.folder, part.name_.c_str(), place.folder, place.name.c_str(), 0) == 0) {
      part.spoil();
      return true;
    }
    if (errno != EEXIST) fail(path, errno);
    if (!settle(place, path, existing, sum)) {
      part.spoil();
      return false;
    }
  }
  if (::renameat(place.folder, part.name_.c_str(), place.folder, place.name.c_str()) != 0) fail(path, errno);
  part.name_.clear();
  return true;
}

bool Target::make_folder(const std::string& path, std::uint32_t mode) {
  const Place place = find(path, true);
  const mode_t open = (mode & 0777) | 0700;
  if (::mkdirat(place.folder, place.name.c_str(), open) == 0) {
    static_cast<void>(::fchmodat(place.folder, place.name.c_str(), open, 0));  // the umask; finish_folder() tells
    return true;
  }
  if (errno != EEXIST) fail(path, errno);
  static_cast<void>(step(place.folder, place.name, path, false));
  return false;
}

void Target::finish_folder(const std::string& path, std::uint32_t mode, std::int64_t time) {
  const Place place = find(path, false);
  if (place.folder < 0) fail(path, ENOENT);
  const os::UniqueFd folder(
      ::openat(place.folder, place.name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder || ::fchmod(folder.get(), mode & 0777) != 0 || !set_time(folder.get(), time)) fail(path, errno);
}

bool Target::make_link(const std::string& path, const std::string& link, Existing existing) {
  const Place place = find(path, true);
  if (::symlinkat(link.c_str(), place.folder, place.name.c_str()) == 0) return true;
  if (errno != EEXIST) fail(path, errno);
  std::array<char, PATH_MAX> there;
  const ssize_t bytes = ::readlinkat(place.folder, place.name.c_str(), there.data(), there.size());
  if (bytes >= 0 && std::string_view(there.data(), static_cast<std::size_t>(bytes)) == link) return false;
  if (!settle(place, path, existing, {})) return false;
  for (int number = 1; number <= parts_max; ++number) {
    const std::string name = part_name(place.name, number);
    if (::symlinkat(link.c_str(), place.folder, name.c_str()) != 0) continue;
    if (::renameat(place.folder, name.c_str(), place.folder, place.name.c_str()) == 0) return true;
    const int error = errno;
    ::unlinkat(place.folder, name.c_str(), 0);
    fail(path, error);
  }
  fail(path, EEXIST);
}

}  // namespace aplib::launch::files
