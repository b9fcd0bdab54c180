// SPDX-License-Identifier: MIT
// Sockets between processes of one host (AF_UNIX): names without a file, who is at the other end, sending all.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace aplib::os {

/// An address of the abstract namespace: it has no file, and ends with the last socket that is bound to it. Of a longer
/// name the beginning counts.
class AbstractAddress {
 public:
  explicit AbstractAddress(std::string_view name) noexcept {
    name = name.substr(0, sizeof address_.sun_path - 1);
    std::ranges::copy(name, address_.sun_path + 1);  // behind a zero: it has no file
    bytes_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }

  [[nodiscard]] const sockaddr* data() const noexcept { return reinterpret_cast<const sockaddr*>(&address_); }
  [[nodiscard]] socklen_t bytes() const noexcept { return bytes_; }

 private:
  sockaddr_un address_{.sun_family = AF_UNIX, .sun_path = {}};
  socklen_t bytes_;
};

/// The process, user and group that connected, or that listened, as the kernel saw them then. Nothing: it is not such a
/// socket. Any thread.
[[nodiscard]] inline std::optional<ucred> peer_of(int socket) noexcept {
  ucred who{};
  socklen_t bytes = sizeof who;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0) return std::nullopt;
  return who;
}

/// Sends all of `bytes` by a socket that blocks, without SIGPIPE. False: errno says why. Any thread.
[[nodiscard]] inline bool send_all(int socket, std::span<const std::byte> bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
  return true;
}

}  // namespace aplib::os
