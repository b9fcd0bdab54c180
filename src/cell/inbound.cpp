// SPDX-License-Identifier: MIT
#include "cell/inbound.hpp"

#include "base/spin_lock.hpp"
#include "cell/domain.hpp"
#include "cell/processor.hpp"

namespace aplib {

namespace {

template <class T>
T read_payload(const std::byte* payload) noexcept {
  T value;
  std::memcpy(&value, payload, sizeof value);
  return value;
}

/// Apart from receive(), most of which waits for what comes next.
[[gnu::noinline]] Buffer* take_waiting(TaskControl& self) noexcept { return self.mailbox.take(self.posted.wish); }

}  // namespace

void Inbound::prepare(std::uint32_t index, BufferPool& pool, UnreadMeter<>& unread) {
  index_ = index;
  pool_ = &pool;
  unread_ = &unread;
  has_network_ = domain_.network != nullptr;
  rings_.prepare(domain_.processors.size());
  ended_cells_.assign(domain_.cells.size(), 0);
  ends_.assign(domain_.cells.size(), CellEnd{});
}

[[gnu::always_inline]] inline void Inbound::deliver_small(Cell& cell, std::uint32_t task, std::uint64_t key,
                                                          const std::byte* body, std::size_t bytes) {
  TaskControl* receiver = cell.tasks.find(task);
  const auto store = [=](const Posted& posted) __attribute__((always_inline)) {
    if (posted.message != nullptr) {
      MessageAccess::set_small(*posted.message, key, body, bytes);
    } else {
      copy_small(posted.buffer, body, std::min(bytes, posted.capacity));
    }
  };
  if (give(receiver, key, bytes, store)) [[likely]]
    return;
  Buffer* buffer = pool_->get(bytes);
  buffer->bytes = bytes;
  std::memcpy(buffer->body(), body, MessageRing::inline_bytes_max);
  queue(cell, receiver, task, key, *buffer);
}

void Inbound::poll() noexcept {
  MessageRing* ring = nullptr;
  const Mover& mover = here_.mover();
  Outbound& outbound = here_.outbound();
  try {
    if (rings_.has_new()) [[unlikely]]
      rings_.refresh();
    satisfied_ = false;
    const auto count = static_cast<std::uint32_t>(rings_.rings().size());
    std::uint32_t i = next_ring_;
    for (std::uint32_t n = 0; n < count; ++n) {
      if (i >= count) i = 0;
      const auto& in = rings_.rings()[i];
      ring = in.ring;
      bool is_first = true;
      while (Entry* entry = ring->peek()) {
        if (!is_first) ring->fetch_ahead();
        is_first = false;
        const bool plain = entry->info < EntryInfo::buffer_messages_end && !mover.active() &&
                           outbound.route(MatchKey::cell(entry->key)) == in.from &&
                           outbound.route(entry->cell) == index_;
        if (plain) [[likely]] {  // what handle() would do, without the way there
          Cell& cell = *domain_.cells[entry->cell];
          if (entry->info < EntryInfo::small_messages_end) [[likely]] {
            deliver_small(cell, entry->task, entry->key, entry->payload, entry->info);
          } else {
            const auto body = read_payload<BufferEntry>(entry->payload);
            deliver_buffer(cell, entry->task, entry->key, body.buffer, body.bytes);
          }
        } else if (!handle(in.from, *entry)) {
          break;  // held back until a cell's move is through
        }
        ring->pop();
        if (satisfied_ || idle_.has_ready()) {
          // a large transfer: its sender may claim the next buffer only when it knows that we have taken this one
          if (settle_soon_) {
            settle_soon_ = false;
            ring->settle();
          }
          next_ring_ = i + 1;
          return;
        }
      }
      ring->settle();
      ++i;
    }
  } catch (...) {
    domain_.fail_by_exception(nullptr);
    if (ring != nullptr) drop_oldest(*ring);
  }
  if (outbound.backlog_count() != 0) [[unlikely]]
    outbound.flush_backlogs();
}

// An entry that could not be taken has ended the machine, so nobody receives its message. What cells need to come to
// their end stays in the ring, for another try.
void Inbound::drop_oldest(MessageRing& ring) noexcept {
  const Entry* entry = ring.peek();
  if (entry == nullptr) return;
  const EntryKind kind = EntryInfo::kind(entry->info);
  if (kind != EntryKind::cell_moved && kind != EntryKind::fence) ring.pop();
}

// One entry from the ring of processor `from`. False: it must stay where it is for now.
bool Inbound::handle(std::uint32_t from, Entry& entry) {
  Mover& mover = here_.mover();
  Outbound& outbound = here_.outbound();
  const auto kind = EntryInfo::kind(entry.info);
  switch (kind) {
    case EntryKind::small_message:
    case EntryKind::buffer_message:
    case EntryKind::large_message:
    case EntryKind::offer_taken:
    case EntryKind::lent_message:
    case EntryKind::lease_taken:
    case EntryKind::start_task: {
      const bool in_order =
          kind == EntryKind::start_task || kind == EntryKind::lease_taken ||
          MoveProtocol::in_order(from, outbound.route(MatchKey::cell(entry.key)), EntryInfo::forwarded(entry.info));
      switch (mover.protocol().admit(from, entry.cell, outbound.route(entry.cell), in_order)) {
        case MoveProtocol::Admission::hold:
          return false;
        case MoveProtocol::Admission::forward:
          outbound.forward(mover.protocol().peer(), entry);
          return true;
        case MoveProtocol::Admission::deliver:
          break;
      }
      Cell& cell = *domain_.cells[entry.cell];
      if (kind == EntryKind::small_message) [[likely]] {
        deliver_small(cell, entry.task, entry.key, entry.payload, EntryInfo::bytes(entry.info));
      } else if (kind == EntryKind::start_task) {
        here_.start_program(cell, *read_payload<const CellProgram*>(entry.payload));
      } else {
        deliver_entry(cell, entry.info, entry.key, entry.task, entry.payload);
      }
      return true;
    }
    case EntryKind::cell_moved:
      mover.cell_moved(from, entry.cell, entry.task);
      return true;
    case EntryKind::fence:
      mover.fence(entry.task);
      return true;
    case EntryKind::cell_ended:
      if (!mover.protocol().admit_end(from, outbound.route(entry.cell))) return false;
      cell_ended(entry.cell, read_payload<CellEnd>(entry.payload));
      return true;
    case EntryKind::call: {
      const auto call = read_payload<CallEntry>(entry.payload);
      call.function(here_, call.state);
      return true;
    }
  }
  return true;
}

// Everything but small messages.
void Inbound::deliver_entry(Cell& cell, std::uint32_t info, std::uint64_t key, std::uint32_t task,
                            const std::byte* payload) {
  switch (EntryInfo::kind(info)) {
    case EntryKind::small_message:
      deliver_small(cell, task, key, payload, EntryInfo::bytes(info));
      break;
    case EntryKind::large_message: {
      const auto entry = read_payload<BufferEntry>(payload);
      deliver_large(cell, task, key, entry.buffer, entry.bytes);
      break;
    }
    case EntryKind::offer_taken: {
      const auto entry = read_payload<OfferEntry>(payload);
      if (entry.has_transfer != 0) entry.posted->transfer.copy_from_back();
      settle_soon_ = true;
      entry.posted->key = key;
      entry.posted->bytes = entry.bytes;
      entry.posted->offered = false;
      TaskControl& waiter = *entry.posted->task;
      waiter.cell->offering = nullptr;
      // From another process, whose body may be incomplete then. Acquire: pairs with stop().
      const bool stopping = has_network_ && domain_.stopping.load(std::memory_order_acquire);
      if (entry.posted == &waiter.posted) {
        complete(waiter.posted);
      } else {
        if (stopping) entry.posted->how = Wake::stopping;
        complete_request(*entry.posted);
      }
      if (stopping) waiter.wake = Wake::stopping;
      break;
    }
    case EntryKind::lent_message: {
      const auto entry = read_payload<BufferEntry>(payload);
      deliver_lease(cell, task, key, *entry.buffer, entry.bytes);
      break;
    }
    case EntryKind::lease_taken:
      lease_taken(*read_payload<Buffer*>(payload));
      break;
    default: {
      const auto entry = read_payload<BufferEntry>(payload);
      deliver_buffer(cell, task, key, entry.buffer, entry.bytes);
      break;
    }
  }
}

namespace {

void set_offers_lately(Cell& cell, bool offers) noexcept {
  std::atomic<bool>& lately = cell.offer.lately;
  if (lately.load(std::memory_order_relaxed) != offers) lately.store(offers, std::memory_order_relaxed);  // a hint
}

}  // namespace

// Its sender may be copying yet: then the rest goes straight to the receive that has a buffer of its own.
void Inbound::deliver_large(Cell& cell, std::uint32_t task, std::uint64_t key, Buffer* buffer, std::size_t bytes) {
  TaskControl* const receiver = cell.tasks.find(task);
  bool is_direct = false;
  const auto store = [&, this](const Posted& posted) {
    is_direct = posted.message == nullptr && posted.capacity >= bytes;
    if (!is_direct) {
      buffer->transfer.copy_from_back();
      return store_buffer(posted, key, buffer, bytes);
    }
    buffer->transfer.copy_from_back_to(posted.buffer);
    pool_->put(buffer);
  };
  const bool is_given = give(receiver, key, bytes, store);
  set_offers_lately(cell, is_direct);
  if (is_given) return;
  buffer->transfer.copy_from_back();
  buffer->bytes = bytes;
  queue(cell, receiver, task, key, *buffer);
}

void Inbound::store_buffer(const Posted& posted, std::uint64_t key, Buffer* buffer, std::size_t bytes) noexcept {
  if (posted.message != nullptr) return MessageAccess::set_buffer(*pool_, *posted.message, key, buffer, bytes);
  copy_bytes(posted.buffer, buffer->body(), std::min(bytes, posted.capacity));
  pool_->put(buffer);
}

void Inbound::deliver_buffer(Cell& cell, std::uint32_t task, std::uint64_t key, Buffer* buffer, std::size_t bytes) {
  TaskControl* receiver = cell.tasks.find(task);
  const auto store = [=, this](const Posted& posted) { store_buffer(posted, key, buffer, bytes); };
  if (give(receiver, key, bytes, store)) return;
  buffer->bytes = bytes;
  queue(cell, receiver, task, key, *buffer);
}

// What is rare comes last, or in a function of its own, so that the usual way needs no registers of its caller's.
void Inbound::queue(Cell& cell, TaskControl* receiver, std::uint32_t task, std::uint64_t key, Buffer& buffer) {
  buffer.key = key;
  buffer.task = task;
  (receiver != nullptr ? receiver->mailbox : cell.orphans).push(buffer);
  if (unread_->add(UnreadMeter<>::overhead + static_cast<std::int64_t>(buffer.bytes))) [[unlikely]]
    domain_.count_unread(*unread_);
}

bool Inbound::take_from_network(Outbound& network, std::uint32_t cell_index, std::uint32_t task, std::uint64_t key,
                                std::span<const std::byte> bytes) {
  if (network.route(cell_index) != index_ || here_.outbound().route(cell_index) != index_ || here_.mover().active() ||
      !network.is_drained(index_))
    return false;
  const auto store = [=, this](const Posted& posted) { fill(posted, key, bytes); };
  return give(domain_.cells[cell_index]->tasks.find(task), key, bytes.size(), store);
}

// Where nothing is there to be looked at, and nothing may end the wait at once, no register need be kept.
Wake Inbound::receive(TaskControl& self, const char* call, bool closed_when_cells_end) noexcept {
  Posted& posted = self.posted;
  if (!self.mailbox.empty() || !self.requests.empty() || here_.has_to_poll() || ended_count_ != 0 ||
      posted.capacity >= offer_from_bytes ||
      domain_.stopping.load(std::memory_order_relaxed))  // relaxed: noticed sooner or later
    return look_and_receive(self, call, closed_when_cells_end);
  posted.open = true;
  posted.closed_when_cells_end = closed_when_cells_end;
  return Processor::wait(self, WaitFor::message, call);
}

Wake Inbound::look_and_receive(TaskControl& self, const char* call, bool closed_when_cells_end) noexcept {
  Posted& posted = self.posted;
  if (!self.mailbox.empty()) {
    if (Buffer* found = take_waiting(self)) {
      take_from_mailbox(posted, found);
      // relaxed: a task that is never without a message shall notice sooner or later
      return domain_.stopping.load(std::memory_order_relaxed) ? Wake::stopping : Wake::done;
    }
  }
  if (!self.requests.empty()) [[unlikely]]
    return receive_from(self, self, call, closed_when_cells_end);  // it comes behind them
  posted.open = true;
  here_.poll();
  if (!posted.open) return Wake::done;
  // What it points to is the caller's: no way out leaves it open. Whoever ends the wait below closes it.
  if (domain_.stopping.load(std::memory_order_relaxed)) [[unlikely]] {  // relaxed: noticed sooner or later
    posted.open = false;
    return Wake::stopping;
  }
  if (ended_count_ != 0 && (is_in_vain(*self.cell, posted.wish) || (closed_when_cells_end && all_cells_ended())))
      [[unlikely]] {
    posted.open = false;
    return Wake::ended;
  }
  if (posted.capacity >= offer_from_bytes) offer(posted);
  posted.closed_when_cells_end = closed_when_cells_end;
  return Processor::wait(self, WaitFor::message, call);  // perhaps we are on another processor then
}

// Senders of other processors may claim it. REQUIRES: invariant (5).
void Inbound::offer(Posted& posted) noexcept {
  Cell& cell = *posted.owner->cell;
  if (posted.capacity < offer_from_bytes || posted.message != nullptr || domain_.processors.size() == 1 ||
      domain_.move_in_progress.load(std::memory_order_relaxed) ||  // relaxed: senders check
      cell.offering != nullptr)
    return;
  posted.offered = true;
  cell.offering = &posted;
  set_offers_lately(cell, true);
  Offer& offer = cell.offer;
  offer.committed.store(false, std::memory_order_relaxed);        // published by the offer
  offer.task.store(posted.owner->id, std::memory_order_relaxed);  // the same
  offer.wish = posted.wish;
  offer.buffer = posted.buffer;
  offer.capacity = posted.capacity;
  offer.posted.store(&posted, std::memory_order_release);  // release: all of that, and the fields of posted
}

void Inbound::take_from_mailbox(Posted& posted, Buffer* found) noexcept {
  posted.key = found->key;
  posted.bytes = found->bytes;
  count_received(*found);
  if (found->bytes <= Message::inline_bytes_max) {
    if (posted.message != nullptr) {
      MessageAccess::set_small(*posted.message, found->key, found->own_body(), found->bytes);
    } else {
      copy_small(posted.buffer, found->own_body(), std::min(found->bytes, posted.capacity));
    }
    // The next message finds the buffer in the cache, rather than when the program drops this one.
    return pool_->put(found);
  }
  if (found->is_lease()) [[unlikely]]
    return take_lease(posted, *found);
  if (posted.message != nullptr)
    return MessageAccess::set_buffer(*pool_, *posted.message, found->key, found, found->bytes);
  copy_bytes(posted.buffer, found->body(), std::min(found->bytes, posted.capacity));
  pool_->put(found);
}

bool Inbound::withdraw_offered(Posted& posted) noexcept {
  Cell& cell = *posted.task->cell;
  for (SpinWait spin;; spin.pause()) {
    Posted* expected = &posted;
    if (cell.offer.posted.compare_exchange_strong(expected, nullptr, std::memory_order_acq_rel,
                                                  std::memory_order_acquire)) {  // as in claim_offer()
      posted.offered = false;
      cell.offering = nullptr;
      return true;
    }
    // A sender has claimed it and will say within a few instructions whether it wants it.
    if (cell.offer.committed.load(std::memory_order_acquire)) return false;  // acquire: pairs with claim_offer()
  }
}

void Inbound::empty_mailbox(TaskControl& task) noexcept {
  while (Buffer* buffer = task.mailbox.oldest()) {
    task.mailbox.remove(*buffer);
    count_received(*buffer);
    pool_->put(buffer);
  }
}

void Inbound::wake_waiting(TaskControl& task, Wake how) noexcept {
  if (task.waits == WaitFor::nothing || task.ready || task.ended) return;
  if (task.waits == WaitFor::message) {
    if (!withdraw(task.posted)) return;  // a sender is filling its buffer right now: that ends the wait
    task.posted.open = false;
  }
  if (task.waits == WaitFor::condition) idle_.remove_watch(task);
  task.wake = domain_.stopping.load(std::memory_order_acquire) ? Wake::stopping : how;  // acquire: pairs with stop()
  idle_.make_ready(task);
}

// A host program that waits itself cannot start anything, unless it has further tasks.
bool Inbound::host_may_start() const noexcept {
  if (!domain_.has_host || ended_cells_[domain_.cell_count] != 0) return false;
  return !here_.is_host() || domain_.host_cell->live_tasks > 1;
}

// The host program's end is no error for those who wait for it: when nobody can go on, the run just ends.
bool Inbound::cell_has_ended(std::uint32_t cell) const noexcept {
  if (ended_cells_[cell] == 0 || cell == domain_.cell_count || host_may_start()) return false;
  // A start may be on its way here: the host program's end says how many there were.
  std::uint64_t started = domain_.programs_started.load(std::memory_order_relaxed);  // relaxed: see start_cells()
  if (domain_.has_host) started = std::max(started, ends_[domain_.cell_count].tasks);
  return ends_[cell].tasks >= started;
}

bool Inbound::all_cells_ended() const noexcept {
  std::uint64_t ended = 0;
  for (std::uint32_t cell = 0; cell < domain_.cell_count; ++cell) ended += ends_[cell].tasks;
  return ended == domain_.programs_started.load(std::memory_order_relaxed) *
                      domain_.cell_count;  // relaxed: the host counts them itself
}

// A cell that is still arriving may yet get messages by its old place, also from cells that ended long ago: end_move()
// looks again.
bool Inbound::is_in_vain(const Cell& cell, const MatchWish& wish) const noexcept {
  return (wish.mask & MatchKey::cell_mask) != 0 && !here_.mover().is_arriving(cell) &&
         cell_has_ended(MatchKey::cell(wish.key));
}

bool Inbound::is_in_vain(const Condition& condition) const noexcept {
  if (!some_cell_ended() || condition.holds()) return false;
  for (std::uint32_t cell = 0; cell < domain_.cell_count; ++cell) {
    if (cell_has_ended(cell) && condition.needs(cell)) return true;
  }
  return false;
}

void Inbound::wake_receivers(Cell& cell, bool all_ended) noexcept {
  for (std::uint32_t id = 0; id < cell.tasks.end(); ++id) {
    TaskControl* task = cell.tasks.find(id);
    if (task == nullptr || task->ended) continue;
    if (!task->requests.empty()) end_requests_in_vain(*task, all_ended);
    if (task->ready) continue;
    if (task->waits == WaitFor::cells_end && all_ended) {
      idle_.make_ready(*task);
    } else if (task->waits == WaitFor::message && task->posted.open) {
      if (is_in_vain(cell, task->posted.wish) || (all_ended && task->posted.closed_when_cells_end))
        wake_waiting(*task, Wake::ended);
    } else if (task->waits == WaitFor::condition && is_in_vain(*task->watch.condition)) {
      wake_waiting(*task, Wake::ended);
    }
  }
}

void Inbound::cell_ended(std::uint32_t cell, const CellEnd& end) {
  if (here_.is_network()) {
    domain_.network->cell_ended(cell, end);
    return;
  }
  // Of two ends of a cell in another process, one may come by the overseer, and later than the other.
  if (end.tasks < ends_[cell].tasks) return;
  ends_[cell] = end;
  if (ended_cells_[cell] == 0) ++ended_count_;
  ended_cells_[cell] = 1;
  here_.collectives().check();  // what is complete is complete, even if a member has ended since
  // With the host program, cells without a task, which were idle, have ended.
  const std::uint32_t first = cell == domain_.cell_count ? 0 : cell;
  const std::uint32_t last = cell == domain_.cell_count ? cell : cell + 1;
  bool for_good = false;
  for (std::uint32_t ended = first; ended < last; ++ended) {
    if (!cell_has_ended(ended)) continue;
    for_good = true;
    here_.collectives().member_ended(ended, ends_[ended]);
  }
  const bool all_ended = here_.is_host() && all_cells_ended();
  if (!for_good && !all_ended) return;
  for (const std::uint32_t resident : here_.residents()) wake_receivers(*domain_.cells[resident], all_ended);
  if (here_.is_host()) wake_receivers(*domain_.host_cell, all_ended);
}

}  // namespace aplib
