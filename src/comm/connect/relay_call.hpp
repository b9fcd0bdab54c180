// SPDX-License-Identifier: MIT
// RelayCall: one end of a pair whose processes cannot call each other calls a relay (src/relay), and so does the other
// end. The call proves the relay's key (relay_key()) and says who calls, for whom. When both ends are there, the relay
// says so with one byte, and from then on passes on what either sends. What follows is the pair's: the relay is
// trusted with nothing but to pass it on.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "comm/connect/caller.hpp"
#include "comm/connect/greeter.hpp"

namespace aplib::comm::connect {

/// The relay's word to both ends: they are joined.
inline constexpr std::byte joined_word{1};

/// Where a relay is called: "10.0.0.1:5103", "[fd00::1]:5103", or the path of a local socket. Else: nothing.
[[nodiscard]] std::optional<Caller::Place> relay_place(std::string_view text);

/// Thread safety: none; the thread that runs the io_context. An event may destroy the call.
class RelayCall {
 public:
  struct Settings {
    std::string place;  ///< relay_place()
    JobKey key;         ///< relay_key()
    std::string machine;
    std::uint32_t self = 0;
    std::uint32_t peer = 0;
    /// For the way to the relay. The other end then has longer.
    std::chrono::nanoseconds patience;
  };
  struct Events {
    std::function<void(Socket& socket)> opened{};  ///< A new socket, before it connects. May be empty.
    std::function<void(Socket socket)> joined;
    std::function<void(const std::string& why)> failed;
  };

  /// Begins. What is wrong with the place is told by failed() soon.
  RelayCall(boost::asio::io_context& io, Settings settings, Events events);
  /// Ends it; no event comes any more.
  ~RelayCall();
  RelayCall(const RelayCall&) = delete;
  RelayCall& operator=(const RelayCall&) = delete;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace aplib::comm::connect
