// SPDX-License-Identifier: MIT
// What the kernel's API for MPI (mailbox.hpp) does for every message, inlined.
// The caller knows its task.
#pragma once

#include "cell/processor.hpp"
#include "kernel/mailbox.hpp"

namespace aplib::api {

namespace detail {
[[noreturn]] APLIB_API void refuse_label(const TaskControl& self, const char* call, std::uint32_t context,
                                         std::uint32_t tag);
[[noreturn]] APLIB_API void refuse_cell(const TaskControl& self, const char* call, std::uint32_t cell);
/// Receives what `self.posted` says.
[[nodiscard]] APLIB_API Wake receive(TaskControl& self, const char* call) noexcept;
/// Nothing: the machine stops, and the task unwinds already.
APLIB_API std::optional<Arrived> receive_failed(const TaskControl& self, const char* call, const Mailbox& mailbox,
                                                const MatchWish& wish, Wake how);
APLIB_API void give_receipt(const TaskControl& self, const Mailbox& mailbox, std::uint64_t key) noexcept;
}  // namespace detail

inline Arrived arrived_as(std::uint64_t key, std::size_t bytes) noexcept {
  constexpr std::uint32_t context_mask = ContextKey::context_max | ContextKey::receipt_flag;
  return {{CellId{MatchKey::cell(key)}, static_cast<std::uint32_t>(key >> ContextKey::context_shift) & context_mask,
           ContextKey::tag(key)},
          bytes};
}

[[gnu::always_inline]] inline MatchWish wish_for(const TaskControl& self, const char* call, const Mailbox& mailbox,
                                                 const LabelWish& wish) {
  const std::uint32_t tag = wish.tag.value_or(0);
  if (wish.context > Label::context_max || tag > Label::tag_max) [[unlikely]]
    detail::refuse_label(self, call, wish.context, tag);
  std::uint64_t mask = MatchKey::space_mask | ContextKey::context_mask;
  std::uint32_t cell = 0;
  if (wish.cell != any_cell) {
    cell = index(wish.cell);
    mask |= MatchKey::cell_mask;
    if (cell >= self.cell->processor->domain().cell_count) [[unlikely]]
      detail::refuse_cell(self, call, cell);
  }
  if (wish.tag) mask |= ContextKey::tag_mask;
  return {ContextKey::make(static_cast<std::uint32_t>(mailbox.space), cell, wish.context, tag), mask};
}

/// send().
[[gnu::always_inline]] inline void send(TaskControl& self, const char* call, const Mailbox& to, const Label& label,
                                        std::span<const std::byte> bytes) {
  if (label.context > (Label::context_max | Label::asks_for_receipt) || label.tag > Label::tag_max) [[unlikely]]
    detail::refuse_label(self, call, label.context, label.tag);
  const std::uint64_t key =
      ContextKey::make(static_cast<std::uint32_t>(to.space), self.cell->id, label.context, label.tag);
  self.cell->processor->send_with_key(self, call, index(label.cell), bytes, index(to.task), key);
}

/// receive() from the task's own mailbox, of a wish that wish_for() has made.
[[gnu::always_inline]] inline std::optional<Arrived> receive_own(TaskControl& self, const char* call,
                                                                 const Mailbox& mailbox, std::span<std::byte> buffer,
                                                                 const MatchWish& wish) {
  Posted& posted = self.posted;
  posted.wish = wish;
  posted.message = nullptr;
  posted.buffer = reinterpret_cast<char*>(buffer.data());
  posted.capacity = buffer.size();
  const Wake how = detail::receive(self, call);
  if (how != Wake::done) [[unlikely]]
    return detail::receive_failed(self, call, mailbox, posted.wish, how);
  if (ContextKey::asks_for_receipt(posted.key)) [[unlikely]]
    detail::give_receipt(self, mailbox, posted.key);
  return arrived_as(posted.key, posted.bytes);
}

}  // namespace aplib::api
