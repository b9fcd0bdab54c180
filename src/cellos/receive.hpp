// SPDX-License-Identifier: MIT
// The message a task last received, as CellOS sees it: one per task, readable until the next receive. Call from: task.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>

#include "kernel/face.hpp"

namespace aplib::cellos {

/// Waits for a message and returns its body, which belongs to the system; null when `until_cells_end` and nothing can come any more.
/// Switches tasks: yes.
inline void* receive_body(const char* call, const From& from, face::Space space, bool until_cells_end = false) {
  face::TaskFront& front = face::front();
  front.readable = false;  // also when the receive fails: its first act is to give the old message back
  if (face::receive(call, front.message, from, space, until_cells_end) == face::Received::closed) return nullptr;
  front.last = front.message.envelope();
  front.readable = true;
  return front.message.data();
}

/// Waits for a message and stores what fits of it. Returns the bytes stored. Switches tasks: yes.
inline int receive_stored(const char* call, std::span<std::byte> buffer, const From& from, face::Space space) {
  face::TaskFront& front = face::front();
  front.readable = false;  // readmsg speaks of the last message, and that one is in the caller's hands
  front.last = face::receive_into(call, buffer, from, space, true);
  return int(front.last.bytes);
}

/// Copies what fits of the last message. Requires: it is readable.
inline int read_last(std::span<std::byte> buffer) {
  const auto body = face::front().message.bytes();
  const std::size_t bytes = std::min(body.size(), buffer.size());
  if (bytes > 0) std::memcpy(buffer.data(), body.data(), bytes);
  return int(bytes);
}

}  // namespace aplib::cellos
