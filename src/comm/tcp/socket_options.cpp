// SPDX-License-Identifier: MIT
#include "comm/tcp/socket_options.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace aplib::comm {
namespace {

// Between processes of one host what is on the way should stay in the caches: with the system's own choice, which grows to megabytes, 1 MiB messages are a third slower.
constexpr int buffer_within_host = 128 * 1024;

// What a system does not know is left out: it costs speed or time until a death is seen, nothing else.
void set(int socket, int level, int option, int value) noexcept {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

/// Both ends have one address.
bool within_host(int socket) noexcept {
  sockaddr_storage own{};
  sockaddr_storage other{};
  socklen_t own_bytes = sizeof own;
  socklen_t other_bytes = sizeof other;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &own_bytes) != 0 ||
      ::getpeername(socket, reinterpret_cast<sockaddr*>(&other), &other_bytes) != 0)
    return false;
  if (own.ss_family == AF_INET6) {
    return std::memcmp(&reinterpret_cast<const sockaddr_in6&>(own).sin6_addr,
                       &reinterpret_cast<const sockaddr_in6&>(other).sin6_addr, sizeof(in6_addr)) == 0;
  }
  return reinterpret_cast<const sockaddr_in&>(own).sin_addr.s_addr ==
         reinterpret_cast<const sockaddr_in&>(other).sin_addr.s_addr;
}

}  // namespace

void prepare_socket(int socket, std::chrono::milliseconds timeout) noexcept {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  // Half the time of quiet, then probes.
  constexpr int probes = 5;
  const int seconds = std::max(static_cast<int>(std::chrono::ceil<std::chrono::seconds>(timeout).count()), 2);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, std::max(seconds / 2, 1));
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, std::max(seconds / 2 / probes, 1));
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, probes);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(timeout.count()));
}

void prepare_for_frames(int socket) noexcept {
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
  if (within_host(socket)) {
    set(socket, SOL_SOCKET, SO_SNDBUF, buffer_within_host);
    set(socket, SOL_SOCKET, SO_RCVBUF, buffer_within_host);
  }
  ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
}

std::chrono::microseconds round_trip(int socket) noexcept {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return {};
  return std::chrono::microseconds(info.tcpi_rtt);
}

}  // namespace aplib::comm
