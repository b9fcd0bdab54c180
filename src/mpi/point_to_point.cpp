// SPDX-License-Identifier: MIT
// The calls that send and receive, and those that complete requests.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "mpi/request.hpp"
#include "mpi/status.hpp"

namespace aplib::mpi {

namespace {

/// What a send or receive is about. `parameter` names the buffer.
Elements data_of(const char* parameter, const void* buffer, MPI_Count count, const TypeHandle& type) {
  return elements_at(parameter, buffer, count, *committed("datatype", type));
}

/// A send without a copy, of a call that waits for it. Where the call fails, the data are copied after all.
class Lent {
 public:
  Lent(const Call& call, Comm& comm, int dest, int tag, const Elements& elements)
      : call_(call), is_sent_(lend_elements(call.name(), comm, dest, tag, elements, form_, sent_)) {}
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  ~Lent() { api::cancel(sent_); }

  [[nodiscard]] bool is_sent() const noexcept { return is_sent_; }
  void wait() {
    const RequestSet set{&sent_, 1, [](const void* first, std::size_t) -> Posted* {
                           return const_cast<api::MailboxReceive*>(static_cast<const api::MailboxReceive*>(first));
                         }};
    if (sent_.open) static_cast<void>(wait_for_messages(call_, set));
  }

 private:
  const Call& call_;
  ElementsForm form_;
  api::MailboxReceive sent_;
  bool is_sent_;
};

/// False: it must be copied. A rank that waits for itself could never receive.
[[gnu::noinline]] bool send_lent(const Call& call, Comm& comm, int dest, int tag, const Elements& elements) {
  if (comm.cell_of(dest) == this_cell::id()) return false;
  Lent lent(call, comm, dest, tag, elements);
  lent.wait();
  return lent.is_sent();
}

void send_now(const Call& call, const void* buf, MPI_Count count, const TypeHandle& type, int dest, int tag, Comm& comm,
              Mode mode) {
  check_dest(comm, dest);
  check_tag("tag", tag);
  const Elements elements = data_of("buf", buf, count, type);
  if (dest == MPI_PROC_NULL) return;
  if (can_be_lent(elements, mode) && send_lent(call, comm, dest, tag, elements)) return;
  send_elements(call.name(), comm, dest, tag, elements, mode);
  if (mode == Mode::synchronous) await_receipt(call, comm, dest, tag);
}

void receive_now(const Call& call, const Elements& elements, const TypeHandle& type, int source, int tag, Comm& comm,
                 MPI_Status* status) {
  if (source == MPI_PROC_NULL) return set_null_status(status);
  const auto bytes = static_cast<std::size_t>(elements.bytes());
  char* const together = elements.contiguous();
  const auto arrived = together != nullptr || bytes == 0
                           ? receive(call, comm, source, tag, {reinterpret_cast<std::byte*>(together), bytes})
                           : receive(call, comm, source, tag, elements);
  if (!arrived) return;  // the machine stops
  set_arrived(status, comm, *arrived);
  check_fit(comm, *arrived, elements.bytes(), *type.datatype);
}

Request& new_request(Comm& comm, Request::Does what, const char* parameter, const void* buf, MPI_Count count,
                     const TypeHandle& type, int peer, int tag) {
  const Elements elements = data_of(parameter, buf, count, type);
  Request& request = Request::make(comm, what);
  request.elements = elements;
  request.code = type.datatype->code();
  if (!type.datatype->is_named()) request.datatype = type.datatype;
  request.peer = peer;
  request.tag = tag;
  return request;
}

/// Begins it, unless it is persistent, and gives the program its handle.
void give(const Call& call, Request& request, bool is_persistent, MPI_Request* place) {
  request.is_persistent = is_persistent;
  request.is_active = false;
  if (!is_persistent) {
    try {
      start(call, request);
    } catch (...) {
      request.release();
      throw;
    }
  }
  *place = handle_of<MPI_Request>(request);
}

void send_later(const Call& call, const void* buf, MPI_Count count, const TypeHandle& type, int dest, int tag,
                Comm& comm, Mode mode, bool is_persistent, MPI_Request* place) {
  check_dest(comm, dest);
  check_tag("tag", tag);
  if (!is_persistent && mode != Mode::synchronous) {
    const Elements elements = data_of("buf", buf, count, type);
    if (!can_be_lent(elements, mode)) {
      if (dest != MPI_PROC_NULL) send_elements(call.name(), comm, dest, tag, elements, mode);
      *place = handle_of<MPI_Request>(comm.owner().sent());
      return;
    }
  }
  Request& request = new_request(comm, Request::Does::send, "buf", buf, count, type, dest, tag);
  request.mode = mode;
  give(call, request, is_persistent, place);
}

void receive_later(const Call& call, const char* parameter, void* buf, MPI_Count count, const TypeHandle& type,
                   int source, int tag, Comm& comm, bool is_persistent, MPI_Request* place) {
  check_source(comm, source);
  check_any_tag("tag", tag);
  give(call, new_request(comm, Request::Does::receive, parameter, buf, count, type, source, tag), is_persistent, place);
}

}  // namespace

// ---------------------------------------------------------------- blocking

void send(const Call& call, const void* buf, MPI_Count count, TypeHandle& type, int dest, int tag, Comm& comm) {
  send_now(call, buf, count, type, dest, tag, comm, Mode::standard);
}
void bsend(const Call& call, const void* buf, MPI_Count count, TypeHandle& type, int dest, int tag, Comm& comm) {
  send_now(call, buf, count, type, dest, tag, comm, Mode::buffered);
}
void rsend(const Call& call, const void* buf, MPI_Count count, TypeHandle& type, int dest, int tag, Comm& comm) {
  send_now(call, buf, count, type, dest, tag, comm, Mode::ready);
}

void ssend(const Call& call, const void* buf, MPI_Count count, TypeHandle& type, int dest, int tag, Comm& comm) {
  send_now(call, buf, count, type, dest, tag, comm, Mode::synchronous);
}

void recv(const Call& call, void* buf, MPI_Count count, TypeHandle& type, int source, int tag, Comm& comm,
          MPI_Status* status) {
  check_source(comm, source);
  check_any_tag("tag", tag);
  receive_now(call, data_of("buf", buf, count, type), type, source, tag, comm, status);
}

// Sends are buffered, or over later, so the receive can come second.
void sendrecv(const Call& call, const void* sendbuf, MPI_Count sendcount, TypeHandle& sendtype, int dest, int sendtag,
              void* recvbuf, MPI_Count recvcount, TypeHandle& recvtype, int source, int recvtag, Comm& comm,
              MPI_Status* status) {
  check_dest(comm, dest);
  check_source(comm, source);
  check_tag("sendtag", sendtag);
  check_any_tag("recvtag", recvtag);
  const Elements sent = elements_at("sendbuf", sendbuf, sendcount, *committed("sendtype", sendtype));
  const Elements received = elements_at("recvbuf", recvbuf, recvcount, *committed("recvtype", recvtype));
  // What is to be replaced must be copied before.
  if (can_be_lent(sent, Mode::standard) && dest != MPI_PROC_NULL && sendbuf != recvbuf) [[unlikely]] {
    Lent lent(call, comm, dest, sendtag, sent);
    if (!lent.is_sent()) send_elements(call.name(), comm, dest, sendtag, sent, Mode::standard);
    receive_now(call, received, recvtype, source, recvtag, comm, status);
    return lent.wait();
  }
  if (dest != MPI_PROC_NULL) send_elements(call.name(), comm, dest, sendtag, sent, Mode::standard);
  receive_now(call, received, recvtype, source, recvtag, comm, status);
}

void sendrecv_replace(const Call& call, void* buf, MPI_Count count, TypeHandle& type, int dest, int sendtag, int source,
                      int recvtag, Comm& comm, MPI_Status* status) {
  static_cast<void>(data_of("buf", buf, count, type));  // fails with its own names
  sendrecv(call, buf, count, type, dest, sendtag, buf, count, type, source, recvtag, comm, status);
}

// ---------------------------------------------------------------- nonblocking and persistent

void isend(const Call& call, const void* buf, MPI_Count count, TypeHandle& type, int dest, int tag, Comm& comm,
           MPI_Request* request) {
  send_later(call, buf, count, type, dest, tag, comm, Mode::standard, false, request);
}
void ibsend(const Call& call, const void* buf, MPI_Count count, TypeHandle& type, int dest, int tag, Comm& comm,
            MPI_Request* request) {
  send_later(call, buf, count, type, dest, tag, comm, Mode::buffered, false, request);
}
void issend(const Call& call, const void* buf, MPI_Count count, TypeHandle& type, int dest, int tag, Comm& comm,
            MPI_Request* request) {
  send_later(call, buf, count, type, dest, tag, comm, Mode::synchronous, false, request);
}
void irsend(const Call& call, const void* buf, MPI_Count count, TypeHandle& type, int dest, int tag, Comm& comm,
            MPI_Request* request) {
  send_later(call, buf, count, type, dest, tag, comm, Mode::ready, false, request);
}
void send_init(const Call& call, const void* buf, MPI_Count count, TypeHandle& type, int dest, int tag, Comm& comm,
               MPI_Request* request) {
  send_later(call, buf, count, type, dest, tag, comm, Mode::standard, true, request);
}
void bsend_init(const Call& call, const void* buf, MPI_Count count, TypeHandle& type, int dest, int tag, Comm& comm,
                MPI_Request* request) {
  send_later(call, buf, count, type, dest, tag, comm, Mode::buffered, true, request);
}
void ssend_init(const Call& call, const void* buf, MPI_Count count, TypeHandle& type, int dest, int tag, Comm& comm,
                MPI_Request* request) {
  send_later(call, buf, count, type, dest, tag, comm, Mode::synchronous, true, request);
}
void rsend_init(const Call& call, const void* buf, MPI_Count count, TypeHandle& type, int dest, int tag, Comm& comm,
                MPI_Request* request) {
  send_later(call, buf, count, type, dest, tag, comm, Mode::ready, true, request);
}
void irecv(const Call& call, void* buf, MPI_Count count, TypeHandle& type, int source, int tag, Comm& comm,
           MPI_Request* request) {
  receive_later(call, "buf", buf, count, type, source, tag, comm, false, request);
}
void recv_init(const Call& call, void* buf, MPI_Count count, TypeHandle& type, int source, int tag, Comm& comm,
               MPI_Request* request) {
  receive_later(call, "buf", buf, count, type, source, tag, comm, true, request);
}

void isendrecv(const Call& call, const void* sendbuf, MPI_Count sendcount, TypeHandle& sendtype, int dest, int sendtag,
               void* recvbuf, MPI_Count recvcount, TypeHandle& recvtype, int source, int recvtag, Comm& comm,
               MPI_Request* request) {
  check_dest(comm, dest);
  check_source(comm, source);
  check_tag("sendtag", sendtag);
  check_any_tag("recvtag", recvtag);
  const Elements sent = elements_at("sendbuf", sendbuf, sendcount, *committed("sendtype", sendtype));
  static_cast<void>(elements_at("recvbuf", recvbuf, recvcount, *committed("recvtype", recvtype)));
  if (dest != MPI_PROC_NULL) send_elements(call.name(), comm, dest, sendtag, sent, Mode::standard);
  receive_later(call, "recvbuf", recvbuf, recvcount, recvtype, source, recvtag, comm, false, request);
}

void isendrecv_replace(const Call& call, void* buf, MPI_Count count, TypeHandle& type, int dest, int sendtag,
                       int source, int recvtag, Comm& comm, MPI_Request* request) {
  static_cast<void>(data_of("buf", buf, count, type));
  isendrecv(call, buf, count, type, dest, sendtag, buf, count, type, source, recvtag, comm, request);
}

// ---------------------------------------------------------------- requests

namespace {

Request& request_of_place(const char* parameter, const MPI_Request* place, std::size_t i = 0) {
  Request* const request = request_at(parameter, i, place[i]);
  if (request == nullptr) fail_handle(MPI_ERR_REQUEST, parameter, handle_value(place[i]), "a request");
  return *request;
}

/// Completes one that is over as most are: a send, or a receive that is full. False: nothing is done.
bool complete_plain(MPI_Request* place, Request& request, MPI_Status* status) {
  if (&request == &request.rank().sent()) {
    set_empty_status(status);
    *place = MPI_REQUEST_NULL;
    return true;
  }
  if (request.does == Request::Does::collective && !request.is_persistent && !request.failure) {
    set_empty_status(status);
    request.release();
    *place = MPI_REQUEST_NULL;
    return true;
  }
  if (request.does != Request::Does::receive || request.is_persistent || request.peer == MPI_PROC_NULL ||
      !request.posted.has_received() || request.apart.size() != 0 ||
      request.posted.bytes != static_cast<std::size_t>(request.elements.bytes()))
    return false;
  if (status != MPI_STATUS_IGNORE) set_arrived(status, *request.comm, request.posted.arrived());
  request.release();
  *place = MPI_REQUEST_NULL;
  return true;
}

/// Completes one that is over. A handle of one that is not persistent becomes MPI_REQUEST_NULL.
std::optional<Failure> complete_at(const Call& call, MPI_Request* place, Request& request, MPI_Status* status) {
  std::optional<Failure> failure = complete(call, request, status);
  if (!request.is_persistent) {
    request.drop();
    *place = MPI_REQUEST_NULL;
  }
  return failure;
}

void complete_or_fail(const Call& call, MPI_Request* place, Request& request, MPI_Status* status) {
  if (complete_plain(place, request, status)) return;
  if (auto failure = complete_at(call, place, request, status)) throw std::move(*failure);
}

/// A program's array of requests.
class RequestArray {
 public:
  /// Of constant ones nothing is completed.
  RequestArray(const Call& call, int count, const MPI_Request* requests)
      : RequestArray(call, count, const_cast<MPI_Request*>(requests)) {}
  RequestArray(const Call& call, int count, MPI_Request* requests) : call_(call), first_(requests), count_(count) {
    if (count > 0 && requests == nullptr) fail_null("array_of_requests");
    for (int i = 0; i < count; ++i) {
      const Request* const request = request_at("array_of_requests", static_cast<std::size_t>(i), first_[i]);
      if (request == nullptr || !request->is_active) continue;
      ++active_;
      has_open_ = has_open_ || request->is_open() || request->is_in_vain();
    }
  }

