// SPDX-License-Identifier: MIT
#include "launch/wire/endpoint.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>

#include "aplib/error.hpp"
#include "comm/mixed/mixed_port.hpp"
#include "comm/tcp/address.hpp"

namespace aplib::launch::wire {

std::optional<Endpoint> parse_endpoint(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0) return std::nullopt;
  Endpoint endpoint;
  const std::string_view digits = text.substr(colon + 1);
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), endpoint.port);
  if (error != std::errc{} || stop != digits.data() + digits.size() || endpoint.port == 0) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty()) return std::nullopt;
  endpoint.host = host;
  return endpoint;
}

std::string endpoint_text(std::string_view address, std::uint16_t port) {
  return address.find(':') == address.npos ? fmt::format("{}:{}", address, port)
                                           : fmt::format("[{}]:{}", address, port);
}

bool is_numeric_address(const std::string& address) {
  in_addr four{};
  in6_addr six{};
  const std::string plain = address.substr(0, address.find('%'));
  return ::inet_pton(AF_INET, address.c_str(), &four) == 1 || ::inet_pton(AF_INET6, plain.c_str(), &six) == 1;
}

std::vector<std::string> look_up(const std::string& name) {
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

std::optional<std::string> local_address_towards(const std::vector<std::string>& addresses) {
  constexpr std::uint16_t some_port = 9;  // to ask for the route
  for (const std::string& address : addresses) {
    try {
      return comm::tcp::local_address_towards(endpoint_text(address, some_port));
    } catch (const Error&) {  // the next one
    }
  }
  return std::nullopt;
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    if (end > at) parts.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::string address_of(const std::string& endpoints) { return comm::mixed::endpoint_of(endpoints, "tcp"); }

}  // namespace aplib::launch::wire
