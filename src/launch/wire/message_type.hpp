// SPDX-License-Identifier: MIT
// The types of control messages, and what bounds them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aplib::launch::wire {

inline constexpr std::uint32_t control_version = 2;
/// Of a message, without its head. A longer one ends the connection. What may be longer travels in pieces.
inline constexpr std::size_t message_bytes_max = std::size_t{4} << 20;
inline constexpr std::size_t message_head_bytes = 5;
/// Of a piece of output, of input or of a note.
inline constexpr std::size_t piece_bytes_max = std::size_t{64} << 10;
/// Of a file that is sent: as much for each question.
inline constexpr std::size_t file_piece_bytes = std::size_t{1} << 20;
/// Of a note in all its pieces.
inline constexpr std::size_t note_bytes_max = std::size_t{256} << 20;

enum class MessageType : std::uint8_t {
  beat,  ///< Either way: I am here. No fields.
  note,  ///< Either way.
  hello,
  speed,
  want_file,
  prepared,
  ready,
  cannot,
  output,
  flush,
  ended,
  warning,
  want_input,
  find_program,
  finished,
  answer,
  refused,
  measure,
  prepare,
  file_piece,
  plan,
  go,
  written,
  input,
  stop,
  program,
  leave,
  ask,
  told_to_end,
  last = told_to_end,
};

/// A message without fields.
template <MessageType which>
struct Signal {
  static constexpr auto type = which;
  template <class Self, class Fields>
  static void list(Self&, Fields&&) {}
};
using Beat = Signal<MessageType::beat>;
using Ready = Signal<MessageType::ready>;
using Go = Signal<MessageType::go>;
using Stop = Signal<MessageType::stop>;
using Leave = Signal<MessageType::leave>;

}  // namespace aplib::launch::wire
