// SPDX-License-Identifier: MIT
// Team: the ranks that make a communicator together, and agree on its context and on who belongs to it. Their messages
// have a channel that nothing else uses, and go along binomial trees. Where two groups make an intercommunicator, the
// first rank of each, its leader, exchanges what its group has with the other one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "mpi/request.hpp"

namespace aplib::mpi {

class Team {
 public:
  /// All members of the parent; of an intercommunicator those of both groups.
  Team(const Call& call, const Comm& parent);
  /// The members of a group, who do this at the same time as others something else. `channel`: a context in the space
  /// of messages from rank to rank. `leader`: a rank of the group.
  Team(const Call& call, const Group& members, std::uint32_t channel, std::uint32_t tag, int leader = 0);
  /// The members of an intracommunicator.
  Team(const Call& call, const Comm& parent, int leader);

  /// At the leader: the leader of the other group, and a channel for the two.
  void meet(CellId other, std::uint32_t channel, std::uint32_t tag);
  [[nodiscard]] bool is_leader() const noexcept { return place_ == 0; }

  /// A context that no member uses, of both groups. It is not the rank's yet.
  [[nodiscard]] std::uint32_t agree_on_context() const;
  /// Adds what all members of both groups have, by `T::add`.
  template <class T>
  void combine(T& own) const;
  /// The leader's value, at all members of its group.
  template <class T>
  [[nodiscard]] T hear(T own) const {
    broadcast(&own, sizeof own);
    return own;
  }
  /// What each member of the group has, by rank. REQUIRES: the leader has rank 0.
  template <class T>
  [[nodiscard]] std::vector<T> gather(const T& own) const;
  /// What the other group has. All members of a group give the same.
  template <class T>
  [[nodiscard]] std::vector<T> exchange(const std::vector<T>& own) const;

 private:
  /// Where messages go and come from.
  struct Channel {
    api::Mailbox mailbox;
    std::uint32_t context;
    std::uint32_t tag;
  };

  /// Contexts that cannot be chosen.
  struct Used {
    ContextSet set;
    std::uint32_t next = 0;     ///< Where the search begins.
    std::uint32_t is_busy = 0;  ///< Perhaps only because another agreement has them.

    void add(const Used& other) noexcept {
      set.add_all(other.set);
      next = std::max(next, other.next);
      is_busy |= other.is_busy;
    }
    void be_busy() noexcept {
      set.words.fill(~std::uint64_t{0});
      is_busy = 1;
    }
  };

  // By place in the tree, which is the rank behind the leader's.
  [[nodiscard]] CellId cell(std::uint32_t place) const noexcept {
    return CellId{group_.cell((place + leader_) % group_.size())};
  }
  void broadcast(void* data, std::size_t bytes) const;
  void send(CellId to, const Channel& channel, const void* data, std::size_t bytes) const;
  void receive(CellId from, const Channel& channel, void* data, std::size_t bytes) const;

  const Call& call_;
  const Group& group_;
  std::uint32_t leader_;
  std::uint32_t place_;
  Channel channel_;
  CellId other_leader_{0};  // at the leader
  std::optional<Channel> between_;
};

template <class T>
void Team::combine(T& own) const {
  const std::uint32_t size = group_.size();
  T others;
  for (std::uint32_t step = 1; step < size; step *= 2) {
    if ((place_ & step) != 0) {
      send(cell(place_ - step), channel_, &own, sizeof own);
      break;
    }
    if (place_ + step >= size) continue;
    receive(cell(place_ + step), channel_, &others, sizeof others);
    own.add(others);
  }
  if (is_leader() && between_) {
    send(other_leader_, *between_, &own, sizeof own);
    receive(other_leader_, *between_, &others, sizeof others);
    own.add(others);
  }
  broadcast(&own, sizeof own);
}

template <class T>
std::vector<T> Team::gather(const T& own) const {
  const std::uint32_t size = group_.size();
  std::vector<T> all(size);
  all[place_] = own;
  for (std::uint32_t step = 1; step < size; step *= 2) {
    if ((place_ & step) != 0) {
      send(cell(place_ - step), channel_, &all[place_], sizeof(T) * std::min(step, size - place_));
      break;
    }
    const std::uint32_t from = place_ + step;
    if (from < size) receive(cell(from), channel_, &all[from], sizeof(T) * std::min(step, size - from));
  }
  broadcast(all.data(), sizeof(T) * size);
  return all;
}

template <class T>
std::vector<T> Team::exchange(const std::vector<T>& own) const {
  auto count = static_cast<std::uint32_t>(own.size());
  if (is_leader()) {
    send(other_leader_, *between_, &count, sizeof count);
    send(other_leader_, *between_, own.data(), sizeof(T) * own.size());
    receive(other_leader_, *between_, &count, sizeof count);
  }
  std::vector<T> others(hear(count));
  if (is_leader()) receive(other_leader_, *between_, others.data(), sizeof(T) * others.size());
  broadcast(others.data(), sizeof(T) * others.size());
  return others;
}

}  // namespace aplib::mpi
