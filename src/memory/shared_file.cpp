// SPDX-License-Identifier: MIT
#include "memory/shared_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <string>
#include <string_view>

namespace aplib {

std::optional<SharedFile> SharedFile::make(const char* name, std::uint64_t bytes) noexcept {
  if (!os::file_may_have(bytes)) return std::nullopt;
  os::UniqueFd descriptor(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!descriptor || ftruncate(descriptor.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(descriptor.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return std::nullopt;
  return SharedFile(std::move(descriptor));
}

std::optional<SharedFilePlace> SharedFile::place_of(int descriptor) noexcept {
  struct stat status {};
  if (descriptor < 0 || ::fstat(descriptor, &status) != 0) return std::nullopt;
  return SharedFilePlace{status.st_ino, ::getpid(), descriptor};
}

os::UniqueFd SharedFile::open(const SharedFilePlace& place, const char* name, std::uint64_t bytes) {
  const std::string path = fmt::format("/proc/{}/fd/{}", place.process, place.descriptor);
  // Looked at before it is opened, for to open what is no memory may do something.
  std::array<char, 64> target{};
  const ssize_t length = ::readlink(path.c_str(), target.data(), target.size());
  if (length <= 0 ||
      !std::string_view(target.data(), static_cast<std::size_t>(length)).starts_with(fmt::format("/memfd:{}", name)))
    return {};
  os::UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || status.st_ino != place.inode ||
      (::fcntl(file.get(), F_GET_SEALS) & F_SEAL_SHRINK) == 0 || static_cast<std::uint64_t>(status.st_size) < bytes)
    return {};
  return file;
}

}  // namespace aplib
