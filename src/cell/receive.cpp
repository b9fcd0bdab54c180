// SPDX-License-Identifier: MIT
// Receiving: what arrives finds the receive that waits for it, or the mailbox of its task.
#include "base/spin_lock.hpp"
#include "cell/copy_small.hpp"
#include "cell/network.hpp"
#include "cell/processor.hpp"

namespace aplib {

namespace {

constexpr std::uint8_t probe_misses_max = 4;

template <class T>
T read_payload(const std::byte* payload) noexcept {
  T value;
  std::memcpy(&value, payload, sizeof value);
  return value;
}

}  // namespace

Wake Processor::receive(TaskControl& self, const char* call, bool closed_when_cells_end) {
  Posted& posted = self.posted;
  if (!self.mailbox.empty()) {
    if (Buffer* found = self.mailbox.take(posted.wish)) {
      self.cell->processor->take_from_mailbox(self, found);
      // relaxed: a task that is never without a message shall notice sooner or later
      return self.cell->processor->domain_.stopping.load(std::memory_order_relaxed) ? Wake::stopping : Wake::done;
    }
  }
  Processor& here = *self.cell->processor;
  posted.open = true;
  posted.task = &self;
  struct Close {  // whatever happens: what it points to is the caller's
    Posted& posted;
    ~Close() { posted.open = false; }
  } const close{posted};
  here.poll();
  if (!posted.open) return Wake::done;
  if (here.domain_.stopping.load(std::memory_order_relaxed)) [[unlikely]]  // relaxed: noticed sooner or later
    return Wake::stopping;
  // A cell that is still arriving may yet get messages by its old place from cells known here to have ended: end_move() looks again.
  if (here.ended_count_ != 0 && self.cell != here.arriving_) [[unlikely]] {
    const bool named = (posted.wish.mask & MatchKey::cell_mask) != 0;
    if ((named && here.cell_has_ended(MatchKey::cell(posted.wish.key))) ||
        (closed_when_cells_end && here.all_cells_ended()))
      return Wake::ended;
  }
  if (posted.capacity >= offer_from_bytes && posted.message == nullptr && here.domain_.processors.size() > 1 &&
      !here.domain_.move_in_progress.load(std::memory_order_relaxed) &&  // relaxed: senders check
      self.cell->offering == nullptr) {
    posted.offered = true;
    posted.committed.store(false, std::memory_order_relaxed);         // published by the offer
    self.cell->offer_task.store(self.id, std::memory_order_relaxed);  // a hint
    self.cell->offering = &posted;
    if (!self.cell->offers_lately.load(std::memory_order_relaxed)) {    // relaxed: a hint
      self.cell->offers_lately.store(true, std::memory_order_relaxed);  // the same
    }
    self.cell->offer.store(&posted, std::memory_order_release);  // release: the fields of posted
  }
  posted.closed_when_cells_end = closed_when_cells_end;
  return wait(self, WaitFor::message, call);
}

void Processor::take_from_mailbox(TaskControl& self, Buffer* found) {
  Posted& posted = self.posted;
  posted.key = found->key;
  posted.bytes = found->bytes;
  count_unread(*found, false);
  if (posted.message != nullptr) {
    MessageAccess::set_buffer(*pool_, *posted.message, found->key, found, found->bytes);
    return;
  }
  copy_bytes(posted.buffer, found->body(), std::min(found->bytes, posted.capacity));
  pool_->put(found);
}

bool Processor::probe(TaskControl& self, const MatchWish& wish) {
  if (!self.mailbox.empty() && self.mailbox.find(wish) != nullptr) {
    self.probe_misses = 0;
    return true;
  }
  poll();
  if (!self.mailbox.empty() && self.mailbox.find(wish) != nullptr) {
    self.probe_misses = 0;
    return true;
  }
  if (++self.probe_misses >= probe_misses_max) {
    self.probe_misses = 0;
    yield(self);
    return !self.mailbox.empty() && self.mailbox.find(wish) != nullptr;
  }
  return false;
}

[[gnu::always_inline]] inline void Processor::deliver_small(Cell& cell, std::uint32_t task, std::uint64_t key,
                                                            const std::byte* body, std::size_t bytes) {
  TaskControl* receiver = cell.tasks.find(task);
  if (receiver != nullptr && receiver->posted.open && receiver->posted.wish.accepts(key) && withdraw(receiver->posted))
      [[likely]] {
    Posted& posted = receiver->posted;
    posted.key = key;
    posted.bytes = bytes;
    if (posted.message != nullptr) {
      MessageAccess::set_small(*posted.message, key, body, bytes);
    } else {
      copy_small(posted.buffer, body, std::min(bytes, posted.capacity));
    }
    complete(posted);
    return;
  }
  Buffer* buffer = pool_->get(bytes);
  std::memcpy(buffer->body(), body, MessageRing::inline_bytes_max);
  queue_buffer(cell, task, key, buffer, bytes);
}

// Takes messages until a task became ready or a receive in progress is satisfied, so that a stream is taken at the receiver's own pace.
void Processor::poll_rings() noexcept {
  MessageRing* ring = nullptr;
  try {
    if (known_incoming_ != incoming_count_.load(std::memory_order_relaxed)) [[unlikely]]
      refresh_incoming();  // relaxed: looked at again inside
    satisfied_ = false;
    const auto count = static_cast<std::uint32_t>(incoming_.size());
    std::uint32_t i = next_ring_;
    for (std::uint32_t n = 0; n < count; ++n) {
      if (i >= count) i = 0;
      const Incoming& in = incoming_[i];
      ring = in.ring;
      while (Slot* slot = ring->peek()) {
        const bool plain = slot->info < SlotInfo::small_messages_end && !moving_ &&
                           route_[MatchKey::cell(slot->key)] == in.from && route_[slot->cell] == index_;
        if (plain) [[likely]] {  // what handle() would do, without the way there
          deliver_small(*domain_.cells[slot->cell], slot->task, slot->key, slot->payload, slot->info);
        } else if (!handle(in.from, *slot)) {
          break;  // held back until a cell's move is through
        }
        ring->pop();
        if (satisfied_ || !ready_.empty()) {
          if (settle_soon_) {  // a large transfer: its sender may claim the next buffer only when it knows that we have taken this one
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
  if (backlog_count_ != 0) [[unlikely]]
    flush_backlogs();
}

// A slot that could not be taken has ended the machine, so nobody will receive its message. What cells need to come to their
// end stays where it is, for another try.
void Processor::drop_oldest(MessageRing& ring) noexcept {
  const Slot* slot = ring.peek();
  if (slot == nullptr) return;
  const SlotKind kind = SlotInfo::kind(slot->info);
  if (kind != SlotKind::cell_moved && kind != SlotKind::fence) ring.pop();
}

// One slot from the ring of processor `from`. False: it must stay where it is for now.
bool Processor::handle(std::uint32_t from, Slot& slot) {
  const auto kind = SlotInfo::kind(slot.info);
  const bool forwarded = SlotInfo::forwarded(slot.info);
  switch (kind) {
    case SlotKind::small_message:
    case SlotKind::buffer_message:
    case SlotKind::large_message:
    case SlotKind::offer_taken:
      // Messages of a cell that moved wait until we know of the move: then all it sent from its old place is here.
      if (route_[MatchKey::cell(slot.key)] != from && !forwarded) [[unlikely]]
        return false;
      if (moving_) [[unlikely]] {
        const Admission admission = admit(from, slot);
        if (admission != Admission::deliver) return admission == Admission::done;
      }
      // Its last processor has told the sender of the move, and us, too, but we have not read that yet.
      if (route_[slot.cell] != index_) [[unlikely]]
        return false;
      if (kind == SlotKind::small_message) [[likely]] {
        deliver_small(*domain_.cells[slot.cell], slot.task, slot.key, slot.payload, SlotInfo::bytes(slot.info));
      } else {
        deliver_slot(*domain_.cells[slot.cell], slot.info, slot.key, slot.task, slot.payload);
      }
      return true;
    case SlotKind::start_task: {
      Cell& cell = *domain_.cells[slot.cell];
      if (moving_) {
        const Admission admission = admit(from, slot);
        if (admission != Admission::deliver) return admission == Admission::done;
      }
      if (route_[slot.cell] != index_) [[unlikely]]
        return false;
      start_program(cell, *read_payload<const Program*>(slot.payload));
      return true;
    }
    case SlotKind::cell_moved:
      handle_cell_moved(from, slot.cell, slot.task);
      return true;
    case SlotKind::fence:
      handle_fence(slot.task);
      return true;
    case SlotKind::cell_ended:
      if (route_[slot.cell] != from) return false;
      // What the sender had for a cell that is arriving may still be on its way by the cell's old place: the end comes after it.
      if (arriving_ != nullptr && fenced_[from] == 0) return false;
      cell_ended(slot.cell, read_payload<CellEnd>(slot.payload));
      return true;
    case SlotKind::call: {
      const auto call = read_payload<CallSlot>(slot.payload);
      call.function(*this, call.state);
      return true;
    }
  }
  return true;
}

// Everything but small messages.
void Processor::deliver_slot(Cell& cell, std::uint32_t info, std::uint64_t key, std::uint32_t task,
                             const std::byte* payload) {
  switch (SlotInfo::kind(info)) {
    case SlotKind::small_message:
      deliver_small(cell, task, key, payload, SlotInfo::bytes(info));
      break;
    case SlotKind::large_message: {
      const auto slot = read_payload<BufferSlot>(payload);
      slot.buffer->transfer.copy_from_back();
      if (cell.offers_lately.load(std::memory_order_relaxed)) {  // relaxed: a hint; the next offer renews it
        cell.offers_lately.store(false, std::memory_order_relaxed);
      }
      deliver_buffer(cell, task, key, slot.buffer, slot.bytes);
      break;
    }
    case SlotKind::offer_taken: {
      const auto slot = read_payload<OfferSlot>(payload);
      if (slot.has_transfer != 0) slot.posted->transfer.copy_from_back();
      settle_soon_ = true;
      slot.posted->offered = false;
      slot.posted->task->cell->offering = nullptr;
      complete(*slot.posted);
      // From another process, whose body may be incomplete then. Acquire: pairs with stop().
      if (network_ != nullptr && domain_.stopping.load(std::memory_order_acquire))
        slot.posted->task->wake = Wake::stopping;
      break;
    }
    default: {
      const auto slot = read_payload<BufferSlot>(payload);
      deliver_buffer(cell, task, key, slot.buffer, slot.bytes);
      break;
    }
  }
}

void Processor::deliver_buffer(Cell& cell, std::uint32_t task, std::uint64_t key, Buffer* buffer, std::size_t bytes) {
  TaskControl* receiver = cell.tasks.find(task);
  if (receiver != nullptr && receiver->posted.open && receiver->posted.wish.accepts(key) &&
      withdraw(receiver->posted)) {
    Posted& posted = receiver->posted;
    posted.key = key;
    posted.bytes = bytes;
    if (posted.message != nullptr) {
      MessageAccess::set_buffer(*pool_, *posted.message, key, buffer, bytes);
    } else {
      copy_bytes(posted.buffer, buffer->body(), std::min(bytes, posted.capacity));
      pool_->put(buffer);
    }
    complete(posted);
    return;
  }
  queue_buffer(cell, task, key, buffer, bytes);
}

void Processor::queue_buffer(Cell& cell, std::uint32_t task, std::uint64_t key, Buffer* buffer, std::size_t bytes) {
  buffer->key = key;
  buffer->bytes = bytes;
  buffer->task = task;
  count_unread(*buffer, true);
  TaskControl* receiver = cell.tasks.find(task);
  (receiver != nullptr ? receiver->mailbox : cell.orphans).push(*buffer);
}

bool Processor::withdraw_offered(Posted& posted) noexcept {
  Cell& cell = *posted.task->cell;
  for (SpinWait spin;; spin.pause()) {
    Posted* expected = &posted;
    if (cell.offer.compare_exchange_strong(expected, nullptr, std::memory_order_acq_rel,
                                           std::memory_order_acquire)) {  // as in send_to_offer()
      posted.offered = false;
      cell.offering = nullptr;
      return true;
    }
    // A sender has claimed it and will say within a few instructions whether it wants it.
    if (posted.committed.load(std::memory_order_acquire)) return false;  // acquire: pairs with send_to_offer()
  }
}

// A cell that is to get another program has not ended for good. The host program's end is no error for those who wait for it: when nobody can go on,
// the run just ends.
bool Processor::cell_has_ended(std::uint32_t cell) const noexcept {
  return ended_cells_[cell] != 0 && cell != domain_.cell_count &&
         ended_tasks_[cell] >=
             domain_.programs_started.load(std::memory_order_relaxed);  // relaxed: see Machine::Impl::start_cells
}

bool Processor::all_cells_ended() const noexcept {
  std::uint64_t ended = 0;
  for (const std::uint64_t tasks : ended_tasks_) ended += tasks;
  return ended == domain_.programs_started.load(std::memory_order_relaxed) *
                      domain_.cell_count;  // relaxed: the host counts them itself
}

// `cell` sends nothing any more, and all it has sent is here.
void Processor::cell_ended(std::uint32_t cell, const CellEnd& end) {
  if (is_network_) {
    network_->cell_ended(cell, end);
    return;
  }
  ended_tasks_[cell] = end.tasks;
  if (ended_cells_[cell] == 0) ++ended_count_;
  ended_cells_[cell] = 1;
  check_collectives();  // what is complete is complete, even if a member has ended since
  const bool for_good = cell_has_ended(cell);
  const std::vector<Cell*> waits = collective_waits_;
  for (Cell* waiting : waits) {
    const Group& group = *waiting->collective.group;
    if (!for_good || !group.contains(cell)) continue;
    // It may have taken part and be through, while parts of the result are still on their way from other processes.
    if (end.episodes[static_cast<std::size_t>(group.scope)] > waiting->collective.episode) continue;
    std::erase(collective_waits_, waiting);
    if (waiting->collective.group != &domain_.all) --line_waits_;
    waiting->collective.active = false;
    waiting->collective.ended_cell = cell;
    wake_waiting(*waiting->collective.task, Wake::ended);
  }
  const bool all_ended = is_host_ && all_cells_ended();
  if (!for_good && !all_ended) return;
  const auto wake_receivers = [&](Cell& resident) {
    for (std::uint32_t id = 0; id < resident.tasks.end(); ++id) {
      TaskControl* task = resident.tasks.find(id);
      if (task == nullptr || task->ended || task->ready) continue;
      if (task->waits == WaitFor::cells_end && all_ended) {
        make_ready(*task);
      } else if (task->waits == WaitFor::message && task->posted.open) {
        const MatchWish& wish = task->posted.wish;
        const bool names_it = for_good && (wish.mask & MatchKey::cell_mask) != 0 && MatchKey::cell(wish.key) == cell;
        if (names_it || (all_ended && task->posted.closed_when_cells_end)) wake_waiting(*task, Wake::ended);
      }
    }
  };
  for (const std::uint32_t resident : residents_) wake_receivers(*domain_.cells[resident]);
  if (is_host_) wake_receivers(*domain_.host_cell);
}

}  // namespace aplib
