// SPDX-License-Identifier: MIT
// Caller: makes one data or control connection. It calls the places at which the other side may answer, one after the
// other, greets who answers, and hands the socket to its owner. A failed attempt is repeated, after a pause that grows,
// until a deadline. The reasons are kept for the error.
//
// What follows the greeting (a verdict, TLS) is the owner's. Where that fails, the owner calls again() for the next
// attempt.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/connect/greeter.hpp"
#include "comm/module.hpp"

namespace aplib::comm::connect {

/// Thread safety: none; the thread that runs the io_context. An event may destroy the caller.
class Caller {
 public:
  /// A socket's address, or else a host that is looked up in each attempt. Nothing of both: it fails.
  struct Place {
    SocketAddress address{};
    std::string host{};
    std::string port{};
  };
  /// Why an attempt came to nothing.
  struct Failure {
    enum class Kind : std::uint8_t {
      unreached,  ///< There is no connection: `error`.
      unwanted,   ///< introduce() did not want it.
      ended,      ///< The connection ended while it was greeted, or there was no answer in time.
      stranger,   ///< What answers has not proved the key.
      refused,    ///< What answers is of the job, and does not fit.
      spoiled,    ///< again()
    };
    Kind kind = Kind::spoiled;
    std::string why{};  ///< For people.
    boost::system::error_code error{};
  };
  /// What the owner makes of a failure.
  struct Verdict {
    std::string reason;     ///< For failed().
    bool hopeless = false;  ///< Another attempt would fail as well: the places that are left are tried once, no more.
  };
  struct Settings {
    std::vector<Place> places;
    JobKey key;
    /// No attempt begins after that time. Each place is tried once in any case.
    std::chrono::nanoseconds patience;
    /// To connect to one place; the greeting then has Greeting::time_max.
    std::chrono::nanoseconds attempt_max;
  };
  struct Events {
    /// A new socket, before it connects. May be empty.
    std::function<void(Socket& socket)> opened{};
    /// It is connected: what to say of ourselves. Nothing: this one is not wanted.
    std::function<std::optional<Introduction>(Socket& socket)> introduce;
    std::function<void(Socket socket, const Greeting& greeting)> greeted;
    /// Of the place with that number.
    std::function<Verdict(std::size_t place, const Failure& failure)> judge;
    /// The end. `late`: time was over; else it was hopeless. The last reason of each place; empty where none is known.
    std::function<void(bool late, std::span<const std::string> reasons)> failed;
  };

  Caller(boost::asio::io_context& io, Settings settings, Events events);
  /// Ends it, unless it is withdrawn; no event comes any more.
  ~Caller();
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  void begin();
  /// Another connection has taken its place. An attempt that is under way goes on to the end of its greeting, and then
  /// closes: cut off before, it would count as a stranger's there. Of the events, only introduce() may still come.
  void withdraw() noexcept;
  /// What followed the greeting of the last attempt went wrong.
  void again(const std::string& why);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// Makes the calls that senders have asked for: `call(peer)` for each link in state `calling` of which `calls`, by
/// peer, has none yet. A call that cannot be begun ends in `give_up(peer, why)`.
template <class Link, class Calls, class Call, class GiveUp>
void make_wanted_calls(std::span<const std::unique_ptr<Link>> links, const Calls& calls, const Call& call,
                       const GiveUp& give_up) noexcept {
  for (Peer peer = 0; peer < links.size(); ++peer) {
    if (!links[peer] || links[peer]->state() != Link::State::calling || calls.contains(peer)) continue;
    try {
      call(peer);
    } catch (const std::bad_alloc&) {
      give_up(peer, "no memory here");  // so short that it needs none
    } catch (const std::exception& error) {
      give_up(peer, error.what());
    }
  }
}

}  // namespace aplib::comm::connect
