// SPDX-License-Identifier: MIT
// The control protocol: what coordinator and nodes tell each other, on a connection that has proved the job's key
// (src/comm/greeting.hpp).
//
//   node                                  coordinator
//     Hello                          ->                       who I am
//                                    <-  Measure              only for cells = "auto"
//     Speed                          ->
//                                    <-  Prepare              options, program, arguments
//     WantFile                       ->                       where the host lacks it
//                                    <-  FilePiece ...
//     Prepared                       ->                       my address for data
//                                    <-  Plan                 everybody's
//     Ready                          ->                       loaded, made, nothing runs
//                                    <-  Go                   when all are ready; Refused at any time before
//     Note, Output, Ended, ...      <->  Note, Written, Input, ...
//                                    <-  Stop                 end within a second
//     ToldToEnd                      ->                       a signal came: the run shall end
//     Finished                       ->
//                                    <-  Leave
//
// A message is 4 bytes of length, 1 byte of type, and the structure's fields (fields.hpp). Hello and Refused keep
// their form for ever, so that versions can tell each other that they differ.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "launch/wire/fields.hpp"
#include "launch/wire/message_type.hpp"
#include "launch/wire/run_messages.hpp"
#include "launch/wire/start_messages.hpp"

namespace aplib::launch::wire {

/// Appends a whole message, head and all.
void append_message(Bytes& to, MessageType type, std::span<const std::byte> body);
template <class Message>
void append_message(Bytes& to, const Message& message) {
  append_message(to, Message::type, encode(message));
}

/// Of a message that begins at `bytes`, which has at least message_head_bytes.
struct MessageHead {
  std::size_t bytes = 0;  ///< Of the body.
  MessageType type = MessageType::beat;
};
/// Nothing: too long, or no type of ours.
[[nodiscard]] std::optional<MessageHead> read_head(std::span<const std::byte> bytes);

/// The part of a Hello that all versions share. Nothing: it is no Hello of any version.
[[nodiscard]] std::optional<HelloStart> read_hello_start(std::span<const std::byte> body);

/// Checks a message of `type` without using it: for tests of the decoder.
[[nodiscard]] bool is_message(MessageType type, std::span<const std::byte> body);

}  // namespace aplib::launch::wire
