// SPDX-License-Identifier: MIT
// The public API of requests (aplib/request.hpp).
#include "aplib/request.hpp"

#include <algorithm>
#include <new>

#include "cell/lease.hpp"
#include "cell/processor.hpp"
#include "kernel/api.hpp"
#include "kernel/machine_impl.hpp"

namespace aplib {

namespace {

/// Of a receive, or of a send that is lent. It lies in a buffer as the bodies of messages do, so that it may outlive
/// its machine.
struct OpenRequest : Posted {
  const Cell* cell = nullptr;  ///< Of the task that began it. Not to be read: the machine may be gone.
};

/// How a request went.
struct Outcome {
  Wake how = Wake::done;
  MatchWish wish;
  std::uint64_t key = 0;
  std::size_t bytes = 0;
  std::size_t capacity = 0;

  [[nodiscard]] bool well() const noexcept { return how == Wake::done && bytes <= capacity; }
};

[[noreturn, gnu::cold, gnu::noinline]] void refuse_outcome(const TaskControl& self, const char* call,
                                                           const Outcome& outcome) {
  if (outcome.how == Wake::ended) refuse_left_nothing(self, call, outcome.wish);
  if (outcome.how == Wake::stopping)
    refuse(self, Errc::failed, call, "the task that began this receive has ended, and closed it; wait for it there");
  refuse_too_long(self, call, outcome.key, outcome.bytes, outcome.capacity);
}

}  // namespace

struct RequestAccess {
  static Request begin(Posted* posted) noexcept {
    Request request;
    request.posted_ = posted;
    return request;
  }
  static Request completed(const Envelope& envelope) noexcept {
    Request request;
    request.complete_ = true;
    request.envelope_ = envelope;
    return request;
  }
  static RequestSet set_of(const Request* requests, std::size_t count) noexcept {
    return {requests, count,
            [](const void* first, std::size_t i) { return static_cast<const Request*>(first)[i].posted_; }};
  }
  static void check(const TaskControl& self, const char* call, const Request& request) {
    if (request.posted_ != nullptr && static_cast<const OpenRequest*>(request.posted_)->cell != self.cell) [[unlikely]]
      refuse(self, Errc::bad_argument, call, "the request is another cell's; use it on the cell that began it");
  }
  static OpenRequest& make(const TaskControl& self) {
    BufferPool& pool = self.cell->processor->pool();
    Buffer* const memory = pool.get(sizeof(OpenRequest));
    pool.lend();
    static_assert(alignof(OpenRequest) <= alignof(Buffer));
    auto* const made = ::new (memory->body()) OpenRequest;
    made->cell = self.cell;
    return *made;
  }
  [[nodiscard]] static bool is_complete(const Request& request) noexcept {
    return request.complete_ || (request.posted_ != nullptr && !request.posted_->open);
  }
  /// REQUIRES: it is complete, or over.
  static Outcome finish(const Domain& domain, Request& request) noexcept {
    request.complete_ = false;
    const Posted* const posted = request.posted_;
    if (posted == nullptr) return {};
    const Outcome outcome{posted->how, posted->wish, posted->key, posted->bytes, posted->capacity};
    if (outcome.how == Wake::done) request.envelope_ = envelope_of(domain, outcome.key, outcome.bytes);
    free(request);
    return outcome;
  }
  static void free(Request& request) noexcept {
    auto* const posted = static_cast<OpenRequest*>(request.posted_);
    request.posted_ = nullptr;
    posted->~OpenRequest();
    give_back(reinterpret_cast<Buffer*>(posted) - 1);
  }
  static bool cancel(Request& request) noexcept {
    if (request.posted_ == nullptr || !request.posted_->open) return false;
    const bool is_receive = request.posted_->lease == nullptr;
    Inbound::cancel(*request.posted_);
    if (is_receive) free(request);
    return is_receive;
  }
  /// Not open: the message must be sent in another way.
  static Request lend(TaskControl& self, CellId cell, std::span<const std::byte> bytes, To to) {
    Processor& here = *self.cell->processor;
    if (index(cell) >= here.domain().cell_count || index(cell) == self.cell->id || index(to.task) > task_id_max ||
        to.type < 0 || to.type > message_type_max || here.domain().carriers == 0)
      return {};
    const std::uint64_t key = MatchKey::make(static_cast<std::uint32_t>(api::Space::plain), self.cell->id, self.id,
                                             static_cast<std::uint32_t>(to.type));
    Request request = begin(&make(self));
    auto* const from = const_cast<char*>(reinterpret_cast<const char*>(bytes.data()));
    if (here.inbound().lend(self, index(cell), index(to.task), key, {from}, bytes.size(), *request.posted_)) {
      request.posted_->key = key;
      request.posted_->bytes = request.posted_->capacity = bytes.size();
      return request;
    }
    return {};
  }
  /// Of the calling task's cell.
  [[nodiscard]] static bool is_here(const Request& request) noexcept {
    const TaskControl* const self = running_task();
    return self != nullptr && static_cast<const OpenRequest*>(request.posted_)->cell == self->cell;
  }
};

static void finish_all(const char* call, std::span<Request> requests) {
  TaskControl& self = self_or_throw(call);
  for (const Request& request : requests) RequestAccess::check(self, call, request);
  if (Inbound::wait(self, call, RequestAccess::set_of(requests.data(), requests.size()), true) != Wake::done)
      [[unlikely]] {
    static_cast<void>(self.cell->processor->stops());
    return;
  }
  Outcome bad;
  for (Request& request : requests) {
    const Outcome outcome = RequestAccess::finish(self.cell->processor->domain(), request);
    if (bad.well() && !outcome.well()) bad = outcome;
  }
  if (!bad.well()) [[unlikely]]
    refuse_outcome(self, call, bad);
}

// Who destroys an open one elsewhere, against the rules, leaves it to its task: nobody else may touch its queue.
void Request::drop() noexcept {
  if (posted_->open && RequestAccess::is_here(*this) && !posted_->awaited) Inbound::cancel(*posted_);
  if (!posted_->open) RequestAccess::free(*this);
}

Envelope Request::wait() {
  finish_all("wait", {this, 1});
  return envelope_;
}

bool Request::test() {
  constexpr const char* call = "test";
  TaskControl& self = self_or_throw(call);
  RequestAccess::check(self, call, *this);
  if (!Inbound::test(self, RequestAccess::set_of(this, 1), true)) return false;
  const Outcome outcome = RequestAccess::finish(self.cell->processor->domain(), *this);
  if (!outcome.well()) [[unlikely]]
    refuse_outcome(self, call, outcome);
  return true;
}

bool Request::cancel() {
  constexpr const char* call = "cancel";
  const TaskControl& self = self_or_throw(call);
  RequestAccess::check(self, call, *this);
  if (posted_ != nullptr && posted_->awaited) [[unlikely]]
    refuse(self, Errc::bad_argument, call, "a task waits for this request; cancel it before, or let it come");
  return RequestAccess::cancel(*this);
}

Request receive_later(std::span<std::byte> buffer, From from) {
  constexpr const char* call = "receive_later";
  TaskControl& self = self_or_throw(call);
  const MatchWish wish = check_receive(self, call, buffer, from, api::Space::plain);
  OpenRequest& receive = RequestAccess::make(self);
  receive.wish = wish;
  receive.buffer = reinterpret_cast<char*>(buffer.data());
  receive.capacity = buffer.size();
  self.cell->processor->inbound().post(self, receive);
  return RequestAccess::begin(&receive);
}

Request send_later(CellId cell, std::span<const std::byte> bytes, To to) {
  constexpr const char* call = "send_later";
  if (bytes.size() >= lend_from_bytes && bytes.data() != nullptr) {
    if (Request lent = RequestAccess::lend(self_or_throw(call), cell, bytes, to); lent.open()) return lent;
  }
  api::send(call, cell, bytes, to, api::Space::plain);
  return RequestAccess::completed({api::cell_id(call), api::task_id(call), to.type, bytes.size()});
}

void wait_all(std::span<Request> requests) { finish_all("wait_all", requests); }

std::optional<std::size_t> wait_any(std::span<Request> requests) {
  constexpr const char* call = "wait_any";
  TaskControl& self = self_or_throw(call);
  bool some_open = false;
  for (const Request& request : requests) {
    RequestAccess::check(self, call, request);
    some_open = some_open || request.open();
  }
  if (!some_open || self.cell->processor->stops()) return std::nullopt;
  const auto complete = [&] {
    return static_cast<std::size_t>(std::ranges::find_if(requests, RequestAccess::is_complete) - requests.begin());
  };
  if (complete() == requests.size() &&
      Inbound::wait(self, call, RequestAccess::set_of(requests.data(), requests.size()), false) != Wake::done)
      [[unlikely]] {
    static_cast<void>(self.cell->processor->stops());
    return std::nullopt;
  }
  const std::size_t place = complete();
  const Outcome outcome = RequestAccess::finish(self.cell->processor->domain(), requests[place]);
  if (!outcome.well()) [[unlikely]]
    refuse_outcome(self, call, outcome);
  return place;
}

}  // namespace aplib
