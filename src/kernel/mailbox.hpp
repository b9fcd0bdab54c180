// SPDX-License-Identifier: MIT
// The kernel's API for MPI: messages to a cell, whichever of its tasks receives them, with keys of a context and a tag
// (ContextKey in cell/matching.hpp). They wait in the mailbox of one task of the cell, the same in all cells of a
// program: the one that begins it. Other tasks of the cell may receive from it, until that task ends.
//
// `call`: as in api.hpp. Call from: task.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "cell/inbound.hpp"
#include "cell/lease.hpp"
#include "kernel/api.hpp"

namespace aplib::api {

/// Whose messages, and which of them.
struct Label {
  static constexpr std::uint32_t context_max = ContextKey::context_max;
  /// Added to the context of a message: whoever receives it, or posts a receive for it, gives the sender a receipt, as
  /// soon as it is matched: an empty message to the same task's mailbox in Space::mpi_receipt, with the same context
  /// and tag. Receives match messages with and without.
  static constexpr std::uint32_t asks_for_receipt = ContextKey::receipt_flag;
  static constexpr std::uint32_t tag_max = ContextKey::tag_max;

  CellId cell{0};
  std::uint32_t context = 0;
  std::uint32_t tag = 0;
};

/// What a receive accepts.
struct LabelWish {
  CellId cell = any_cell;
  std::uint32_t context = 0;
  std::optional<std::uint32_t> tag;  ///< Nothing: any.
};

/// What has come.
struct Arrived {
  Label label;            ///< The cell: of the sender.
  std::size_t bytes = 0;  ///< Of the message: a shorter buffer has its beginning.

  [[nodiscard]] bool asks_for_receipt() const noexcept { return (label.context & Label::asks_for_receipt) != 0; }
};
inline Arrived arrived_as(std::uint64_t key, std::size_t bytes) noexcept {
  constexpr std::uint32_t context_mask = Label::context_max | Label::asks_for_receipt;
  return {{CellId{MatchKey::cell(key)}, static_cast<std::uint32_t>(key >> ContextKey::context_shift) & context_mask,
           ContextKey::tag(key)},
          bytes};
}

/// Messages to the cells' tasks with this number.
struct Mailbox {
  TaskId task{0};
  Space space = Space::mpi;
};

/// A receive that is waited for later. The front end keeps it, in one place, until it is over.
struct MailboxReceive : Posted {
  MailboxReceive() noexcept { gives_receipt = true; }
  [[nodiscard]] bool over() const noexcept { return !open; }
  /// When it is over: it has received something. Otherwise it was cancelled, the cell that it names has ended
  /// (Wake::ended), or the mailbox's task has (Wake::stopping).
  [[nodiscard]] bool has_received() const noexcept { return !cancelled && how == Wake::done; }
  [[nodiscard]] Arrived arrived() const noexcept { return arrived_as(key, bytes); }

  bool cancelled = false;
};

/// As send(), but it never fails because receivers are slow: at unread-limit and send-limit it waits while they take
/// messages, and goes on some ms after they have ceased to. In Space::mpi_collective it does not wait at all. REQUIRES:
/// the cell exists, the label is in range; otherwise it throws Error(bad_argument).
APLIB_API void send(const char* call, const Mailbox& to, const Label& label, std::span<const std::byte> bytes);

/// Messages of this process's cells may be MPI's from here on: where nobody receives them for long, more is let in from
/// other processes, and the run does not fail.
APLIB_API void let_limits_yield(const char* call);

/// Sends a message without copying it: `sent` is open until the receiver has copied `from`, which stays as it is so
/// long. cancel() ends that at once: then the message is buffered. Ends with the task, too. False: nothing is sent;
/// use send(). REQUIRES and throws: as send().
[[nodiscard]] APLIB_API bool lend(const char* call, const Mailbox& to, const Label& label, const Side& from,
                                  std::size_t bytes, MailboxReceive& sent);

/// More waits in this process to be received than unread-limit: what can be lent should be.
[[nodiscard]] APLIB_API bool is_full() noexcept;

/// Begins to receive into `buffer`. REQUIRES: the calling cell has the mailbox's task; the wish is in range. Throws
/// Error(bad_argument) otherwise.
APLIB_API void post(const char* call, const Mailbox& mailbox, MailboxReceive& receive, std::span<std::byte> buffer,
                    const LabelWish& wish);
/// The same for `bytes` bytes of a form. A message that was lent goes there; any other is `apart`, and the caller's to
/// copy.
APLIB_API void post(const char* call, const Mailbox& mailbox, MailboxReceive& receive, const Form& form,
                    std::size_t bytes, Message& apart, const LabelWish& wish);
/// Waits for one that is over, or for all. False: the machine stops, and the task unwinds already.
[[nodiscard]] APLIB_API bool wait(const char* call, const RequestSet& set, bool all);
/// The same without waiting. Lets others run after a few misses.
[[nodiscard]] APLIB_API bool test(const char* call, const RequestSet& set, bool all);
/// Takes an open receive back. REQUIRES: no task waits for it. False: it was over, or is so now, because it is a send.
APLIB_API bool cancel(MailboxReceive& receive) noexcept;

/// Waits for a message. For the mailbox's own task this is as fast as receive_into(). Throws Error(ended) when the cell
/// that the wish names has ended and left no such message. Nothing: the machine stops, and the task unwinds already.
[[nodiscard]] APLIB_API std::optional<Arrived> receive(const char* call, const Mailbox& mailbox,
                                                       std::span<std::byte> buffer, const LabelWish& wish);

/// The same as post() with a form.
[[nodiscard]] APLIB_API std::optional<Arrived> receive(const char* call, const Mailbox& mailbox, const Form& form,
                                                       std::size_t bytes, Message& apart, const LabelWish& wish);

/// The message that a receive with this wish would get. Does not wait; lets others run after a few misses.
[[nodiscard]] APLIB_API std::optional<Arrived> probe(const char* call, const Mailbox& mailbox, const LabelWish& wish);
/// The same, but waits for such a message. Throws and returns nothing as receive().
[[nodiscard]] APLIB_API std::optional<Arrived> await(const char* call, const Mailbox& mailbox, const LabelWish& wish);
/// Takes the message that probe() tells of out of the mailbox, for its caller alone. It gives no receipt:
[[nodiscard]] APLIB_API std::optional<Arrived> take(const char* call, const Mailbox& mailbox, Message& into,
                                                    const LabelWish& wish);
/// that is for the caller to do, when it counts as received.
APLIB_API void give_receipt(const char* call, const Mailbox& mailbox, const Arrived& arrived);

struct Failed {
  std::uint32_t cell;
  int status;
  /// "cell 2 failed first, with status 3"
  [[nodiscard]] APLIB_API std::string text() const;
};
/// The cell that was the first to end with another status than 0, as far as is known here a moment later: a wait for
/// what another one has not sent is in vain because of it.
[[nodiscard]] APLIB_API std::optional<Failed> failed_cell(const char* call);

}  // namespace aplib::api
