// SPDX-License-Identifier: MIT
// How communicators come to be: their members agree on a context, and on who belongs to which.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "mpi/info.hpp"
#include "mpi/request.hpp"

namespace aplib::mpi {

namespace {

/// Those who agree, and a channel that nothing else uses. Their messages go along binomial trees.
class Team {
 public:
  Team(const Call& call, const Comm& parent)
      : call_(call),
        group_(*parent.group),
        rank_(static_cast<std::uint32_t>(parent.rank())),
        context_(parent.collective_context() | agreeing),
        mailbox_{mailbox_of(call.rank()).task, api::Space::mpi_collective} {}
  /// Members of a part of the parent, who do this at the same time as others something else.
  Team(const Call& call, const Comm& parent, const Group& members, std::uint32_t tag)
      : call_(call),
        group_(members),
        rank_(static_cast<std::uint32_t>(members.own_rank())),
        context_(parent.context() | creating),
        tag_(tag),
        mailbox_(mailbox_of(call.rank())) {}

  /// The union of all sets, and the highest number.
  struct Used {
    ContextSet set;
    std::uint32_t next = 0;
  };
  void unite(Used& used) const {
    const std::uint32_t size = group_.size();
    for (std::uint32_t step = 1; step < size; step *= 2) {
      if ((rank_ & step) != 0) {
        send(rank_ - step, &used, sizeof used);
        break;
      }
      if (rank_ + step >= size) continue;
      Used other;
      receive(rank_ + step, &other, sizeof other);
      used.set.add_all(other.set);
      used.next = std::max(used.next, other.next);
    }
    broadcast(&used, sizeof used);
  }

  /// What each has, by rank.
  template <class T>
  std::vector<T> gather(const T& own) const {
    const std::uint32_t size = group_.size();
    std::vector<T> all(size);
    all[rank_] = own;
    for (std::uint32_t step = 1; step < size; step *= 2) {
      if ((rank_ & step) != 0) {
        send(rank_ - step, &all[rank_], sizeof(T) * std::min(step, size - rank_));
        break;
      }
      const std::uint32_t from = rank_ + step;
      if (from < size) receive(from, &all[from], sizeof(T) * std::min(step, size - from));
    }
    broadcast(all.data(), sizeof(T) * size);
    return all;
  }

 private:
  void broadcast(void* data, std::size_t bytes) const {
    const std::uint32_t size = group_.size();
    std::uint32_t step = 1;
    while (step < size && (rank_ & step) == 0) step *= 2;
    if (rank_ != 0) receive(rank_ - step, data, bytes);
    for (step /= 2; step != 0; step /= 2) {
      if (rank_ + step < size) send(rank_ + step, data, bytes);
    }
  }
  void send(std::uint32_t to, const void* data, std::size_t bytes) const {
    api::send(call_.name(), mailbox_, {CellId{group_.cell(to)}, context_, tag_},
              {static_cast<const std::byte*>(data), bytes});
  }
  void receive(std::uint32_t from, void* data, std::size_t bytes) const {
    const api::LabelWish wish{CellId{group_.cell(from)}, context_, tag_};
    const auto arrived = api::receive(call_.name(), mailbox_, {static_cast<std::byte*>(data), bytes}, wish);
    if (arrived && arrived->bytes != bytes) {
      fail(MPI_ERR_OTHER, fmt::format("rank {} of the communicator sent {} bytes where {} were expected; do all ranks "
                                      "call the same function?",
                                      from, arrived->bytes, bytes));
    }
  }

