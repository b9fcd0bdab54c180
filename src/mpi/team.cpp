// SPDX-License-Identifier: MIT
#include "mpi/team.hpp"

#include <fmt/format.h>

namespace aplib::mpi {

Team::Team(const Call& call, const Comm& parent, int leader)
    : call_(call),
      group_(*parent.group),
      leader_(static_cast<std::uint32_t>(leader)),
      place_((static_cast<std::uint32_t>(parent.rank()) + group_.size() - leader_) % group_.size()),
      channel_{{mailbox_of(call.rank()).task, api::Space::mpi_collective}, parent.collective_context() | agreeing, 0} {}

Team::Team(const Call& call, const Comm& parent) : Team(call, parent, 0) {
  if (!parent.is_inter()) return;
  other_leader_ = parent.cell_of(0);
  between_ = channel_;
}

Team::Team(const Call& call, const Group& members, std::uint32_t channel, std::uint32_t tag, int leader)
    : call_(call),
      group_(members),
      leader_(static_cast<std::uint32_t>(leader)),
      place_((static_cast<std::uint32_t>(members.own_rank()) + group_.size() - leader_) % group_.size()),
      channel_{mailbox_of(call.rank()), channel, tag} {}

void Team::meet(CellId other, std::uint32_t channel, std::uint32_t tag) {
  other_leader_ = other;
  between_ = Channel{mailbox_of(call_.rank()), channel, tag};
}

std::uint32_t Team::agree_on_context() const {
  struct Used {
    ContextSet set;
    std::uint32_t next = 0;  // where the search begins

    void add(const Used& other) noexcept {
      set.add_all(other.set);
      next = std::max(next, other.next);
    }
  };
  Rank& rank = call_.rank();
  const std::uint32_t size = group_.size();
  Used used{rank.contexts, rank.next_context};
  used.set.add_all(rank.offered);
  Used others;
  for (std::uint32_t step = 1; step < size; step *= 2) {
    if ((place_ & step) != 0) {
      send(cell(place_ - step), channel_, &used, sizeof used);
      break;
    }
    if (place_ + step >= size) continue;
    receive(cell(place_ + step), channel_, &others, sizeof others);
    used.add(others);
  }
  if (is_leader() && between_) {
    send(other_leader_, *between_, &used, sizeof used);
    receive(other_leader_, *between_, &others, sizeof others);
    used.add(others);
  }
  broadcast(&used, sizeof used);
  const auto context = used.set.first_free(used.next);
  if (!context) {
    fail(MPI_ERR_OTHER, fmt::format("a rank has {} communicators, as many as there can be; free some by MPI_Comm_free",
                                    ContextSet::count));
  }
  rank.next_context = *context + 1;
  return *context;
}

void Team::broadcast(void* data, std::size_t bytes) const {
  const std::uint32_t size = group_.size();
  std::uint32_t step = 1;
  while (step < size && (place_ & step) == 0) step *= 2;
  if (place_ != 0) receive(cell(place_ - step), channel_, data, bytes);
  for (step /= 2; step != 0; step /= 2) {
    if (place_ + step < size) send(cell(place_ + step), channel_, data, bytes);
  }
}

void Team::send(CellId to, const Channel& channel, const void* data, std::size_t bytes) const {
  api::send(call_.name(), channel.mailbox, {to, channel.context, channel.tag},
            {static_cast<const std::byte*>(data), bytes});
}

void Team::receive(CellId from, const Channel& channel, void* data, std::size_t bytes) const {
  const api::LabelWish wish{from, channel.context, channel.tag};
  const auto arrived = api::receive(call_.name(), channel.mailbox, {static_cast<std::byte*>(data), bytes}, wish);
  if (arrived && arrived->bytes != bytes) {
    fail(MPI_ERR_OTHER,
         fmt::format("rank {} of MPI_COMM_WORLD sent {} bytes where {} were expected; do all ranks call the same "
                     "function?",
                     index(from), arrived->bytes, bytes));
  }
}

}  // namespace aplib::mpi
