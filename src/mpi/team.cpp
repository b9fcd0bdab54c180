// SPDX-License-Identifier: MIT
#include "mpi/team.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "aplib/task.hpp"

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

namespace {

/// An agreement of this rank's in which all members take part. Where threads call, there may be several; one at a time
/// *has* the contexts, so that no two choose the same one. Of those that want them it has the lowest number, which all
/// members know it by, so that they do not wait for each other in a circle.
class Agreement {
 public:
  Agreement(Rank& rank, std::uint64_t number) : rank_(rank), number_(number) { rank.agreements.push_back(number); }
  ~Agreement() {
    give_contexts();
    rank_.agreements.erase(std::ranges::find(rank_.agreements, number_));
  }
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;

  [[nodiscard]] bool take_contexts() noexcept {
    has_ = !rank_.agrees && number_ == *std::ranges::min_element(rank_.agreements);
    rank_.agrees = rank_.agrees || has_;
    return has_;
  }
  void give_contexts() noexcept {
    if (has_) rank_.agrees = false;
    has_ = false;
  }

 private:
  Rank& rank_;
  std::uint64_t number_;
  bool has_ = false;
};

}  // namespace

// Who wants the contexts waits for nobody but members that take part already. So where threads call, a first round lets
// all come.
std::uint32_t Team::agree_on_context() const {
  Rank& rank = call_.rank();
  Used used;
  if (rank.thread_level == MPI_THREAD_MULTIPLE) {
    used.be_busy();
    combine(used);
  }
  Agreement agreement(rank, std::uint64_t{channel_.context} << 32 | channel_.tag);
  while (true) {
    if (agreement.take_contexts()) {
      used = {rank.contexts, rank.next_context, 0};
      used.set.add_all(rank.offered);
    } else {
      used.be_busy();
    }
    combine(used);
    if (const auto context = used.set.first_free(used.next)) {
      rank.next_context = *context + 1;
      return *context;
    }
    if (used.is_busy == 0) {
      fail(MPI_ERR_OTHER, fmt::format("a rank has {} communicators, as many as there can be; free some by "
                                      "MPI_Comm_free",
                                      ContextSet::count));
    }
    agreement.give_contexts();
    this_task::yield();  // to the agreement that has them
  }
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
  const auto arrived = receive_bytes(call_, channel.mailbox, {static_cast<std::byte*>(data), bytes}, wish);
  if (arrived && arrived->bytes != bytes) {
    fail(MPI_ERR_OTHER,
         fmt::format("rank {} of MPI_COMM_WORLD sent {} bytes where {} were expected; do all ranks call the same "
                     "function?",
                     index(from), arrived->bytes, bytes));
  }
}

}  // namespace aplib::mpi
