// SPDX-License-Identifier: MIT
#include "comm/tcp/listener.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <charconv>
#include <system_error>
#include <utility>

#include "aplib/error.hpp"
#include "comm/tcp/endpoint.hpp"
#include "comm/tcp/port_holder.hpp"

namespace aplib::comm {
namespace {

constexpr unsigned port_max = 65535;

std::string describe_range(const PortRange& range) {
  return range.first == range.last ? fmt::format("{}", range.first) : fmt::format("{}-{}", range.first, range.last);
}

/// Why no port of the range can be had: who holds them, some of them by name.
std::string describe_holders(const PortRange& range) {
  constexpr unsigned named_max = 4;
  std::string text;
  for (unsigned port = range.first; port <= range.last && port < range.first + named_max; ++port) {
    const std::string holder = port_holder(port);
    text += fmt::format("{}{} is held by {}", text.empty() ? "" : ", ", port,
                        holder.empty() ? "a connection that has not quite ended" : holder);
  }
  return range.last - range.first >= named_max ? text + ", and so on" : text;
}

}  // namespace

PortRange PortRange::parse(const std::string& text) {
  if (text.empty()) return {};
  PortRange range;
  const char* const end = text.data() + text.size();
  auto [at, error] = std::from_chars(text.data(), end, range.first);
  range.last = range.first;
  if (error == std::errc() && at != end && *at == '-') {
    const auto second = std::from_chars(at + 1, end, range.last);
    at = second.ptr;
    error = second.ec;
  }
  if (error != std::errc() || at != end || range.first == 0 || range.last > port_max || range.first > range.last) {
    throw Error(Errc::bad_option,
                fmt::format("ports = \"{}\": not a range of ports: use two numbers of 1 .. {} with a dash, for example "
                            "5100-5120",
                            text, port_max));
  }
  return range;
}

TcpListener::TcpListener(const std::string& address, const std::string& ports) {
  const PortRange range = PortRange::parse(ports);
  boost::system::error_code bad;
  const auto ip = boost::asio::ip::make_address(address, bad);
  if (bad) {
    throw Error(Errc::bad_option,
                fmt::format("tcp: \"{}\" is not an address to listen on: use one like 10.0.0.1 or fd00::1", address));
  }
  int error = 0;
  for (unsigned port = range.first; port <= range.last; ++port) {
    const boost::asio::ip::tcp::endpoint endpoint(ip, static_cast<unsigned short>(port));
    socket_ = ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    constexpr int yes = 1;
    if (socket_ >= 0 && ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        ::bind(socket_, endpoint.data(), static_cast<socklen_t>(endpoint.size())) == 0 &&
        ::listen(socket_, SOMAXCONN) == 0) {
      boost::asio::ip::tcp::endpoint bound;
      auto bytes = static_cast<socklen_t>(bound.capacity());
      ::getsockname(socket_, bound.data(), &bytes);
      bound.resize(bytes);
      endpoint_ = print_endpoint(bound);
      return;
    }
    error = errno;
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
    if (error != EADDRINUSE && error != EACCES) break;
  }
  const std::string reason = std::generic_category().message(error);
  if (error == EADDRINUSE && range.first != 0) {
    throw Error(Errc::failed, fmt::format("tcp: {}: every port of {} is taken: {}; end what holds them, or give more "
                                          "ports",
                                          address, describe_range(range), describe_holders(range)));
  }
  if (error == EADDRNOTAVAIL) {
    throw Error(Errc::failed,
                fmt::format("tcp: {} is not an address of this host; use one that its interfaces have", address));
  }
  throw Error(Errc::failed, range.first == 0 ? fmt::format("tcp: cannot listen at {}: {}", address, reason)
                                             : fmt::format("tcp: cannot listen at {} on ports {}: {}", address,
                                                           describe_range(range), reason));
}

TcpListener::~TcpListener() {
  if (socket_ >= 0) ::close(socket_);
}

TcpListener::TcpListener(TcpListener&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), endpoint_(std::move(other.endpoint_)) {}

TcpListener& TcpListener::operator=(TcpListener&& other) noexcept {
  std::swap(socket_, other.socket_);
  std::swap(endpoint_, other.endpoint_);
  return *this;
}

int TcpListener::release() noexcept { return std::exchange(socket_, -1); }

}  // namespace aplib::comm
