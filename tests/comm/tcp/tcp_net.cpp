// SPDX-License-Identifier: MIT
#include "tcp_net.hpp"

#include <utility>

#include "aplib/error.hpp"

namespace aplib::comm::test {

TcpNet::TcpNet(std::uint32_t processes, TcpNetOptions options) : options_(std::move(options)), modules_(processes) {
  for (std::uint32_t process = 0; process < processes; ++process) {
    listeners_.emplace_back(options_.address, "");
    endpoints_.push_back(listeners_.back().endpoint());
  }
}

tcp::Settings TcpNet::settings(Peer process) {
  std::vector<std::string> endpoints = endpoints_;
  for (Peer peer = 0; peer < endpoints.size(); ++peer)
    if (options_.joins && peer != process && !options_.joins(process, peer)) endpoints[peer].clear();
  std::vector<Way> ways(options_.way ? endpoints.size() : 0);
  for (Peer peer = 0; peer < ways.size(); ++peer)
    if (peer != process) ways[peer] = options_.way(process, peer);
  return {
      {.address = {},
       .ports = {},
       .host = {},
       .key = key_,
       .secure = options_.secure,
       .streams = options_.streams,
       .provider = {},
       .peer_timeout = options_.peer_timeout,
       .resume_time = options_.resume_time},
      {.machine = machine(), .self = process, .endpoints = std::move(endpoints), .names = {}, .ways = std::move(ways)},
      std::move(listeners_[process])};
}

std::unique_ptr<Module> TcpNet::module(Peer process) {
  auto made = std::make_unique<tcp::TcpModule>(settings(process));
  modules_[process] = made.get();
  return made;
}

bool TcpNet::kill(Peer process) {
  modules_[process]->abandon();
  return true;
}

bool has_ipv6() {
  try {
    const tcp::Listener listener("::1", "");
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace aplib::comm::test
