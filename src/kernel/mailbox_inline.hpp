// SPDX-License-Identifier: MIT
// What the kernel's API for MPI (mailbox.hpp) does for every message, for a front end that knows its task and has
// checked its arguments.
#pragma once

#include "cell/processor.hpp"
#include "kernel/mailbox.hpp"

namespace aplib::api::inlined {

[[gnu::always_inline]] inline void send(TaskControl& self, const char* call, const Mailbox& to, std::uint32_t cell,
                                        std::uint32_t context, std::uint32_t tag, std::span<const std::byte> bytes) {
  self.cell->processor->send_with_key(
      self, call, cell, bytes, index(to.task),
      ContextKey::make(static_cast<std::uint32_t>(to.space), self.cell->id, context, tag));
}

/// Receives from the task's own mailbox what `self.posted` says. When it is done, give_receipt() if the message asks
/// for that; otherwise receive_failed().
[[nodiscard]] APLIB_API Wake receive(TaskControl& self, const char* call) noexcept;
/// Nothing: the machine stops, and the task unwinds already.
APLIB_API std::optional<Arrived> receive_failed(const TaskControl& self, const char* call, const Mailbox& mailbox,
                                                Wake how);
APLIB_API void give_receipt(const TaskControl& self, const Mailbox& mailbox, std::uint64_t key) noexcept;

/// Begins to receive, from the task's own mailbox, what `receive` says.
APLIB_API void post(TaskControl& self, MailboxReceive& receive) noexcept;

}  // namespace aplib::api::inlined