  [[nodiscard]] Request* at(int i) const { return known_request(first_[i]); }
  [[nodiscard]] bool is_over(int i) const {
    const Request* const request = at(i);
    return request != nullptr && request->is_over();
  }
  [[nodiscard]] int active() const noexcept { return active_; }
  /// MPI_UNDEFINED: none is over.
  [[nodiscard]] int first_over() const {
    for (int i = 0; i < count_; ++i) {
      if (is_over(i)) return i;
    }
    return MPI_UNDEFINED;
  }
  [[nodiscard]] bool is_in_vain(int i) const { return at(i) != nullptr && at(i)->is_in_vain(); }
  /// After a wait for one of them: that one. If none is over, all that are left are in vain.
  [[nodiscard]] int first_ended() const {
    const int first = first_over();
    for (int i = 0; first == MPI_UNDEFINED; ++i) {
      if (is_in_vain(i)) return i;
    }
    return first;
  }
  [[nodiscard]] bool has_open() const {
    for (int i = 0; i < count_; ++i) {
      if (at(i) != nullptr && (at(i)->is_open() || is_in_vain(i))) return true;
    }
    return false;
  }
  void poll() const { poll_for(call_, first_, static_cast<std::size_t>(count_)); }
  /// False: the machine stops.
  [[nodiscard]] bool wait(bool all) const {
    return !has_open_ || wait_for(call_, first_, static_cast<std::size_t>(count_), all);
  }

