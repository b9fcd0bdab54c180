// SPDX-License-Identifier: MIT
// Addresses with ports as text: "10.0.0.1:5100", "[::1]:5100", "ws1:5100".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace aplib::launch::wire {

struct Endpoint {
  std::string host;
  std::uint16_t port = 0;
};

/// Nothing: `text` is none.
[[nodiscard]] std::optional<Endpoint> parse_endpoint(std::string_view text);
[[nodiscard]] std::string endpoint_text(std::string_view address, std::uint16_t port);
/// "10.0.0.1", "fe80::1": a number, no name to look up.
[[nodiscard]] bool is_numeric_address(const std::string& address);
/// Parts of a text between commas, empty ones left out.
[[nodiscard]] std::vector<std::string> split_list(std::string_view text);

/// Of a process's endpoints by each module (comm/mixed/mixed_port.hpp): where it listens for tcp. Empty: nowhere.
[[nodiscard]] std::string address_of(const std::string& endpoints);

}  // namespace aplib::launch::wire
