// SPDX-License-Identifier: MIT
// Collectives: a processor's part in barriers, reductions and broadcasts. It knows where its cells stand in the group
// of all, and which of them wait in any group. Exchange: the part of a collective between processes. collective.hpp
// says what the processors share and how collectives work; fold.hpp has the tree.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cell/cell.hpp"
#include "cell/collective.hpp"

namespace aplib {

struct Domain;
class Processor;

/// Invariants: (1) arrived_ counts our cells in episode_, and the line shows them once all have arrived; (2) a cell is
/// in the list of those that wait exactly while CollectiveWait::active.
class Collectives {
 public:
  Collectives(Processor& here, Domain& domain) : here_(here), domain_(domain) {}

  /// Processor::collective().
  static Operand call(TaskControl& self, const CollectiveCall& what, const Operand& value, void* broadcast_buffer);

  /// Cells go on whose collectives are complete.
  void check();
  [[nodiscard]] bool has_waits() const noexcept { return !waits_.empty(); }
  /// `cell` has ended. Cells that wait for it wait in vain, unless it has been through the collective.
  void member_ended(std::uint32_t cell, const CellEnd& end);
  /// The machine stops: cells no longer wait.
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

/// The part of a collective between processes. The members of each process first combine along the fixed tree
/// (fold.hpp). The pieces of that tree then spread by dissemination: in step k, process i of n sends all it knows to
/// process i - 2^k and hears from process i + 2^k (modulo n). After ceil(log2 n) steps, of one message per process
/// each, all know everything. All fold the same pieces in the same order, and get the same bits.
///
/// Frames also carry what was called, so that cells which disagree are found; the bytes of a broadcast, once the sender
/// knows them (then the same steps are a binomial tree); and status words, so that what a cell posts before a barrier
/// is seen after it.
///
/// Invariants: (1) a process enters episode e+1 only when e is complete with it, and nobody completes e+1 without
/// it, so frames that come are of the episode under way or the next one; (2) the mutex guards the fields of an episode;
/// result, mismatch and payload are read without it after Group::done says so (release, acquire), until the readers
/// enter e+2.
class Exchange {
 public:
  /// `processes`: those with members, ascending; `place`: ours among them. `index`: which row or column.
  Exchange(Domain& domain, Group& group, std::uint32_t index, std::vector<std::uint32_t> processes,
           std::uint32_t place);

  /// All members of this process have arrived in `episode`. `parts`: their pieces of the tree, by member. `call`: what
  /// the first of them, `caller`, asked for. `disagree`: others asked for something else. `payload`: the bytes of a
  /// broadcast, where this process has the root; they stay until the collective is complete here. Only the first call
  /// for an episode does something. Any carrier.
  void begin(std::uint64_t episode, const CollectiveCall& call, std::uint32_t caller, bool disagree,
             std::span<const Fold::Part> parts, std::span<const std::byte> payload);

  /// Takes a frame for this group. Throws Error(failed) for an invalid one. Any thread.
  void receive(std::span<const std::byte> frame);

  /// The bytes of a broadcast from another process.
  [[nodiscard]] std::span<const std::byte> payload(std::uint64_t episode) const noexcept {
    return episodes_[episode & 1U].payload;
  }
  /// A text that says who disagrees with whom.
  [[nodiscard]] const std::string& mismatch(std::uint64_t episode) const noexcept {
    return episodes_[episode & 1U].mismatch;
  }
  /// The group of a frame: scope, and number of the row or column. An invalid frame may give anything, so check the
  /// result against the domain.
  static std::pair<Scope, std::uint32_t> group_of(std::span<const std::byte> frame) noexcept;

 private:
  friend struct ExchangeAccess;  // tests: the form of frames

  static constexpr std::uint32_t steps_max = 16;
  static constexpr std::uint32_t call_text_max = 24;

  struct Head {
    std::uint32_t scope;
    std::uint32_t index;
    std::uint64_t episode;
    std::uint16_t step;
    std::uint16_t parts;
    std::uint16_t statuses;
    std::uint8_t has_payload;
    std::uint8_t disagree;
    std::uint32_t signature;
    std::uint32_t caller;
    std::uint8_t kind;
    std::uint8_t op;
    std::uint8_t type;
    std::uint8_t located;
    std::uint32_t root;
    std::uint64_t bytes;
    char call[call_text_max];
  };
  struct WirePart {
    std::uint64_t bits;
    std::uint32_t first;
    std::uint32_t level;
    std::int32_t location;
    std::uint32_t place;
  };
  /// A piece, and whose it is.
  struct PlacedPart {
    Fold::Part part;
    std::uint32_t place;
  };
  struct Status {
    std::uint64_t status;
    std::uint32_t process;
    std::uint32_t unused;
  };

  struct Episode {
    std::uint64_t number = 0;
    bool begun = false;
    std::uint32_t step = 0;
    std::uint32_t sent = 0;  ///< Steps sent.
    CollectiveCall call;
    char call_text[call_text_max] = {};
    std::uint32_t caller = 0;
    bool disagree = false;
    std::vector<PlacedPart> parts;
    std::vector<Status> statuses;
    std::vector<std::byte> payload;
    std::span<const std::byte> own_payload;
    bool has_payload = false;
    std::string mismatch;
    std::array<std::vector<std::byte>, steps_max> early;  ///< Frames that wait for their step.
  };

  [[nodiscard]] std::uint32_t place_of(std::uint32_t process) const;
  void advance(Episode& episode);
  void send_step(Episode& episode);
  void check(const Head& head, std::span<const std::byte> rest) const;
  void merge(Episode& episode, std::span<const std::byte> frame);
  void complete(Episode& episode);

  Domain& domain_;
  Group& group_;
  const std::uint32_t index_;
  const std::vector<std::uint32_t> processes_;
  const std::uint32_t place_;
  std::mutex mutex_;
  Episode episodes_[2];
  std::vector<std::byte> frame_;  // room to build one in
};

}  // namespace aplib
