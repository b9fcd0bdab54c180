// SPDX-License-Identifier: MIT
// Greeter: takes a connected socket through the greeting (comm/greeting.hpp): data connections and control
// connections alike.
//
//   greeter_.begin(socket_, shared_from_this(), [this](const Greeter::Failure& failure) { ... });
//   greeter_.greeting().state() == Greeting::State::done       // or refused, or stranger
//
// How long that may take is the owner's business (Greeting::time_max), as is what follows on the connection.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/greeting.hpp"
#include "comm/module.hpp"

namespace aplib::comm::connect {

/// Connections that have not proved anything yet and are kept open, besides room for the peers themselves. For one
/// more the oldest goes: strangers take no more descriptors than these, and one of ours, which greets at once, gets
/// in between any number of silent ones.
inline constexpr std::size_t strangers_max = 64;

/// Two processes call each other at the same time: the call of the one with the lower number is taken, on both sides.
[[nodiscard]] constexpr bool our_call_counts(Peer self, Peer other) noexcept { return self < other; }

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
  void begin(boost::asio::ip::tcp::socket& socket, const std::shared_ptr<void>& owner, Done done);
  /// Nothing is called any more. The socket may end.
  void cancel() noexcept { done_ = nullptr; }

  [[nodiscard]] const Greeting& greeting() const noexcept { return greeting_; }

 private:
  void speak(const std::shared_ptr<void>& owner);
  void listen(const std::shared_ptr<void>& owner);
  void finish(const Failure& failure);

  Greeting greeting_;
  boost::asio::ip::tcp::socket* socket_ = nullptr;
  Done done_;
  std::vector<std::byte> output_;
  std::vector<std::byte> input_;
};

}  // namespace aplib::comm::connect
