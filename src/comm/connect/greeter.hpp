// SPDX-License-Identifier: MIT
// Greeter: takes a connected socket through the greeting (comm/greeting.hpp).
//
//   greeter_.begin(socket_, shared_from_this(), [this](const Greeter::Failure& failure) { ... });
//   greeter_.greeting().state() == Greeting::State::done       // or refused, or stranger
//
// Acceptor and Caller use it: they limit the time that it takes (Greeting::time_max), and hand the socket on.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/greeting.hpp"

namespace aplib::comm::connect {

/// Of TCP, or local to this host.
using Socket = boost::asio::generic::stream_protocol::socket;
using SocketAddress = boost::asio::generic::stream_protocol::endpoint;

/// What is not acknowledged is sent again after a pause that doubles. Where a link fails again and again for moments,
/// each of the few tries may meet one of them, and the other host is taken for dead although it answers in between. So
/// the pauses of this TCP socket are limited: ten tries or more come within `timeout`. A system that knows no such
/// limit (before Linux 6.15) makes some more tries at the beginning.
void limit_pauses(int socket, std::chrono::milliseconds timeout) noexcept;

/// A member of its owner, as the socket is. Thread safety: none; the thread of the socket's io_context.
class Greeter {
 public:
  /// Neither: the greeting itself says how it ended.
  struct Failure {
    boost::system::error_code error{};  ///< Of the socket.
    std::string trouble{};              ///< Else, of the cryptographic library: for people.
  };
  using Done = std::function<void(const Failure&)>;

  Greeter(Greeting::Role role, const JobKey& key, Introduction mine) : greeting_(role, key, std::move(mine)) {}

  /// `done` is called once, unless cancel() comes before; it may end the greeter. What waits for the socket keeps
  /// `owner`.
  void begin(Socket& socket, const std::shared_ptr<void>& owner, Done done);
  /// Nothing is called any more. The socket may end.
  void cancel() noexcept { done_ = nullptr; }

  [[nodiscard]] const Greeting& greeting() const noexcept { return greeting_; }

 private:
  void speak(const std::shared_ptr<void>& owner);
  void listen(const std::shared_ptr<void>& owner);
  void finish(const Failure& failure);

  Greeting greeting_;
  Socket* socket_ = nullptr;
  Done done_;
  std::vector<std::byte> output_;
  std::vector<std::byte> input_;
};

}  // namespace aplib::comm::connect
