// SPDX-License-Identifier: MIT
// EventLoop: one thread that waits for sockets, timers, the ends of pipes and requests of other threads. Files that
// need only this do not include Boost.Asio's headers.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace boost::asio {
class io_context;
}

namespace aplib::launch::wire {

class EventLoop {
 public:
  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Works on the calling thread until stop(); from then on this is the loop's thread, on which SIGPIPE is blocked
  /// meanwhile. Once.
  void run();
  /// Any thread.
  void stop();
  /// Runs `what` on the loop's thread soon, in order. Any thread.
  void post(std::function<void()> what);
  [[nodiscard]] boost::asio::io_context& io() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Calls something once, later, on the loop's thread. After its destruction it calls nothing. Call from: the loop's
/// thread.
class Timer {
 public:
  explicit Timer(EventLoop& loop);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  /// Replaces what was to be called before.
  void start(std::chrono::nanoseconds after, std::function<void()> what);
  void cancel();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// Calls `ended` on the loop's thread when reading `descriptor` gives the end. Discards what else comes. A plain file,
/// for which one cannot wait, never ends. Takes a copy of the descriptor.
void watch_end(EventLoop& loop, int descriptor, std::function<void()> ended);

}  // namespace aplib::launch::wire