  /// Completes number i. The status of each tells its error, if there is any.
  void complete(int i, MPI_Status* status) {
    if (complete_plain(first_ + i, *at(i), status)) [[likely]] {
      if (status != MPI_STATUS_IGNORE) status->MPI_ERROR = MPI_SUCCESS;
      return;
    }
    complete_otherwise(i, status);
  }
  [[gnu::noinline]] void complete_otherwise(int i, MPI_Status* status) {
    std::optional<Failure> failure = complete_at(call_, first_ + i, *at(i), status);
    if (status != MPI_STATUS_IGNORE) status->MPI_ERROR = failure ? failure->code : MPI_SUCCESS;
    if (!failure) return;
    if (failure_) {
      failure->on->release();
    } else {
      failure_ = Failure{
          MPI_ERR_IN_STATUS,
          fmt::format("request {} of {}: {} ({})", i, count_, failure->text, name_of_code(failure->code)), failure->on};
    }
  }
  void throw_failure() {
    if (failure_) throw std::move(*failure_);
  }
  void complete_all(MPI_Status* statuses) {
    for (int i = 0; i < count_; ++i) {
      MPI_Status* const status = statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : statuses + i;
      if (is_over(i) || is_in_vain(i)) {
        complete(i, status);
      } else {
        set_empty_status(status);
        if (status != MPI_STATUS_IGNORE) status->MPI_ERROR = MPI_SUCCESS;
      }
    }
    throw_failure();
  }
  /// Those that are over, or those in vain.
  int complete_some(int indices[], MPI_Status* statuses, bool in_vain = false) {
    int done = 0;
    for (int i = 0; i < count_; ++i) {
      if (in_vain ? !is_in_vain(i) : !is_over(i)) continue;
      complete(i, statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : statuses + done);
      indices[done++] = i;
    }
    return done;
  }

