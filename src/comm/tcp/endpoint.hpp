// SPDX-License-Identifier: MIT
// Endpoints as text: "10.0.0.1:5103", "[::1]:5103".
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <optional>
#include <string>

namespace aplib::comm {

[[nodiscard]] std::string print_endpoint(const boost::asio::ip::tcp::endpoint& endpoint);

/// Nothing: `text` is no address with a port.
[[nodiscard]] std::optional<boost::asio::ip::tcp::endpoint> parse_endpoint(const std::string& text);

}  // namespace aplib::comm
