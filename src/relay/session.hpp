// SPDX-License-Identifier: MIT
// Session: who uses a relay tells it by lines of text what it shall do, and hears by lines what became of it. What a
// session has asked for lasts as long as the session.
//
//   job MACHINE KEY                 calls of this machine are answered; KEY: 64 hexadecimal digits (relay_key())
//   dial PLACE MACHINE SELF PEER    calls another relay as the end of SELF, for the end of PEER here
//   reach PLACE,... MACHINE TAG     looks whether another relay of the job answers at one of these places
//   status                          "aprelay count NAME NUMBER" lines, then "aprelay end"
//
// The relay begins with "aprelay ready ENDPOINT,...", says "aprelay failed MACHINE SELF PEER WHY" when a dial comes to
// nothing, "aprelay again MACHINE SELF PEER" when the end of SELF has come once more and waits, "aprelay reached
// MACHINE TAG PLACE" after a look, without a place if none answers, and "aprelay wrong WHAT" of a line that it does not
// understand. Each of its lines begins with "aprelay ", so that what a login shell prints before is told apart.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>

#include "base/os/descriptor.hpp"
#include "relay/relay.hpp"

namespace aplib::relay {

/// Thread safety: none; the thread that runs the io_context.
class Session {
 public:
  /// `ready`: the relay's endpoints. `ended`: the other side is gone; it may destroy the session. Throws
  /// Error(exhausted).
  Session(boost::asio::io_context& io, Relay& relay, os::Ends ends, const std::string& ready,
          std::function<void()> ended);
  /// What it has asked for ends.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace aplib::relay
