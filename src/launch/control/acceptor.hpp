// SPDX-License-Identifier: MIT
// Acceptor: where the launcher listens for its nodes. Whoever does not prove the job's key is dropped without a word, and counted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launch/control/connection.hpp"

namespace aplib::launch {

class Acceptor {
 public:
  struct Events {
    /// Someone who knows the key. Returns what to tell of it.
    std::function<ConnectionEvents(const std::shared_ptr<Connection>& connection, std::uint32_t peer)> arrived;
    /// One of ours that does not fit: in words.
    std::function<void(const std::string& text)> refused;
  };

  /// Listens on each address, on the first free port of first_port .. last_port, or where the system likes (0, 0). Throws Error(failed).
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
  struct Inside;
  std::shared_ptr<Inside> inside_;
};

}  // namespace aplib::launch
