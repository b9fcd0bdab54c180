// SPDX-License-Identifier: MIT
#include "mpi/request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "aplib/task.hpp"
#include "mpi/status.hpp"

namespace aplib::mpi {

namespace {

/// The place where receipts of the rank's synchronous sends arrive.
api::Mailbox receipts_of(const Rank& rank) noexcept { return {TaskId{rank.main_task}, api::Space::mpi_receipt}; }

api::LabelWish receipt_wish(const Comm& comm, int dest, int tag) noexcept {
  return {comm.cell_of(dest), comm.context(), static_cast<std::uint32_t>(tag)};
}

/// What has not come straight to the elements.
void unpack_apart(const Elements& elements, const Message& apart) noexcept {
  unpack(elements, apart.data(), 0, std::min(elements.bytes(), static_cast<Count>(apart.size())));
}

}  // namespace

void fail_unread(int dest) {
  fail(MPI_ERR_PROC_ABORTED, fmt::format("rank {} has ended before it received the message", dest));
}

void fail_unsent(int source) {
  fail(MPI_ERR_PROC_ABORTED, fmt::format("rank {} has ended, and left no such message", source));
}

// ---------------------------------------------------------------- making and end

Request& Request::make(Comm& used, Does what) {
  Rank& rank = used.owner();
  Request* request = rank.spare_requests;
  if (request != nullptr) {
    rank.spare_requests = request->next_spare;
    request->revive(kind);
  } else {
    request = new Request(rank);
  }
  used.hold();
  request->comm = &used;
  request->does = what;
  request->mode = Mode::standard;
  request->is_persistent = false;
  request->is_active = true;
  request->peer = MPI_PROC_NULL;
  return *request;
}

// What it holds is let go now, and the rest is set when it is used again.
void Request::end() noexcept {
  retire();
  is_active = false;
  comm->release();
  comm = nullptr;
  if (does == Does::collective) {
    if (pending != nullptr) pending->clear();
    failure.reset();
  } else {
    datatype.reset();
    if (apart.size() != 0) apart = Message();
    steps.reset();
    resting.reset();
    if (does == Does::nothing || does == Does::partitioned) {
      failure.reset();
      result = {};
    }
  }
  Request*& spare = rank().spare_requests;
  next_spare = spare;
  spare = this;
}

// ---------------------------------------------------------------- waits

bool Steps::begin(const char*, Request&) { return true; }

api::MailboxReceive& Steps::awaited(Request& request) noexcept { return request.posted; }

void Request::go_on(const char* call) {
  while (steps != nullptr && !awaited().open) {
    if (steps->go_on(call, *this)) continue;
    if (is_persistent) {
      resting = std::move(steps);
    } else {
      steps.reset();
    }
  }
}

namespace {

/// False: none has steps.
bool go_on(const char* call, const MPI_Request* requests, std::size_t count) {
  bool has_steps = false;
  for (std::size_t i = 0; i < count; ++i) {
    Request* const request = known_request(requests[i]);
    if (request == nullptr || request->steps == nullptr) continue;
    has_steps = true;
    request->go_on(call);
  }
  return has_steps;
}

bool are_over(const MPI_Request* requests, std::size_t count, bool all) {
  const auto is_over = [](MPI_Request handle) {
    return known_request(handle) != nullptr && known_request(handle)->is_over();
  };
  const auto is_open = [](MPI_Request handle) {
    return known_request(handle) != nullptr && known_request(handle)->is_open();
  };
  return all ? std::none_of(requests, requests + count, is_open) : std::any_of(requests, requests + count, is_over);
}

/// Of a program's requests none is open, or one is not. What a request with steps waits for is over before it is.
class Over final : public Condition {
 public:
  Over(const Rank& rank, const MPI_Request* requests, std::size_t count, bool all) noexcept
      : rank_(rank), requests_(requests), count_(count), all_(all) {}

  [[nodiscard]] bool holds() const noexcept override {
    bool waits = false;
    for (std::size_t i = 0; i < count_; ++i) {
      Request* const request = known_request(requests_[i]);
      if (request == nullptr || !request->is_active) continue;
      if (!all_ && request->is_in_vain()) continue;
      const bool is_open = request->awaited().open || request->is_pending;
      if (is_open == all_) return !all_;
      waits = waits || is_open;
    }
    return !waits;
  }
  [[nodiscard]] bool is_about_memory() const noexcept override { return false; }
  [[nodiscard]] bool needs(std::uint32_t) const noexcept override { return false; }  // then they are over
  [[nodiscard]] std::string missing() const override {
    return Received(rank_, {requests_, count_,
                            [](const void* first, std::size_t i) -> Posted* {
                              Request* const request = known_request(static_cast<const MPI_Request*>(first)[i]);
                              return request != nullptr ? &request->awaited() : nullptr;
                            }})
        .missing();
  }
  void let_go() noexcept override {}

