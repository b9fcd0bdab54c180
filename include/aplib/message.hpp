// SPDX-License-Identifier: MIT
// Messages between tasks. Sends are buffered and never wait for the receiver. Messages of one sender task to one
// receiver task arrive in the order sent. Receives select by source cell, source task and type, each of which may be a
// wildcard.
//
//   aplib::send(aplib::CellId{1}, 3.14, {.type = 7});             // on cell 0
//   aplib::Message m = aplib::receive({.type = 7});               // on cell 1
//   double pi = m.as<double>();
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <ranges>
#include <span>
#include <string_view>
#include <type_traits>

#include "aplib/export.hpp"
#include "aplib/ids.hpp"

namespace aplib {

/// The task that a message goes to inside the destination cell, and the message's type.
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

/// Where a received message comes from, its type and its size.
struct Envelope {
  CellId source{0};
  TaskId source_task{0};
  std::int32_t type = 0;
  std::size_t bytes = 0;
};

namespace detail {

template <class T>
inline constexpr bool is_initializer_list = false;
template <class T>
inline constexpr bool is_initializer_list<std::initializer_list<T>> = true;
template <class T>
inline constexpr bool is_reference_wrapper = false;
template <class T>
inline constexpr bool is_reference_wrapper<std::reference_wrapper<T>> = true;

/// A value that refers to other memory. Sent as bytes, it would mean nothing in another cell.
template <class T>
inline constexpr bool is_handle =
    std::is_pointer_v<T> || std::is_member_pointer_v<T> || std::is_null_pointer_v<T> ||
    std::input_or_output_iterator<T> || std::ranges::view<T> || is_initializer_list<T> || is_reference_wrapper<T>;

/// A value that consists of its bytes.
template <class T>
inline constexpr bool is_value = std::is_trivially_copyable_v<T> && !is_handle<std::remove_all_extents_t<T>>;

/// A contiguous range of such values: a span, a vector, a string.
template <class T>
concept Elements =
    std::ranges::contiguous_range<T> && std::ranges::sized_range<T> && is_value<std::ranges::range_value_t<T>>;

/// The same, with elements that can be written.
template <class T>
concept WritableElements = Elements<T> && !
std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<T>>>;

template <class T>
concept Bytes = std::is_convertible_v<const T&, std::span<const std::byte>>;

template <WritableElements Range>
std::span<std::byte> bytes_of(Range&& range) {
  return std::as_writable_bytes(std::span(std::ranges::data(range), std::ranges::size(range)));
}

}  // namespace detail

/// A received message. It owns its body. A small body is inside the object; a larger one is in a pooled buffer, which
/// returns to its sender's pool when the Message is destroyed or used for another receive. Bodies are aligned to 16
/// bytes. Movable, not copyable. A Message may outlive its machine. REQUIRES: used on the cell that received it.
class APLIB_API Message {
 public:
  static constexpr std::size_t inline_bytes_max = 40;  ///< A body of this size fits into one cache line of a ring.

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
  /// The body belongs to the Message. What these functions return is valid until the Message is destroyed, moved from
  /// or received into again. They do not compile for a temporary, which would be gone at once: keep the Message in a
  /// variable.
  [[nodiscard]] void* data() & noexcept { return buffer_ != nullptr ? outside_ : inside_; }
  [[nodiscard]] const void* data() const& noexcept { return buffer_ != nullptr ? outside_ : inside_; }
  void data() const&& = delete;
  [[nodiscard]] std::span<const std::byte> bytes() const& noexcept {
    return {static_cast<const std::byte*>(data()), bytes_};
  }
  void bytes() const&& = delete;
  /// The body as characters.
  [[nodiscard]] std::string_view text() const& noexcept { return {static_cast<const char*>(data()), bytes_}; }
  void text() const&& = delete;
  /// The body as an array of T. Throws Error(mismatch) when its size is not a multiple of T's.
  template <class T>
  [[nodiscard]] std::span<const T> span() const& {
    static_assert(detail::is_value<T>,
                  "what a message brings is bytes: T must be trivially copyable, and no pointer, "
                  "view or iterator, which would point into its sender");
    static_assert(alignof(T) <= 16, "bodies are aligned to 16 bytes");
    if (bytes_ % sizeof(T) != 0) throw_size_mismatch(sizeof(T));
    return {static_cast<const T*>(data()), bytes_ / sizeof(T)};
  }
  template <class T>
  void span() const&& = delete;
  /// The body as one T. Throws Error(mismatch) when the size differs.
  template <class T>
  [[nodiscard]] T as() const {
    static_assert(detail::is_value<T>,
                  "what a message brings is bytes: T must be trivially copyable, and no pointer, "
                  "view or iterator, which would point into its sender");
    const Message& self = *this;
    if (bytes_ != sizeof(T)) throw_size_mismatch(sizeof(T));
    T value;
    std::memcpy(&value, self.data(), sizeof(T));
    return value;
  }

