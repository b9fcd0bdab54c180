// SPDX-License-Identifier: MIT
// How a connected socket becomes a connection; for whoever makes sockets.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <memory>

#include "launch/control/connection.hpp"

namespace aplib::launch {

/// Greets as `role`; then `events.opened` is called, or `events.closed`. Loop's thread.
[[nodiscard]] std::shared_ptr<Connection> make_connection(EventLoop& loop, const ConnectionSettings& settings,
                                                          boost::asio::ip::tcp::socket socket,
                                                          comm::Greeting::Role role, ConnectionEvents events);

}  // namespace aplib::launch
