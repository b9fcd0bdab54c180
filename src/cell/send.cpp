// SPDX-License-Identifier: MIT
// Sending. Three ways, by size and place:
//   same processor     straight into the receiver's wait if it matches, else into its mailbox
//   another, small     inside a ring slot
//   another process    the network takes it (network.hpp)
//   another, larger    one copy into a pooled buffer whose pointer travels; or, when the receiver waits with its own buffer, into that; very
//                      large ones are copied by both processors at once (transfer.hpp)
#include <fmt/format.h>

#include "aplib/error.hpp"
#include "cell/copy_small.hpp"
#include "cell/network.hpp"
#include "cell/processor.hpp"

namespace aplib {

namespace {

constexpr std::size_t both_sides_from_bytes = 32 * 1024;  // smaller: the copy is over before the other side could help
constexpr std::size_t bytes_per_look = 64 * 1024;         // one look takes some 25 ns, the copy of so many bytes 1 us
constexpr std::uint32_t full_ring_spins = 200;            // about 5 us: a receiver that polls makes room in much less
constexpr std::size_t local_backlog_max = 4096;           // messages a receiver on the same processor may lag behind

[[noreturn, gnu::cold, gnu::noinline]] void bad_destination(Domain& domain, const TaskControl& self, const char* call,
                                                            std::uint32_t cell, To to) {
  std::string text;
  if (cell >= domain.cell_count && !(domain.has_host && cell == domain.host_id)) {
    text = fmt::format("there is no cell {}; the machine has cells 0..{} ({}x{})", static_cast<std::int32_t>(cell),
                       domain.cell_count - 1, domain.grid.nx, domain.grid.ny);
    if (domain.has_host) text += fmt::format(" and the host program, {}", domain.host_id);
  } else if (to.type < 0 || to.type > message_type_max) {
    text = fmt::format("message type {} is out of range; use 0..{}", to.type, message_type_max);
  } else {
    text = fmt::format("task {} is out of range; use 0..{}", aplib::index(to.task), task_id_max);
  }
  throw Error(Errc::bad_argument,
              fmt::format("{} task {}: {}: {}", domain.name_of(self.cell->id), self.id, call, text));
}

}  // namespace

[[gnu::always_inline]] inline void Processor::send_local(TaskControl& self, Cell& cell, std::uint32_t task,
                                                         std::uint64_t key, std::span<const std::byte> bytes) {
  TaskControl* receiver = cell.tasks.find(task);
  if (receiver != nullptr && receiver->posted.open && receiver->posted.wish.accepts(key) &&
      withdraw(receiver->posted)) {
    Posted& posted = receiver->posted;
    posted.key = key;
    posted.bytes = bytes.size();
    if (posted.message == nullptr) {
      copy_bytes(posted.buffer, bytes.data(), std::min(bytes.size(), posted.capacity));
    } else if (bytes.size() <= Message::inline_bytes_max) {
      MessageAccess::set_small_exactly(*posted.message, key, bytes.data(), bytes.size());
    } else {
      Buffer* buffer = pool_->get(bytes.size());
      std::memcpy(buffer->body(), bytes.data(), bytes.size());
      MessageAccess::set_buffer(*pool_, *posted.message, key, buffer, bytes.size());
    }
    complete(posted);
    return;
  }
  Buffer* buffer = pool_->get(bytes.size());
  copy_bytes(buffer->body(), bytes.data(), bytes.size());
  queue_buffer(cell, task, key, buffer, bytes.size());
  if (receiver != nullptr && receiver->mailbox.size() > local_backlog_max && !ready_.empty()) [[unlikely]] {
    yield(self);  // let it catch up, else a sender that never waits would fill the memory
  }
}

void Processor::send(TaskControl& self, const char* call, std::uint32_t cell, std::span<const std::byte> bytes, To to,
                     std::uint32_t space) {
  std::uint32_t target_index = cell;
  if (cell >= cell_limit_ || static_cast<std::uint32_t>(to.type) > static_cast<std::uint32_t>(message_type_max) ||
      aplib::index(to.task) > task_id_max) [[unlikely]] {
    if (cell < domain_.cell_count && cell_limit_ == 0) {
      throw Error(
          Errc::failed,
          fmt::format("host program: {}: no program runs on the cells yet; start one first (ccreat, start_cells)",
                      call));
    }
    const bool to_host = cell >= domain_.cell_count && domain_.has_host && cell == domain_.host_id;
    if (!to_host || static_cast<std::uint32_t>(to.type) > static_cast<std::uint32_t>(message_type_max) ||
        aplib::index(to.task) > task_id_max) {
      bad_destination(domain_, self, call, cell, to);
    }
    target_index = domain_.cell_count;
  }
  if (stops()) [[unlikely]]  // a task that never waits must notice, too
    return;
  const std::uint64_t key = MatchKey::make(space, self.cell->id, self.id, static_cast<std::uint32_t>(to.type));
  const std::uint32_t processor = route_[target_index];
  if (processor != index_) {
    MessageRing* ring = outgoing_[processor];
    if (bytes.size() <= MessageRing::inline_bytes_max && backlog_count_ == 0 && ring != nullptr) [[likely]] {
      if (Slot* slot = ring->prepare()) [[likely]] {
        copy_small(slot->payload, bytes.data(), bytes.size());
        slot->info = SlotInfo::make(SlotKind::small_message, bytes.size());
        slot->key = key;
        slot->cell = target_index;
        slot->task = aplib::index(to.task);
        ring->publish();
        parkers_[processor]->wake_if_asleep();
        return;
      }
    }
    if (processor == network_index_) {
      network_->send(self, call, target_index, aplib::index(to.task), key, bytes);
    } else {
      send_remote(target_index, processor, aplib::index(to.task), key, bytes);
    }
    return;
  }
  Cell& target = *domain_.cells[target_index];
  if (&target == arriving_) [[unlikely]] {
    send_to_arriving(target, aplib::index(to.task), key, bytes);
    return;
  }
  send_local(self, target, aplib::index(to.task), key, bytes);
}

void Processor::send_remote(std::uint32_t cell, std::uint32_t processor, std::uint32_t task, std::uint64_t key,
                            std::span<const std::byte> bytes) {
  const std::size_t size = bytes.size();
  if (size <= MessageRing::inline_bytes_max) {  // the first one, or the ring is full
    push_raw(processor, SlotInfo::make(SlotKind::small_message, size), key, cell, task, bytes.data(), size);
    return;
  }
  if (size >= offer_from_bytes && send_to_offer(cell, processor, task, key, bytes)) return;
  Buffer* buffer = pool_->get(size);
  if (size >= both_sides_from_bytes && backlogs_[processor].empty()) {
    buffer->transfer.begin(buffer->body(), bytes.data(), size);
    push(processor, SlotKind::large_message, cell, task, key, BufferSlot{buffer, size});
    // Whether it went into the ring or the backlog: the body is complete before we return, and whoever reads the slot waits for that.
    buffer->transfer.copy_from_front();
    return;
  }
  std::memcpy(buffer->body(), bytes.data(), size);
  push(processor, SlotKind::buffer_message, cell, task, key, BufferSlot{buffer, size});
}

// The receiver may wait with its own buffer on the other processor. Claims that buffer if it is sure that nothing we sent before can still match it, that
// is, when everything in our ring has been taken and no cell is moving. Null: send it the other way.
Posted* Processor::claim_offer(std::uint32_t cell_index, std::uint32_t processor, std::uint32_t task, std::uint64_t key,
                               std::size_t bytes) {
  Cell& cell = *domain_.cells[cell_index];
  if (!backlogs_[processor].empty()) return nullptr;
  MessageRing& ring = ring_to(processor);
  const auto open = [&] {
    return cell.offer.load(std::memory_order_relaxed) != nullptr &&    // relaxed: a look; the exchange decides
           cell.offer_task.load(std::memory_order_relaxed) == task &&  // relaxed: the claimed Posted decides
           ring.consumed_up_to(ring.produced());
  };
  // A receiver that is about to offer its buffer again saves a large message its second copy: wait a few percent of the copy's time for it.
  std::size_t looks = cell.offers_lately.load(std::memory_order_relaxed) && !is_network_  // relaxed: a hint
                          ? bytes / bytes_per_look
                          : 0;
  while (!open()) {
    if (looks-- == 0) return nullptr;
    cpu_relax();
  }
  if (domain_.move_in_progress.load(std::memory_order_acquire))
    return nullptr;  // acquire: after consumed_up_to(), see move.cpp
  Posted* posted =
      cell.offer.exchange(nullptr, std::memory_order_acq_rel);  // acquire: its fields; release: for who finds null
  if (posted == nullptr) return nullptr;
  if (posted->task->id != task || !posted->wish.accepts(key) || posted->capacity < bytes) {
    cell.offer.store(posted, std::memory_order_release);  // put back: pairs with withdraw()
    return nullptr;
  }
  posted->committed.store(true, std::memory_order_release);  // pairs with withdraw()
  posted->key = key;
  posted->bytes = bytes;
  return posted;
}

bool Processor::send_to_offer(std::uint32_t cell_index, std::uint32_t processor, std::uint32_t task, std::uint64_t key,
                              std::span<const std::byte> bytes) {
  Posted* posted = claim_offer(cell_index, processor, task, key, bytes.size());
  if (posted == nullptr) return false;
  if (bytes.size() >= both_sides_from_bytes) {
    posted->transfer.begin(posted->buffer, bytes.data(), bytes.size());
    push(processor, SlotKind::offer_taken, cell_index, task, key, OfferSlot{posted, bytes.size(), 1});
    posted->transfer.copy_from_front();
  } else {
    std::memcpy(posted->buffer, bytes.data(), bytes.size());
    push(processor, SlotKind::offer_taken, cell_index, task, key, OfferSlot{posted, bytes.size(), 0});
  }
  return true;
}

Processor::MessageRing& Processor::make_ring(std::uint32_t processor) {
  if (owned_rings_[processor] != nullptr) return *owned_rings_[processor];  // the network's, see below
  owned_rings_[processor] = std::make_unique<MessageRing>();
  MessageRing& ring = *owned_rings_[processor];
  // Messages to other processes do not go through a ring: send() shall not find one.
  if (processor != network_index_) outgoing_[processor] = &ring;
  Processor& other = *domain_.processors[processor];
  other.incoming_table_[index_].store(&ring, std::memory_order_release);  // release: the ring's construction
  other.incoming_count_.fetch_add(1, std::memory_order_release);          // release: the table entry
  return ring;
}

// The next slot of the ring to `processor`, or null when the message must go to the backlog. A full ring is waited for as long as the other side
// takes messages, so that a sender does not outrun a receiver that keeps up; one that does not take any is not waited for. Nothing is polled
// meanwhile: what polling finds (a cell that moves, say) must not come between the choice of a ring and the message.
Processor::Slot* Processor::slot_to(std::uint32_t processor) {
  MessageRing& ring = ring_to(processor);
  Backlog& backlog = backlogs_[processor];
  if (backlog.empty()) [[likely]] {
    if (Slot* slot = ring.prepare()) [[likely]]
      return slot;
  }
  if (processor == index_) return nullptr;  // messages to a cell that is arriving here: end_move() delivers them
  if (is_network_) {  // it is one of the receivers who polls: waiting for it would be waiting for ourselves
    if (!backlog.empty() && flush_backlog(processor)) return ring.prepare();
    return nullptr;
  }
  std::uint32_t consumed = ring.consumed();
  if (backlog.stuck_at() == consumed && !backlog.empty()) return nullptr;
  parkers_[processor]->wake_if_asleep();
  for (std::uint32_t spin = 0; spin < full_ring_spins; ++spin) {
    if (flush_backlog(processor)) {
      if (Slot* slot = ring.prepare()) return slot;
    }
    cpu_relax();
    if (const std::uint32_t now = ring.consumed(); now != consumed) {
      consumed = now;
      spin = 0;
    }
  }
  backlog.stick(consumed);
  return nullptr;
}

void Processor::push_raw(std::uint32_t processor, std::uint32_t info, std::uint64_t key, std::uint32_t cell,
                         std::uint32_t task, const void* payload, std::size_t bytes) {
  Slot* slot = backlogs_[processor].empty() ? slot_to(processor) : nullptr;
  if (slot == nullptr) {
    Waiting waiting{info, key, cell, task, {}};
    copy_bytes(waiting.payload, payload, bytes);
    backlogs_[processor].push_back(waiting);
    ++backlog_count_;
    return;
  }
  slot->info = info;
  slot->key = key;
  slot->cell = cell;
  slot->task = task;
  copy_bytes(slot->payload, payload, bytes);
  ring_to(processor).publish();
  parkers_[processor]->wake_if_asleep();
}

void Processor::push_control(std::uint32_t processor, SlotKind kind, std::uint32_t cell, std::uint32_t task,
                             std::uint64_t key, const void* payload, std::size_t bytes) {
  push_raw(processor, SlotInfo::make(kind), key, cell, task, payload, bytes);
}

// True when nothing is left in it.
bool Processor::flush_backlog(std::uint32_t processor) {
  Backlog& backlog = backlogs_[processor];
  if (processor == index_) return false;  // messages to a cell that is arriving here: end_move() delivers them
  MessageRing& ring = ring_to(processor);
  while (!backlog.empty()) {
    Slot* slot = ring.prepare();
    if (slot == nullptr) break;
    const Waiting& waiting = backlog.front();
    slot->info = waiting.info;
    slot->key = waiting.key;
    slot->cell = waiting.cell;
    slot->task = waiting.task;
    std::memcpy(slot->payload, waiting.payload, sizeof waiting.payload);
    ring.publish();
    backlog.pop_front();
    --backlog_count_;
  }
  parkers_[processor]->wake_if_asleep();
  return backlog.empty();
}

void Processor::flush_backlogs() {
  for (std::uint32_t processor = 0; processor < backlogs_.size(); ++processor) {
    if (!backlogs_[processor].empty()) flush_backlog(processor);
  }
}

// From a cell of this processor to one that is still arriving here: older messages of ours travel by way of its last processor, so this one waits.
void Processor::send_to_arriving(Cell& cell, std::uint32_t task, std::uint64_t key, std::span<const std::byte> bytes) {
  Waiting waiting{SlotInfo::make(SlotKind::small_message, bytes.size()), key, cell.id, task, {}};
  if (bytes.size() <= MessageRing::inline_bytes_max) {
    copy_small(waiting.payload, bytes.data(), bytes.size());
  } else {
    Buffer* buffer = pool_->get(bytes.size());
    std::memcpy(buffer->body(), bytes.data(), bytes.size());
    waiting.info = SlotInfo::make(SlotKind::buffer_message);
    const BufferSlot slot{buffer, bytes.size()};
    std::memcpy(waiting.payload, &slot, sizeof slot);
  }
  backlogs_[index_].push_back(waiting);
  ++backlog_count_;
}

}  // namespace aplib
