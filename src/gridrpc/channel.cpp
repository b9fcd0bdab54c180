// SPDX-License-Identifier: MIT
#include "gridrpc/channel.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "base/os/local_socket.hpp"

namespace aplib::gridrpc {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{32} << 10;
constexpr int arena_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

[[noreturn]] void refuse_closed() { throw ChannelClosed("the connection ended"); }

[[noreturn]] void refuse_broken(const char* what) {
  throw ChannelClosed(fmt::format("the connection broke ({}: {})", what, std::strerror(errno)));
}

}  // namespace

Channel::Channel(os::UniqueFd both) : Channel(std::move(both), os::UniqueFd()) {}

Channel::Channel(os::UniqueFd reader, os::UniqueFd writer)
    : reader_(std::move(reader)), writer_(std::move(writer)), buffer_(buffer_bytes) {}

void Channel::wait_until_ready(int descriptor, short events) const {
  pollfd one{.fd = descriptor, .events = events, .revents = 0};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now()).count();
    if (left <= 0) throw ChannelTimedOut("the time is over");
    const int ready = ::poll(&one, 1, static_cast<int>(std::min<std::int64_t>(left, INT_MAX)));
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) refuse_broken("poll");
  }
}

void Channel::send(std::span<iovec> parts, int descriptor) {
  const bool socket = !writer_;
  while (!parts.empty()) {
    if (parts.front().iov_len == 0) {
      parts = parts.subspan(1);
      continue;
    }
    if (deadline_) wait_until_ready(socket ? reader_.get() : writer_.get(), POLLOUT);
    const std::size_t count = std::min<std::size_t>(parts.size(), IOV_MAX);
    ssize_t sent = 0;
    if (socket) {
      sent = os::send_parts(reader_.get(), parts.first(count),
                            std::span(&descriptor, descriptor >= 0 ? std::size_t{1} : 0), deadline_ ? MSG_DONTWAIT : 0);
    } else {
      sent = ::writev(writer_.get(), parts.data(), static_cast<int>(count));
    }
    if (sent < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) refuse_closed();
    if (sent < 0) refuse_broken("write");
    descriptor = -1;
    for (auto left = static_cast<std::size_t>(sent); left > 0;) {
      iovec& part = parts.front();
      const std::size_t taken = std::min(left, part.iov_len);
      part.iov_base = static_cast<std::byte*>(part.iov_base) + taken;
      part.iov_len -= taken;
      left -= taken;
      if (part.iov_len == 0) parts = parts.subspan(1);
    }
  }
}

std::size_t Channel::read_some(void* into, std::size_t bytes) {
  for (;;) {
    if (deadline_) wait_until_ready(reader_.get(), POLLIN);
    ssize_t count = 0;
    if (writer_) {
      count = ::read(reader_.get(), into, bytes);
    } else {
      os::ReceivedMessage message = os::receive_message(reader_.get(), {static_cast<std::byte*>(into), bytes});
      count = message.bytes;
      if (message.passed != 0) came_ = std::move(message.descriptors[0]);
    }
    if (count > 0) return static_cast<std::size_t>(count);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count == 0 || errno == ECONNRESET) refuse_closed();
    refuse_broken("read");
  }
}

void Channel::receive(void* into, std::size_t bytes) {
  auto* to = static_cast<std::byte*>(into);
  while (bytes > 0) {
    if (begin_ == end_ && bytes >= buffer_bytes) {
      const std::size_t count = read_some(to, bytes);
      to += count;
      bytes -= count;
      continue;
    }
    if (begin_ == end_) {
      begin_ = 0;
      end_ = 0;  // also where it throws
      end_ = read_some(buffer_.data(), buffer_bytes);
    }
    const std::size_t count = std::min(bytes, end_ - begin_);
    std::memcpy(to, buffer_.data() + begin_, count);
    begin_ += count;
    to += count;
    bytes -= count;
  }
}

void Channel::skip(std::uint64_t bytes) {
  std::array<std::byte, 4096> dropped;
  while (bytes > 0) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, dropped.size()));
    receive(dropped.data(), count);
    bytes -= count;
  }
}

void Channel::shut() const noexcept { ::shutdown(reader_.get(), SHUT_RDWR); }

Arena Arena::make(std::uint64_t bytes, os::UniqueFd& descriptor) {
  os::UniqueFd file(::memfd_create("aplib-gridrpc", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) os::refuse_descriptor("memory to share");
  if (!os::file_may_have(bytes) || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(file.get(), F_ADD_SEALS, arena_seals) != 0)
    os::refuse_descriptor("memory to share");
  Arena arena = map(file);
  descriptor = std::move(file);
  return arena;
}

Arena Arena::map(const os::UniqueFd& descriptor) {
  struct stat about {};
  const int seals = descriptor ? ::fcntl(descriptor.get(), F_GET_SEALS) : -1;
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(descriptor.get(), &about) != 0 || about.st_size <= 0)
    throw Error(Errc::failed, "what came as shared memory is none, or could shrink");
  void* const base =
      ::mmap(nullptr, static_cast<std::size_t>(about.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0);
  if (base == MAP_FAILED) os::refuse_descriptor("a mapping of shared memory");
  return {static_cast<std::byte*>(base), static_cast<std::uint64_t>(about.st_size)};
}

void Arena::reset() noexcept {
  if (base_ != nullptr) ::munmap(base_, static_cast<std::size_t>(bytes_));
  base_ = nullptr;
}

}  // namespace aplib::gridrpc
