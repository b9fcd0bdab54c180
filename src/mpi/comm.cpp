// SPDX-License-Identifier: MIT
#include "mpi/comm.hpp"

#include <fmt/format.h>

#include "mpi/rank.hpp"

namespace aplib::mpi {

Comm::~Comm() {
  let_go(*group);
  if (!owner().is_ending()) owner().contexts.remove(context_);
}

void* Comm::handle() noexcept {
  if (this == &owner().world()) return MPI_COMM_WORLD;
  if (this == &owner().self()) return MPI_COMM_SELF;
  return this;
}

std::string Comm::title() const { return name.empty() ? fmt::format("a communicator of {} ranks", size()) : name; }

Comm* find_comm(Rank& rank, MPI_Comm handle) noexcept {
  if (handle == MPI_COMM_WORLD) return &rank.world();
  if (handle == MPI_COMM_SELF) return &rank.self();
  if (is_predefined(handle) || handle_value(handle) % alignof(Object) != 0) return nullptr;
  auto* const object = reinterpret_cast<Object*>(handle);
  return object->object_kind() == Comm::kind ? static_cast<Comm*>(object) : nullptr;
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
  const int groups = comm.group->compare(*other.group);
  *result = &comm == &other ? MPI_IDENT : groups == MPI_IDENT ? MPI_CONGRUENT : groups;
}

void comm_get_name(const Call&, Comm& comm, char* name, int* length) {
  give_string(comm.name, name, MPI_MAX_OBJECT_NAME, length);
}

void comm_set_name(const Call&, Comm& comm, const char* name) {
  comm.name = std::string(name).substr(0, MPI_MAX_OBJECT_NAME - 1);
}

void comm_test_inter(const Call&, Comm&, int* flag) { *flag = 0; }

}  // namespace aplib::mpi
