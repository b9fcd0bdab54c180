// SPDX-License-Identifier: MIT
#include "cell/outbound.hpp"

#include <cstring>

#include "arch/cpu.hpp"
#include "cell/domain.hpp"
#include "cell/processor.hpp"

namespace aplib {

namespace {

constexpr std::size_t both_sides_from_bytes = 32 * 1024;  // smaller: the copy is over before the other side could help
constexpr std::size_t bytes_per_look = 8 * 1024;          // one look takes some 25 ns, the copy of so many bytes 160
constexpr std::size_t bytes_per_touch = 64 * 1024;
constexpr std::uint32_t full_ring_spins = 200;  // about 5 us: a receiver that polls makes room in much less
constexpr std::uint32_t full_ring_looks = 20 * full_ring_spins;

/// What an item of a backlog counts for: as much as in a mailbox, so that nothing changes when it gets there.
std::int64_t bytes_of(const Outbound::Waiting& item) noexcept {
  const EntryKind kind = EntryInfo::kind(item.info);
  if (kind != EntryKind::buffer_message && kind != EntryKind::large_message)
    return UnreadMeter<>::overhead + static_cast<std::int64_t>(EntryInfo::bytes(item.info));
  BufferEntry entry;
  std::memcpy(&entry, item.payload, sizeof entry);
  return UnreadMeter<>::overhead + static_cast<std::int64_t>(entry.bytes);
}

}  // namespace

void Outbound::prepare(std::uint32_t index, bool is_network, BufferPool& pool, UnreadMeter<>& unread) {
  const auto count = static_cast<std::uint32_t>(domain_.processors.size());
  index_ = index;
  is_network_ = is_network;
  network_index_ = domain_.network_index;
  pool_ = &pool;
  unread_ = &unread;
  outgoing_table_.assign(count, nullptr);
  outgoing_ = outgoing_table_.data();
  owned_rings_.clear();
  owned_rings_.resize(count);
  backlogs_.resize(count);
  parker_table_.clear();
  for (auto& processor : domain_.processors) parker_table_.push_back(&processor->parker());
  parkers_ = parker_table_.data();
  route_table_.clear();
  for (const Cell* cell : domain_.cells) {
    std::uint32_t route = 0;
    if (cell == domain_.host_cell.get() && cell->processor != nullptr) {
      route = domain_.carriers;
    } else if (cell->processor != nullptr) {
      route = cell->processor->index();
    } else if (domain_.network != nullptr) {
      route = network_index_;
    }
    route_table_.push_back(static_cast<std::uint16_t>(route));
  }
  route_ = route_table_.data();
}

std::uint32_t Outbound::thread_count() const noexcept { return static_cast<std::uint32_t>(domain_.thread_count()); }

bool Outbound::try_buffered(std::uint32_t processor, std::uint32_t cell, std::uint32_t task, std::uint64_t key,
                            std::span<const std::byte> bytes) {
  MessageRing* const ring = outgoing_[processor];
  if (bytes.size() <= MessageRing::inline_bytes_max || bytes.size() >= offer_from_bytes || backlog_count_ != 0 ||
      ring == nullptr)
    return false;
  MessageRing::Entry* const entry = ring->prepare();
  if (entry == nullptr) return false;
  Buffer* const buffer = pool_->get(bytes.size());
  copy_long(buffer->own_body(), bytes.data(), bytes.size());
  const BufferEntry payload{buffer, bytes.size()};
  std::memcpy(entry->payload, &payload, sizeof payload);
  publish(*ring, *entry, EntryInfo::make(EntryKind::buffer_message), key, cell, task);
  parkers_[processor]->wake_if_asleep();
  return true;
}

void Outbound::send(std::uint32_t cell, std::uint32_t processor, std::uint32_t task, std::uint64_t key,
                    std::span<const std::byte> bytes) {
  const std::size_t size = bytes.size();
  if (size <= MessageRing::inline_bytes_max) {  // the first one, or the ring is full
    push_raw(processor, EntryInfo::make(EntryKind::small_message, size), key, cell, task, bytes.data(), size);
    return;
  }
  if (size >= offer_from_bytes && send_to_offer(cell, processor, task, key, bytes)) return;
  Buffer* buffer = pool_->get(size);
  if (size >= both_sides_from_bytes && backlogs_[processor].empty()) {
    buffer->transfer.begin(buffer->body(), bytes.data(), size);
    push(processor, EntryKind::large_message, cell, task, key, BufferEntry{buffer, size});
    // A receiver with a buffer of its own is likely to say so at once, which saves it a second copy. That is worth
    // waiting for a part of the copy's time.
    if (domain_.cells[cell]->offer.lately.load(std::memory_order_relaxed) && !is_network_)  // relaxed: a hint
      buffer->transfer.await_receiver(size / bytes_per_look);
    // Whether it went into the ring or the backlog: the body is complete before we return, and whoever reads the
    // entry waits for that.
    buffer->transfer.copy_from_front();
    return;
  }
  copy_long(buffer->body(), bytes.data(), size);
  push(processor, EntryKind::buffer_message, cell, task, key, BufferEntry{buffer, size});
}

// The receiver may wait with its own buffer on the other processor. Claims that buffer if nothing that we have sent can
// still match it, that is, if everything in our ring has been taken and no cell is moving. Null: send it the other way.
Posted* Outbound::claim_offer(std::uint32_t cell_index, std::uint32_t processor, std::uint32_t task, std::uint64_t key,
                              std::size_t bytes) {
  Offer& offer = domain_.cells[cell_index]->offer;
  if (!backlogs_[processor].empty()) return nullptr;
  MessageRing& ring = ring_to(processor);
  if (offer.posted.load(std::memory_order_relaxed) == nullptr ||  // relaxed: a look; the exchange decides
      offer.task.load(std::memory_order_relaxed) != task ||       // relaxed: as it is once the offer is taken
      !ring.consumed_up_to(ring.produced()))
    return nullptr;
  if (domain_.move_in_progress.load(std::memory_order_acquire))
    return nullptr;  // acquire: after consumed_up_to(), see mover.hpp
  Posted* posted =
      offer.posted.exchange(nullptr, std::memory_order_acq_rel);  // acquire: its fields; release: for who finds null
  if (posted == nullptr) return nullptr;
  if (offer.task.load(std::memory_order_relaxed) != task || !offer.wish.accepts(key) || offer.capacity < bytes) {
    offer.posted.store(posted, std::memory_order_release);  // put back: pairs with withdraw()
    return nullptr;
  }
  offer.committed.store(true, std::memory_order_release);  // pairs with withdraw()
  return posted;
}

bool Outbound::send_to_offer(std::uint32_t cell_index, std::uint32_t processor, std::uint32_t task, std::uint64_t key,
                             std::span<const std::byte> bytes) {
  Posted* posted = claim_offer(cell_index, processor, task, key, bytes.size());
  if (posted == nullptr) return false;
  if (bytes.size() >= both_sides_from_bytes) {
    posted->transfer.begin(posted->buffer, bytes.data(), bytes.size());
    push(processor, EntryKind::offer_taken, cell_index, task, key, OfferEntry{posted, bytes.size(), 1});
    posted->transfer.copy_from_front();
  } else {
    copy_long(domain_.cells[cell_index]->offer.buffer, bytes.data(), bytes.size());
    push(processor, EntryKind::offer_taken, cell_index, task, key, OfferEntry{posted, bytes.size(), 0});
  }
  return true;
}

namespace {

/// What is not there faults here, in the task that asked for it, and not in who helps.
void touch(const void* memory, std::size_t bytes) noexcept {
  const auto* const first = static_cast<const unsigned char*>(memory);
  for (std::size_t at = 0; at < bytes; at += bytes_per_touch)
    static_cast<void>(__atomic_load_n(first + at, __ATOMIC_RELAXED));  // relaxed: only whether it can be read
  static_cast<void>(__atomic_load_n(first + bytes - 1, __ATOMIC_RELAXED));
}

/// `state`: the buffer whose transfer it is. It has no body, and belongs to who helps.
void help_to_copy(Processor& here, void* state) {
  auto* const buffer = static_cast<Buffer*>(state);
  buffer->transfer.copy_from_back();
  here.pool().put(buffer);
}

}  // namespace

bool Outbound::copy_together(std::uint32_t processor, void* to, const void* from, std::size_t bytes) {
  if (processor == index_ || !backlogs_[processor].empty() || parkers_[processor]->is_asleep()) return false;
  MessageRing& ring = ring_to(processor);
  if (!ring.consumed_up_to(ring.produced())) return false;
  touch(from, bytes);
  touch(to, bytes);
  Buffer* const buffer = pool_->get(0);
  buffer->transfer.begin(to, from, bytes);
  push(processor, EntryKind::call, 0, 0, 0, CallEntry{help_to_copy, buffer});
  buffer->transfer.copy_from_front();  // from here on the buffer is the helper's
  return true;
}

MessageRing& Outbound::make_ring(std::uint32_t processor) {
  if (owned_rings_[processor] != nullptr) return *owned_rings_[processor];  // the network's, see below
  owned_rings_[processor] = std::make_unique<MessageRing>();
  MessageRing& ring = *owned_rings_[processor];
  // Messages to other processes do not go through a ring: send() shall not find one.
  if (processor != network_index_) outgoing_[processor] = &ring;
  domain_.processors[processor]->inbound().connect(index_, ring);
  return ring;
}

// The next entry of the ring to `processor`; null: the message must go to the backlog. A sender waits at a full ring
// while the other side takes messages, so that it does not outrun a receiver that keeps up. It does not wait for one
// that takes none. Nothing is polled meanwhile: what polling finds, for example a cell that moves, must not come
// between the choice of a ring and the message.
MessageRing::Entry* Outbound::entry_to(std::uint32_t processor) {
  Backlog& backlog = backlogs_[processor];
  if (processor == index_ && !backlog.empty()) return nullptr;  // kept for a cell that is arriving here: end_move()
  MessageRing& ring = ring_to(processor);
  if (backlog.empty()) [[likely]] {
    if (MessageRing::Entry* entry = ring.prepare()) [[likely]]
      return entry;
  }
  if (processor == index_) return nullptr;
  if (is_network_) {  // it is one of the receivers who polls: waiting for it would be waiting for ourselves
    if (!backlog.empty() && flush_backlog(processor)) return ring.prepare();
    return nullptr;
  }
  std::uint32_t consumed = ring.consumed();
  if (backlog.stuck_at() == consumed && !backlog.empty()) return nullptr;
  parkers_[processor]->wake_if_asleep();
  for (std::uint32_t spin = 0, looks = 0; spin < full_ring_spins; ++spin) {
    if (++looks > full_ring_looks) return nullptr;  // it keeps up, but there is much: others of this thread wait, too
    if (flush_backlog(processor)) {
      if (MessageRing::Entry* entry = ring.prepare()) return entry;
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

void Outbound::push_raw(std::uint32_t processor, std::uint32_t info, std::uint64_t key, std::uint32_t cell,
                        std::uint32_t task, const void* payload, std::size_t bytes) {
  MessageRing::Entry* entry = entry_to(processor);
  if (entry == nullptr) {
    Waiting waiting{info, key, cell, task, {}};
    copy_bytes(waiting.payload, payload, bytes);
    hold(processor, waiting);
    return;
  }
  copy_bytes(entry->payload, payload, bytes);
  publish(ring_to(processor), *entry, info, key, cell, task);
  parkers_[processor]->wake_if_asleep();
}

void Outbound::hold(std::uint32_t processor, const Waiting& item) {
  backlogs_[processor].push_back(item);
  ++backlog_count_;
  if (unread_->add(bytes_of(item))) [[unlikely]]
    domain_.count_unread(*unread_);
}

void Outbound::drop_oldest(std::uint32_t processor) noexcept {
  static_cast<void>(unread_->add(-bytes_of(backlogs_[processor].front())));
  backlogs_[processor].pop_front();
  --backlog_count_;
}

// True when nothing is left in it.
bool Outbound::flush_backlog(std::uint32_t processor) {
  Backlog& backlog = backlogs_[processor];
  if (processor == index_) return false;  // messages to a cell that is arriving here: end_move() delivers them
  MessageRing& ring = ring_to(processor);
  while (!backlog.empty()) {
    MessageRing::Entry* entry = ring.prepare();
    if (entry == nullptr) break;
    const Waiting& waiting = backlog.front();
    std::memcpy(entry->payload, waiting.payload, sizeof waiting.payload);
    publish(ring, *entry, waiting.info, waiting.key, waiting.cell, waiting.task);
    drop_oldest(processor);
  }
  parkers_[processor]->wake_if_asleep();
  return backlog.empty();
}

void Outbound::flush_backlogs() {
  for (std::uint32_t processor = 0; processor < backlogs_.size(); ++processor) {
    if (!backlogs_[processor].empty()) flush_backlog(processor);
  }
}

void Outbound::keep(std::uint32_t cell, std::uint32_t task, std::uint64_t key, std::span<const std::byte> bytes) {
  Waiting waiting{EntryInfo::make(EntryKind::small_message, bytes.size()), key, cell, task, {}};
  if (bytes.size() <= MessageRing::inline_bytes_max) {
    copy_small(waiting.payload, bytes.data(), bytes.size());
  } else {
    Buffer* buffer = pool_->get(bytes.size());
    copy_long(buffer->body(), bytes.data(), bytes.size());
    waiting.info = EntryInfo::make(EntryKind::buffer_message);
    const BufferEntry entry{buffer, bytes.size()};
    std::memcpy(waiting.payload, &entry, sizeof entry);
  }
  hold(index_, waiting);
}

void Outbound::keep_taken(std::uint32_t cell, Buffer* lease) {
  Waiting waiting{EntryInfo::make(EntryKind::lease_taken), 0, cell, 0, {}};
  std::memcpy(waiting.payload, &lease, sizeof lease);
  hold(index_, waiting);
}

std::optional<Outbound::Waiting> Outbound::take_kept() {
  Backlog& kept = backlogs_[index_];
  if (kept.empty()) return std::nullopt;
  const Waiting item = kept.front();
  drop_oldest(index_);
  return item;
}

void Outbound::push_start(std::uint32_t cell, const CellProgram& program) {
  push(route_[cell], EntryKind::start_task, cell, program.task, 0, &program);
}

void Outbound::inject(std::uint32_t cell, std::uint32_t task, std::uint64_t key, const SharedBody& shared,
                      std::size_t bytes) {
  const std::uint32_t processor = route_[cell];
  const std::span<const std::byte> body(reinterpret_cast<const std::byte*>(shared.place), bytes);
  if (domain_.pools->uses_low_memory()) {
    send(cell, processor, task, key, body);
  } else if (!send_to_offer(cell, processor, task, key, body)) {
    return push(processor, EntryKind::buffer_message, cell, task, key, BufferEntry{pool_->get(shared), bytes});
  }
  shared.arena->give_back(shared.number);
}

std::byte* Outbound::claim_large(LargeArrival& arrival) {
  arrival.posted = claim_offer(arrival.cell, route_[arrival.cell], arrival.task, arrival.key, arrival.bytes);
  return arrival.posted != nullptr ? reinterpret_cast<std::byte*>(arrival.posted->buffer) : nullptr;
}

std::byte* Outbound::begin_large(LargeArrival& arrival) {
  if (std::byte* const claimed = claim_large(arrival)) return claimed;
  arrival.buffer = pool_->get(arrival.bytes);
  return reinterpret_cast<std::byte*>(arrival.buffer->body());
}

void Outbound::end_large(LargeArrival& arrival, bool complete) {
  const std::uint32_t processor = route_[arrival.cell];
  if (arrival.posted != nullptr) {
    push(processor, EntryKind::offer_taken, arrival.cell, arrival.task, arrival.key,
         OfferEntry{arrival.posted, arrival.bytes, 0});
  } else if (complete) {
    push(processor, EntryKind::buffer_message, arrival.cell, arrival.task, arrival.key,
         BufferEntry{arrival.buffer, arrival.bytes});
  } else {
    pool_->put(arrival.buffer);
  }
  arrival.posted = nullptr;
  arrival.buffer = nullptr;
}

}  // namespace aplib