 private:
  const Rank& rank_;
  const MPI_Request* requests_;
  std::size_t count_;
  bool all_;
};

/// While calls of the rank are pending.
[[gnu::noinline]] bool wait_beside(const Call& call, const MPI_Request* requests, std::size_t count, bool all) {
  PendingCalls& pending = call.rank().pending_calls;
  if (Request* const only = count == 1 ? known_request(requests[0]) : nullptr; only != nullptr && only->is_pending) {
    if (pending.wait_for(call, *only->pending) == Wake::stopping) return false;
    if (!only->is_pending) return true;
  }
  Over over(call.rank(), requests, count, all);
  return pending.wait(call, over) != Wake::stopping;
}

}  // namespace

namespace {

/// What active ones wait for. Who waits for one of several does not wait for those that are in vain.
template <bool all>
Posted* awaited_by(const void* first, std::size_t i) {
  Request* const request = known_request(static_cast<const MPI_Request*>(first)[i]);
  if (request == nullptr || !request->is_active || (!all && request->is_in_vain())) return nullptr;
  return &request->awaited();
}

}  // namespace

// Steps may begin another wait, and one that was waited for may turn out to be in vain.
bool wait_for(const Call& call, const MPI_Request* requests, std::size_t count, bool all) {
  const RequestSet active{requests, count, all ? awaited_by<true> : awaited_by<false>};
  while (true) {
    const bool is_alone = call.rank().pending_calls.stays_empty();
    if (is_alone ? !api::wait(call.name(), active, all) : !wait_beside(call, requests, count, all)) return false;
    const bool has_steps = go_on(call.name(), requests, count);
    if (are_over(requests, count, all) || (all ? !has_steps : are_over(requests, count, true))) return true;
  }
}

namespace {

/// The same for calls that are pending.
void poll_pending(const Call& call, const MPI_Request* requests, std::size_t count) {
  constexpr std::uint8_t misses_max = 4;
  Rank& rank = call.rank();
  rank.pending_calls.go_on(call.name());
  const bool misses = std::any_of(requests, requests + count, [](MPI_Request handle) {
    const Request* const request = known_request(handle);
    return request != nullptr && request->is_pending;
  });
  if (!misses || ++rank.test_misses < misses_max) return;
  rank.test_misses = 0;
  this_task::yield();
  rank.pending_calls.go_on(call.name());
}

}  // namespace

void poll_for(const Call& call, const MPI_Request* requests, std::size_t count) {
  constexpr std::uint8_t misses_max = 4;
  if (!call.rank().pending_calls.is_empty()) poll_pending(call, requests, count);
  const bool are_in_vain = std::any_of(requests, requests + count, [](MPI_Request handle) {
    const Request* const request = known_request(handle);
    return request != nullptr && request->is_in_vain();
  });
  if (are_in_vain && ++call.rank().test_misses >= misses_max) {
    call.rank().test_misses = 0;
    this_task::yield();
  }
  const RequestSet given{requests, count, [](const void* first, std::size_t i) -> Posted* {
                           Request* const request = known_request(static_cast<const MPI_Request*>(first)[i]);
                           return request != nullptr ? &request->awaited() : nullptr;
                         }};
  static_cast<void>(api::test(call.name(), given, true));
  go_on(call.name(), requests, count);
}

std::optional<api::Arrived> receive_bytes(const Call& call, const api::Mailbox& mailbox, std::span<std::byte> place,
                                          const api::LabelWish& wish) {
  return call.rank().pending_calls.receive(
      call, [&](api::MailboxReceive& receive) { api::post(call.name(), mailbox, receive, place, wish); },
      [&] { return api::receive(call.name(), mailbox, place, wish); });
}

std::optional<api::Arrived> receive(const Call& call, const Comm& comm, int source, int tag,
                                    std::span<std::byte> place) {
  return wait_for_rank(source, fail_unsent,
                       [&] { return receive_bytes(call, mailbox_of(call.rank()), place, wish_of(comm, source, tag)); });
}

std::optional<api::Arrived> receive(const Call& call, const Comm& comm, int source, int tag, const Elements& elements) {
  const ElementsForm form(elements);
  const auto bytes = static_cast<std::size_t>(elements.bytes());
  Message apart;
  const api::Mailbox mailbox = mailbox_of(call.rank());
  const api::LabelWish wish = wish_of(comm, source, tag);
  const auto arrived = wait_for_rank(source, fail_unsent, [&] {
    return call.rank().pending_calls.receive(
        call, [&](api::MailboxReceive& receive) { api::post(call.name(), mailbox, receive, form, bytes, apart, wish); },
        [&] { return api::receive(call.name(), mailbox, form, bytes, apart, wish); });
  });
  unpack_apart(elements, apart);
  return arrived;
}

std::optional<api::Arrived> await_message(const Call& call, const Comm& comm, int source, int tag) {
  const api::Mailbox mailbox = mailbox_of(call.rank());
  const api::LabelWish wish = wish_of(comm, source, tag);
  return wait_for_rank(source, fail_unsent, [&] {
    return call.rank().pending_calls.receive(
        call,
        [&](api::MailboxReceive& look) {
          look.looks = true;
          look.gives_receipt = false;
          api::post(call.name(), mailbox, look, {}, wish);
        },
        [&] { return api::await(call.name(), mailbox, wish); });
  });
}

void await_receipt(const Call& call, const Comm& comm, int dest, int tag) {
  static_cast<void>(wait_for_rank(dest, fail_unread, [&] {
    return receive_bytes(call, receipts_of(call.rank()), {}, receipt_wish(comm, dest, tag));
  }));
}

void fail_under_way(const Request& request, const char* what) {
  if (request.does == Request::Does::partitioned)
    fail(MPI_ERR_REQUEST,
         fmt::format("request is a partitioned one that is active; it cannot be {}, complete it first", what));
  fail(MPI_ERR_REQUEST, fmt::format("request is of {}; a collective call that is under way cannot be {}, wait for it",
                                    request.pending->name(), what));
}

void free_request(const Call& call, Request& request) {
  if (&request == &call.rank().sent()) return;
  if (request.stays() && request.is_active) fail_under_way(request, "freed");
  if (request.posted.lease != nullptr) api::cancel(request.posted);  // nobody would say how long its memory stays
  call.rank().freed_requests.push_back(&request);
  end_freed_requests(call);
}

void end_freed_requests(const Call& call) {
  std::vector<General> ended;  // their functions may call us
  std::erase_if(call.rank().freed_requests, [&](Request* each) {
    if (each->is_open() || (each->resting != nullptr && each->resting->has_open())) return false;
    if (each->does == Request::Does::general) {
      ended.push_back(each->general);
    } else if (each->is_active) {
      if (const auto failure = complete(call, *each, MPI_STATUS_IGNORE)) failure->on->release();
    }
    each->release();
    return true;
  });
  for (const General& each : ended) each.end();
}

void close_requests(Rank& rank) noexcept {
  rank.for_each_object([](Object& object) {
    if (object.object_kind() != ObjectKind::request) return;
    auto& request = static_cast<Request&>(object);
    api::cancel(request.posted);
    request.steps.reset();
    request.resting.reset();
  });
}

// ---------------------------------------------------------------- messages

void check_other_size(const Comm& comm, const api::Arrived& arrived, MPI_Count room, const Datatype& type) {
  const auto bytes = static_cast<MPI_Count>(arrived.bytes);
  const auto message = [&] {
    return fmt::format("the message from rank {} with tag {} has {} bytes", comm.rank_of(arrived.label.cell),
                       arrived.label.tag, bytes);
  };
  if (bytes > room) {
    fail(MPI_ERR_TRUNCATE, fmt::format("{}, but count and datatype make room for {}; its beginning is there. Receive "
                                       "with room for all, or ask MPI_Probe before",
                                       message(), room));
  }
  if (bytes % type.size() == 0 || type.signature().elements_in(bytes)) return;
  fail(MPI_ERR_TYPE, fmt::format("{}, which end within an element of datatype; let the datatypes of sender and "
                                 "receiver have the same elements",
                                 message()));
}

namespace {

[[noreturn, gnu::cold, gnu::noinline]] void fail_rank(const char* parameter, const Comm& comm, int rank) {
  fail(MPI_ERR_RANK, fmt::format("{} is {}; {} has ranks 0..{}, and there is MPI_PROC_NULL{}", parameter, rank,
                                 comm.is_inter()     ? "the remote group"
                                 : comm.name.empty() ? "the communicator"
                                                     : comm.name,
                                 comm.peer_count() - 1, parameter[0] == 's' ? " and MPI_ANY_SOURCE" : ""));
}

[[noreturn, gnu::cold, gnu::noinline]] void fail_tag(const char* parameter, int tag, const char* further) {
  fail(MPI_ERR_TAG, fmt::format("{} is {}; a tag is 0..{}{}", parameter, tag, api::Label::tag_max, further));
}

bool is_tag(int tag) { return tag >= 0 && static_cast<std::uint32_t>(tag) <= api::Label::tag_max; }

}  // namespace

void check_dest(const Comm& comm, int dest) {
  if ((dest < 0 || dest >= comm.peer_count()) && dest != MPI_PROC_NULL) [[unlikely]]
    fail_rank("dest", comm, dest);
}

void check_source(const Comm& comm, int source) {
  if ((source < 0 || source >= comm.peer_count()) && source != MPI_ANY_SOURCE && source != MPI_PROC_NULL) [[unlikely]]
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

[[gnu::noinline]] void send_packed(const char* call, const api::Mailbox& to, const api::Label& label,
                                   const Elements& elements) {
  const auto size = static_cast<std::size_t>(elements.bytes());
  const auto packed = std::make_unique_for_overwrite<std::byte[]>(size);
  pack(packed.get(), elements, 0, elements.bytes());
  api::send(call, to, label, {packed.get(), size});
}

}  // namespace

void send_elements(const char* call, const api::Mailbox& to, const api::Label& label, const Elements& elements) {
  const auto size = static_cast<std::size_t>(elements.bytes());
  const char* const together = elements.contiguous();
  if (together == nullptr && size != 0) [[unlikely]]
    return send_packed(call, to, label, elements);
  api::send(call, to, label, {reinterpret_cast<const std::byte*>(together), size});
}

void send_elements(const char* call, Comm& comm, int dest, int tag, const Elements& elements, Mode mode) {
  const MPI_Count bytes = elements.bytes();
  if (mode == Mode::buffered) [[unlikely]]
    check_send_buffer(comm, bytes);
  const std::uint32_t flag = mode == Mode::synchronous ? api::Label::asks_for_receipt : 0;
  send_elements(call, mailbox_of(comm.owner()),
                {comm.cell_of(dest), comm.context() | flag, static_cast<std::uint32_t>(tag)}, elements);
}

ElementsForm::ElementsForm(const Elements& described) noexcept : elements(described) {
  copy = [](const Side& to, const Side& from, std::size_t first, std::size_t bytes) noexcept {
    const auto elements_of = [&](const Side& side) {
      return side.form != nullptr ? static_cast<const ElementsForm*>(side.form)->elements
                                  : bytes_at(side.address, static_cast<Count>(first + bytes));
    };
    mpi::copy(elements_of(to), elements_of(from), static_cast<Count>(first), static_cast<Count>(bytes));
  };
}

bool lend_elements(const char* call, const api::Mailbox& to, const api::Label& label, const Elements& elements,
                   ElementsForm& form, api::MailboxReceive& sent) {
  form.elements = elements;
  char* const together = elements.contiguous();
  const Side from{together, together == nullptr ? &form : nullptr};
  return api::lend(call, to, label, from, static_cast<std::size_t>(elements.bytes()), sent);
}

bool lend_elements(const char* call, Comm& comm, int dest, int tag, const Elements& elements, ElementsForm& form,
                   api::MailboxReceive& sent) {
  return lend_elements(call, mailbox_of(comm.owner()),
                       {comm.cell_of(dest), comm.context(), static_cast<std::uint32_t>(tag)}, elements, form, sent);
}

// ---------------------------------------------------------------- a request's life

void start(const Call& call, Request& request) {
  Comm& comm = *request.comm;
  if (request.does == Request::Does::collective) {
    request.pending->start();
    request.is_active = true;
    return;
  }
  if (request.does == Request::Does::partitioned) {
    const bool waits = request.resting->begin(call.name(), request);
    request.is_active = true;
    if (!waits) return;
    request.steps = std::move(request.resting);
    return request.go_on(call.name());
  }
  request.is_active = true;
  request.posted.cancelled = false;
  request.posted.how = Wake::done;
  if (request.peer == MPI_PROC_NULL || request.does == Request::Does::nothing) return;
  if (request.does == Request::Does::send) {
    if (can_be_lent(request.elements, request.mode) &&
        lend_elements(call.name(), comm, request.peer, request.tag, request.elements, request.form, request.posted))
      return;
    send_elements(call.name(), comm, request.peer, request.tag, request.elements, request.mode);
    if (request.mode == Mode::synchronous) {
      api::post(call.name(), receipts_of(call.rank()), request.posted, {},
                receipt_wish(comm, request.peer, request.tag));
    }
    return;
  }
  const auto bytes = static_cast<std::size_t>(request.elements.bytes());
  const api::LabelWish wish = wish_of(comm, request.peer, request.tag);
  auto* const place = reinterpret_cast<std::byte*>(request.elements.contiguous());
  if (place != nullptr || bytes == 0)
    return api::post(call.name(), mailbox_of(call.rank()), request.posted, {place, bytes}, wish);
  request.form.elements = request.elements;
  api::post(call.name(), mailbox_of(call.rank()), request.posted, request.form, bytes, request.apart, wish);
}

namespace {

void complete_receive(Request& request) {
  if (request.peer == MPI_PROC_NULL || request.posted.cancelled) return;
  if (!request.posted.has_received()) fail_unsent(request.peer);
  const api::Arrived arrived = request.posted.arrived();
  unpack_apart(request.elements, request.apart);
  request.apart = Message();
  const MPI_Count room = request.elements.bytes();
  if (request.datatype != nullptr) return check_fit(*request.comm, arrived, room, *request.datatype);
  if (arrived.bytes != static_cast<std::size_t>(room))
    check_other_size(*request.comm, arrived, room, *Datatype::named(request.code));
}

}  // namespace

void tell_status(const Request* request, MPI_Status* status) {
  if (request == nullptr || !request->is_over() || request->does == Request::Does::send ||
      request->does == Request::Does::collective) {
    set_empty_status(status);
  } else if (request->does == Request::Does::general) {
    request->general.tell(status);
  } else if (request->does == Request::Does::nothing || request->does == Request::Does::partitioned) {
    const MPI_Status& result = request->result;
    set_status(status, result.MPI_SOURCE, result.MPI_TAG, bytes_of(result), result.MPI_internal[2] != 0);
  } else if (request->peer == MPI_PROC_NULL) {
    set_null_status(status);
  } else if (!request->posted.has_received()) {
    set_empty_status(status, request->posted.cancelled);
  } else {
    api::Arrived arrived = request->posted.arrived();
    arrived.bytes = std::min(arrived.bytes, static_cast<std::size_t>(request->elements.bytes()));
    set_arrived(status, *request->comm, arrived);
  }
}

namespace {

/// It ends, whatever the query says.
void complete_general(const General& general, MPI_Status* status) {
  try {
    general.tell(status);
  } catch (...) {
    general.end();
    throw;
  }
  general.end();
}

}  // namespace

std::optional<Failure> complete(const Call& call, Request& request, MPI_Status* status) {
  if (request.does != Request::Does::general) tell_status(&request, status);
  if (&request == &call.rank().sent()) return std::nullopt;
  request.is_active = false;
  std::optional<Failure> failure;
  try {
    switch (request.does) {
      case Request::Does::send:
        if (!request.posted.has_received()) fail_unread(request.peer);
        break;
      case Request::Does::receive:
        complete_receive(request);
        break;
      case Request::Does::nothing:
      case Request::Does::partitioned:
        failure = request.failure;
        break;
      case Request::Does::collective:
        failure = std::exchange(request.failure, std::nullopt);
        if (failure) failure->text.insert(0, fmt::format("{}: ", request.pending->name()));
        break;
      case Request::Does::general:
        complete_general(request.general, status);
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

Request& request_of(const Call&, const char* parameter, MPI_Request handle) {
  return object_of<Request>(MPI_ERR_REQUEST, parameter, handle, "a request");
}

void fail_request(const char* parameter, std::size_t i, MPI_Request handle) {
  fail_handle(MPI_ERR_REQUEST, fmt::format("{}[{}]", parameter, i).c_str(), handle_value(handle), "a request");
}

}  // namespace aplib::mpi
