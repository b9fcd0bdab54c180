// SPDX-License-Identifier: MIT
// Where other processes reach this one: addresses of this host, endpoints as text, and the port on which it listens.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/os/descriptor.hpp"

namespace aplib::comm::tcp {

/// A range of ports from an option: "5100-5120", "5103", or "" for any.
struct PortRange {
  unsigned first = 0;
  unsigned last = 0;  ///< 0, 0: any.
  /// Throws Error(bad_option).
  [[nodiscard]] static PortRange parse(const std::string& text);
};

/// The one port on which others reach a process. It is made before the module, so that the others can be told its
/// address first. A process that connects early waits in the system's queue.
class Listener {
 public:
  /// Listens on this one address ("10.0.0.1", "::1", "fe80::1%eth0") and the first free port of the range. Throws
  /// Error(failed) when the address is not this host's, or every port is taken. Then it names who holds them, as far
  /// as this process can see.
  Listener(const std::string& address, const std::string& ports);

  /// "10.0.0.1:5103", "[::1]:5103".
  [[nodiscard]] const std::string& endpoint() const noexcept { return endpoint_; }
  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }
  /// The socket, from now on the caller's. Once.
  [[nodiscard]] os::UniqueFd release() noexcept { return std::move(socket_); }

 private:
  os::UniqueFd socket_;
  std::string endpoint_;
};

// A host's address is the one by which ssh has reached it, or by which it has reached the launcher, unless the cluster
// file says otherwise. Addresses of bridges and containers are never chosen automatically.
struct HostAddress {
  std::string interface;  ///< "eth0".
  std::string address;    ///< "10.0.0.1", "fe80::1%eth0".
  bool usable = false;    ///< May be chosen by itself.
  std::string reason{};   ///< Why not: "a bridge of containers or virtual machines". Empty when usable.
};

/// Every address of every interface that is up, in the system's order: data for --dry-run and messages. Throws
/// Error(failed).
[[nodiscard]] std::vector<HostAddress> host_addresses();

/// What speaks against an interface by its name or its place in /sys/class/net (or a stand-in for that, for tests);
/// "" when nothing does.
[[nodiscard]] std::string interface_objection(const std::string& interface,
                                              const std::string& class_net = "/sys/class/net");

/// The local address that packets to `endpoint` ("10.0.0.1:5103", "[::1]:5103") leave by. Sends nothing. Throws
/// Error(failed) when there is no way there, Error(bad_argument) for what is no endpoint.
[[nodiscard]] std::string local_address_towards(const std::string& endpoint);

/// The local address of a connected socket: of the connection to the launcher. Throws Error(failed).
[[nodiscard]] std::string local_address_of(int socket);

// Endpoints as text: "10.0.0.1:5103", "[::1]:5103".
[[nodiscard]] std::string print_endpoint(const boost::asio::ip::tcp::endpoint& endpoint);

/// Nothing: `text` is no address with a port.
[[nodiscard]] std::optional<boost::asio::ip::tcp::endpoint> parse_endpoint(const std::string& text);

}  // namespace aplib::comm::tcp
