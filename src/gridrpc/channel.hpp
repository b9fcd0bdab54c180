// SPDX-License-Identifier: MIT
// Channel: one end of the conversation of a client with a server: a stream of bytes each way, and open files where both
// are on one host.
//
//   server                                          client
//     Greeting, IDL text (a descriptor with it)  ->
//                                                <-   CallHead, arguments (an arena with it, when that is new)
//     ReplyHead, results or a text               ->
//     ...                                        <-   the end of the stream
//
// Numbers are little-endian, as in memory.
#pragma once

#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"

namespace aplib::gridrpc {

inline constexpr std::uint64_t greeting_mark = 0x0a31435052475041;  // "APGRPC1\n"
inline constexpr std::uint32_t protocol_version = 1;

struct Greeting {
  std::uint64_t mark = greeting_mark;
  std::uint32_t version = protocol_version;
  std::uint32_t idl_bytes = 0;
};

struct CallHead {
  static constexpr std::uint32_t type_of_calls = 0x6c6c6163;
  std::uint32_t type = type_of_calls;
  std::uint32_t function = 0;     ///< Of the interface's; methods come behind.
  std::uint64_t bytes = 0;        ///< Of the arguments that follow.
  std::uint64_t arena_bytes = 0;  ///< 0: all arguments are in the stream.
};

enum class ReplyStatus : std::uint32_t { done, failed };

struct ReplyHead {
  static constexpr std::uint32_t type_of_replies = 0x6c706572;
  std::uint32_t type = type_of_replies;
  ReplyStatus status = ReplyStatus::done;
  std::uint64_t bytes = 0;  ///< Of the results, or of the text, that follow.
};

/// The other end is gone.
class ChannelClosed : public Error {
 public:
  explicit ChannelClosed(const std::string& text) : Error(Errc::ended, text) {}
};

/// The deadline has passed.
class ChannelTimedOut : public Error {
 public:
  explicit ChannelTimedOut(const std::string& text) : Error(Errc::failed, text) {}
};

/// Blocks. One thread at a time. What it throws leaves it unusable.
class Channel {
 public:
  using Clock = std::chrono::steady_clock;

  /// A socket for both ways, or two pipes. Either is closed with it.
  explicit Channel(os::UniqueFd both);
  Channel(os::UniqueFd reader, os::UniqueFd writer);

  /// Of what follows; nothing: for ever.
  void set_deadline(std::optional<Clock::time_point> deadline) noexcept { deadline_ = deadline; }

  /// All of the parts, which it changes. The descriptor goes along with the first byte, over a socket.
  /// Throws ChannelClosed, ChannelTimedOut.
  void send(std::span<iovec> parts, int descriptor = -1);
  /// Exactly so many bytes.
  void receive(void* into, std::size_t bytes);
  template <class T>
  void receive(T& value) {
    receive(&value, sizeof value);
  }
  /// Takes and drops them.
  void skip(std::uint64_t bytes);
  /// The latest descriptor that came along.
  [[nodiscard]] os::UniqueFd take_descriptor() noexcept { return std::move(came_); }

  /// Wakes the thread that sends or receives, which then finds the channel closed. Any thread, while it exists.
  void shut() const noexcept;
  [[nodiscard]] int reader() const noexcept { return reader_.get(); }

 private:
  std::size_t read_some(void* into, std::size_t bytes);
  void wait_until_ready(int descriptor, short events) const;

  os::UniqueFd reader_;
  os::UniqueFd writer_;  // none: the reader is a socket for both ways
  std::optional<Clock::time_point> deadline_;
  os::UniqueFd came_;
  std::vector<std::byte> buffer_;  // what was read ahead: from begin_ to end_
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

/// Memory that client and server of one host share: a file without a name that cannot shrink.
class Arena {
 public:
  Arena() noexcept = default;
  ~Arena() { reset(); }
  Arena(Arena&& other) noexcept : base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_) {}
  Arena& operator=(Arena&& other) noexcept {
    if (this == &other) return *this;
    reset();
    base_ = std::exchange(other.base_, nullptr);
    bytes_ = other.bytes_;
    return *this;
  }

  /// Makes one, and the descriptor to send. Throws Error(exhausted).
  static Arena make(std::uint64_t bytes, os::UniqueFd& descriptor);
  /// Of a descriptor that came along. Throws Error(failed): it is none.
  static Arena map(const os::UniqueFd& descriptor);

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return base_ == nullptr ? 0 : bytes_; }

 private:
  Arena(std::byte* base, std::uint64_t bytes) noexcept : base_(base), bytes_(bytes) {}
  void reset() noexcept;

  std::byte* base_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace aplib::gridrpc
