// SPDX-License-Identifier: MIT
// EventLoop: one thread that waits for sockets, timers, the ends of pipes and what other threads ask of it. Keeps
// Boost.Asio's headers out of whoever only needs that much.
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

  /// Works until stop() on the calling thread, the loop's from then on. Once.
  void run();
  /// Any thread.
  void stop();
  /// Runs `what` on the loop's thread, soon, in order. Any thread.
  void post(std::function<void()> what);
  [[nodiscard]] boost::asio::io_context& io() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Calls something once, later, on the loop's thread. Call from: the loop's thread. Gone, it calls nothing.
class Timer {
 public:
  explicit Timer(EventLoop& loop);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  /// Instead of what was to be called before.
  void start(std::chrono::nanoseconds after, std::function<void()> what);
  void cancel();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// Calls `ended`, on the loop's thread, when reading `descriptor` would give the end; throws away what else comes.
/// What cannot be waited for (a plain file) never ends. Takes a copy of the descriptor.
void watch_end(EventLoop& loop, int descriptor, std::function<void()> ended);

}  // namespace aplib::launch::wire
