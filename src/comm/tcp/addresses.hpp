// SPDX-License-Identifier: MIT
// By which address a host is reached: the one by which it reached the launcher, unless told otherwise. Addresses of bridges and containers are never chosen by themselves.
#pragma once

#include <string>
#include <vector>

namespace aplib::comm {

struct HostAddress {
  std::string interface;  ///< "eth0".
  std::string address;    ///< "10.0.0.1", "fe80::1%eth0".
  bool usable = false;    ///< May be chosen by itself.
  std::string reason{};   ///< Why not: "a bridge of containers or virtual machines". Empty when usable.
};

/// Every address of every interface that is up, in the system's order: data for --dry-run and messages. Throws Error(failed).
[[nodiscard]] std::vector<HostAddress> host_addresses();

/// What speaks against an interface by its name or its place in /sys/class/net (or a stand-in for that, for tests); "" when nothing does.
[[nodiscard]] std::string interface_objection(const std::string& interface,
                                              const std::string& class_net = "/sys/class/net");

/// The local address that packets to `endpoint` ("10.0.0.1:5103", "[::1]:5103") leave by. Sends nothing. Throws Error(failed) when there is no way there, Error(bad_argument) for what
/// is no endpoint.
[[nodiscard]] std::string local_address_towards(const std::string& endpoint);

/// The local address of a connected socket: of the connection to the launcher. Throws Error(failed).
[[nodiscard]] std::string local_address_of(int socket);

}  // namespace aplib::comm
