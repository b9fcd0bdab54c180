// SPDX-License-Identifier: MIT
#include "comm/tcp/socket_options.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

namespace aplib::comm {
namespace {

// What a system does not know is left out: it costs speed or time until a death is seen, nothing else.
void set(int socket, int level, int option, int value) noexcept {
  ::setsockopt(socket, level, option, &value, sizeof value);
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
  ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
}

std::chrono::microseconds round_trip(int socket) noexcept {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return {};
  return std::chrono::microseconds(info.tcpi_rtt);
}

}  // namespace aplib::comm
