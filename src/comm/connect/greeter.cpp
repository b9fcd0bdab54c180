// SPDX-License-Identifier: MIT
#include "comm/connect/greeter.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/write.hpp>
#include <exception>
#include <span>
#include <utility>

namespace aplib::comm::connect {

using boost::system::error_code;

void limit_pauses(int socket, std::chrono::milliseconds timeout) noexcept {
  constexpr int rto_max_ms = 44;  // TCP_RTO_MAX_MS
  constexpr int least_ms = 1000;  // the system takes no less
  constexpr int tries = 10;
  const int limit_ms = std::max(static_cast<int>(timeout.count() / tries), least_ms);
  constexpr int yes = 1;
  ::setsockopt(socket, IPPROTO_TCP, rto_max_ms, &limit_ms, sizeof limit_ms);
  ::setsockopt(socket, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &yes, sizeof yes);
}

template <class Stream>
void BasicGreeter<Stream>::begin(Stream& stream, const std::shared_ptr<void>& owner, Done done,
                                 std::span<const std::byte> came) {
  stream_ = &stream;
  done_ = std::move(done);
  came.empty() ? speak(owner) : take(came, owner);
}

/// Sends what the greeting has to say, including its last word, and then goes on.
template <class Stream>
void BasicGreeter<Stream>::speak(const std::shared_ptr<void>& owner) {
  output_ = greeting_.take_output();
  if (output_.empty()) return listen(owner);
  boost::asio::async_write(*stream_, boost::asio::buffer(output_), [this, owner](const error_code& error, std::size_t) {
    if (!done_) return;
    if (error) return finish({.error = error});
    listen(owner);
  });
}

template <class Stream>
void BasicGreeter<Stream>::listen(const std::shared_ptr<void>& owner) {
  if (greeting_.state() != Greeting::State::going) return finish({});
  // Bytes are looked at as they come, because a wrong first byte is enough.
  input_.resize(greeting_.wants());
  stream_->async_read_some(boost::asio::buffer(input_), [this, owner](const error_code& error, std::size_t bytes) {
    if (!done_) return;
    if (error) return finish({.error = error});
    take(std::span(input_).first(bytes), owner);
  });
}

template <class Stream>
void BasicGreeter<Stream>::take(std::span<const std::byte> bytes, const std::shared_ptr<void>& owner) {
  std::string trouble;
  try {
    greeting_.receive(bytes);
  } catch (const std::exception& failure) {
    trouble = failure.what();
  }
  if (!trouble.empty()) return finish({.trouble = std::move(trouble)});
  speak(owner);
}

template <class Stream>
void BasicGreeter<Stream>::finish(const Failure& failure) {
  if (const Done done = std::exchange(done_, nullptr)) done(failure);
}

template class BasicGreeter<Socket>;
template class BasicGreeter<DescriptorPair>;

}  // namespace aplib::comm::connect
