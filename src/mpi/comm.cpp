// SPDX-License-Identifier: MIT
#include "mpi/comm.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "mpi/info.hpp"
#include "mpi/rank.hpp"
#include "mpi/team.hpp"

namespace aplib::mpi {

Comm::Comm(Rank& rank, Group& members, Group& remote, Errhandler& handler, std::uint32_t context)
    : Comm(rank, members, remote, handler, "", context) {
  local = new Comm(rank, members, handler, "the local group", context);
}

Comm::Comm(Comm& of, std::uint32_t channel, std::uint32_t calls)
    : Comm(of.owner(), *of.group, *of.peers, of.handler(), of.title(), of.context_) {
  retire();  // no handle means it
  channel_ = channel;
  collective_calls = calls;
  topology = of.topology;
  has_no_board = of.has_no_board;
  if (of.local != nullptr) local = new Comm(*of.local, channel, calls);
}

Comm::~Comm() {
  if (channel_ == persistent && persistent_numbers != nullptr) persistent_numbers->give_back(collective_calls);
  if (nonblocking_ != nullptr) let_go(*nonblocking_);
  if (local != nullptr) let_go(*local);
  let_go(*group);
  let_go(*peers);
  if (!owner().is_ending() && context_ != no_context && channel_ == 0) owner().contexts.remove(context_);
}

Comm& Comm::of_nonblocking_calls() {
  if (nonblocking_ == nullptr) nonblocking_ = new Comm(*this, nonblocking, 0);
  return *nonblocking_;
}

Comm& Comm::for_persistent_call(const Call& call) {
  if (persistent_numbers == nullptr) persistent_numbers = std::make_shared<PersistentNumbers>();
  auto number = persistent_numbers->take();
  if (!number) {
    PersistentNumbers::Set taken = persistent_numbers->taken();
    Team(call, *this).combine(taken);
    persistent_numbers->agree(taken);
    number = persistent_numbers->take();
  }
  if (!number)
    fail(MPI_ERR_OTHER, fmt::format("{} has {} persistent collective calls, as many as there can be; free some by "
                                    "MPI_Request_free",
                                    title(), PersistentNumbers::count));
  Comm& made = *new Comm(*this, persistent, *number);
  made.persistent_numbers = persistent_numbers;
  return made;
}

void Comm::set_context(std::uint32_t context) noexcept {
  context_ = context;
  if (local != nullptr) local->set_context(context);
  owner().contexts.add(context);
}

std::string Comm::title() const {
  if (!name.empty()) return name;
  if (is_inter()) return fmt::format("an intercommunicator of {} and {} ranks", size(), peer_count());
  return fmt::format("a communicator of {} ranks", size());
}

void* Comm::handle() noexcept {
  if (this == &owner().world()) return MPI_COMM_WORLD;
  if (this == &owner().self()) return MPI_COMM_SELF;
  return this;
}

Comm* find_comm(Rank& rank, MPI_Comm handle) noexcept {
  if (handle == MPI_COMM_WORLD) return &rank.world();
  if (handle == MPI_COMM_SELF) return &rank.self();
  return find_made<Comm>(handle);
}

Comm& comm_of(const Call& call, const char* parameter, MPI_Comm handle) {
  Comm* const comm = find_comm(call.rank(), handle);
  if (comm == nullptr) [[unlikely]]
    fail_handle(MPI_ERR_COMM, parameter, handle_value(handle), "a communicator");
  return *comm;
}

void comm_rank(const Call&, Comm& comm, int* rank) { *rank = comm.rank(); }

void comm_size(const Call&, Comm& comm, int* size) { *size = comm.size(); }

void comm_group(const Call&, Comm& comm, MPI_Group* place) {
  comm.group->hold();
  *place = handle_of<MPI_Group>(*comm.group);
}

void comm_compare(const Call&, Comm& comm, Comm& other, int* result) {
  if (&comm == &other) {
    *result = MPI_IDENT;
  } else if (comm.is_inter() != other.is_inter()) {
    *result = MPI_UNEQUAL;
  } else {
    const int own = comm.group->compare(*other.group);
    const int remote = comm.peers->compare(*other.peers);
    *result = own == MPI_IDENT && remote == MPI_IDENT       ? MPI_CONGRUENT
              : own == MPI_UNEQUAL || remote == MPI_UNEQUAL ? MPI_UNEQUAL
                                                            : MPI_SIMILAR;
  }
}

void comm_get_name(const Call& call, MPI_Comm handle, char* name, int* length) {
  const bool is_null = handle == MPI_COMM_NULL;  // has a name, too
  give_string(is_null ? "MPI_COMM_NULL" : comm_of(call, "comm", handle).name, name, MPI_MAX_OBJECT_NAME, length);
}

void comm_set_name(const Call&, Comm& comm, const char* name) {
  comm.name = std::string(name).substr(0, MPI_MAX_OBJECT_NAME - 1);
}

// ---------------------------------------------------------------- intercommunicators

void check_inter(const char* parameter, const Comm& comm) {
  if (!comm.is_inter()) fail(MPI_ERR_COMM, fmt::format("{} is {}; give an intercommunicator", parameter, comm.title()));
}

void check_intra(const char* parameter, const Comm& comm) {
  if (comm.is_inter()) fail(MPI_ERR_COMM, fmt::format("{} is {}; give an intracommunicator", parameter, comm.title()));
}

void comm_test_inter(const Call&, Comm& comm, int* flag) { *flag = comm.is_inter() ? 1 : 0; }

void comm_remote_size(const Call&, Comm& comm, int* size) {
  check_inter("comm", comm);
  *size = comm.peer_count();
}

void comm_remote_group(const Call&, Comm& comm, MPI_Group* place) {
  check_inter("comm", comm);
  comm.peers->hold();
  *place = handle_of<MPI_Group>(*comm.peers);
}

// No program of a machine was started by one of another.
void comm_get_parent(const Call&, MPI_Comm* place) { *place = MPI_COMM_NULL; }

// ---------------------------------------------------------------- hints, which are kept and have no effect

namespace {

constexpr const char* assertions[] = {"mpi_assert_no_any_tag", "mpi_assert_no_any_source", "mpi_assert_exact_length",
                                      "mpi_assert_allow_overtaking",
                                      "mpi_assert_strict_persistent_collective_ordering"};

}  // namespace

void Comm::set_hints(const Info* given) {
  if (given == nullptr) return;
  for (std::size_t i = 0; i < std::size(assertions); ++i) {
    const std::string* const value = given->find(assertions[i]);
    if (value == nullptr || (*value != "true" && *value != "false")) continue;
    hints = (hints & ~(1U << i)) | (*value == "true" ? 1U << i : 0U);
  }
}

void comm_set_info(const Call&, Comm& comm, Info* given) { comm.set_hints(given); }

void comm_get_info(const Call& call, Comm& comm, MPI_Info* place) {
  auto& used = *new Info(call.rank());
  *place = handle_of<MPI_Info>(used);
  for (std::size_t i = 0; i < std::size(assertions); ++i)
    used.set(assertions[i], (comm.hints >> i & 1) != 0 ? "true" : "false");
}

}  // namespace aplib::mpi