  const Call& call_;
  const Group& group_;
  std::uint32_t rank_;
  std::uint32_t context_;
  std::uint32_t tag_ = 0;
  api::Mailbox mailbox_;
};

/// A context that no member uses. It is not the rank's yet.
std::uint32_t agree_on_context(const Call& call, const Team& team) {
  Rank& rank = call.rank();
  Team::Used used{rank.contexts, rank.next_context};
  team.unite(used);
  const auto context = used.set.first_free(used.next);
  if (!context) {
    fail(MPI_ERR_OTHER, fmt::format("a rank has {} communicators, as many as there can be; free some by MPI_Comm_free",
                                    ContextSet::count));
  }
  rank.next_context = *context + 1;
  return *context;
}

Comm& make(const Call& call, const Comm& parent, Group& members, std::uint32_t context) {
  auto& made = *new Comm(call.rank(), members, parent.handler(), "", context);
  call.rank().contexts.add(context);
  return made;
}

/// The communicator of those cells, which the group then belongs to.
MPI_Comm make(const Call& call, const Comm& parent, std::vector<std::uint32_t> cells, std::uint32_t context) {
  auto* const members = new Group(call.rank(), std::move(cells));
  Comm& made = make(call, parent, *members, context);
  members->release();
  return handle_of<MPI_Comm>(made);
}

[[noreturn]] void fail_intracommunicator(const Comm& comm, const char* parameter) {
  fail(MPI_ERR_COMM, fmt::format("{} is {}, which is no intercommunicator and has no remote group", parameter,
                                 comm.name.empty() ? "an intracommunicator" : comm.name));
}

void check_part(const Comm& comm, const Group& group) {
  for (std::uint32_t i = 0; i < group.size(); ++i) {
    if (comm.rank_of(CellId{group.cell(i)}) == MPI_UNDEFINED)
      fail(MPI_ERR_GROUP, fmt::format("rank {} of the group is not in the communicator; give a part of it", i));
  }
}

}  // namespace

void comm_dup(const Call& call, Comm& comm, MPI_Comm* place) {
  Comm& made = make(call, comm, *comm.group, agree_on_context(call, Team(call, comm)));
  try {
    made.attributes.copy(call.rank(), comm.handle(), comm.attributes);
  } catch (...) {
    made.release();
    throw;
  }
  *place = handle_of<MPI_Comm>(made);
}

void comm_dup_with_info(const Call& call, Comm& comm, Info*, MPI_Comm* place) { comm_dup(call, comm, place); }

void comm_create(const Call& call, Comm& comm, Group& group, MPI_Comm* place) {
  check_part(comm, group);
  const std::uint32_t context = agree_on_context(call, Team(call, comm));
  *place = group.own_rank() == MPI_UNDEFINED ? MPI_COMM_NULL : handle_of<MPI_Comm>(make(call, comm, group, context));
}

void comm_create_group(const Call& call, Comm& comm, Group& group, int tag, MPI_Comm* place) {
  check_part(comm, group);
  check_tag("tag", tag);
  *place = MPI_COMM_NULL;
  if (group.own_rank() == MPI_UNDEFINED) return;
  const Team team(call, comm, group, static_cast<std::uint32_t>(tag));
  *place = handle_of<MPI_Comm>(make(call, comm, group, agree_on_context(call, team)));
}

void comm_split(const Call& call, Comm& comm, int color, int key, MPI_Comm* place) {
  if (color < 0 && color != MPI_UNDEFINED)
    fail(MPI_ERR_ARG, fmt::format("color is {}; a color is 0 or more, or MPI_UNDEFINED", color));
  struct Choice {
    int color;
    int key;
  };
  const Team team(call, comm);
  const std::vector<Choice> choices = team.gather(Choice{color, key});
  const std::uint32_t context = agree_on_context(call, team);
  *place = MPI_COMM_NULL;
  if (color == MPI_UNDEFINED) return;
  std::vector<std::uint32_t> ranks;
  for (std::uint32_t i = 0; i < choices.size(); ++i) {
    if (choices[i].color == color) ranks.push_back(i);
  }
  std::ranges::stable_sort(ranks, {}, [&](std::uint32_t rank) { return choices[rank].key; });
  for (std::uint32_t& rank : ranks) rank = comm.group->cell(rank);
  *place = make(call, comm, std::move(ranks), context);
}

// What arrived for it and was not received is gone with it.
void comm_free(const Call& call, MPI_Comm* place) {
  Comm& comm = comm_of(call, "comm", *place);
  if (is_predefined(*place))
    fail(MPI_ERR_COMM, fmt::format("comm is {}, which is predefined and cannot be freed", comm.name));
  comm.attributes.clear(call.rank(), *place);
  Message unread;
  while (api::take(call.name(), mailbox_of(call.rank()), unread, {any_cell, comm.context(), {}})) continue;
  comm.release();
  *place = MPI_COMM_NULL;
}

// ---------------------------------------------------------------- hints, none of which has an effect

void comm_set_info(const Call&, Comm&, Info*) {}

void comm_get_info(const Call& call, Comm&, MPI_Info* place) { *place = handle_of<MPI_Info>(*new Info(call.rank())); }

// ---------------------------------------------------------------- intercommunicators, which cannot be made yet

void comm_remote_group(const Call&, Comm& comm, MPI_Group*) { fail_intracommunicator(comm, "comm"); }
void comm_remote_size(const Call&, Comm& comm, int*) { fail_intracommunicator(comm, "comm"); }
void intercomm_merge(const Call&, Comm& comm, int, MPI_Comm*) { fail_intracommunicator(comm, "intercomm"); }

}  // namespace aplib::mpi
