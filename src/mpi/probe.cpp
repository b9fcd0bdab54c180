// SPDX-License-Identifier: MIT
// Probes, and messages that a probe has taken for one receive.
#include <algorithm>
#include <utility>

#include "mpi/request.hpp"
#include "mpi/status.hpp"

namespace aplib::mpi {

namespace {

struct MatchedMessage : Object {
  static constexpr ObjectKind kind = ObjectKind::message;

  MatchedMessage(Comm& used, Message body, const api::Arrived& what)
      : Object(used.owner(), kind), comm(&used), message(std::move(body)), arrived(what) {
    used.hold();
  }
  ~MatchedMessage() override { let_go(*comm); }

  Comm* comm;
  Message message;
  api::Arrived arrived;
};

MatchedMessage& message_at(MPI_Message handle) {
  return object_of<MatchedMessage>(MPI_ERR_REQUEST, "message", handle, "a message");
}

/// The message's bytes in the program's memory, and its status. The message ends.
std::optional<Failure> unload(const Call& call, MPI_Message* place, const Elements& elements, const TypeHandle& type,
                              MPI_Status* status) {
  MatchedMessage& matched = message_at(*place);
  const api::Arrived arrived = matched.arrived;
  const MPI_Count room = elements.bytes();
  unpack(elements, matched.message.data(), 0, std::min(room, static_cast<MPI_Count>(arrived.bytes)));
  set_arrived(status, *matched.comm, arrived);
  std::optional<Failure> failure;
  try {
    check_fit(*matched.comm, arrived, room, *type.datatype);
  } catch (Failure& thrown) {
    failure = std::move(thrown);
    matched.comm->hold();
    failure->on = matched.comm;
  }
  if (arrived.asks_for_receipt()) api::give_receipt(call.name(), mailbox_of(call.rank()), arrived);
  *place = MPI_MESSAGE_NULL;
  return failure;
}

Elements room_for(void* buf, MPI_Count count, const TypeHandle& type) {
  return elements_at("buf", buf, count, *committed("datatype", type));
}

}  // namespace

void iprobe(const Call& call, int source, int tag, Comm& comm, int* flag, MPI_Status* status) {
  check_source(comm, source);
  check_any_tag("tag", tag);
  *flag = 1;
  if (source == MPI_PROC_NULL) return set_null_status(status);
  call.rank().pending_calls.go_on(call.name());
  const auto found = api::probe(call.name(), mailbox_of(call.rank()), wish_of(comm, source, tag));
  *flag = found ? 1 : 0;
  if (found) set_arrived(status, comm, *found);
}

void probe(const Call& call, int source, int tag, Comm& comm, MPI_Status* status) {
  check_source(comm, source);
  check_any_tag("tag", tag);
  if (source == MPI_PROC_NULL) return set_null_status(status);
  if (const auto found = await_message(call, comm, source, tag)) set_arrived(status, comm, *found);
}

void improbe(const Call& call, int source, int tag, Comm& comm, int* flag, MPI_Message* place, MPI_Status* status) {
  check_source(comm, source);
  check_any_tag("tag", tag);
  *flag = 1;
  if (source == MPI_PROC_NULL) {
    *place = MPI_MESSAGE_NO_PROC;
    return set_null_status(status);
  }
  *place = MPI_MESSAGE_NULL;
  Message message;
  call.rank().pending_calls.go_on(call.name());
  const auto taken = api::take(call.name(), mailbox_of(call.rank()), message, wish_of(comm, source, tag));
  *flag = taken ? 1 : 0;
  if (!taken) return;
  set_arrived(status, comm, *taken);
  *place = handle_of<MPI_Message>(*new MatchedMessage(comm, std::move(message), *taken));
}

void mprobe(const Call& call, int source, int tag, Comm& comm, MPI_Message* place, MPI_Status* status) {
  for (int flag = 0; flag == 0;) {
    check_source(comm, source);
    check_any_tag("tag", tag);
    if (source != MPI_PROC_NULL && !await_message(call, comm, source, tag)) return;
    improbe(call, source, tag, comm, &flag, place, status);
  }
}

void mrecv(const Call& call, void* buf, MPI_Count count, TypeHandle& type, MPI_Message* place, MPI_Status* status) {
  const Elements elements = room_for(buf, count, type);
  if (*place == MPI_MESSAGE_NO_PROC) {
    *place = MPI_MESSAGE_NULL;
    return set_null_status(status);
  }
  MatchedMessage& matched = message_at(*place);
  auto failure = unload(call, place, elements, type, status);
  matched.release();
  if (failure) throw std::move(*failure);
}

void imrecv(const Call& call, void* buf, MPI_Count count, TypeHandle& type, MPI_Message* place, MPI_Request* request) {
  const Elements elements = room_for(buf, count, type);
  if (*place == MPI_MESSAGE_NO_PROC) {
    auto& made = Request::make(call.rank().self(), Request::Does::nothing);
    set_null_status(&made.result);
    *place = MPI_MESSAGE_NULL;
    *request = handle_of<MPI_Request>(made);
    return;
  }
  MatchedMessage& matched = message_at(*place);
  auto& made = Request::make(*matched.comm, Request::Does::nothing);
  made.failure = unload(call, place, elements, type, &made.result);
  matched.release();
  *request = handle_of<MPI_Request>(made);
}

}  // namespace aplib::mpi
