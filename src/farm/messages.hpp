// SPDX-License-Identifier: MIT
// The messages of a farm and its workers, on a connected stream socket: 4 bytes of length, 1 byte of type, and the
// fields. What arrives may be anybody's.
//
//   farm                                  worker
//                                    <-  WorkerHello        of one in a pool
//     RunTask ...                    ->                  in the order in which they are to run
//                                    <-  RunEnded ...    in the same order
//
// A worker ends when its farm closes the socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "aplib/farm_outcome.hpp"
#include "launch/wire/fields.hpp"

namespace aplib::farm {

enum class MessageType : std::uint8_t { run_task = 1, run_ended, worker_hello, last = worker_hello };

struct RunTask {
  static constexpr MessageType type = MessageType::run_task;
  std::uint64_t number = 0;
  std::uint32_t function = 0;
  std::span<const std::byte> arguments{};

  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.number, self.function, self.arguments);
  }
};

struct RunEnded {
  static constexpr MessageType type = MessageType::run_ended;
  std::uint64_t number = 0;
  Outcome outcome = Outcome::done;  ///< done or failed
  std::uint64_t nanoseconds = 0;
  std::span<const std::byte> result{};  ///< Of failed: a text.

  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.number, self.outcome, self.nanoseconds, self.result);
  }
};

/// Whether it is of the same program.
struct WorkerHello {
  static constexpr MessageType type = MessageType::worker_hello;
  std::string version{};        ///< Of APlib.
  std::uint64_t functions = 0;  ///< A digest of their names and numbers.
  friend bool operator==(const WorkerHello&, const WorkerHello&) = default;

  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.version, self.functions);
  }
};

inline constexpr std::size_t message_head_bytes = 5;
inline constexpr std::size_t message_bytes_max = std::size_t{1} << 30;

template <class Message>
void append_message(launch::wire::Bytes& to, const Message& message) {
  const launch::wire::Bytes fields = launch::wire::encode(message);
  const auto size = static_cast<std::uint32_t>(fields.size());
  const std::size_t begin = to.size();
  to.resize(begin + message_head_bytes);
  std::memcpy(to.data() + begin, &size, sizeof size);
  to[begin + sizeof size] = static_cast<std::byte>(Message::type);
  to.insert(to.end(), fields.begin(), fields.end());
}

/// Cuts a stream into messages. Memory grows with what has come, not with what a length promises.
class MessageStream {
 public:
  void add(std::span<const std::byte> bytes) {
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin_));
    begin_ = 0;
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  /// What the next message is, when all of it has come, or is too large to come: its first fields know.
  [[nodiscard]] std::optional<std::uint8_t> next_type() const {
    const std::span<const std::byte> rest = std::span(bytes_).subspan(begin_);
    if (bad_ || rest.size() < message_head_bytes) return std::nullopt;
    std::uint32_t size = 0;
    std::memcpy(&size, rest.data(), sizeof size);
    if (size <= message_bytes_max && rest.size() - message_head_bytes < size) return std::nullopt;
    return static_cast<std::uint8_t>(rest[sizeof size]);
  }
  /// The next message of this type; a view until add(). Nothing: it has not come, or the stream is bad().
  template <class Message>
  std::optional<Message> next() {
    const std::span<const std::byte> rest = std::span(bytes_).subspan(begin_);
    if (bad_ || rest.size() < message_head_bytes) return std::nullopt;
    std::uint32_t size = 0;
    std::memcpy(&size, rest.data(), sizeof size);
    bad_ = size > message_bytes_max || rest[sizeof size] != static_cast<std::byte>(Message::type);
    if (bad_ || rest.size() - message_head_bytes < size) return std::nullopt;
    begin_ += message_head_bytes + size;
    const auto message = launch::wire::decode<Message>(rest.subspan(message_head_bytes, size));
    bad_ = !message;
    return message;
  }
  [[nodiscard]] bool bad() const noexcept { return bad_; }

 private:
  launch::wire::Bytes bytes_;
  std::size_t begin_ = 0;
  bool bad_ = false;
};

}  // namespace aplib::farm
