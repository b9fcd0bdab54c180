// SPDX-License-Identifier: MIT
// Connection: a control connection that has proved the job's key: messages in order, both ways, with a sign of life when there are none.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/greeting.hpp"
#include "comm/tls.hpp"
#include "launch/control/event_loop.hpp"
#include "launch/control/protocol.hpp"

namespace aplib::launch {

/// The same for all control connections of a process.
struct ConnectionSettings {
  comm::JobKey key;
  comm::Secure secure = comm::Secure::auth;  ///< off counts as auth: who may start processes is never left open.
  std::shared_ptr<comm::TlsContext> tls{};   ///< With Secure::tls.
  std::chrono::nanoseconds timeout = std::chrono::seconds(10);  ///< A peer that is silent for so long is lost.
  std::uint32_t self = comm::Introduction::launcher;
};

/// Why a connection has ended.
enum class ConnectionEnd : std::uint8_t {
  stranger,  ///< Before it was authenticated: somebody else, or nobody in time.
  refused,   ///< It is one of ours, but does not fit; or it said that we do not. The text is for the user.
  lost,      ///< Closed or broken.
  silent,    ///< Nothing was heard for too long.
};

/// Called on the loop's thread. After `closed` nothing comes.
struct ConnectionEvents {
  /// Authenticated; `peer` is what it calls itself: a process or the launcher.
  std::function<void(std::uint32_t peer)> opened{};
  std::function<void(MessageType type, std::span<const std::byte> body)> message{};
  std::function<void(ConnectionEnd end, const std::string& why)> closed{};
};

class Connection {
 public:
  virtual ~Connection() = default;

  /// Brings a message out, behind those before it. Any thread; never waits: what the system does not take is kept.
  template <class Message>
  void send(const Message& message) {
    send_encoded(Message::type, encode(message));
  }
  virtual void send_encoded(MessageType type, std::span<const std::byte> body) = 0;

  /// From now on `events` are called, and no others. Loop's thread.
  virtual void listen(ConnectionEvents events) = 0;
  /// Long messages are taken from now on; before that, only such as a Hello needs. Loop's thread.
  virtual void trust() = 0;
  /// Ends it once everything is out and the peer has closed its end, or after a second. No event is called any more. Loop's thread.
  virtual void close() = 0;

  /// Address of this end, without port. Valid once connected.
  [[nodiscard]] virtual std::string local_address() const = 0;
  [[nodiscard]] virtual std::string remote_address() const = 0;
};

}  // namespace aplib::launch
