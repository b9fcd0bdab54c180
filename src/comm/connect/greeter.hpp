// SPDX-License-Identifier: MIT
// Greeter: takes a connected socket, or a pair of descriptors, through the greeting (comm/greeting.hpp).
//
//   greeter_.begin(socket_, shared_from_this(), [this](const Greeter::Failure& failure) { ... });
//   greeter_.greeting().state() == Greeting::State::done       // or refused, or stranger
//
// Who uses it limits the time that it takes (Greeting::time_max), and goes on with the stream.
#pragma once

#include <sys/socket.h>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "comm/greeting.hpp"

namespace aplib::comm::connect {

/// Of TCP, or local to this host.
using Socket = boost::asio::generic::stream_protocol::socket;
using SocketAddress = boost::asio::generic::stream_protocol::endpoint;

/// A stream of two descriptors, one for each direction, as of a process's standard input and output. Who writes blocks
/// SIGPIPE, or ignores it. Thread safety: none; the thread that runs the io_context.
class DescriptorPair {
 public:
  using executor_type = boost::asio::posix::stream_descriptor::executor_type;

  /// Throws Error(exhausted).
  DescriptorPair(boost::asio::io_context& io, os::Ends ends) : reader_(io), writer_(io) {
    take(reader_, ends.reader);
    take(writer_, ends.writer);
  }

  [[nodiscard]] executor_type get_executor() { return reader_.get_executor(); }
  template <class Buffers, class Handler>
  void async_read_some(const Buffers& into, Handler&& handler) {
    reader_.async_read_some(into, std::forward<Handler>(handler));
  }
  template <class Buffers, class Handler>
  void async_write_some(const Buffers& bytes, Handler&& handler) {
    writer_.async_write_some(bytes, std::forward<Handler>(handler));
  }

  /// Nothing more is written: the other side comes to the end.
  void finish() noexcept {
    ::shutdown(writer_.native_handle(), SHUT_WR);  // where both are one socket; a pipe refuses
    close(writer_);
  }
  void close() noexcept {
    close(reader_);
    close(writer_);
  }

 private:
  static void take(boost::asio::posix::stream_descriptor& into, os::UniqueFd& from) {
    boost::system::error_code error;
    into.assign(from.get(), error);
    if (error) throw Error(Errc::exhausted, "cannot wait for a pipe: " + error.message());
    static_cast<void>(from.release());
  }
  static void close(boost::asio::posix::stream_descriptor& descriptor) noexcept {
    boost::system::error_code ignored;
    descriptor.close(ignored);
  }

  boost::asio::posix::stream_descriptor reader_;
  boost::asio::posix::stream_descriptor writer_;
};

/// What is not acknowledged is sent again after a pause that doubles. Where a link fails again and again for moments,
/// each of the few tries may meet one of them, and the other host is taken for dead although it answers in between. So
/// the pauses of this TCP socket are limited: ten tries or more come within `timeout`. A system that knows no such
/// limit (before Linux 6.15) makes some more tries at the beginning.
void limit_pauses(int socket, std::chrono::milliseconds timeout) noexcept;

/// A member of its owner, as the stream is. Thread safety: none; the thread of the stream's io_context.
template <class Stream>
class BasicGreeter {
 public:
  /// Neither: the greeting itself says how it ended.
  struct Failure {
    boost::system::error_code error{};  ///< Of the stream.
    std::string trouble{};              ///< Else, of the cryptographic library: for people.
  };
  using Done = std::function<void(const Failure&)>;

  BasicGreeter(Greeting::Role role, const JobKey& key, Introduction mine) : greeting_(role, key, std::move(mine)) {}
  BasicGreeter(Greeting::KeyOf keys, Introduction mine) : greeting_(std::move(keys), std::move(mine)) {}

  /// `done` is called once, unless cancel() comes before; it may end the greeter. What waits for the stream keeps
  /// `owner`. `came`: what was read already; then `done` may be called before this returns.
  void begin(Stream& stream, const std::shared_ptr<void>& owner, Done done, std::span<const std::byte> came = {});
  /// Nothing is called any more. The stream may end.
  void cancel() noexcept { done_ = nullptr; }

  [[nodiscard]] const Greeting& greeting() const noexcept { return greeting_; }

 private:
  void speak(const std::shared_ptr<void>& owner);
  void listen(const std::shared_ptr<void>& owner);
  void take(std::span<const std::byte> bytes, const std::shared_ptr<void>& owner);
  void finish(const Failure& failure);

  Greeting greeting_;
  Stream* stream_ = nullptr;
  Done done_;
  std::vector<std::byte> output_;
  std::vector<std::byte> input_;
};

using Greeter = BasicGreeter<Socket>;

extern template class BasicGreeter<Socket>;
extern template class BasicGreeter<DescriptorPair>;

}  // namespace aplib::comm::connect
