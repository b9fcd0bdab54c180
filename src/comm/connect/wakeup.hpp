// SPDX-License-Identifier: MIT
// Wakeup: has a function called on the thread that runs an io_context. To ask for it needs no memory, so that who
// sends a frame can always ask for a connection.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <utility>

#include "base/os/descriptor.hpp"

namespace aplib::comm::connect {

/// A member of its owner, which outlives what waits in the io_context.
class Wakeup {
 public:
  /// Throws Error(exhausted).
  Wakeup(boost::asio::io_context& io, std::function<void()> what) : what_(std::move(what)), waiting_(io, event_.get()) {
    wait();
  }
  ~Wakeup() { static_cast<void>(waiting_.release()); }
  Wakeup(const Wakeup&) = delete;
  Wakeup& operator=(const Wakeup&) = delete;

  /// What is asked for several times before it is done is done once. Any thread.
  void ask() const noexcept { event_.signal(); }

 private:
  void wait() {
    waiting_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                        [this](const boost::system::error_code& error) {
                          if (error) return;
                          event_.clear();
                          wait();  // first, in the memory of this handler: what is done may find none
                          what_();
                        });
  }

  const std::function<void()> what_;
  os::EventFd event_;
  boost::asio::posix::stream_descriptor waiting_;  // The descriptor is the event's.
};

}  // namespace aplib::comm::connect