 private:
  const Call& call_;
  MPI_Request* first_;
  int count_;
  int active_ = 0;
  bool has_open_ = false;  // at the beginning
  std::optional<Failure> failure_;
};

}  // namespace

void wait(const Call& call, MPI_Request* place, MPI_Status* status) {
  Request* const request = request_at("request", 0, *place);
  if (request == nullptr || !request->is_active) return set_empty_status(status);
  if (request->is_open() && !wait_for(call, place, 1, true)) return;
  complete_or_fail(call, place, *request, status);
}

void test(const Call& call, MPI_Request* place, int* flag, MPI_Status* status) {
  Request* const request = request_at("request", 0, *place);
  *flag = 1;
  if (request == nullptr || !request->is_active) return set_empty_status(status);
  if (!request->is_over()) poll_for(call, place, 1);
  *flag = request->is_over() ? 1 : 0;
  if (*flag != 0) complete_or_fail(call, place, *request, status);
}

void waitall(const Call& call, int count, MPI_Request requests[], MPI_Status* statuses) {
  RequestArray array(call, count, requests);
  if (array.wait(true)) array.complete_all(statuses);
}

void testall(const Call& call, int count, MPI_Request requests[], int* flag, MPI_Status* statuses) {
  RequestArray array(call, count, requests);
  if (array.has_open()) array.poll();
  *flag = array.has_open() ? 0 : 1;
  if (*flag != 0) array.complete_all(statuses);
}

void waitany(const Call& call, int count, MPI_Request requests[], int* indx, MPI_Status* status) {
  const RequestArray array(call, count, requests);
  *indx = MPI_UNDEFINED;
  if (array.active() == 0) return set_empty_status(status);
  if (array.first_over() == MPI_UNDEFINED && !array.wait(false)) return;
  *indx = array.first_ended();
  complete_or_fail(call, requests + *indx, *array.at(*indx), status);
}

void testany(const Call& call, int count, MPI_Request requests[], int* indx, int* flag, MPI_Status* status) {
  const RequestArray array(call, count, requests);
  *indx = MPI_UNDEFINED;
  *flag = 1;
  if (array.active() == 0) return set_empty_status(status);
  if (array.first_over() == MPI_UNDEFINED) array.poll();
  *indx = array.first_over();
  *flag = *indx != MPI_UNDEFINED ? 1 : 0;
  if (*flag != 0) complete_or_fail(call, requests + *indx, *array.at(*indx), status);
}

void waitsome(const Call& call, int count, MPI_Request requests[], int* outcount, int indices[], MPI_Status* statuses) {
  RequestArray array(call, count, requests);
  *outcount = MPI_UNDEFINED;
  if (array.active() == 0) return;
  if (array.first_over() == MPI_UNDEFINED && !array.wait(false)) return;
  *outcount = array.complete_some(indices, statuses, array.first_over() == MPI_UNDEFINED);
  array.throw_failure();
}

void testsome(const Call& call, int count, MPI_Request requests[], int* outcount, int indices[], MPI_Status* statuses) {
  RequestArray array(call, count, requests);
  *outcount = MPI_UNDEFINED;
  if (array.active() == 0) return;
  if (array.first_over() == MPI_UNDEFINED) array.poll();
  *outcount = array.complete_some(indices, statuses);
  array.throw_failure();
}

void request_get_status(const Call& call, MPI_Request handle, int* flag, MPI_Status* status) {
  const Request* const request = request_at("request", 0, handle);
  if (request != nullptr && request->is_active && !request->is_over()) poll_for(call, &handle, 1);
  *flag = request != nullptr && request->is_active && !request->is_over() ? 0 : 1;
  if (*flag != 0) tell_status(request, status);
}

void request_get_status_all(const Call& call, int count, const MPI_Request requests[], int* flag,
                            MPI_Status* statuses) {
  const RequestArray array(call, count, requests);
  if (array.has_open()) array.poll();
  *flag = array.has_open() ? 0 : 1;
  if (*flag == 0 || statuses == MPI_STATUSES_IGNORE) return;
  for (int i = 0; i < count; ++i) tell_status(array.at(i), statuses + i);
}

void request_get_status_any(const Call& call, int count, const MPI_Request requests[], int* indx, int* flag,
                            MPI_Status* status) {
  const RequestArray array(call, count, requests);
  *indx = MPI_UNDEFINED;
  *flag = 1;
  if (array.active() == 0) return set_empty_status(status);
  if (array.first_over() == MPI_UNDEFINED) array.poll();
  *indx = array.first_over();
  *flag = *indx != MPI_UNDEFINED ? 1 : 0;
  if (*flag != 0) tell_status(array.at(*indx), status);
}

void request_get_status_some(const Call& call, int count, const MPI_Request requests[], int* outcount, int indices[],
                             MPI_Status* statuses) {
  const RequestArray array(call, count, requests);
  *outcount = MPI_UNDEFINED;
  if (array.active() == 0) return;
  if (array.first_over() == MPI_UNDEFINED) array.poll();
  *outcount = 0;
  for (int i = 0; i < count; ++i) {
    if (!array.is_over(i)) continue;
    tell_status(array.at(i), statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : statuses + *outcount);
    indices[(*outcount)++] = i;
  }
}

void request_free(const Call& call, MPI_Request* place) {
  free_request(call, request_of_place("request", place));
  *place = MPI_REQUEST_NULL;
}

// A send cannot be cancelled; one that is open is copied, so that it is over.
void cancel(const Call&, MPI_Request* place) {
  Request& request = request_of_place("request", place);
  if (!request.is_active) fail(MPI_ERR_REQUEST, "request is not active; cancel between its start and its completion");
  if (request.stays()) fail_under_way(request, "cancelled");
  if (request.does == Request::Does::general) return request.general.cancel(request.is_over());
  if (request.does == Request::Does::receive && request.is_in_vain()) {
    request.posted.cancelled = true;
    return;
  }
  if (request.does == Request::Does::receive || request.posted.lease != nullptr) api::cancel(request.posted);
}

namespace {

void start_persistent(const Call& call, Request& request) {
  if (!request.is_persistent)
    fail(MPI_ERR_REQUEST, "request is not persistent; start those that MPI_Send_init and its like have made");
  if (request.is_active) fail(MPI_ERR_REQUEST, "request is active; complete it before it starts again");
  start(call, request);
}

}  // namespace

void start(const Call& call, MPI_Request* place) { start_persistent(call, request_of_place("request", place)); }

void startall(const Call& call, int count, MPI_Request requests[]) {
  for (int i = 0; i < count; ++i)
    start_persistent(call, request_of_place("array_of_requests", requests, static_cast<std::size_t>(i)));
}

}  // namespace aplib::mpi
