// SPDX-License-Identifier: MIT
// Mover: moves a cell from one processor to another. No message is lost, and messages keep their order.
//
// A busy processor P that holds several runnable cells gives one, C, to an idle processor Q. At most one cell of a
// machine moves at a time.
//
//   1. P, at a switch point, takes C's ready tasks and timers out of its queues, sets its route of C to Q, and sends
//      cell_moved(C, Q) to everybody, Q first. From here on it forwards to Q every message to C that still reaches it.
//   2. Every other processor X that reads cell_moved sets its route of C to Q and answers P with fence(C). What X has
//      sent to C before lies before the fence in the ring X -> P. What it sends from now on goes to Q.
//   3. P that reads a fence of X passes it on to Q, behind all it has forwarded.
//   4. Q runs C at once. It leaves messages to C from X in their ring until it has read cell_moved and X's fence
//      has come by way of P. When all fences have come, the move is over.
//
// Messages *from* C: what C has sent from P to Y lies before cell_moved in the ring P -> Y. So Y leaves messages of C
// that come from Q in their ring until it has read cell_moved from P, that is, until its route of C is Q.
//
// No ring that is held back waits for another one that is. P -> anyone is never held back: P's own route to C is right
// at once, and forwarded messages are marked. All others wait only for a message that comes from P, or for P to pass
// one on.
//
// MoveProtocol is the part that decides, apart from rings and tasks, so that tests run it under every order of events.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cell/cell.hpp"

namespace aplib {

struct Domain;
class Processor;

/// One processor's part in the protocol. `push(processor, kind, cell, argument)` sends a control message, behind all
/// that has been sent to that processor.
class MoveProtocol {
 public:
  static constexpr std::uint32_t none = ~0U;
  enum class Kind : std::uint8_t { cell_moved, fence };

  void prepare(std::uint32_t self, std::uint32_t processors) {
    self_ = self;
    fenced_.assign(processors, 0);
  }

  /// A cell of ours is leaving or arriving, so every message needs a closer look.
  [[nodiscard]] bool active() const noexcept { return leaving_ != none || arriving_ != none; }
  [[nodiscard]] std::uint32_t leaving() const noexcept { return leaving_; }
  [[nodiscard]] std::uint32_t arriving() const noexcept { return arriving_; }
  [[nodiscard]] bool has_fence_of(std::uint32_t processor) const noexcept { return fenced_[processor] != 0; }

  /// P: gives `cell` to `to`. REQUIRES: its route is changed.
  template <class Push>
  void leave(std::uint32_t cell, std::uint32_t to, const Push& push) {
    leaving_ = cell;
    peer_ = to;
    missing_ = count() - 1;
    push(to, Kind::cell_moved, cell, to);
    for (std::uint32_t p = 0; p < count(); ++p) {
      if (p != self_ && p != to) push(p, Kind::cell_moved, cell, to);
    }
  }

  /// X and Q: cell_moved has come from `from`. REQUIRES: our route is changed, and Q has taken the cell over.
  template <class Push>
  void moved(std::uint32_t from, std::uint32_t cell, std::uint32_t to, const Push& push) {
    if (to == self_) {
      arriving_ = cell;
      peer_ = from;
      missing_ = count() - 1;
      std::fill(fenced_.begin(), fenced_.end(), std::uint8_t{0});
      fenced_[from] = 1;  // what P itself had for C is in C's mailboxes, or forwarded
    }
    push(from, Kind::fence, cell, self_);
  }

  /// At P: `of` has sent its last message for the leaving cell. At Q: all of them have come. True: this was the last
  /// fence, and the cell has arrived here.
  template <class Push>
  bool fence(std::uint32_t of, const Push& push) {
    --missing_;
    if (leaving_ != none) {
      const std::uint32_t cell = leaving_;
      if (missing_ == 0) leaving_ = none;
      push(peer_, Kind::fence, cell, of);
      return false;
    }
    fenced_[of] = 1;
    return missing_ == 0;
  }
  /// Q, after fence() said true: what waited for this has been delivered.
  void arrived() noexcept { arriving_ = none; }

  enum class Admission : std::uint8_t {
    deliver,
    hold,     ///< It stays in its ring for now.
    forward,  ///< To the processor that carries the cell now: peer().
  };
  [[nodiscard]] std::uint32_t peer() const noexcept { return peer_; }

  /// What to do with a message to `cell` in the ring of processor `from`. `route`: our route of `cell`; `in_order`: all
  /// that its sender has sent from elsewhere is here.
  [[nodiscard]] Admission admit(std::uint32_t from, std::uint32_t cell, std::uint32_t route,
                                bool in_order) const noexcept {
    if (!in_order) return Admission::hold;
    if (cell == leaving_) return Admission::forward;
    if (cell == arriving_ && fenced_[from] == 0) return Admission::hold;
    // The cell's last processor has told the sender and us of the move, but we have not read that yet.
    return route == self_ ? Admission::deliver : Admission::hold;
  }
  /// Messages of a cell that has moved wait until we know of the move. Then all it sent from its old place is here.
  [[nodiscard]] static bool in_order(std::uint32_t from, std::uint32_t route_of_sender, bool forwarded) noexcept {
    return route_of_sender == from || forwarded;
  }
  /// Whether to take the end of a cell from the ring of `from`. What `from` had for a cell that is arriving may still
  /// be on its way by the cell's old place, and comes first.
  [[nodiscard]] bool admit_end(std::uint32_t from, std::uint32_t route_of_cell) const noexcept {
    return route_of_cell == from && (arriving_ == none || fenced_[from] != 0);
  }

 private:
  [[nodiscard]] std::uint32_t count() const noexcept { return static_cast<std::uint32_t>(fenced_.size()); }

  std::uint32_t leaving_ = none;
  std::uint32_t arriving_ = none;
  std::uint32_t peer_ = 0;     // where it goes, where it comes from
  std::uint32_t missing_ = 0;  // fences
  std::uint32_t self_ = 0;
  std::vector<std::uint8_t> fenced_;  // by processor
};

/// Chooses cells to give away, and carries the protocol out.
class Mover {
 public:
  Mover(Processor& here, Domain& domain) : here_(here), domain_(domain) {}

  void prepare();
  [[nodiscard]] const MoveProtocol& protocol() const noexcept { return protocol_; }
  [[nodiscard]] bool active() const noexcept { return protocol_.active(); }
  [[nodiscard]] bool is_arriving(const Cell& cell) const noexcept { return cell.id == protocol_.arriving(); }

  /// Perhaps gives a cell away. For a switch point of `self`, when other processors are idle.
  void offer_cells(TaskControl& self) noexcept;
  /// Gives a cell of ours away. False: it stays, because another cell moves, or a sender is filling one of its buffers.
  bool hand_over(Cell& cell, std::uint32_t to);
  void cell_moved(std::uint32_t from, std::uint32_t cell, std::uint32_t to);
  void fence(std::uint32_t of);
  /// Puts the end of a cell of ours off while another arrives, because what the ended one has sent to it waits, too.
  /// False: none arrives.
  bool postpone_end(std::uint32_t cell);

 private:
  void rebase(Cell& cell, const Processor& from) noexcept;
  void end_move();

  Processor& here_;
  Domain& domain_;
  MoveProtocol protocol_;
  std::vector<std::uint32_t> ended_meanwhile_;  // by postpone_end()
  Clock::time_point last_offer_{};
};

}  // namespace aplib
