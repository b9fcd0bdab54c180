// SPDX-License-Identifier: MIT
// RemoteAccess: what this thread is doing to a cell's memory for a cell of another process. Should the memory not be there, the thread that polls the network faults, whatever task it runs: the report
// (signals.cpp) must name who asked.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aplib {

struct RemoteAccess {
  const char* what;          ///< "put"
  std::uint32_t by;          ///< Cell that asked.
  std::uint32_t cell;        ///< Cell whose memory it is.
  const std::byte* address;  ///< Where it begins.
  std::uint64_t bytes;
};

namespace detail {
[[gnu::tls_model("initial-exec")]] extern constinit thread_local const RemoteAccess* current_remote_access;
}

/// Says so while it lives.
class RemoteAccessScope {
 public:
  explicit RemoteAccessScope(const RemoteAccess& access) noexcept { detail::current_remote_access = &access; }
  ~RemoteAccessScope() { detail::current_remote_access = nullptr; }
  RemoteAccessScope(const RemoteAccessScope&) = delete;
  RemoteAccessScope& operator=(const RemoteAccessScope&) = delete;

  /// Touches each page, so that what is not there faults here, and not in a system call of the module, to which it would look like a lost peer.
  static void touch_to_read(const RemoteAccess& access) noexcept;
  static void touch_to_write(const RemoteAccess& access) noexcept;
};

}  // namespace aplib
