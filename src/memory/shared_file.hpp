// SPDX-License-Identifier: MIT
// SharedFile: memory without a name in the file system that other processes of this host can map, too. They open it as
// /proc/PID/fd/N, which the kernel permits to the same user in the same process namespace. Nobody can shorten it, which
// would kill who reads there.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/os/descriptor.hpp"

namespace aplib {

/// Where other processes find a SharedFile.
struct SharedFilePlace {
  std::uint64_t inode = 0;
  std::int32_t process = 0;  ///< The system's number.
  std::int32_t descriptor = -1;
};

class SharedFile {
 public:
  /// Zeros; pages come as they are touched. Nothing: the system has none, or files may not be as large.
  static std::optional<SharedFile> make(const char* name, std::uint64_t bytes) noexcept;

  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }
  /// Of such a file. Nothing: somebody has closed it.
  [[nodiscard]] static std::optional<SharedFilePlace> place_of(int descriptor) noexcept;
  /// What a peer says is there. Nothing: it cannot be opened, is no SharedFile of this name, or has less than `bytes`
  /// bytes.
  [[nodiscard]] static os::UniqueFd open(const SharedFilePlace& place, const char* name, std::uint64_t bytes);

 private:
  explicit SharedFile(os::UniqueFd descriptor) noexcept : descriptor_(std::move(descriptor)) {}
  os::GuardedFd descriptor_;
};

}  // namespace aplib
