// SPDX-License-Identifier: MIT
// RegistrySocket: a stream between two processes of this computer.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

namespace aplib::launch {

/// Owns a descriptor, or none (-1).
class RegistrySocket {
 public:
  explicit RegistrySocket(int descriptor = -1) noexcept : descriptor_(descriptor) {}
  ~RegistrySocket();
  RegistrySocket(RegistrySocket&& other) noexcept;
  RegistrySocket& operator=(RegistrySocket&& other) noexcept;

  static RegistrySocket make();

  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  /// 0, or -1 and errno. A path that is too long for a socket is ENAMETOOLONG.
  [[nodiscard]] int connect(const std::string& path) const;
  /// Appears under `path` when it listens already, so that whoever finds it can connect. Replaces what is there. 0, or -1 and errno.
  [[nodiscard]] int listen(const std::string& path) const;
  /// All of it; false: the other end is gone, or does not read.
  [[nodiscard]] bool send(std::string_view bytes) const;
  /// Whose the process at the other end is; -1: not known.
  [[nodiscard]] uid_t peer_user() const;

 private:
  int descriptor_;
};

}  // namespace aplib::launch
