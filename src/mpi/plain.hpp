// SPDX-License-Identifier: MIT
// The usual messages: elements of a predefined type, to or from a rank of a communicator, and from a task that receives
// by itself. Whatever they need is found with few branches, in the exported function itself. What is not plain takes
// the long way (point_to_point.cpp), which checks each argument and says what is wrong.
//
// For the functions that generate.cpp makes: `plain` in functions.txt. False: it is not plain, and nothing is done.
#pragma once

#include <array>

#include "kernel/mailbox_inline.hpp"
#include "mpi/request.hpp"

namespace aplib::mpi::plain {

/// Bytes of an element of a predefined type, by the low byte of its handle; 0: it has none, or gaps.
extern const std::array<std::uint8_t, 256> element_bytes;

/// What a plain call is about.
struct Subject {
  TaskControl* self = nullptr;  ///< Null: it is not plain.
  Rank* rank = nullptr;
  Comm* comm = nullptr;
  std::byte* address = nullptr;
  std::size_t bytes = 0;

  [[nodiscard]] bool is_peer(int number) const noexcept {
    return static_cast<std::uint32_t>(number) < comm->peers->size();
  }
};

inline bool is_tag(int tag) noexcept { return static_cast<std::uint32_t>(tag) <= api::Label::tag_max; }

/// Of a predefined type. Others have larger ones.
inline std::uintptr_t code_of(MPI_Datatype type) noexcept { return handle_value(type) - 0x200; }

[[gnu::always_inline]] inline Subject subject_of(const void* buffer, MPI_Count count, MPI_Datatype type,
                                                 MPI_Comm handle) noexcept {
  constexpr auto count_max = std::uint64_t{1} << 40;
  TaskControl* const self = running_task();
  if (self == nullptr) [[unlikely]]
    return {};
  auto* const rank = static_cast<Rank*>(self->cell->mpi.rank);
  const std::uintptr_t code = code_of(type);
  if (rank == nullptr || rank->phase != Rank::Phase::initialized || rank->main_task != self->id ||
      handle_value(buffer) <= in_place_value || static_cast<std::uint64_t>(count) >= count_max ||
      code >= element_bytes.size() || element_bytes[code] == 0) [[unlikely]]
    return {};
  Comm* const comm = handle == MPI_COMM_WORLD ? &rank->world() : find_made<Comm>(handle);
  if (comm == nullptr) [[unlikely]]
    return {};
  return {self, rank, comm, static_cast<std::byte*>(const_cast<void*>(buffer)),
          element_bytes[code] * static_cast<std::size_t>(count)};
}

/// As can_be_lent().
[[gnu::always_inline]] inline bool is_lent(const Subject& its) noexcept {
  if (its.bytes < lend_when_full_from_bytes) [[likely]]
    return false;
  return its.bytes >= lend_from_bytes || its.self->cell->processor->domain().send_gate.closed();
}

[[gnu::always_inline]] inline bool send(const char* call, const Subject& its, int dest, int tag) {
  if (its.self == nullptr || !its.is_peer(dest) || !is_tag(tag) || is_lent(its)) [[unlikely]]
    return false;
  api::inlined::send(*its.self, call, mailbox_of(*its.rank), index(its.comm->cell_of(dest)), its.comm->context(),
                     static_cast<std::uint32_t>(tag), {its.address, its.bytes});
  return true;
}

/// What the elements are to be received into, from whom. False: it is not plain.
[[gnu::always_inline]] inline bool wants(const Subject& its, int source, int tag, Posted& posted) {
  if (its.self == nullptr || (!its.is_peer(source) && source != MPI_ANY_SOURCE) || (!is_tag(tag) && tag != MPI_ANY_TAG))
      [[unlikely]]
    return false;
  MatchWish wish{ContextKey::make(static_cast<std::uint32_t>(api::Space::mpi), 0, its.comm->context(), 0),
                 MatchKey::space_mask | ContextKey::context_mask};
  if (source != MPI_ANY_SOURCE) {
    wish.key |= MatchKey::make(0, index(its.comm->cell_of(source)), 0, 0);
    wish.mask |= MatchKey::cell_mask;
  }
  if (tag != MPI_ANY_TAG) {
    wish.key |= static_cast<std::uint32_t>(tag);
    wish.mask |= ContextKey::tag_mask;
  }
  posted.wish = wish;
  posted.message = nullptr;
  posted.buffer = reinterpret_cast<char*>(its.address);
  posted.capacity = its.bytes;
  return true;
}

/// What has arrived is too long, or may end within an element.
void refuse_size(const Subject& its, const api::Arrived& arrived, MPI_Datatype type);

/// A receive has not got its message.
void receive_failed(const char* call, const Subject& its, int source, Wake how);

[[gnu::always_inline]] inline bool send(const char* call, const void* buf, MPI_Count count, MPI_Datatype type, int dest,
                                        int tag, MPI_Comm comm) {
  return send(call, subject_of(buf, count, type, comm), dest, tag);
}

[[gnu::always_inline]] inline bool isend(const char* call, const void* buf, MPI_Count count, MPI_Datatype type,
                                         int dest, int tag, MPI_Comm comm, MPI_Request* request) {
  const Subject its = subject_of(buf, count, type, comm);
  if (request == nullptr || !send(call, its, dest, tag)) [[unlikely]]
    return false;
  *request = handle_of<MPI_Request>(its.rank->sent());
  return true;
}

[[gnu::always_inline]] inline bool recv(const char* call, void* buf, MPI_Count count, MPI_Datatype type, int source,
                                        int tag, MPI_Comm comm, MPI_Status* status) {
  const Subject its = subject_of(buf, count, type, comm);
  if (its.self == nullptr || !its.rank->pending_calls.is_empty()) [[unlikely]]
    return false;
  Posted& posted = its.self->posted;
  if (!wants(its, source, tag, posted)) [[unlikely]]
    return false;
  if (const Wake how = api::inlined::receive(*its.self, call); how != Wake::done) [[unlikely]] {
    receive_failed(call, its, source, how);
    return true;
  }
  if (ContextKey::asks_for_receipt(posted.key)) [[unlikely]]
    api::inlined::give_receipt(*its.self, mailbox_of(*its.rank), posted.key);
  const api::Arrived arrived = api::arrived_as(posted.key, posted.bytes);
  if (status != MPI_STATUS_IGNORE) set_arrived(status, *its.comm, arrived);
  if (arrived.bytes != its.bytes && (arrived.bytes > its.bytes || arrived.bytes % element_bytes[code_of(type)] != 0))
      [[unlikely]]
    refuse_size(its, arrived, type);
  return true;
}

[[gnu::always_inline]] inline bool irecv(const char*, void* buf, MPI_Count count, MPI_Datatype type, int source,
                                         int tag, MPI_Comm comm, MPI_Request* place) {
  const Subject its = subject_of(buf, count, type, comm);
  if (place == nullptr || its.self == nullptr) [[unlikely]]
    return false;
  Request& request = Request::make(*its.comm, Request::Does::receive);
  if (!wants(its, source, tag, request.posted)) [[unlikely]] {
    request.release();
    return false;
  }
  request.elements = bytes_at(its.address, static_cast<Count>(its.bytes));
  request.code = static_cast<BasicType>(code_of(type));
  request.peer = source;
  request.tag = tag;
  api::inlined::post(*its.self, request.posted);
  *place = handle_of<MPI_Request>(request);
  return true;
}

}  // namespace aplib::mpi::plain
