// SPDX-License-Identifier: MIT
// Requests: receives that a task has posted and waits for later, if at all. A part of Inbound.
//
// A request is open from post() until its message has come, it is cancelled, the cell that it names has ended, or its
// owner ends. Its memory is the front end's. A task that waits for requests marks them `awaited` and counts those that
// it needs. Whoever completes one counts down, so that the task is woken once, by the last.
#include "cell/domain.hpp"
#include "cell/inbound.hpp"
#include "cell/processor.hpp"

namespace aplib {

namespace {

void remove_from_queue(Posted& request) noexcept {
  if (!request.queued) return;
  request.queued = false;
  request.owner->requests.remove(request);
}

template <class Act>
void for_each_open(const RequestSet& set, const Act& act) {
  for (std::size_t i = 0; i < set.count; ++i) {
    Posted* const request = set.at(set.first, i);
    if (request != nullptr && request->open) act(*request);
  }
}

/// Whether a wait for the set must wait.
bool misses_some(const RequestSet& set, bool all) noexcept {
  bool open = false;
  for (std::size_t i = 0; i < set.count; ++i) {
    const Posted* const request = set.at(set.first, i);
    if (request == nullptr) continue;
    if (request->open == all) return all;
    open = open || request->open;
  }
  return open;
}

}  // namespace

bool Inbound::take(TaskControl& owner, Posted& posted) noexcept {
  if (owner.mailbox.empty()) return false;
  Buffer* const found = owner.mailbox.take(posted.wish);
  if (found == nullptr) return false;
  take_from_mailbox(posted, found);
  return true;
}

void Inbound::post(TaskControl& owner, Posted& request) noexcept {
  request.task = request.owner = &owner;
  if (request.looks) {
    if (const Buffer* const found = owner.mailbox.find(request.wish)) {
      request.key = found->key;
      request.bytes = found->bytes;
      return;
    }
  } else if (take(owner, request)) {
    if (request.gives_receipt && ContextKey::asks_for_receipt(request.key)) [[unlikely]]
      give_receipt(*owner.cell, owner.id, request.key);
    return;
  }
  if (ended_count_ != 0 &&
      (is_in_vain(*owner.cell, request.wish) || (request.closed_when_cells_end && all_cells_ended()))) [[unlikely]] {
    request.how = Wake::ended;
    return;
  }
  request.open = request.queued = true;
  owner.requests.push(request);
}

void Inbound::cancel(Posted& request) noexcept {
  if (request.lease != nullptr) return request.task->cell->processor->inbound().take_back(request);
  remove_from_queue(request);
  request.open = false;
}

// The oldest request that accepts the key. One that a sender has claimed is for that sender's message.
Posted* Inbound::find_request(TaskControl& owner, std::uint64_t key, std::size_t bytes) noexcept {
  while (Posted* const request = owner.requests.find(key)) {
    if (!withdraw(*request)) {
      remove_from_queue(*request);
    } else if (request->looks) {
      request->key = key;
      request->bytes = bytes;
      complete_request(*request);
    } else {
      return request;
    }
  }
  return nullptr;
}

void Inbound::complete_request(Posted& request) noexcept {
  remove_from_queue(request);
  request.open = false;
  if (request.gives_receipt && request.how == Wake::done && ContextKey::asks_for_receipt(request.key)) [[unlikely]]
    give_receipt(*request.owner->cell, request.owner->id, request.key);
  if (!request.awaited) return;
  request.awaited = false;
  TaskControl& waiter = *request.task;
  if (waiter.awaited == 0) return;  // it goes on already
  if (--waiter.awaited != 0) return offer_oldest(*request.owner, waiter);
  satisfied_ = true;
  if (!waiter.ready) idle_.make_ready(waiter);
}

// An empty message in a space of its own, with the same context and tag. It is no task's, because a request may get
// its message while all tasks of its cell wait for something else, which may depend on the sender.
void Inbound::give_receipt(const Cell& cell, std::uint32_t task, std::uint64_t key) noexcept {
  const std::uint32_t to = MatchKey::cell(key);
  const std::uint64_t receipt = ContextKey::receipt(key, cell.id);
  Outbound& outbound = here_.outbound();
  const std::uint32_t processor = outbound.route(to);
  domain_.guarded([&] {
    if (processor == domain_.network_index) {
      domain_.network->send_empty(to, task, receipt);
    } else if (processor != index_) {
      if (!outbound.try_small(processor, to, task, receipt, {})) outbound.send(to, processor, task, receipt, {});
    } else if (here_.mover().protocol().arriving() == to) {
      outbound.keep(to, task, receipt, {});
    } else {
      static_cast<void>(take_local(*domain_.cells[to], task, receipt, {}));
    }
  });
}

void Inbound::offer_oldest(const TaskControl& owner, const TaskControl& waiter) noexcept {
  Posted* const oldest = owner.requests.oldest();
  if (oldest != nullptr && oldest->awaited && oldest->task == &waiter && !owner.posted.open) offer(*oldest);
}

Wake Inbound::wait(TaskControl& self, const char* call, const RequestSet& set, bool all) noexcept {
  Processor& here = *self.cell->processor;
  const auto stopping = [&here] {
    return here.domain().stopping.load(std::memory_order_relaxed);  // relaxed: noticed sooner or later
  };
  bool misses = misses_some(set, all);
  if (misses) {
    here.poll();
    misses = misses_some(set, all);
  }
  if (!misses || stopping()) return stopping() ? Wake::stopping : Wake::done;
  const TaskControl* owner = nullptr;
  std::size_t open = 0;
  for_each_open(set, [&](Posted& request) {
    request.task = &self;
    request.awaited = true;
    if (open++ == 0) owner = request.owner;
  });
  self.awaited = all ? open : 1;
  here.inbound().offer_oldest(*owner, self);
  const Wake how = Processor::wait(self, WaitFor::requests, call);  // perhaps we are on another processor then
  if (all && how == Wake::done) return how;                         // none is open
  for_each_open(set, [](Posted& request) { request.awaited = false; });
  // A sender may be filling one of them. It will say so within a copy's time, however the wait has ended.
  if (Posted* const offered = self.cell->offering;
      offered != nullptr && offered->task == &self && !withdraw(*offered)) {
    offered->awaited = true;
    while (offered->open) {
      self.awaited = 1;
      static_cast<void>(Processor::wait(self, WaitFor::requests, call));
    }
  }
  self.awaited = 0;
  for_each_open(set, [](Posted& request) { request.task = request.owner; });
  return how;
}

bool Inbound::test(TaskControl& self, const RequestSet& set, bool all) {
  if (misses_some(set, all)) {
    Processor& here = *self.cell->processor;
    here.poll();
    if (misses_some(set, all) && here.idle().shall_yield_after(++self.probe_misses)) {
      self.probe_misses = 0;
      Processor::yield(self);
    }
    if (misses_some(set, all)) return false;
  }
  self.probe_misses = 0;
  return true;
}

Wake Inbound::receive_from(TaskControl& self, TaskControl& owner, const char* call,
                           bool closed_when_cells_end) noexcept {
  Posted request;
  request.wish = self.posted.wish;
  request.message = self.posted.message;
  request.buffer = self.posted.buffer;
  request.capacity = self.posted.capacity;
  request.form = self.posted.form;
  request.closed_when_cells_end = closed_when_cells_end;
  const Wake how = post_and_wait(self, owner, call, request);
  self.posted.key = request.key;
  self.posted.bytes = request.bytes;
  return how;
}

Wake Inbound::post_and_wait(TaskControl& self, TaskControl& owner, const char* call, Posted& request) noexcept {
  self.cell->processor->inbound().post(owner, request);
  const RequestSet set{&request, 1, [](const void* first, std::size_t) {
                         return const_cast<Posted*>(static_cast<const Posted*>(first));
                       }};
  const Wake how = wait(self, call, set, true);
  if (request.open) cancel(request);
  return how == Wake::done ? request.how : how;
}

void Inbound::end_requests_in_vain(TaskControl& owner, bool all_ended) noexcept {
  for (Posted* request = owner.requests.oldest(); request != nullptr;) {
    Posted* const next = request->next;
    if ((is_in_vain(*owner.cell, request->wish) || (all_ended && request->closed_when_cells_end)) &&
        withdraw(*request)) {
      request->how = Wake::ended;
      complete_request(*request);
    }
    request = next;
  }
}

void Inbound::close_requests(TaskControl& owner, bool lasts) noexcept {
  while (owner.lent != nullptr) take_back(*owner.lent, lasts);
  while (Posted* const request = owner.requests.oldest()) {
    remove_from_queue(*request);
    if (withdraw(*request)) {
      request->how = Wake::stopping;
      complete_request(*request);
    } else {
      request->owner = request->task;  // a sender fills it, for another task of the cell, which waits
    }
  }
}

}  // namespace aplib
