// SPDX-License-Identifier: MIT
// Messages between tasks. Sends are buffered and never wait for the receiver; messages of one sender task to one receiver task
// arrive in the order sent; receives select by source cell, source task and type, each of which may be a wildcard.
//
//   aplib::send(aplib::CellId{1}, 3.14, {.type = 7});             // on cell 0
//   aplib::Message m = aplib::receive({.type = 7});               // on cell 1
//   double pi = m.as<double>();
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "aplib/export.hpp"
#include "aplib/ids.hpp"

namespace aplib {

/// Where a message goes inside the destination cell, and its tag.
struct To {
  TaskId task{0};
  std::int32_t type = 0;  ///< 0 .. message_type_max
};

/// What a receive accepts.
struct From {
  CellId cell = any_cell;
  TaskId task = any_task;
  std::int32_t type = any_type;
};

/// The address label of a message that arrived.
struct Envelope {
  CellId source{0};
  TaskId source_task{0};
  std::int32_t type = 0;
  std::size_t bytes = 0;
};

/// A received message. Owns its storage (small: inside the object; larger: a pooled buffer that returns to its sender's pool when
/// the Message is destroyed or used for another receive). Move-only. Bodies are aligned to 16 bytes. Use it on the cell that received it.
class APLIB_API Message {
 public:
  static constexpr std::size_t inline_bytes_max = 40;  ///< Travels inside one cache line of a ring.

  Message() noexcept {}
  Message(Message&& other) noexcept;
  Message& operator=(Message&& other) noexcept;
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
  ~Message() {
    if (buffer_ != nullptr) release();
  }

  [[nodiscard]] Envelope envelope() const noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
  [[nodiscard]] void* data() noexcept { return buffer_ != nullptr ? outside_ : inside_; }
  [[nodiscard]] const void* data() const noexcept { return buffer_ != nullptr ? outside_ : inside_; }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return {static_cast<const std::byte*>(data()), bytes_};
  }
  /// The body as one T. Throws Error(mismatch) when the size differs.
  template <class T>
  [[nodiscard]] T as() const {
    static_assert(std::is_trivially_copyable_v<T>, "a message body is bytes");
    if (bytes_ != sizeof(T)) throw_size_mismatch(sizeof(T));
    T value;
    std::memcpy(&value, data(), sizeof(T));
    return value;
  }

 private:
  friend struct MessageAccess;  // the core fills messages in place
  void release() noexcept;
  [[noreturn]] void throw_size_mismatch(std::size_t wanted) const;

  std::uint64_t key_ = 0;  // match key: space, source cell, source task, type (src/cell/match_key.hpp)
  std::size_t bytes_ = 0;
  void* buffer_ = nullptr;   // pooled buffer, or null: the body is in inside_
  void* outside_ = nullptr;  // body inside buffer_
  alignas(16) std::byte inside_[inline_bytes_max];
};

/// Sends `bytes` to a task of a cell (or of the host). Copies once; the caller's memory is free again at return.
/// Call from: task. Waits for the receiver: never. Switches tasks: only when a receiver on the same processor has fallen far behind.
/// Throws Error(bad_argument) for an impossible cell, task or type.
/// Sources: CellOS l_asend (buffered, asynchronous).
APLIB_API void send(CellId cell, std::span<const std::byte> bytes, To to = {});

/// The same for one trivially copyable value.
template <class T>
  requires(std::is_trivially_copyable_v<T> && !std::is_convertible_v<const T&, std::span<const std::byte>>)
void send(CellId cell, const T& value, To to = {}) {
  send(cell, std::as_bytes(std::span<const T, 1>(&value, 1)), to);
}

/// Waits for the next message that matches and returns it. Call from: task. Switches tasks: yes.
/// Throws Error(ended) when `from` names a cell that has ended and nothing of it is left.
[[nodiscard]] APLIB_API Message receive(From from = {});

/// The same, reusing `message` (its old content is given back first).
APLIB_API void receive(Message& message, From from);

/// Waits for the next message that matches, with the body in `buffer`. When the receiver waits before the message is sent, the sender copies
/// straight into `buffer` (large ones: sender and receiver copy halves at the same time).
/// Throws Error(mismatch), consuming the message, when it is longer than `buffer`.
APLIB_API Envelope receive_into(std::span<std::byte> buffer, From from = {});

/// Is a matching message there? Consumes nothing, waits for nothing, cheap. After a few empty probes in a row it lets other tasks run
/// (so a polling loop starves nobody). Switches tasks: sometimes. Source: CellOS cprobe.
[[nodiscard]] APLIB_API bool probe(From from = {});

}  // namespace aplib
