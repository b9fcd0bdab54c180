// SPDX-License-Identifier: MIT
#include "mpi/send_buffer.hpp"

#include <fmt/format.h>

#include <utility>

#include "mpi/comm.hpp"
#include "mpi/rank.hpp"
#include "mpi/request.hpp"

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

void check_send_buffer(const Comm& comm, MPI_Count bytes) {
  const SendBuffer& buffer = comm.send_buffer.is_attached() ? comm.send_buffer : comm.owner().send_buffer;
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

// What was sent has left already.
void buffer_flush(const Call&) {}
void comm_flush_buffer(const Call&, Comm&) {}
void buffer_iflush(const Call& call, MPI_Request* request) { *request = handle_of<MPI_Request>(call.rank().sent()); }
void comm_iflush_buffer(const Call& call, Comm&, MPI_Request* request) { buffer_iflush(call, request); }

}  // namespace aplib::mpi