 private:
  friend struct MessageAccess;  // the core fills messages in place
  void release() noexcept;
  [[noreturn]] void throw_size_mismatch(std::size_t wanted) const;

  std::uint64_t key_ = 0;  // match key: space, source cell, source task, type (src/cell/matching.hpp)
  std::size_t bytes_ = 0;
  void* buffer_ = nullptr;   // pooled buffer, or null: the body is in inside_
  void* outside_ = nullptr;  // body inside buffer_
  alignas(16) std::byte inside_[inline_bytes_max];
};

/// Sends `bytes` to a task of a cell or of the host. Copies them once; the caller may reuse the memory when the call
/// returns. It never waits for the receiver to receive.
/// REQUIRES: called from a task; `cell` exists, to.task <= task_id_max, 0 <= to.type <= message_type_max; `bytes` is
/// not null unless it is empty. Throws Error(bad_argument) otherwise, and Error(exhausted) when the receiver's process
/// takes nothing for the time of the option send-wait.
/// Switches tasks: only when a receiver on the same processor, or its process, has fallen far behind. Source: CellOS
/// l_asend (buffered, asynchronous).
APLIB_API void send(CellId cell, std::span<const std::byte> bytes, To to = {});

/// The same for values:
///   - one trivially copyable value: a number, a struct, an array;
///   - the elements of a span, string_view, vector or string of such values.
/// Pointers, iterators and views that are not contiguous do not compile, because they mean nothing in another cell.
template <class T>
  requires(!detail::Bytes<T>)
void send(CellId cell, const T& value, To to = {}) {
  static_assert(
      detail::is_value<T> || detail::Elements<const T>,
      "send() cannot copy this: it must be trivially copyable, or a contiguous range (span, vector, string) of such "
      "values; a pointer, iterator or other view would arrive without what it points to: send *pointer, or a "
      "std::span");
  if constexpr (detail::is_value<T>) {
    send(cell, std::as_bytes(std::span<const T, 1>(&value, 1)), to);
  } else if constexpr (detail::Elements<const T>) {
    send(cell, std::as_bytes(std::span(std::ranges::data(value), std::ranges::size(value))), to);
  }
}

/// Waits for the next message that matches and returns it. Switches tasks: yes.
/// REQUIRES: called from a task; `from` names a cell, task and type that can exist, or wildcards. Throws
/// Error(bad_argument) otherwise, and Error(ended) when `from` names a cell that has ended and left no such message.
[[nodiscard]] APLIB_API Message receive(From from = {});

/// The same, into `message`, whose old body is freed first.
APLIB_API void receive(Message& message, From from);

/// Waits for the next message that matches and stores its body in `buffer`. If the receiver waits before the message is
/// sent, the sender copies straight into `buffer`; of a large body, sender and receiver copy halves at the same time.
/// Switches tasks: yes. REQUIRES: as receive(); `buffer` is not null unless it is empty.
/// Throws as receive(), and Error(mismatch) when the message is longer than `buffer`; the message is then consumed.
APLIB_API Envelope receive_into(std::span<std::byte> buffer, From from = {});

/// The same for the elements of a span, vector or array of trivially copyable values.
template <class Range>
  requires(detail::WritableElements<Range> && !std::is_convertible_v<Range&, std::span<std::byte>>)
Envelope receive_into(Range&& buffer, From from = {}) {
  return receive_into(detail::bytes_of(buffer), from);
}

/// Whether a matching message is there. It consumes nothing, does not wait, and is cheap. Switches tasks: after a few
/// empty probes in a row, so that a polling loop does not starve others. REQUIRES: as receive(). Source: CellOS cprobe.
[[nodiscard]] APLIB_API bool probe(From from = {});

}  // namespace aplib
