// SPDX-License-Identifier: MIT
#include "loader/elf_input.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "aplib/error.hpp"

namespace aplib::loader {
namespace {

// No table of a real file comes near; a sparse file of terabytes must not make us ask for terabytes of memory.
constexpr std::uint64_t largest_table_bytes = 256ULL << 20;

[[noreturn]] void fail(const std::string& path, std::string_view cause, std::string_view remedy) {
  throw Error(Errc::failed, fmt::format("{}: {}; {}", path, cause, remedy));
}

std::string system_text(int error) { return std::generic_category().message(error); }

int open_file(const std::string& path) {
  if (path.empty()) throw Error(Errc::failed, "the name of the program file is empty; name a program made with apcc");
  // Not blocking: a named pipe without a writer would keep open() for ever.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor >= 0) return descriptor;
  const int error = errno;
  switch (error) {
    case ENOENT:
      fail(path, "there is no such file", "check the name, or build the program first");
    case ENOTDIR:
      fail(path, "there is no such file (a part of the path is not a folder)", "check the name");
    case EACCES:
    case EPERM:
      fail(path, "may not be read", "give it read permission (chmod a+r), and its folders search permission");
    case EMFILE:
    case ENFILE:
      fail(path, "cannot be opened: too many open files", "raise the limit (ulimit -n)");
    default:
      fail(path, fmt::format("cannot be opened: {}", system_text(error)), "check the name and the file system");
  }
}

/// Where the open file is. A file without a name in any folder keeps the name it was opened by.
std::string absolute_path(const std::string& path) {
  char* const resolved = ::realpath(path.c_str(), nullptr);
  if (resolved != nullptr) {
    std::string result = resolved;
    std::free(resolved);
    return result;
  }
  std::error_code ignored;
  const auto absolute = std::filesystem::absolute(path, ignored);
  return ignored ? path : absolute.lexically_normal().string();
}

void check_kind(const struct stat& status, const std::string& path) {
  constexpr std::string_view remedy = "name a program file made with apcc";
  if (S_ISDIR(status.st_mode)) fail(path, "is a folder", remedy);
  if (!S_ISREG(status.st_mode)) fail(path, "is not a regular file", remedy);
  if (status.st_size == 0) fail(path, "is empty", "build the program again");
}

FileIdentity identity_of(const struct stat& status) {
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .bytes = static_cast<std::uint64_t>(status.st_size),
          .modified_ns = status.st_mtim.tv_sec * 1'000'000'000LL + status.st_mtim.tv_nsec};
}

struct stat status_of(int descriptor, const std::string& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) {
    const int error = errno;
    fail(path, fmt::format("cannot be examined: {}", system_text(error)), "check the file system");
  }
  return status;
}

}  // namespace

FileIdentity identify(int descriptor, const std::string& path) { return identity_of(status_of(descriptor, path)); }

ElfInput::ElfInput(const std::string& path) : path_(path) {
  const int descriptor = open_file(path);
  try {
    const struct stat status = status_of(descriptor, path);
    check_kind(status, path);
    identity_ = identity_of(status);
    path_ = absolute_path(path);
  } catch (...) {
    ::close(descriptor);
    throw;
  }
  descriptor_ = descriptor;
}

ElfInput::~ElfInput() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int ElfInput::release() noexcept { return std::exchange(descriptor_, -1); }

void ElfInput::refuse(std::string_view cause, std::string_view remedy) const { fail(path_, cause, remedy); }

void ElfInput::damaged(std::string_view place, std::string_view cause) const {
  throw Error(Errc::failed, fmt::format("{}: {}: {}; the file is damaged: build it again", path_, place, cause));
}

void ElfInput::check_table(std::uint64_t offset, std::uint64_t count, std::size_t element,
                           std::string_view what) const {
  if (count > bytes() / element || !lies_in(offset, count * element, bytes())) {
    damaged(what, fmt::format("{} elements of {} bytes at offset {:#x} lie outside the file's {} bytes", count, element,
                              offset, bytes()));
  }
  if (count * element > largest_table_bytes) {
    damaged(what, fmt::format("{} bytes are more than any real file has", count * element));
  }
}

void ElfInput::read(std::uint64_t offset, std::span<std::byte> to, std::string_view what) const {
  while (!to.empty()) {
    const ssize_t got = ::pread(descriptor_, to.data(), to.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int error = errno;
      refuse(fmt::format("{} cannot be read: {}", what, system_text(error)), "check the file system");
    }
    if (got == 0) refuse(fmt::format("{}: the file became shorter while it was read", what), "start again");
    offset += static_cast<std::uint64_t>(got);
    to = to.subspan(static_cast<std::size_t>(got));
  }
}

}  // namespace aplib::loader
