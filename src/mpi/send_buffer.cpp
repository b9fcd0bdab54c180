// SPDX-License-Identifier: MIT
#include "mpi/send_buffer.hpp"

#include <fmt/format.h>

#include <utility>

#include "mpi/comm.hpp"
#include "mpi/rank.hpp"
#include "mpi/request.hpp"
#include "mpi/session.hpp"

namespace aplib::mpi {

void SendBuffer::attach(void* address, MPI_Count bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) <= in_place_value && bytes > 0) fail_buffer("buffer", address);
  if (is_attached()) fail(MPI_ERR_BUFFER, "a buffer is attached already; detach that first");
  address_ = address;
  bytes_ = address == MPI_BUFFER_AUTOMATIC ? 0 : bytes;
}

void SendBuffer::detach(void* place, MPI_Count* bytes) {
  *static_cast<void**>(place) = std::exchange(address_, nullptr);
  *bytes = std::exchange(bytes_, 0);
}

namespace {

/// The communicator's, that of a session which is large enough, or the rank's. Nobody knows of which session a
/// communicator is, so that of any will do.
const SendBuffer& buffer_for(const Comm& comm, MPI_Count bytes) {
  if (comm.send_buffer.is_attached()) return comm.send_buffer;
  for (const Session* const session : comm.owner().sessions) {
    if (session->send_buffer.is_attached() && session->send_buffer.holds(bytes)) return session->send_buffer;
  }
  return comm.owner().send_buffer;
}

}  // namespace

void check_send_buffer(const Comm& comm, MPI_Count bytes) {
  const SendBuffer& buffer = buffer_for(comm, bytes + MPI_BSEND_OVERHEAD);
  if (!buffer.is_attached())
    fail(MPI_ERR_BUFFER, "no buffer is attached; call MPI_Buffer_attach before a buffered send");
  if (!buffer.holds(bytes + MPI_BSEND_OVERHEAD)) {
    fail(MPI_ERR_BUFFER, fmt::format("the message needs {} bytes with MPI_BSEND_OVERHEAD; the attached buffer has {}",
                                     bytes + MPI_BSEND_OVERHEAD, buffer.bytes()));
  }
}

// ---------------------------------------------------------------- calls

void buffer_attach(const Call& call, void* buffer, MPI_Count size) { call.rank().send_buffer.attach(buffer, size); }

void buffer_detach(const Call& call, void* place, MPI_Count* size) {
  check_place(call, "buffer_addr", place);
  call.rank().send_buffer.detach(place, size);
}

void comm_attach_buffer(const Call&, Comm& comm, void* buffer, MPI_Count size) {
  comm.send_buffer.attach(buffer, size);
}

void comm_detach_buffer(const Call& call, Comm& comm, void* place, MPI_Count* size) {
  check_place(call, "buffer_addr", place);
  comm.send_buffer.detach(place, size);
}

void session_attach_buffer(const Call&, Session& session, void* buffer, MPI_Count size) {
  session.send_buffer.attach(buffer, size);
}

void session_detach_buffer(const Call& call, Session& session, void* place, MPI_Count* size) {
  check_place(call, "buffer_addr", place);
  session.send_buffer.detach(place, size);
}

// What was sent has left already.
void buffer_flush(const Call&) {}
void comm_flush_buffer(const Call&, Comm&) {}
void session_flush_buffer(const Call&, Session&) {}
void buffer_iflush(const Call& call, MPI_Request* request) { *request = handle_of<MPI_Request>(call.rank().sent()); }
void comm_iflush_buffer(const Call& call, Comm&, MPI_Request* request) { buffer_iflush(call, request); }
void session_iflush_buffer(const Call& call, Session&, MPI_Request* request) { buffer_iflush(call, request); }

}  // namespace aplib::mpi
