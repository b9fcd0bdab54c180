// SPDX-License-Identifier: MIT
#include "launch/control/watch_end.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <memory>
#include <utility>

namespace aplib::launch {
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
