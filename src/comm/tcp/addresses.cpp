// SPDX-License-Identifier: MIT
#include "comm/tcp/addresses.hpp"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "aplib/error.hpp"
#include "comm/tcp/endpoint.hpp"

namespace aplib::comm {
namespace {

using Endpoint = boost::asio::ip::tcp::endpoint;

std::string last_error() { return std::generic_category().message(errno); }

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
  // A datagram socket that is "connected" has asked the routing table, and sent nothing.
  const int socket = ::socket(remote->protocol().family(), SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const struct Closing {
    int socket;
    ~Closing() {
      if (socket >= 0) ::close(socket);
    }
  } closing{socket};
  if (socket < 0 || ::connect(socket, remote->data(), static_cast<socklen_t>(remote->size())) != 0)
    throw Error(Errc::failed, fmt::format("tcp: this host has no way to {}: {}", endpoint, last_error()));
  return local_address_of(socket);
}

}  // namespace aplib::comm
