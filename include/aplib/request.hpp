// SPDX-License-Identifier: MIT
// Requests: receives and sends that a task begins now and completes later, so that it can compute meanwhile, or wait
// for many at once.
//
//   aplib::Request requests[] = {aplib::receive_later(west_edge, {.cell = west, .type = 1}),
//                                aplib::receive_later(east_edge, {.cell = east, .type = 1})};
//   aplib::send(west, my_west_edge, {.type = 1});
//   aplib::send(east, my_east_edge, {.type = 1});
//   compute_inner();
//   aplib::wait_all(requests);
//   compute_edges();
// Order: a message belongs to the oldest open receive of its task that accepts it; blocking receives count, too. A
// message that has come before goes to the first receive that asks for it.
// A request belongs to the task that began it. When that task ends, its open receives are closed: they get no message.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "aplib/export.hpp"
#include "aplib/ids.hpp"
#include "aplib/message.hpp"

namespace aplib {

struct Posted;  // of the core

/// A receive or send that has begun. It is open until wait(), test(), wait_all(), wait_any() or cancel() has said how
/// it went; then it is over, and so is a default-made one. Movable, not copyable. Destroying an open one cancels it: a
/// receive whose message has not come gets none, and one whose message has come loses it. A send goes on, with a copy.
/// Nothing reads or writes the memory of a request that is gone.
/// REQUIRES: used, and destroyed while open, on the cell that began it; not moved or destroyed while a task waits for
/// it. It may outlive its task and its machine.
class APLIB_API Request {
 public:
  Request() noexcept = default;
  Request(Request&& other) noexcept
      : posted_(std::exchange(other.posted_, nullptr)),
        complete_(std::exchange(other.complete_, false)),
        envelope_(other.envelope_) {}
  Request& operator=(Request&& other) noexcept {
    if (this == &other) return *this;
    if (posted_ != nullptr) drop();
    posted_ = std::exchange(other.posted_, nullptr);
    complete_ = std::exchange(other.complete_, false);
    envelope_ = other.envelope_;
    return *this;
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request() {
    if (posted_ != nullptr) drop();
  }

  /// Not over.
  [[nodiscard]] bool open() const noexcept { return posted_ != nullptr || complete_; }

  /// Waits until it is complete. Then it is over; returns envelope(). One that is over is not waited for.
  /// REQUIRES: called from a task of its cell, otherwise it throws Error(bad_argument). Throws Error(ended) when the
  /// receive names a cell that has ended and left no such message, Error(mismatch) when the message was longer than
  /// the buffer, which has its beginning, and Error(failed) when the task that began it has ended. The request is over
  /// then. Switches tasks: yes. Source: MPI_Wait.
  Envelope wait();

  /// Whether it is complete; then it is over. Does not wait. REQUIRES and throws: as wait(). Switches tasks: after a
  /// few misses in a row, so that a polling loop does not starve others. Source: MPI_Test.
  [[nodiscard]] bool test();

  /// Takes a receive back whose message has not come. True: it is over, has received nothing and written nothing.
  /// False: it is complete, and wait() says with what; or it was over before. A send is not taken back, but complete
  /// then. REQUIRES: as wait(), and that no task waits for it. Switches tasks: no. Source: MPI_Cancel.
  bool cancel();

  /// When it is over: what it has received, or sent. REQUIRES: it has not been cancelled, and wait() has not thrown.
  [[nodiscard]] const Envelope& envelope() const noexcept { return envelope_; }

 private:
  friend struct RequestAccess;
  void drop() noexcept;

  Posted* posted_ = nullptr;  // in a pooled buffer
  bool complete_ = false;     // and nobody has been told: a send
  Envelope envelope_;
};

/// Begins to receive the next message that matches into `buffer`. The buffer must stay, and is not read or written by
/// others, until the request is over or gone. Many may be open. If a task waits for the oldest one, a sender copies
/// straight into its buffer. REQUIRES: called from a task; `buffer` and `from` as for posted_into(). Throws
/// Error(bad_argument) otherwise, and Error(exhausted) without memory. Switches tasks: no. Source: MPI_Irecv.
[[nodiscard]] APLIB_API Request receive_later(std::span<std::byte> buffer, From from = {});

/// The same for the elements of a span, vector or array of trivially copyable values.
template <class Range>
  requires(detail::WritableElements<Range> && !std::is_convertible_v<Range&, std::span<std::byte>>)
[[nodiscard]] Request receive_later(Range&& buffer, From from = {}) {
  return receive_later(detail::bytes_of(buffer), from);
}

/// Begins to send `bytes`, which must stay as they are until the request is over or gone. Order, errors and task
/// switches as send(). A large message to another cell of this process is not copied before it is received, and its
/// request is complete then; others are complete at once. Source: MPI_Isend.
[[nodiscard]] APLIB_API Request send_later(CellId cell, std::span<const std::byte> bytes, To to = {});

/// The same for the elements of a span, vector or array of trivially copyable values.
template <class Range>
  requires(detail::Elements<const Range> && !detail::Bytes<Range>)
[[nodiscard]] Request send_later(CellId cell, const Range& values, To to = {}) {
  return send_later(cell, std::as_bytes(std::span(std::ranges::data(values), std::ranges::size(values))), to);
}

/// Waits until all requests are over, with one wait for all. If some of them fail, the error of the first is thrown
/// when all are over. REQUIRES, throws and switches: as Request::wait(). Source: MPI_Waitall.
APLIB_API void wait_all(std::span<Request> requests);

/// Waits until one of those that are open is complete, and returns its place; it is over then. Nothing: none is open.
/// REQUIRES, throws and switches: as Request::wait(). Source: MPI_Waitany.
[[nodiscard]] APLIB_API std::optional<std::size_t> wait_any(std::span<Request> requests);

}  // namespace aplib
