// SPDX-License-Identifier: MIT
// Sockets between processes of one host (AF_UNIX): names without a file, who is at the other end, sending all, passing
// descriptors.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "base/os/descriptor.hpp"

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

/// Descriptors that one message passes at most.
inline constexpr std::size_t passed_max = 4;

/// sendmsg(2), without SIGPIPE and repeated when a signal interrupts it: the parts, one behind the other, and with the
/// first byte descriptors of the same files for the other process. Returns how many bytes went; -1: errno says why.
/// `flags` as send(2)'s. REQUIRES: a byte; at most passed_max descriptors. Any thread.
[[nodiscard]] inline ssize_t send_parts(int socket, std::span<iovec> parts, std::span<const int> descriptors,
                                        int flags = 0) noexcept {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(passed_max * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(head), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | flags);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

/// As send_parts(), of all `bytes`. False: errno says why; also EMSGSIZE where a part went.
[[nodiscard]] inline bool send_message(int socket, std::span<const std::byte> bytes, std::span<const int> descriptors,
                                       int flags = 0) noexcept {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  const ssize_t sent = send_parts(socket, std::span(&part, 1), descriptors, flags);
  if (sent >= 0 && sent != static_cast<ssize_t>(bytes.size())) errno = EMSGSIZE;
  return sent == static_cast<ssize_t>(bytes.size());
}

/// What one recvmsg(2) has brought.
struct ReceivedMessage {
  ssize_t bytes = 0;  ///< 0: the other side has closed. -1: errno says why.
  std::array<UniqueFd, passed_max> descriptors{};
  std::size_t passed = 0;  ///< How many of them came. Fewer than were sent, where this process may open no more.
};

/// `flags` as recv(2)'s. What is passed is closed at exec. Any thread.
[[nodiscard]] inline ReceivedMessage receive_message(int socket, std::span<std::byte> room, int flags = 0) noexcept {
  iovec part{room.data(), room.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(passed_max * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ReceivedMessage received;
  do {
    received.bytes = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | flags);
  } while (received.bytes < 0 && errno == EINTR);
  if (received.bytes < 0) return received;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= head->cmsg_len; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(head) + i * sizeof(int), sizeof number);
      UniqueFd owned(number);
      if (received.passed < passed_max) received.descriptors[received.passed++] = std::move(owned);
    }
  }
  return received;
}

}  // namespace aplib::os
