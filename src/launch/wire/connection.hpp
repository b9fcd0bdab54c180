// SPDX-License-Identifier: MIT
// Connection: a control connection that has proved the job's key. It carries messages in order in both directions, and
// a sign of life when there are none. Over the network, a node makes one by connect_to_launcher(), and the launcher
// gets it from an Acceptor. Over a node's standard input and output, both make it by connect_pair() or join_pair().
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/descriptor.hpp"
#include "comm/greeting.hpp"
#include "comm/tls.hpp"
#include "launch/wire/event_loop.hpp"
#include "launch/wire/protocol.hpp"

namespace aplib::launch::wire {

/// The same for all control connections of a process.
struct ConnectionSettings {
  comm::JobKey key;
  comm::Secure secure = comm::Secure::auth;  ///< off counts as auth, because a control connection may start processes.
  std::shared_ptr<comm::TlsContext> tls{};   ///< With Secure::tls.
  std::chrono::nanoseconds timeout = std::chrono::seconds(10);  ///< A peer that is silent for that long is lost.
  std::uint32_t self = comm::Introduction::launcher;
  /// A peer for which more bytes than this wait is lost: it gives signs of life but reads nothing. The largest note
  /// fits.
  std::size_t waiting_bytes_max = note_bytes_max + (std::size_t{64} << 20);
};

/// Why a connection has ended.
enum class ConnectionEnd : std::uint8_t {
  stranger,  ///< It was not authenticated: it was a stranger, or took too long.
  refused,   ///< It is ours but does not fit, or says that we do not. The text is for the user.
  lost,      ///< Closed or broken.
  silent,    ///< Nothing was heard for too long.
};

/// Called on the loop's thread. Nothing comes after `closed`.
struct ConnectionEvents {
  /// It is authenticated. `peer` is what it calls itself: a process or the launcher.
  std::function<void(std::uint32_t peer)> opened{};
  std::function<void(MessageType type, std::span<const std::byte> body)> message{};
  std::function<void(ConnectionEnd end, const std::string& why)> closed{};
};

class Connection {
 public:
  virtual ~Connection() = default;

  /// Sends a message, after those before it. Any thread. Never waits: it keeps what the system does not take.
  template <class Message>
  void send(const Message& message) {
    send_encoded(Message::type, encode(message));
  }
  virtual void send_encoded(MessageType type, std::span<const std::byte> body) = 0;
  /// The same for a body that many connections send. None of them copies it.
  virtual void send_shared(MessageType type, std::shared_ptr<const Bytes> body) = 0;

  /// From now on `events` are called, and no others. Loop's thread.
  virtual void listen(ConnectionEvents events) = 0;
  /// Accepts long messages from now on; before that, only messages as long as a Hello. Loop's thread.
  virtual void trust() = 0;
  /// Ends it once everything is sent and the peer has closed its end, or after a second. Calls no more events. Loop's
  /// thread.
  virtual void close() = 0;

  /// Ends it at once. Calls no more events. Loop's thread.
  virtual void drop() = 0;

  /// The address of this end, without the port. Valid once connected; empty for a pair of descriptors.
  [[nodiscard]] virtual std::string local_address() const = 0;
};

/// Connects to the first of `endpoints` ("10.0.0.1:5100", "[fe80::1]:5100") that answers as the launcher does. Keeps
/// trying for `patience`. `made` gets the connection on the loop's thread, and sets its events itself. `failed` gets
/// the reasons, one for each endpoint, when all have failed.
struct Connecting {
  std::vector<std::string> endpoints{};
  std::chrono::nanoseconds patience = std::chrono::seconds(20);
  std::function<void(std::shared_ptr<Connection> connection)> made{};
  /// `reached`: a connection was made, but who answered was not the launcher.
  std::function<void(const std::string& why, bool reached)> failed{};
};
void connect_to_launcher(EventLoop& loop, const ConnectionSettings& settings, Connecting what);

/// A connection over two descriptors. A node calls, and the launcher answers. `peer` is who must be at the other end,
/// and `came` what was read of it already. It is not encrypted: what carries the descriptors sees to that. `events`
/// tell how the greeting ends, by opened or closed, the latter perhaps before this returns. Throws Error(exhausted).
/// Loop's thread.
[[nodiscard]] std::shared_ptr<Connection> connect_pair(EventLoop& loop, ConnectionSettings settings, os::Ends ends,
                                                       std::uint32_t peer, std::string_view came,
                                                       ConnectionEvents events);

/// The same without a greeting, which costs a round trip: the job's key has come, or gone, by the same way just before,
/// for this one connection. `events` may be set later, by listen(), as long as the loop's thread has not gone on.
[[nodiscard]] std::shared_ptr<Connection> join_pair(EventLoop& loop, ConnectionSettings settings, os::Ends ends,
                                                    std::uint32_t peer, ConnectionEvents events);

/// Listens for the launcher's nodes. Whoever does not prove the job's key is dropped without an answer, and counted.
class Acceptor {
 public:
  struct Events {
    /// A peer has proved the key. Returns the events of its connection.
    std::function<ConnectionEvents(const std::shared_ptr<Connection>& connection, std::uint32_t peer)> arrived;
    /// One of ours does not fit; `text` says why.
    std::function<void(const std::string& text)> refused;
  };

  /// Listens on each address, on the first free port of first_port .. last_port, or on one that the system chooses (0,
  /// 0). Throws Error(failed).
  Acceptor(EventLoop& loop, const ConnectionSettings& settings, const std::vector<std::string>& addresses,
           std::uint16_t first_port, std::uint16_t last_port, Events events);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  /// Where nodes reach it: "10.0.0.1:5100".
  [[nodiscard]] std::vector<std::string> endpoints() const;
  /// The number of connections that were dropped because they did not prove the key. Loop's thread.
  [[nodiscard]] std::uint64_t strangers() const;
  /// Accepts no more connections. Loop's thread.
  void close();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace aplib::launch::wire
