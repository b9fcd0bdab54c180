// SPDX-License-Identifier: MIT
// Addresses with ports as text: "10.0.0.1:5100", "[::1]:5100", "ws1:5100".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace aplib::launch::wire {

/// In place of the launcher's endpoints: a node speaks with it over its standard input and output.
inline constexpr std::string_view streams_endpoint = "stdio";

/// The same, where a keeper has started the node: the key came by the same way, so that nobody greets.
inline constexpr std::string_view kept_endpoint = "kept";

struct Endpoint {
  std::string host;
  std::uint16_t port = 0;
};

/// Nothing: `text` is not an endpoint.
[[nodiscard]] std::optional<Endpoint> parse_endpoint(std::string_view text);
[[nodiscard]] std::string endpoint_text(std::string_view address, std::uint16_t port);
/// Whether it is a number, such as "10.0.0.1" or "fe80::1", and not a name to look up.
[[nodiscard]] bool is_numeric_address(const std::string& address);
/// The addresses that a name has here; none: it is unknown. Of an address, itself.
[[nodiscard]] std::vector<std::string> look_up(const std::string& name);
/// This host's address on the way to the first of these addresses to which there is one; nothing: to none. Sends
/// nothing.
[[nodiscard]] std::optional<std::string> local_address_towards(const std::vector<std::string>& addresses);
/// The parts of a text between commas, without empty ones.
[[nodiscard]] std::vector<std::string> split_list(std::string_view text);

/// Where a process listens for tcp, from its endpoints by each module (comm/mixed/mixed_port.hpp). Empty: nowhere.
[[nodiscard]] std::string address_of(const std::string& endpoints);

}  // namespace aplib::launch::wire
