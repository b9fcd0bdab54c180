// SPDX-License-Identifier: MIT
// RelayedEnd: this process's end of a pair that talks by a relay, up to the greeting with the other process. The one
// with the lower number speaks first, as if it had called the other. The pair trusts the relay with nothing: its
// greeting proves the job's key, and TLS follows, whatever option `secure` says.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>

#include "comm/connect/relay_call.hpp"
#include "comm/greeting.hpp"

namespace aplib::comm::tcp {

/// Thread safety: none; the thread that runs the io_context. An event may destroy it.
class RelayedEnd {
 public:
  struct Events {
    std::function<void(connect::Socket& socket)> opened;
    std::function<void(connect::Socket socket, const Greeting& greeting)> greeted;
    std::function<void(const std::string& why)> failed;
  };

  /// `key`: the job's. `mine`: with both processes' numbers.
  RelayedEnd(boost::asio::io_context& io, connect::RelayCall::Settings call, const JobKey& key, Introduction mine,
             Events events);
  /// Ends it; no event comes any more.
  ~RelayedEnd();
  RelayedEnd(const RelayedEnd&) = delete;
  RelayedEnd& operator=(const RelayedEnd&) = delete;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace aplib::comm::tcp
