// SPDX-License-Identifier: MIT
#include "launch/coordinator/reach.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>

#include "aplib/error.hpp"
#include "comm/tcp/address.hpp"
#include "launch/wire/endpoint.hpp"

namespace aplib::launch::coordinator {
namespace {

constexpr const char* loopback = "127.0.0.1";
constexpr std::uint16_t some_port = 9;  // to ask for the route; nothing is sent

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

/// The name of a host for the system's resolver: an ssh destination without its user and port.
std::string plain_name(std::string name) {
  if (name.starts_with("ssh://")) name.erase(0, 6);
  if (const std::size_t at = name.rfind('@'); at != name.npos) name.erase(0, at + 1);
  return name;
}

std::vector<std::string> resolve(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  std::vector<std::string> addresses;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    char text[NI_MAXHOST];
    if (::getnameinfo(each->ai_addr, each->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0)
      addresses.emplace_back(text);
  }
  ::freeaddrinfo(found);
  return addresses;
}

/// This host's address on the route to that host. Nothing if the name is unknown here, or if there is no route.
std::optional<std::string> local_address_to(const cluster::ClusterHost& host) {
  const std::string& name = !host.address.empty()                     ? host.address
                            : host.launch == cluster::LaunchKind::ssh ? host.ssh_destination()
                                                                      : host.name;
  for (const std::string& address : resolve(plain_name(name))) {
    try {
      return comm::tcp::local_address_towards(wire::endpoint_text(address, some_port));
    } catch (const Error&) {  // the next one
    }
  }
  return std::nullopt;
}

void add(std::vector<std::string>& addresses, const std::string& address) {
  if (std::ranges::find(addresses, address) == addresses.end()) addresses.push_back(address);
}

}  // namespace

Reach find_reach(const std::vector<cluster::ClusterHost>& hosts) {
  Reach reach;
  bool some_unknown = false;
  for (const cluster::ClusterHost& host : hosts) {
    std::optional<std::string> towards;
    if (host.launch == cluster::LaunchKind::local) {
      towards = loopback;
      reach.reasons.emplace_back("it is this computer");
    } else {
      towards = local_address_to(host);
      reach.reasons.push_back(towards ? "the way to it leads there" : "its name is not known here: any of ours");
    }
    some_unknown = some_unknown || !towards;
    if (towards && !is_loopback(*towards)) add(reach.addresses, *towards);
    reach.first.push_back(towards.value_or(std::string()));
  }
  // A host whose name is unknown here may come from anywhere. One on this computer reaches all addresses.
  if (some_unknown) {
    for (const comm::tcp::HostAddress& own : comm::tcp::host_addresses())
      if (own.usable && !is_loopback(own.address)) add(reach.addresses, own.address);
  }
  if (reach.addresses.empty()) reach.addresses.emplace_back(loopback);
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (!reach.first[i].empty() && is_loopback(reach.first[i]) && !is_loopback(reach.addresses.front()))
      reach.reasons[i] = "others reach this computer by it";
    if (std::ranges::find(reach.addresses, reach.first[i]) == reach.addresses.end())
      reach.first[i] = reach.addresses.front();
  }
  return reach;
}

}  // namespace aplib::launch::coordinator
