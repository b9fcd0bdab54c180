// SPDX-License-Identifier: MIT
#include "launch/node/streams.hpp"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/write.hpp>
#include <map>
#include <mutex>
#include <utility>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "launch/wire/fields.hpp"

namespace aplib::launch::node {

namespace {

namespace asio = boost::asio;

/// How much input is asked for at a time. A pipe holds more, so at most some 100 KiB are read ahead of the program.
constexpr std::uint64_t window_bytes = std::uint64_t{32} << 10;

}  // namespace

struct InputPipes::Impl : std::enable_shared_from_this<InputPipes::Impl> {
  struct Pipe {
    explicit Pipe(asio::io_context& context) : writer(context) {}
    os::UniqueFd reader;
    asio::posix::stream_descriptor writer;
    wire::Bytes waiting;  // came while `under_way` was written
    wire::Bytes under_way;
    bool last = false;
  };

  Impl(wire::EventLoop& its_loop, std::function<void(std::uint32_t, std::uint64_t)> its_want)
      : loop(its_loop), want(std::move(its_want)) {}

  /// Call with the mutex held.
  void write(std::uint32_t cell, Pipe& pipe) {
    if (!pipe.under_way.empty() || !pipe.writer.is_open()) return;
    std::swap(pipe.under_way, pipe.waiting);
    boost::system::error_code ignored;
    if (pipe.under_way.empty()) {
      if (pipe.last) pipe.writer.close(ignored);
      return;
    }
    asio::async_write(
        pipe.writer, asio::buffer(pipe.under_way),
        [self = shared_from_this(), cell, &pipe](const boost::system::error_code& error, std::size_t count) {
          const std::lock_guard lock(self->mutex);
          pipe.under_way.clear();
          if (error) return;
          if (!pipe.last) self->want(cell, count);
          self->write(cell, pipe);
        });
  }

  wire::EventLoop& loop;
  const std::function<void(std::uint32_t, std::uint64_t)> want;
  std::mutex mutex;
  std::map<std::uint32_t, Pipe> pipes;
  bool closed = false;
};

InputPipes::InputPipes(wire::EventLoop& loop, std::function<void(std::uint32_t, std::uint64_t)> want)
    : impl_(std::make_shared<Impl>(loop, std::move(want))) {}

InputPipes::~InputPipes() {
  close_all();
  const std::lock_guard lock(impl_->mutex);
  for (auto& [cell, pipe] : impl_->pipes) pipe.reader.reset();  // a write that is under way may keep the rest
}

int InputPipes::open(std::uint32_t cell) {
  int reader = -1;
  {
    const std::lock_guard lock(impl_->mutex);
    const auto found = impl_->pipes.find(cell);
    if (found != impl_->pipes.end()) return found->second.reader.get();
    if (impl_->closed) return -1;
    os::Pipe ends;
    try {
      ends = os::Pipe::make();
    } catch (const Error&) {
      return -1;
    }
    Impl::Pipe& pipe = impl_->pipes.try_emplace(cell, impl_->loop.io()).first->second;
    reader = ends.reader.get();
    pipe.reader = std::move(ends.reader);
    boost::system::error_code error;
    pipe.writer.assign(ends.writer.get(), error);
    if (error) return reader;  // then the input looks empty
    static_cast<void>(ends.writer.release());
  }
  impl_->want(cell, window_bytes);
  return reader;
}

void InputPipes::take(std::uint32_t cell, std::span<const std::byte> bytes, bool last) {
  const std::lock_guard lock(impl_->mutex);
  const auto found = impl_->pipes.find(cell);
  if (found == impl_->pipes.end()) return;
  Impl::Pipe& pipe = found->second;
  pipe.waiting.insert(pipe.waiting.end(), bytes.begin(), bytes.end());
  pipe.last = pipe.last || last;
  impl_->write(cell, pipe);
}

void InputPipes::close_all() {
  const std::lock_guard lock(impl_->mutex);
  impl_->closed = true;
  boost::system::error_code ignored;
  for (auto& [cell, pipe] : impl_->pipes) pipe.writer.close(ignored);
}

void NodeSink::write(std::uint32_t cell, loader::Stream stream, std::span<const char> bytes) {
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), wire::piece_bytes_max));
    bytes = bytes.subspan(piece.size());
    {
      std::unique_lock lock(mutex_);
      room_.wait(lock, [&] { return dropped_ || under_way_ + piece.size() <= window_bytes; });
      if (dropped_) return;
      under_way_ += piece.size();
    }
    connection_.send(wire::OutputPiece{cell, stream == loader::Stream::err, std::as_bytes(piece)});
  }
}

int NodeSink::input(std::uint32_t cell) {
  const bool has_input = cell == host || input_for_all_ || (cell == 0 && !with_host_);
  return has_input ? input_.open(cell) : -1;
}

void NodeSink::written(std::uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    under_way_ -= std::min(under_way_, bytes);
  }
  room_.notify_all();
}

void NodeSink::drop() {
  {
    const std::lock_guard lock(mutex_);
    dropped_ = true;
  }
  room_.notify_all();
}

}  // namespace aplib::launch::node
