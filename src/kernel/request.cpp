// SPDX-License-Identifier: MIT
// The public API of requests (aplib/request.hpp).
#include "aplib/request.hpp"

#include <algorithm>
#include <new>

#include "cell/processor.hpp"
#include "kernel/api.hpp"
#include "kernel/machine_impl.hpp"

namespace aplib {

namespace {

/// Lies in a buffer as the bodies of messages do, so that it may outlive its machine.
struct Receive : Posted {
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
  static Request begin(Posted* receive) noexcept {
    Request request;
    request.receive_ = receive;
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
            [](const void* first, std::size_t i) { return static_cast<const Request*>(first)[i].receive_; }};
  }
  static void check(const TaskControl& self, const char* call, const Request& request) {
    if (request.receive_ != nullptr && static_cast<const Receive*>(request.receive_)->cell != self.cell) [[unlikely]]
      refuse(self, Errc::bad_argument, call, "the request is another cell's; use it on the cell that began it");
  }
  [[nodiscard]] static bool is_complete(const Request& request) noexcept {
    return request.complete_ || (request.receive_ != nullptr && !request.receive_->open);
  }
  /// REQUIRES: it is complete, or over.
  static Outcome finish(const Domain& domain, Request& request) noexcept {
    request.complete_ = false;
    Posted* const receive = request.receive_;
    if (receive == nullptr) return {};
    const Outcome outcome{receive->how, receive->wish, receive->key, receive->bytes, receive->capacity};
    if (outcome.how == Wake::done) request.envelope_ = envelope_of(domain, outcome.key, outcome.bytes);
    free(request);
    return outcome;
  }
  static void free(Request& request) noexcept {
    auto* const receive = static_cast<Receive*>(request.receive_);
    request.receive_ = nullptr;
    receive->~Receive();
    give_back(reinterpret_cast<Buffer*>(receive) - 1);
  }
  static bool cancel(Request& request) noexcept {
    if (request.receive_ == nullptr || !request.receive_->open) return false;
    Inbound::cancel(*request.receive_);
    free(request);
    return true;
  }
  /// Of the calling task's cell.
  [[nodiscard]] static bool is_here(const Request& request) noexcept {
    const TaskControl* const self = running_task();
    return self != nullptr && static_cast<const Receive*>(request.receive_)->cell == self->cell;
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
  if (!receive_->open) return RequestAccess::free(*this);
  if (RequestAccess::is_here(*this) && !receive_->awaited) RequestAccess::cancel(*this);
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
  if (receive_ != nullptr && receive_->awaited) [[unlikely]]
    refuse(self, Errc::bad_argument, call, "a task waits for this request; cancel it before, or let it come");
  return RequestAccess::cancel(*this);
}

Request receive_later(std::span<std::byte> buffer, From from) {
  constexpr const char* call = "receive_later";
  TaskControl& self = self_or_throw(call);
  const MatchWish wish = check_receive(self, call, buffer, from, api::Space::plain);
  BufferPool& pool = self.cell->processor->pool();
  Buffer* const memory = pool.get(sizeof(Receive));
  pool.lend();
  static_assert(alignof(Receive) <= alignof(Buffer));
  auto* const receive = ::new (memory->body()) Receive;
  receive->cell = self.cell;
  receive->wish = wish;
  receive->buffer = reinterpret_cast<char*>(buffer.data());
  receive->capacity = buffer.size();
  self.cell->processor->inbound().post(self, *receive);
  return RequestAccess::begin(receive);
}

Request send_later(CellId cell, std::span<const std::byte> bytes, To to) {
  constexpr const char* call = "send_later";
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
