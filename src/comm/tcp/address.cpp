// SPDX-License-Identifier: MIT
#include "comm/tcp/address.hpp"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "aplib/error.hpp"

namespace aplib::comm::tcp {

std::string print_endpoint(const boost::asio::ip::tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  return endpoint.address().is_v6() ? fmt::format("[{}]:{}", address, endpoint.port())
                                    : fmt::format("{}:{}", address, endpoint.port());
}

std::optional<boost::asio::ip::tcp::endpoint> parse_endpoint(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  unsigned short port = 0;
  const char* const end = text.data() + text.size();
  const auto [at, wrong] = std::from_chars(text.data() + colon + 1, end, port);
  if (wrong != std::errc() || at != end) return std::nullopt;
  std::string host = text.substr(0, colon);
  const bool bracketed = host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(host, error);
  // "::1:5103" could be read in two ways, so it is refused without brackets.
  if (error || address.is_v6() != bracketed) return std::nullopt;
  return boost::asio::ip::tcp::endpoint(address, port);
}

namespace {

using Endpoint = boost::asio::ip::tcp::endpoint;

std::string last_error() { return os::text_of(errno); }

std::string objection(const boost::asio::ip::address& address, unsigned flags) {
  if (address.is_loopback() || (flags & IFF_LOOPBACK) != 0) return "the loopback interface: reaches this host only";
  const bool link_local = address.is_v6() ? address.to_v6().is_link_local()
                                          : (address.to_v4().to_uint() >> 16U) == 0xa9fe;  // 169.254.0.0/16
  if (link_local) return "link-local: reaches this network segment only";
  return {};
}

}  // namespace

std::string interface_objection(const std::string& interface, const std::string& class_net) {
  for (const char* prefix : {"docker", "br-", "virbr", "podman", "cni", "lxcbr", "lxdbr"}) {
    if (interface.starts_with(prefix)) return "a bridge of containers or virtual machines";
  }
  const std::filesystem::path place = std::filesystem::path(class_net) / interface;
  std::error_code ignored;
  if (std::filesystem::exists(place / "master", ignored)) return "part of a bridge or bond";
  return {};
}

std::vector<HostAddress> host_addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0)
    throw Error(Errc::failed, fmt::format("tcp: cannot list the interfaces of this host: {}", last_error()));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(first, ::freeifaddrs);
  std::vector<HostAddress> addresses;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    Endpoint endpoint(family == AF_INET ? boost::asio::ip::tcp::v4() : boost::asio::ip::tcp::v6(), 0);
    std::memcpy(endpoint.data(), entry->ifa_addr, endpoint.size());
    HostAddress address{entry->ifa_name, endpoint.address().to_string(), false};
    address.reason = objection(endpoint.address(), entry->ifa_flags);
    if (address.reason.empty()) address.reason = interface_objection(address.interface);
    address.usable = address.reason.empty();
    addresses.push_back(std::move(address));
  }
  return addresses;
}

std::string local_address_of(int socket) {
  Endpoint local;
  auto bytes = static_cast<socklen_t>(local.capacity());
  if (::getsockname(socket, local.data(), &bytes) != 0)
    throw Error(Errc::failed, fmt::format("tcp: cannot tell the local address of a connection: {}", last_error()));
  local.resize(bytes);
  auto address = local.address();
  // A listener for both protocols shows IPv4 as a part of IPv6.
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, address.to_v6()).to_string();
  return address.to_string();
}

std::string local_address_towards(const std::string& endpoint) {
  const auto remote = parse_endpoint(endpoint);
  if (!remote) {
    throw Error(
        Errc::bad_argument,
        fmt::format("tcp: \"{}\" is not an address with a port, like 10.0.0.1:5103 or [fd00::1]:5103", endpoint));
  }
  // Connecting a datagram socket asks the routing table, and sends nothing.
  const os::UniqueFd socket(::socket(remote->protocol().family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket || ::connect(socket.get(), remote->data(), static_cast<socklen_t>(remote->size())) != 0)
    throw Error(Errc::failed, fmt::format("tcp: this host has no way to {}: {}", endpoint, last_error()));
  return local_address_of(socket.get());
}

namespace {

namespace fs = std::filesystem;

/// The inode of the socket that listens on the port, "" if none does.
std::string listening_inode(const char* table, unsigned port) {
  std::ifstream file(table);
  std::string line;
  const std::string ending = fmt::format(":{:04X}", port);
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string slot, local, remote, state, queues, timer, retransmits, user, timeout, inode;
    words >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode;
    if (state == "0A" && local.ends_with(ending)) return inode;
  }
  return {};
}

bool holds(const fs::path& process, const std::string& socket) {
  std::error_code error;
  for (fs::directory_iterator entry(process / "fd", error), end; !error && entry != end; entry.increment(error)) {
    std::error_code no_link;
    if (fs::read_symlink(entry->path(), no_link) == socket) return true;
  }
  return false;
}

}  // namespace

std::string port_holder(unsigned port) {
  std::string inode = listening_inode("/proc/net/tcp", port);
  if (inode.empty()) inode = listening_inode("/proc/net/tcp6", port);
  if (inode.empty()) return {};
  const std::string socket = "socket:[" + inode + "]";
  std::error_code error;
  for (fs::directory_iterator entry("/proc", error), end; !error && entry != end; entry.increment(error)) {
    const std::string number = entry->path().filename();
    if (!std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; })) continue;
    if (!holds(entry->path(), socket)) continue;
    std::string name;
    std::getline(std::ifstream(entry->path() / "comm"), name);
    return fmt::format("process {} ({})", number, name);
  }
  return "a process of another user";
}

namespace {

constexpr unsigned port_max = 65535;

std::string describe_range(const PortRange& range) {
  return range.first == range.last ? fmt::format("{}", range.first) : fmt::format("{}-{}", range.first, range.last);
}

/// Why no port of the range can be had: which programs hold them, some by name.
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

Listener::Listener(const std::string& address, const std::string& ports) {
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
    socket_.reset(::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    constexpr int yes = 1;
    if (socket_ && ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        ::bind(socket_.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) == 0 &&
        ::listen(socket_.get(), SOMAXCONN) == 0) {
      boost::asio::ip::tcp::endpoint bound;
      auto bytes = static_cast<socklen_t>(bound.capacity());
      ::getsockname(socket_.get(), bound.data(), &bytes);
      bound.resize(bytes);
      endpoint_ = print_endpoint(bound);
      return;
    }
    error = errno;
    if (error != EADDRINUSE && error != EACCES) break;
  }
  const std::string reason = os::text_of(error);
  if (error == EADDRINUSE && range.first != 0) {
    throw Error(
        Errc::failed,
        fmt::format("tcp: {}: every port of {} is taken: {}; give more ports (aprun takes one, and each process "
                    "of a host), or end what else holds them",
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

}  // namespace aplib::comm::tcp
