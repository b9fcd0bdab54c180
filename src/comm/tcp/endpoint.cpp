// SPDX-License-Identifier: MIT
#include "comm/tcp/endpoint.hpp"

#include <fmt/format.h>

#include <charconv>

namespace aplib::comm {

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
  // "::1:5103" could be read in two ways: without brackets it is refused.
  if (error || address.is_v6() != bracketed) return std::nullopt;
  return boost::asio::ip::tcp::endpoint(address, port);
}

}  // namespace aplib::comm
