// SPDX-License-Identifier: MIT
// Acceptor: answers the calls of data and control connections. It greets whoever calls, and hands on the socket of
// whoever proves the job's key.
//
// Who has not proved it yet is a stranger. So many strangers are greeted at the same time, each for
// Greeting::time_max; for one more the oldest is dropped. Strangers therefore take no more descriptors than that, and
// one of ours, which speaks at once, gets in between any number of silent ones. A stranger is told nothing.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/os/descriptor.hpp"
#include "comm/connect/greeter.hpp"

namespace aplib::comm::connect {

/// Thread safety: as said; else the thread that runs the io_context.
class Acceptor {
 public:
  static constexpr std::size_t strangers_max = 64;

  struct Settings {
    JobKey key;
    Introduction mine;
    Greeting::KeyOf keys{};  ///< Not empty: instead of the key, for an answerer of several machines.
    /// Greeted at the same time. A machine whose peers may all call at once adds room for them.
    std::size_t greeted_max = strangers_max;
  };
  struct Events {
    /// A socket before the first byte: false drops it, as a stranger's. May be empty.
    std::function<bool(Socket& socket)> accepted{};
    /// The caller has proved the key, and fits; the socket is the function's.
    std::function<void(Socket socket, const Greeting& greeting)> arrived;
    /// It has proved the key, and does not fit: why, for people.
    std::function<void(const std::string& why)> refused;
  };

  /// The io_context outlives it, and may be destroyed before what waits in it has run.
  Acceptor(boost::asio::io_context& io, Settings settings, Events events);
  /// close()
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  /// Takes a socket that listens. Several may be taken. Throws Error(failed). Also before the io_context runs.
  void listen(os::UniqueFd socket);
  /// Closes all that listen, and drops whoever is being greeted. No event comes any more.
  void close() noexcept;

  /// How many were dropped. Any thread.
  [[nodiscard]] std::uint64_t strangers() const noexcept;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace aplib::comm::connect
