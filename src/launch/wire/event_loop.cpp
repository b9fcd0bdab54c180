// SPDX-License-Identifier: MIT
#include "launch/wire/event_loop.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <utility>

namespace aplib::launch {

struct EventLoop::Inside {
  boost::asio::io_context context{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{context.get_executor()};
};

EventLoop::EventLoop() : inside_(std::make_unique<Inside>()) {}
EventLoop::~EventLoop() = default;

void EventLoop::run() { inside_->context.run(); }
void EventLoop::stop() { inside_->context.stop(); }
void EventLoop::post(std::function<void()> what) { boost::asio::post(inside_->context, std::move(what)); }
boost::asio::io_context& EventLoop::io() noexcept { return inside_->context; }

struct Timer::Inside {
  explicit Inside(boost::asio::io_context& context) : timer(context) {}
  boost::asio::steady_timer timer;
  std::uint64_t turn = 0;  // a call that was already on its way when it was cancelled is of an older one
};

Timer::Timer(EventLoop& loop) : inside_(std::make_shared<Inside>(loop.io())) {}
Timer::~Timer() { cancel(); }

void Timer::start(std::chrono::nanoseconds after, std::function<void()> what) {
  const std::uint64_t turn = ++inside_->turn;
  inside_->timer.expires_after(after);
  inside_->timer.async_wait([inside = inside_, turn, what = std::move(what)](const boost::system::error_code& error) {
    if (!error && inside->turn == turn) what();
  });
}

void Timer::cancel() {
  ++inside_->turn;
  inside_->timer.cancel();
}

namespace {

struct Watch : std::enable_shared_from_this<Watch> {
  Watch(boost::asio::io_context& context, std::function<void()> what) : pipe(context), ended(std::move(what)) {}

  void go_on() {
    pipe.async_read_some(boost::asio::buffer(bytes),
                         [self = shared_from_this()](const boost::system::error_code& error, std::size_t) {
                           if (error == boost::asio::error::operation_aborted) return;
                           error ? self->ended() : self->go_on();
                         });
  }

  boost::asio::posix::stream_descriptor pipe;
  std::function<void()> ended;
  std::array<char, 256> bytes{};
};

}  // namespace

void watch_end(EventLoop& loop, int descriptor, std::function<void()> ended) {
  const int copy = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 3);
  if (copy < 0) return;
  const auto watch = std::make_shared<Watch>(loop.io(), std::move(ended));
  boost::system::error_code error;
  watch->pipe.assign(copy, error);
  if (error) {
    ::close(copy);
    return;
  }
  watch->go_on();
}

}  // namespace aplib::launch
