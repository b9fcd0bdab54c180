// SPDX-License-Identifier: MIT
#include "launch/wire/event_loop.hpp"

#include <fcntl.h>
#include <signal.h>
#include <time.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <memory>
#include <utility>

#include "base/os/descriptor.hpp"

namespace aplib::launch::wire {
namespace {

/// Whoever writes to a pipe that nobody reads gets an error, and not the signal.
class PipeSignalBlocked {
 public:
  PipeSignalBlocked() noexcept {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~PipeSignalBlocked() {
    if (::sigismember(&before_, SIGPIPE) == 1) return;
    constexpr timespec now{0, 0};
    while (::sigtimedwait(&pipe_, nullptr, &now) < 0 && errno == EINTR) {  // one that waits would end the process
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  PipeSignalBlocked(const PipeSignalBlocked&) = delete;
  PipeSignalBlocked& operator=(const PipeSignalBlocked&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
};

}  // namespace

struct EventLoop::Impl {
  boost::asio::io_context context{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{context.get_executor()};
};

EventLoop::EventLoop() : impl_(std::make_unique<Impl>()) {}
EventLoop::~EventLoop() = default;

void EventLoop::run() {
  const PipeSignalBlocked blocked;
  impl_->context.run();
}
void EventLoop::stop() { impl_->context.stop(); }
void EventLoop::post(std::function<void()> what) { boost::asio::post(impl_->context, std::move(what)); }
boost::asio::io_context& EventLoop::io() noexcept { return impl_->context; }

struct Timer::Impl {
  explicit Impl(boost::asio::io_context& context) : timer(context) {}
  boost::asio::steady_timer timer;
  std::uint64_t turn = 0;  // a call that was already on its way when it was cancelled is of an older one
};

Timer::Timer(EventLoop& loop) : impl_(std::make_shared<Impl>(loop.io())) {}
Timer::~Timer() { cancel(); }

void Timer::start(std::chrono::nanoseconds after, std::function<void()> what) {
  const std::uint64_t turn = ++impl_->turn;
  impl_->timer.expires_after(after);
  impl_->timer.async_wait([impl = impl_, turn, what = std::move(what)](const boost::system::error_code& error) {
    if (!error && impl->turn == turn) what();
  });
}

void Timer::cancel() {
  ++impl_->turn;
  impl_->timer.cancel();
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
  os::UniqueFd copy(::fcntl(descriptor, F_DUPFD_CLOEXEC, 3));
  if (!copy) return;
  const auto watch = std::make_shared<Watch>(loop.io(), std::move(ended));
  boost::system::error_code error;
  watch->pipe.assign(copy.get(), error);
  if (error) return;
  static_cast<void>(copy.release());
  watch->go_on();
}

}  // namespace aplib::launch::wire
