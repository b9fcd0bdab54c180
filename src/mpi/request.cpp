// SPDX-License-Identifier: MIT
#include "mpi/request.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "mpi/status.hpp"

namespace aplib::mpi {

namespace {

/// A receive of a call's own. What goes wrong in between leaves none open.
struct OwnReceive : api::MailboxReceive {
  OwnReceive() = default;
  OwnReceive(const OwnReceive&) = delete;
  OwnReceive& operator=(const OwnReceive&) = delete;
  ~OwnReceive() { api::cancel(*this); }
};

/// The request of a handle that is known to be one.
Request* known(MPI_Request handle) noexcept {
  return handle == MPI_REQUEST_NULL ? nullptr : static_cast<Request*>(reinterpret_cast<Object*>(handle));
}

/// A program's requests, and the notice.
struct WaitSet {
  const MPI_Request* requests;
  std::size_t count;
  Posted* further;
};

Posted* active_at(const void* first, std::size_t i) {
  const auto& set = *static_cast<const WaitSet*>(first);
  if (i == set.count) return set.further;
  Request* const request = known(set.requests[i]);
  return request != nullptr && request->is_active ? &request->posted : nullptr;
}

Posted* open_at(const void* first, std::size_t i) {
  Posted* const posted = active_at(first, i);
  return posted != nullptr && posted->open ? posted : nullptr;
}

Posted* pointer_at(const void* first, std::size_t i) { return static_cast<Posted* const*>(first)[i]; }

}  // namespace

// ---------------------------------------------------------------- acknowledgements

void acknowledge(const char* call, Rank& rank, const api::Arrived& arrived) {
  const std::uint32_t context = (arrived.label.context & ~synchronous_flag) | acknowledging;
  api::send(call, mailbox_of(rank), {arrived.label.cell, context, arrived.label.tag}, {});
  rank.receives().serve_notices(call);
}

void Receives::add(Request& request) noexcept {
  request.previous = nullptr;
  request.next = first_;
  if (first_ != nullptr) first_->previous = &request;
  first_ = &request;
  ++count_;
}

void Receives::remove(Request& request) noexcept {
  (request.previous != nullptr ? request.previous->next : first_) = request.next;
  if (request.next != nullptr) request.next->previous = request.previous;
  --count_;
}

void Receives::serve(const char* call) {
  for (Request* request = first_; request != nullptr;) {
    Request* const next = request->next;
    if (request->does == Request::Does::receive && !request->posted.open && !request->is_acknowledged &&
        request->posted.has_received() && has_flag(request->posted.arrived())) {
      request->is_acknowledged = true;
      acknowledge(call, rank_, request->posted.arrived());
      return serve(call);  // the list may have changed
    }
    request = next;
  }
}

// The notice of a message that has been received comes behind it, and nobody waits for it any more.
void Receives::serve_notices(const char* call) {
  bool has_come = false;
  Message notice;
  while (api::take(call, mailbox_of(rank_), notice, {any_cell, notice_context, {}})) has_come = true;
  if (has_come) serve(call);
}

void Receives::watch(const char* call) {
  api::post(call, mailbox_of(rank_), notice_, {}, {any_cell, notice_context, {}});
}

// Not open between waits, so that it is always the youngest: the core lets senders fill only the oldest receive
// directly.
void Receives::unwatch(const char* call) {
  if (!api::cancel(notice_)) serve(call);
}

// ---------------------------------------------------------------- waits

bool Receives::is_only(const Posted& posted) const noexcept {
  return count_ == 0 || (count_ == 1 && &first_->posted == &posted);
}

bool Receives::wait_for(const char* call, const RequestSet& set) {
  watch(call);
  const bool goes_on = api::wait(call, set, false);
  if (goes_on) unwatch(call);
  return goes_on;
}

bool Receives::wait(const char* call, api::MailboxReceive& posted) {
  Posted* both[] = {&posted, &notice_};
  if (is_only(posted)) return api::wait(call, {both, 1, pointer_at}, true);
  while (posted.open) {
    if (!wait_for(call, {both, 2, pointer_at})) return false;
  }
  return true;
}

bool Receives::wait_any(const char* call, const MPI_Request* requests, std::size_t count) {
  const WaitSet set{requests, count, &notice_};
  const auto is_over = [&] {
    return std::any_of(requests, requests + count,
                       [](MPI_Request handle) { return known(handle) != nullptr && known(handle)->is_over(); });
  };
  while (!is_over()) {
    if (!wait_for(call, {&set, count + 1, active_at})) return false;
  }
  return true;
}

void Receives::poll(const char* call, const MPI_Request* requests, std::size_t count) {
  const WaitSet set{requests, count, nullptr};
  static_cast<void>(api::test(call, {&set, count, open_at}, true));
  if (count_ > 1 || (count_ == 1 && first_->does == Request::Does::send)) serve_notices(call);
}

void Receives::tend(const char* call) {
  if (count_ != 0) serve_notices(call);
}

std::optional<api::Arrived> Receives::receive_in(const char* call, const api::Mailbox& mailbox,
                                                 std::span<std::byte> buffer, const api::LabelWish& wish) {
  if (count_ == 0) [[likely]]
    return api::receive(call, mailbox, buffer, wish);
  OwnReceive own;
  api::post(call, mailbox, own, buffer, wish);
  if (own.open && !wait(call, own)) return std::nullopt;
  if (!own.has_received())
    fail(MPI_ERR_PROC_ABORTED, fmt::format("cell {} has ended, and left no such message", index(wish.cell)));
  return own.arrived();
}

std::optional<api::Arrived> Receives::receive(const char* call, std::span<std::byte> buffer,
                                              const api::LabelWish& wish) {
  const auto arrived = receive_in(call, mailbox_of(rank_), buffer, wish);
  if (arrived && has_flag(*arrived)) [[unlikely]]
    acknowledge(call, rank_, *arrived);
  return arrived;
}

void Receives::sweep(const Call& call) {
  for (Request* request = first_; request != nullptr;) {
    Request* const next = request->next;
    if (request->is_freed && !request->posted.open) {
      if (const auto failure = complete(call, *request, MPI_STATUS_IGNORE)) failure->on->release();
      request->release();
    }
    request = next;
  }
}

void Receives::close() noexcept {
  api::cancel(notice_);
  for (Request* request = first_; request != nullptr; request = request->next) api::cancel(request->posted);
}

// ---------------------------------------------------------------- messages

api::LabelWish wish_of(const Comm& comm, int source, int tag) noexcept {
  api::LabelWish wish{any_cell, comm.context(), {}};
  if (source != MPI_ANY_SOURCE) wish.cell = comm.cell_of(source);
  if (tag != MPI_ANY_TAG) wish.tag = static_cast<std::uint32_t>(tag);
  return wish;
}

void set_arrived(MPI_Status* status, const Comm& comm, const api::Arrived& arrived) noexcept {
  set_status(status, comm.rank_of(arrived.label.cell), static_cast<int>(arrived.label.tag),
             static_cast<MPI_Count>(arrived.bytes));
}

void check_room(const Comm& comm, const api::Arrived& arrived, MPI_Count room) {
  if (arrived.bytes <= static_cast<std::size_t>(room)) [[likely]]
    return;
  fail(MPI_ERR_TRUNCATE,
       fmt::format("the message from rank {} with tag {} has {} bytes, but count and datatype make room for {}; its "
                   "beginning is there. Receive with room for all, or ask MPI_Probe before",
                   comm.rank_of(arrived.label.cell), arrived.label.tag, arrived.bytes, room));
}

namespace {

[[noreturn, gnu::cold, gnu::noinline]] void fail_rank(const char* parameter, const Comm& comm, int rank) {
  fail(MPI_ERR_RANK, fmt::format("{} is {}; {} has ranks 0..{}, and there is MPI_PROC_NULL{}", parameter, rank,
                                 comm.name.empty() ? "the communicator" : comm.name, comm.size() - 1,
                                 parameter[0] == 's' ? " and MPI_ANY_SOURCE" : ""));
}

[[noreturn, gnu::cold, gnu::noinline]] void fail_tag(const char* parameter, int tag, const char* further) {
  fail(MPI_ERR_TAG, fmt::format("{} is {}; a tag is 0..{}{}", parameter, tag, api::Label::tag_max, further));
}

bool is_tag(int tag) { return tag >= 0 && static_cast<std::uint32_t>(tag) <= api::Label::tag_max; }

}  // namespace

void check_dest(const Comm& comm, int dest) {
  if ((dest < 0 || dest >= comm.size()) && dest != MPI_PROC_NULL) [[unlikely]]
    fail_rank("dest", comm, dest);
}

void check_source(const Comm& comm, int source) {
  if ((source < 0 || source >= comm.size()) && source != MPI_ANY_SOURCE && source != MPI_PROC_NULL) [[unlikely]]
    fail_rank("source", comm, source);
}

void check_tag(const char* parameter, int tag) {
  if (!is_tag(tag)) [[unlikely]]
    fail_tag(parameter, tag, "");
}

void check_any_tag(const char* parameter, int tag) {
  if (!is_tag(tag) && tag != MPI_ANY_TAG) [[unlikely]]
    fail_tag(parameter, tag, ", or MPI_ANY_TAG");
}

namespace {

void check_buffer(Rank& rank, MPI_Count bytes) {
  if (rank.attached_buffer == nullptr && rank.attached_bytes == 0)
    fail(MPI_ERR_BUFFER, "no buffer is attached; call MPI_Buffer_attach before a buffered send");
  if (bytes + MPI_BSEND_OVERHEAD > rank.attached_bytes) {
    fail(MPI_ERR_BUFFER, fmt::format("the message needs {} bytes with MPI_BSEND_OVERHEAD; the attached buffer has {}",
                                     bytes + MPI_BSEND_OVERHEAD, rank.attached_bytes));
  }
}

}  // namespace

void send_elements(const char* call, Comm& comm, int dest, int tag, const Elements& elements, Mode mode) {
  const MPI_Count bytes = elements.bytes();
  if (mode == Mode::buffered) check_buffer(comm.owner(), bytes);
  const bool is_synchronous = mode == Mode::synchronous;
  const api::Mailbox to = mailbox_of(comm.owner());
  const api::Label label{comm.cell_of(dest), comm.context() | (is_synchronous ? synchronous_flag : 0),
                         static_cast<std::uint32_t>(tag)};
  const auto size = static_cast<std::size_t>(bytes);
  const char* const together = elements.contiguous();
  if (together != nullptr || size == 0) [[likely]] {
    api::send(call, to, label, {reinterpret_cast<const std::byte*>(together), size});
  } else {
    const auto packed = std::make_unique_for_overwrite<std::byte[]>(size);
    pack(packed.get(), elements, 0, bytes);
    api::send(call, to, label, {packed.get(), size});
  }
  if (is_synchronous) api::send(call, to, {label.cell, notice_context, label.tag}, {});
}

// ---------------------------------------------------------------- a request's life

void start(const Call& call, Request& request) {
  Comm& comm = *request.comm;
  const api::Mailbox mailbox = mailbox_of(call.rank());
  request.is_active = true;
  request.is_acknowledged = false;
  request.posted.cancelled = false;
  request.posted.how = Wake::done;
  if (request.peer == MPI_PROC_NULL || request.does == Request::Does::nothing) return;
  if (request.does == Request::Does::send) {
    send_elements(call.name(), comm, request.peer, request.tag, request.elements, request.mode);
    if (request.mode == Mode::synchronous) {
      api::post(call.name(), mailbox, request.posted, {},
                {comm.cell_of(request.peer), comm.context() | acknowledging, static_cast<std::uint32_t>(request.tag)});
      call.rank().receives().add(request);
    }
    return;
  }
  const auto bytes = static_cast<std::size_t>(request.elements.bytes());
  auto* place = reinterpret_cast<std::byte*>(request.elements.contiguous());
  if (place == nullptr && bytes != 0) {
    if (request.packed == nullptr) request.packed = std::make_unique_for_overwrite<std::byte[]>(bytes);
    place = request.packed.get();
  }
  api::post(call.name(), mailbox, request.posted, {place, bytes}, wish_of(comm, request.peer, request.tag));
  call.rank().receives().add(request);
  if (!request.posted.open && request.posted.has_received() && has_flag(request.posted.arrived())) {
    request.is_acknowledged = true;
    acknowledge(call.name(), call.rank(), request.posted.arrived());
  }
}

namespace {

void complete_receive(const Call& call, Request& request, MPI_Status* status) {
  if (request.peer == MPI_PROC_NULL) return set_null_status(status);
  if (request.posted.cancelled) return set_empty_status(status, true);
  if (!request.posted.has_received()) {
    set_empty_status(status);
    fail(MPI_ERR_PROC_ABORTED, fmt::format("rank {} has ended, and left no such message", request.peer));
  }
  const api::Arrived arrived = request.posted.arrived();
  if (has_flag(arrived) && !request.is_acknowledged) acknowledge(call.name(), call.rank(), arrived);
  const MPI_Count room = request.elements.bytes();
  set_arrived(status, *request.comm, arrived);
  if (request.packed != nullptr)
    unpack(request.elements, request.packed.get(), 0, std::min(room, static_cast<MPI_Count>(arrived.bytes)));
  if (static_cast<MPI_Count>(arrived.bytes) > room && status != MPI_STATUS_IGNORE)
    set_status(status, status->MPI_SOURCE, status->MPI_TAG, room);
  check_room(*request.comm, arrived, room);
}

bool is_listed(const Request& request) noexcept {
  return request.peer != MPI_PROC_NULL && (request.does == Request::Does::receive ||
                                           (request.does == Request::Does::send && request.mode == Mode::synchronous));
}

}  // namespace

std::optional<Failure> complete(const Call& call, Request& request, MPI_Status* status) {
  request.is_active = false;
  if (is_listed(request)) call.rank().receives().remove(request);
  std::optional<Failure> failure;
  try {
    switch (request.does) {
      case Request::Does::send:
        set_empty_status(status);
        if (!request.posted.has_received())
          fail(MPI_ERR_PROC_ABORTED, fmt::format("rank {} has ended before it received the message", request.peer));
        break;
      case Request::Does::receive:
        complete_receive(call, request, status);
        break;
      case Request::Does::nothing:
        set_status(status, request.result.MPI_SOURCE, request.result.MPI_TAG, bytes_of(request.result));
        failure = request.failure;
        break;
    }
  } catch (Failure& thrown) {
    failure = std::move(thrown);
  }
  if (failure && failure->on == nullptr) {
    request.comm->hold();
    failure->on = request.comm;
  }
  return failure;
}

Request* request_at(const char* parameter, std::size_t i, MPI_Request handle) {
  if (handle == MPI_REQUEST_NULL) return nullptr;
  if (!is_predefined(handle) && handle_value(handle) % alignof(Object) == 0) {
    auto* const object = reinterpret_cast<Object*>(handle);
    if (object->object_kind() == ObjectKind::request) return static_cast<Request*>(object);
  }
  fail_handle(MPI_ERR_REQUEST, fmt::format("{}[{}]", parameter, i).c_str(), handle_value(handle), "a request");
}

}  // namespace aplib::mpi
