// SPDX-License-Identifier: MIT
// How communicators come to be: their members agree on a context, and on who belongs to which.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "kernel/shared_memory.hpp"
#include "mpi/info.hpp"
#include "mpi/team.hpp"

namespace aplib::mpi {

namespace {

/// An intracommunicator if `remote` is null.
Comm& make(const Call& call, Errhandler& handler, Group& members, Group* remote, std::uint32_t context) {
  Rank& rank = call.rank();
  Comm& made = remote != nullptr ? *new Comm(rank, members, *remote, handler, context)
                                 : *new Comm(rank, members, handler, "", context);
  rank.contexts.add(context);
  return made;
}

/// A group for communicators alone.
struct OwnGroup {
  OwnGroup(Rank& rank, std::vector<std::uint32_t> cells) : group(new Group(rank, std::move(cells))) {}
  ~OwnGroup() { group->release(); }
  OwnGroup(const OwnGroup&) = delete;
  OwnGroup& operator=(const OwnGroup&) = delete;

  Group* group;
};

using Cells = std::vector<std::uint32_t>;

Cells cells_of(const Group& group) {
  Cells cells(group.size());
  for (std::uint32_t i = 0; i < group.size(); ++i) cells[i] = group.cell(i);
  return cells;
}

MPI_Comm make_intra(const Call& call, Errhandler& handler, Group& members, std::uint32_t context) {
  return handle_of<MPI_Comm>(make(call, handler, members, nullptr, context));
}

MPI_Comm make_inter(const Call& call, Errhandler& handler, Group& members, Cells remote, std::uint32_t context) {
  const OwnGroup others(call.rank(), std::move(remote));
  return handle_of<MPI_Comm>(make(call, handler, members, others.group, context));
}

void check_part(const Comm& comm, const Group& group) {
  for (std::uint32_t i = 0; i < group.size(); ++i) {
    if (comm.group->rank_of(group.cell(i)) == MPI_UNDEFINED)
      fail(MPI_ERR_GROUP, fmt::format("rank {} of the group is not in {}; give a part of its group", i, comm.title()));
  }
}

}  // namespace

// ---------------------------------------------------------------- the same members

void comm_dup_with_info(const Call& call, Comm& comm, Info* hints, MPI_Comm* place) {
  const std::uint32_t context = Team(call, comm).agree_on_context();
  Comm& made = make(call, comm.handler(), *comm.group, comm.is_inter() ? comm.peers : nullptr, context);
  made.set_hints(hints);
  made.topology = comm.topology;
  try {
    made.attributes.copy(call.rank(), comm.handle(), comm.attributes);
  } catch (...) {
    made.release();
    throw;
  }
  *place = handle_of<MPI_Comm>(made);
}

void comm_dup(const Call& call, Comm& comm, MPI_Comm* place) { comm_dup_with_info(call, comm, nullptr, place); }

// ---------------------------------------------------------------- parts

Comm* make_part(const Call& call, const Comm& parent, Cells cells) {
  const std::uint32_t context = Team(call, parent).agree_on_context();
  if (std::ranges::find(cells, call.rank().world_rank()) == cells.end()) return nullptr;
  const OwnGroup members(call.rank(), std::move(cells));
  return &make(call, parent.handler(), *members.group, nullptr, context);
}

void comm_create(const Call& call, Comm& comm, Group& group, MPI_Comm* place) {
  check_part(comm, group);
  const Team team(call, comm);
  Cells remote;
  if (comm.is_inter()) remote = team.exchange(cells_of(group));
  const std::uint32_t context = team.agree_on_context();
  *place = MPI_COMM_NULL;
  if (group.own_rank() == MPI_UNDEFINED || (comm.is_inter() && remote.empty())) return;
  *place = comm.is_inter() ? make_inter(call, comm.handler(), group, std::move(remote), context)
                           : make_intra(call, comm.handler(), group, context);
}

void comm_create_group(const Call& call, Comm& comm, Group& group, int tag, MPI_Comm* place) {
  check_part(comm, group);
  check_tag("tag", tag);
  *place = MPI_COMM_NULL;
  if (group.own_rank() == MPI_UNDEFINED) return;
  const Team team(call, group, comm.context() | creating, static_cast<std::uint32_t>(tag));
  *place = make_intra(call, comm.handler(), group, team.agree_on_context());
}

namespace {

/// What a member of a communicator that is split says.
struct Choice {
  int color;
  int key;
  int type;  ///< Of MPI_Comm_split_type.
};

/// The cells of those of one colour, by key.
Cells chosen(const std::vector<Choice>& choices, int color, const Group& group) {
  Cells ranks;
  for (std::uint32_t i = 0; i < choices.size(); ++i) {
    if (choices[i].color == color) ranks.push_back(i);
  }
  std::ranges::stable_sort(ranks, {}, [&](std::uint32_t rank) { return choices[rank].key; });
  for (std::uint32_t& rank : ranks) rank = group.cell(rank);
  return ranks;
}

void check_types(const std::vector<Choice>& choices) {
  int type = MPI_UNDEFINED;
  for (const Choice& choice : choices) {
    if (choice.type == MPI_UNDEFINED || choice.type == type) continue;
    if (type != MPI_UNDEFINED)
      fail(MPI_ERR_ARG, fmt::format("split_type is {} at one rank and {} at another; let all give the same, or "
                                    "MPI_UNDEFINED",
                                    type, choice.type));
    type = choice.type;
  }
}

void split(const Call& call, Comm& comm, const Choice& own, MPI_Comm* place) {
  const Team team(call, comm);
  const std::vector<Choice> choices = team.gather(own);
  std::vector<Choice> others;
  if (comm.is_inter()) others = team.exchange(choices);
  check_types(choices);
  const std::uint32_t context = team.agree_on_context();
  *place = MPI_COMM_NULL;
  if (own.color == MPI_UNDEFINED) return;
  const OwnGroup members(call.rank(), chosen(choices, own.color, *comm.group));
  if (!comm.is_inter()) {
    *place = make_intra(call, comm.handler(), *members.group, context);
    return;
  }
  Cells remote = chosen(others, own.color, *comm.peers);
  if (!remote.empty()) *place = make_inter(call, comm.handler(), *members.group, std::move(remote), context);
}

}  // namespace

void comm_split(const Call& call, Comm& comm, int color, int key, MPI_Comm* place) {
  if (color < 0 && color != MPI_UNDEFINED)
    fail(MPI_ERR_ARG, fmt::format("color is {}; a color is 0 or more, or MPI_UNDEFINED", color));
  split(call, comm, {color, key, MPI_UNDEFINED}, place);
}

namespace {

constexpr const char* resource_key = "mpi_hw_resource_type";
constexpr const char* shared_memory = "mpi_shared_memory";  // its only value that we know

/// Memory of a rank's process, which others try to map.
struct Probe {
  std::uint32_t process;
  SharedFilePlace place;
};

/// The ranks that share memory with the caller, as the number of a process. Those of one process do; those of several
/// if they can map the memory of the same one. Call from: all ranks.
struct SharedBy {
  int process;
  bool is_all;  ///< All ranks of the communicator share it.
};

SharedBy shared_memory_of(const Call& call, const Comm& comm) {
  const auto process_of = [&](std::uint32_t cell) { return api::process_of(call.name(), CellId{cell}); };
  const std::uint32_t own = process_of(call.rank().world_rank());
  bool is_all = true;
  for (const Group* const group : {comm.group, comm.peers}) {
    for (std::uint32_t i = 0; i < group->size(); ++i)
      is_all = is_all && process_of(group->cell(i)) == process_of(comm.group->cell(0));
  }
  if (is_all) return {static_cast<int>(own), true};
  const Team team(call, comm);
  const auto memory = api::SharedMemory::make(1);
  std::vector<Probe> probes = team.gather(Probe{own, memory ? memory->place() : SharedFilePlace{}});
  if (comm.is_inter()) {
    const std::vector<Probe> others = team.exchange(probes);
    probes.insert(probes.end(), others.begin(), others.end());
  }
  // All of a host try the same.
  std::erase_if(probes, [&](const Probe& each) { return !api::shares_host(call.name(), each.process); });
  const Probe& first = *std::ranges::min_element(probes, {}, &Probe::process);
  const bool is_mapped = first.process == own || api::SharedMemory::open(first.place, 1);
  std::vector<std::uint32_t> shared = team.gather(is_mapped ? first.process : own);  // and all have tried
  const std::uint32_t result = is_mapped ? first.process : own;
  const auto differs = [result](std::uint32_t each) { return each != result; };
  is_all = std::ranges::none_of(shared, differs);
  if (comm.is_inter()) is_all = std::ranges::none_of(team.exchange(shared), differs) && is_all;
  return {static_cast<int>(result), is_all};
}

/// Of what the hints name; MPI_UNDEFINED: nothing that we know.
int named_resource(const Call& call, int type, const Info* hints, int shared) {
  constexpr const char* set_key = "mpi_pset_name";
  if (hints == nullptr) return MPI_UNDEFINED;
  const std::string* const resource = hints->find(resource_key);
  const std::string* const set = type == MPI_COMM_TYPE_RESOURCE_GUIDED ? hints->find(set_key) : nullptr;
  if (resource != nullptr && set != nullptr)
    fail(MPI_ERR_INFO, fmt::format("info has both {} and {}; give one of them", resource_key, set_key));
  if (resource != nullptr && *resource == shared_memory) return shared;
  if (set != nullptr && *set == "mpi://WORLD") return 0;
  if (set != nullptr && *set == "mpi://SELF") return static_cast<int>(call.rank().world_rank());
  return MPI_UNDEFINED;
}

}  // namespace

// Cells move between the threads of their process, so a rank has no part of the hardware for its own but its host's
// memory.
void comm_split_type(const Call& call, Comm& comm, int type, int key, Info* hints, MPI_Comm* place) {
  const SharedBy shared = shared_memory_of(call, comm);
  int color = MPI_UNDEFINED;
  switch (type) {
    case MPI_UNDEFINED:
      break;
    case MPI_COMM_TYPE_SHARED:
      color = shared.process;
      break;
    case MPI_COMM_TYPE_HW_GUIDED:
    case MPI_COMM_TYPE_RESOURCE_GUIDED:
      color = named_resource(call, type, hints, shared.process);
      break;
    case MPI_COMM_TYPE_HW_UNGUIDED:
      if (shared.is_all) break;
      color = shared.process;
      if (hints != nullptr) hints->set(resource_key, shared_memory);
      break;
    default:
      fail(MPI_ERR_ARG, fmt::format("split_type is {}; use MPI_COMM_TYPE_SHARED, _HW_GUIDED, _HW_UNGUIDED, "
                                    "_RESOURCE_GUIDED or MPI_UNDEFINED",
                                    type));
  }
  split(call, comm, {color, key, type}, place);
}

// What arrived for it and was not received is gone with it.
void comm_free(const Call& call, MPI_Comm* place) {
  Comm& comm = comm_of(call, "comm", *place);
  if (is_predefined(*place))
    fail(MPI_ERR_COMM, fmt::format("comm is {}, which is predefined and cannot be freed", comm.name));
  comm.attributes.clear(call.rank(), *place);
  Message unread;
  for (const std::uint32_t channel : {0U, pairing}) {
    while (api::take(call.name(), mailbox_of(call.rank()), unread, {any_cell, comm.context() | channel, {}})) continue;
  }
  comm.release();
  *place = MPI_COMM_NULL;
}

// ---------------------------------------------------------------- two groups

namespace {

void check_leader(const char* parameter, const char* where, int rank, int size) {
  if (rank < 0 || rank >= size)
    fail(MPI_ERR_RANK, fmt::format("{} is {}; {} has ranks 0..{}", parameter, rank, where, size - 1));
}

/// The leader has checked its arguments, which have no meaning at others: all of the group fail if it does.
void check_with_leader(const Team& team, const std::optional<Failure>& failure) {
  const int code = team.hear(failure ? failure->code : MPI_SUCCESS);
  if (failure) throw Failure(*failure);
  if (code != MPI_SUCCESS) fail(code, "the arguments of the local leader are wrong; its own message says which");
}

/// The intercommunicator of the team's group and the one that its leader meets.
MPI_Comm join(const Call& call, const Team& team, Errhandler& handler, Group& members) {
  Cells remote = team.exchange(cells_of(members));
  for (std::uint32_t i = 0; i < remote.size(); ++i) {
    const int rank = members.rank_of(remote[i]);
    if (rank != MPI_UNDEFINED)
      fail(MPI_ERR_COMM, fmt::format("rank {} of the remote group is rank {} of the local one, too; let the two have "
                                     "no rank in common",
                                     i, rank));
  }
  const std::uint32_t context = team.agree_on_context();
  return make_inter(call, handler, members, std::move(remote), context);
}

}  // namespace

void intercomm_create(const Call& call, Comm& comm, int local_leader, MPI_Comm peer_comm, int remote_leader, int tag,
                      MPI_Comm* place) {
  check_leader("local_leader", "local_comm", local_leader, comm.size());
  Team team(call, comm, local_leader);
  std::optional<Failure> failure;
  if (team.is_leader()) {
    try {
      const Comm& peer = comm_of(call, "peer_comm", peer_comm);
      check_leader("remote_leader", "peer_comm", remote_leader, peer.peer_count());
      check_tag("tag", tag);
      team.meet(peer.cell_of(remote_leader), peer.context() | creating, static_cast<std::uint32_t>(tag));
    } catch (Failure& thrown) {
      failure = std::move(thrown);
    }
  }
  check_with_leader(team, failure);
  *place = join(call, team, comm.handler(), *comm.group);
}

void intercomm_merge(const Call& call, Comm& comm, int high, MPI_Comm* place) {
  check_inter("intercomm", comm);
  const Team team(call, comm);
  const std::vector<char> own = team.gather<char>(high != 0 ? 1 : 0);
  const std::vector<char> others = team.exchange(own);
  for (const std::vector<char>* const group : {&own, &others}) {
    if (std::ranges::count(*group, group->front()) != std::ssize(*group))
      fail(MPI_ERR_ARG, fmt::format("high differs between the ranks of the {} group; let all ranks of a group give "
                                    "the same",
                                    group == &own ? "local" : "remote"));
  }
  const std::uint32_t context = team.agree_on_context();
  // Where both say the same, the group with the lower first cell comes first.
  const bool is_second = own[0] != others[0] ? own[0] != 0 : comm.group->cell(0) > comm.peers->cell(0);
  Cells cells = cells_of(is_second ? *comm.peers : *comm.group);
  const Cells second = cells_of(is_second ? *comm.group : *comm.peers);
  cells.insert(cells.end(), second.begin(), second.end());
  const OwnGroup members(call.rank(), std::move(cells));
  *place = make_intra(call, comm.handler(), *members.group, context);
}

// ---------------------------------------------------------------- of groups alone

namespace {

/// Its hash is the tag of the agreement.
std::uint32_t tag_of(const char* text) {
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (const char letter : std::string_view(text)) hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619U;
  return hash & api::Label::tag_max;
}

void check_stringtag(const char* text) {
  if (std::string_view(text).size() >= MPI_MAX_STRINGTAG_LEN)
    fail(MPI_ERR_ARG, fmt::format("stringtag has {} characters; use at most {}", std::string_view(text).size(),
                                  MPI_MAX_STRINGTAG_LEN - 1));
}

void check_member(const char* parameter, const Group& group) {
  if (group.own_rank() == MPI_UNDEFINED)
    fail(MPI_ERR_GROUP, fmt::format("this rank is not in {}; only its members make the communicator", parameter));
}

}  // namespace

void comm_create_from_group(const Call& call, Group& group, const char* stringtag, Info* hints, Errhandler& handler,
                            MPI_Comm* place) {
  check_stringtag(stringtag);
  *place = MPI_COMM_NULL;
  if (group.size() == 0) return;
  check_member("group", group);
  const Team team(call, group, grouping, tag_of(stringtag));
  Comm& made = make(call, handler, group, nullptr, team.agree_on_context());
  made.set_hints(hints);
  *place = handle_of<MPI_Comm>(made);
}

void intercomm_create_from_groups(const Call& call, Group& group, int local_leader, MPI_Group remote_group,
                                  int remote_leader, const char* stringtag, Info*, Errhandler& handler,
                                  MPI_Comm* place) {
  check_stringtag(stringtag);
  *place = MPI_COMM_NULL;
  if (group.size() == 0) return;
  check_member("local_group", group);
  check_leader("local_leader", "local_group", local_leader, static_cast<int>(group.size()));
  const std::uint32_t tag = tag_of(stringtag);
  Team team(call, group, grouping, tag, local_leader);
  std::optional<Failure> failure;
  bool has_others = true;  // which the leader knows
  if (team.is_leader()) {
    try {
      const Group& others = group_of(call, "remote_group", remote_group);
      has_others = others.size() != 0;
      if (has_others) check_leader("remote_leader", "remote_group", remote_leader, static_cast<int>(others.size()));
      if (has_others) team.meet(CellId{others.cell(static_cast<std::uint32_t>(remote_leader))}, grouping, tag);
    } catch (Failure& thrown) {
      failure = std::move(thrown);
    }
  }
  check_with_leader(team, failure);
  if (!team.hear(has_others)) return;
  *place = join(call, team, handler, group);
}

}  // namespace aplib::mpi
