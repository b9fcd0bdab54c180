// SPDX-License-Identifier: MIT
// Collectives: a processor's place in barriers, reductions and broadcasts: where its cells stand in the group of
// all, and which of them wait in any group. What the processors share, and how it works: collective.hpp; the tree:
// fold.hpp.
//
// Invariants: (1) arrived() counts our cells in episode(), and the line shows them once all have arrived; (2) a
// cell is in the list of those that wait exactly while CollectiveWait::active.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cell/cell.hpp"

namespace aplib {

struct Domain;
class Processor;

class Collectives {
 public:
  Collectives(Processor& here, Domain& domain) : here_(here), domain_(domain) {}

  /// Processor::collective().
  static Operand call(TaskControl& self, const CollectiveCall& what, const Operand& value, void* broadcast_buffer);

  /// Cells go on whose collectives are complete.
  void check();
  [[nodiscard]] bool has_waits() const noexcept { return !waits_.empty(); }
  /// `cell` has ended: those that wait for it wait in vain, if it has not been through already.
  void member_ended(std::uint32_t cell, const CellEnd& end);
  /// The machine stops: nobody waits any more.
  void forget_waits() noexcept;

  /// A cell has left, or is about to join the others here.
  void resident_left();
  void resident_joins(Cell& cell);

 private:
  friend struct EpisodeAccess;  // tests: skips to a far episode

  void arrive_all(Cell& cell, const CollectiveCall& what);
  void arrive_line(Group& group, std::uint64_t episode);
  void publish_arrivals();
  void begin_exchange() noexcept;
  void check_all();
  Operand fold_all(std::uint64_t episode, bool& mismatch);
  static void complete(Cell& cell, const Operand& result, bool mismatch) noexcept;
  static std::string describe_mismatch(Domain& domain, const Group& group, std::uint64_t episode);

  Processor& here_;
  Domain& domain_;
  // In the group of all:
  std::uint64_t episode_ = 0;    // the one our cells arrive in
  std::uint32_t arrived_ = 0;    // of our cells, in that episode
  std::uint32_t published_ = 0;  // how many of them the others know
  std::uint32_t signature_ = 0;
  CollectiveCall call_;  // of the first of them to arrive
  bool disagree_ = false;
  // In any group:
  std::uint32_t line_waits_ = 0;  // of waits_: in rows and columns
  std::vector<Cell*> waits_;
};

}  // namespace aplib
