// SPDX-License-Identifier: MIT
// Connection: a control connection that has proved the job's key. It carries messages in order, both ways, with a
// sign of life when there are none. A node makes one by connect_to_launcher(); the launcher gets them from an
// Acceptor.
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
#include "launch/wire/event_loop.hpp"
#include "launch/wire/protocol.hpp"

namespace aplib::launch::wire {

/// The same for all control connections of a process.
struct ConnectionSettings {
  comm::JobKey key;
  comm::Secure secure = comm::Secure::auth;  ///< off counts as auth: a control connection may start processes.
  std::shared_ptr<comm::TlsContext> tls{};   ///< With Secure::tls.
  std::chrono::nanoseconds timeout = std::chrono::seconds(10);  ///< A peer that is silent for so long is lost.
  std::uint32_t self = comm::Introduction::launcher;
  /// A peer for which more bytes wait than this is lost: it gives signs of life and reads nothing. The largest note
  /// fits in.
  std::size_t waiting_bytes_max = note_bytes_max + (std::size_t{64} << 20);
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
  /// Ends it once everything is out and the peer has closed its end, or after a second. No event is called any
  /// more. Loop's thread.
  virtual void close() = 0;

  /// Ends it at once. No event is called any more. Loop's thread.
  virtual void drop() = 0;

  /// Address of this end, without port. Valid once connected.
  [[nodiscard]] virtual std::string local_address() const = 0;
  [[nodiscard]] virtual std::string remote_address() const = 0;
};

/// Connects to the first of `endpoints` ("10.0.0.1:5100", "[fe80::1]:5100") that answers as the launcher does; goes
/// on trying for `patience`. `made` gets the connection, on the loop's thread; what to listen for it then says
/// itself. `failed` gets the reason, one for each endpoint, when there is no hope left.
struct Connecting {
  std::vector<std::string> endpoints{};
  std::chrono::nanoseconds patience = std::chrono::seconds(20);
  std::function<void(std::shared_ptr<Connection> connection)> made{};
  std::function<void(const std::string& why)> failed{};
};
void connect_to_launcher(EventLoop& loop, const ConnectionSettings& settings, Connecting what);

/// Where the launcher listens for its nodes. Whoever does not prove the job's key is dropped without a word, and
/// counted.
class Acceptor {
 public:
  struct Events {
    /// A peer has proved the key. Returns the events of its connection.
    std::function<ConnectionEvents(const std::shared_ptr<Connection>& connection, std::uint32_t peer)> arrived;
    /// One of ours that does not fit: in words.
    std::function<void(const std::string& text)> refused;
  };

  /// Listens on each address, on the first free port of first_port .. last_port, or where the system likes (0, 0).
  /// Throws Error(failed).
  Acceptor(EventLoop& loop, const ConnectionSettings& settings, const std::vector<std::string>& addresses,
           std::uint16_t first_port, std::uint16_t last_port, Events events);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  /// Where nodes reach it: "10.0.0.1:5100".
  [[nodiscard]] std::vector<std::string> endpoints() const;
  /// Connections that were dropped because they did not prove the key. Loop's thread.
  [[nodiscard]] std::uint64_t strangers() const;
  /// No more connections. Loop's thread.
  void close();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace aplib::launch::wire
