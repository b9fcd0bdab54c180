// SPDX-License-Identifier: MIT
// The control protocol: the messages of coordinator and nodes, on a connection that has proved the job's key
// (src/comm/greeting.hpp).
//
//   node                                  coordinator
//     Hello                          ->                       who I am
//                                    <-  Measure              only for cells = "auto"
//     Speed                          ->
//                                    <-  Prepare              options, program, arguments
//                                    <-  Transfer ...         of the files that go along (launch/files/frames.hpp)
//     WantFiles                      ->                       program files, where the host lacks them
//     Transfer ...                   <-> Transfer ...
//     Prepared                       ->                       my address for data
//                                    <-  Probe                only for hosts of several sites: try to reach these
//     Probed                         ->                       whom I reach
//                                    <-  Plan                 everybody's address, and the ways there
//     Ready                          ->                       loaded, made, nothing runs
//                                    <-  Go                   when all are ready; Refused at any time before
//     Note, Output, Ended, ...      <->  Note, Written, Input, ...
//                                    <-  Stop                 end within a second
//     ToldToEnd                      ->                       a signal came: the run shall end
//     Finished                       ->
//     Transfer ...                   <-> Transfer ...         of the files to be fetched
//                                    <-  Leave
//
// A node that keeps an ordinary process starts it after Prepare, and passes on its output from then on. The process
// calls the node, when its program first calls MPI, on a socket of its own, without seals:
//
//   process                               node
//                                    <-  Welcome              or Refused
//     Prepared, Probed, Ready, Note, Answer  ->                       passed on to the coordinator
//                                            <-  Probe, Plan, Go, Note, Ask  passed on from there
//     Leave                          ->                       the machine is over: how the process ends is its affair
//
// One that ends without having called is Finished before the others have a Plan.
//
// A message is 4 bytes of length, 1 byte of type, and the structure's fields (fields.hpp): those of start_messages.hpp
// until Go, those of run_messages.hpp from then on. If the connection is not encrypted, a seal follows. Hello and
// Refused never change their form, so that versions can tell each other that they differ.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "comm/job_key.hpp"
#include "launch/wire/fields.hpp"

namespace aplib::launch::wire {

inline constexpr std::uint32_t control_version = 10;
/// Bytes of a message without its head. A longer one ends the connection. What may be longer travels in pieces.
inline constexpr std::size_t message_bytes_max = std::size_t{4} << 20;
inline constexpr std::size_t message_head_bytes = 5;
/// Bytes of a piece of output, of input or of a note.
inline constexpr std::size_t piece_bytes_max = std::size_t{64} << 10;
/// Bytes of a note, all its pieces together.
inline constexpr std::size_t note_bytes_max = std::size_t{256} << 20;

enum class MessageType : std::uint8_t {
  beat,  ///< In both directions: a sign of life. No fields.
  note,  ///< In both directions.
  hello,
  speed,
  want_files,
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
  transfer,  ///< In both directions.
  plan,
  go,
  written,
  input,
  stop,
  program,
  leave,
  ask,
  told_to_end,
  welcome,
  probe,
  probed,
  last = probed,
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

/// Seals what one side of a connection sends: a keyed hash after each message proves that it is the next one and
/// unchanged. The seal of a Hello comes with the next message, so that versions without seals understand each other's
/// Hello. Each side of a connection has one for what it sends and one for what it gets.
class Seal {
 public:
  static constexpr std::size_t bytes = 16;

  /// For what `by` sends on a connection whose sides both know `secret`. Throws Error(failed).
  enum class Sender : std::uint8_t { node, launcher };
  Seal(std::span<const std::byte, 32> secret, Sender by);

  [[nodiscard]] static bool has_own(MessageType type) noexcept { return type != MessageType::hello; }
  /// The next message, with its head, is sealed together with the one after it.
  void cover(std::span<const std::byte> message);
  /// The seal of the next message. Throws Error(failed).
  [[nodiscard]] std::array<std::byte, bytes> of(std::span<const std::byte> message);

 private:
  comm::JobKey key_;
  std::uint64_t count_ = 0;
  Bytes covered_;
};

/// Appends the head of a message with a body of so many bytes.
void append_head(Bytes& to, MessageType type, std::size_t bytes);
/// Appends a whole message, with its head.
void append_message(Bytes& to, MessageType type, std::span<const std::byte> body);
template <class Message>
void append_message(Bytes& to, const Message& message) {
  append_message(to, Message::type, encode(message));
}

/// The head of a message that begins at `bytes`, which has at least message_head_bytes.
struct MessageHead {
  std::size_t bytes = 0;  ///< Size of the body.
  MessageType type = MessageType::beat;
};
/// Nothing: too long, or an unknown type.
[[nodiscard]] std::optional<MessageHead> read_head(std::span<const std::byte> bytes);

/// Checks a message of `type` without using it, for tests of the decoder.
[[nodiscard]] bool is_message(MessageType type, std::span<const std::byte> body);

}  // namespace aplib::launch::wire
