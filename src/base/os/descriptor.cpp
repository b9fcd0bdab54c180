// SPDX-License-Identifier: MIT
#include "base/os/descriptor.hpp"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>

namespace aplib::os {
namespace {

constexpr std::size_t numbers_max = 65'536;  // higher ones are not guarded

/// By number: which file is guarded there, 0: none. The descriptors are the process's, and so is their table.
std::array<std::atomic<std::uint64_t>, numbers_max> guarded;

bool has_place(int descriptor) noexcept {
  return descriptor > STDERR_FILENO && static_cast<std::size_t>(descriptor) < numbers_max;
}

/// Of the file that is open at this number; 0: none is.
std::uint64_t file_at(int descriptor) noexcept {
  const int kept = errno;
  struct stat64 status {};
  // The system call itself: the number may be another thread's, which ThreadSanitizer would take for a race.
  const bool found = ::syscall(SYS_fstat, descriptor, &status) == 0;
  errno = kept;
  return found ? (status.st_ino ^ (status.st_dev << 40)) | (std::uint64_t{1} << 63) : 0;
}

}  // namespace

// relaxed throughout: a number is guarded before anybody else knows of it
void guard_descriptor(int descriptor) noexcept {
  if (!has_place(descriptor)) return;
  guarded[static_cast<std::size_t>(descriptor)].store(file_at(descriptor), std::memory_order_relaxed);
}

void unguard_descriptor(int descriptor) noexcept {
  if (has_place(descriptor)) guarded[static_cast<std::size_t>(descriptor)].store(0, std::memory_order_relaxed);
}

bool is_guarded(int descriptor) noexcept {
  if (!has_place(descriptor)) return false;
  const std::uint64_t file = guarded[static_cast<std::size_t>(descriptor)].load(std::memory_order_relaxed);
  return file != 0 && file == file_at(descriptor);
}

std::optional<DirectoryId> id_of_directory(int descriptor) noexcept {
  struct statx found {};
  const int kept = errno;
  const bool said = ::statx(descriptor, "", AT_EMPTY_PATH, STATX_INO | STATX_MNT_ID, &found) == 0;
  errno = kept;
  if (!said || (found.stx_mask & STATX_MNT_ID) == 0) return std::nullopt;
  const std::uint64_t device = (std::uint64_t{found.stx_dev_major} << 32U) | found.stx_dev_minor;
  return DirectoryId{device, found.stx_ino, found.stx_mnt_id};
}

void guard_open_descriptors() {
  for (const int descriptor : open_descriptors()) {
    const int flags = ::fcntl(descriptor, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) != 0) guard_descriptor(descriptor);
  }
}

std::vector<int> open_descriptors() {
  std::vector<int> numbers;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), &::closedir);
  if (folder == nullptr) return numbers;
  while (const dirent* entry = ::readdir(folder.get())) {
    const int number = std::atoi(entry->d_name);  // 0 for "."
    if (number > STDERR_FILENO && number != ::dirfd(folder.get())) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace aplib::os
