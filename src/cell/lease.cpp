// SPDX-License-Identifier: MIT
// Leases. A part of Inbound.
#include "cell/lease.hpp"

#include <algorithm>
#include <new>

#include "cell/domain.hpp"
#include "cell/inbound.hpp"
#include "cell/processor.hpp"

namespace aplib {

namespace {

void add_to_lent(Posted& sent) noexcept {
  TaskControl& owner = *sent.owner;
  sent.previous = nullptr;
  sent.next = owner.lent;
  if (owner.lent != nullptr) owner.lent->previous = &sent;
  owner.lent = &sent;
}

void remove_from_lent(Posted& sent) noexcept {
  (sent.previous != nullptr ? sent.previous->next : sent.owner->lent) = sent.next;
  if (sent.next != nullptr) sent.next->previous = sent.previous;
}

}  // namespace

bool Inbound::lend(TaskControl& self, std::uint32_t cell, std::uint32_t task, std::uint64_t key, const Side& from,
                   std::size_t bytes, Posted& sent) {
  Outbound& outbound = here_.outbound();
  const std::uint32_t processor = outbound.route(cell);
  const bool is_here = processor == index_;
  if (bytes <= Message::inline_bytes_max || processor == domain_.network_index ||
      domain_.stopping.load(std::memory_order_relaxed) ||  // relaxed: noticed sooner or later
      here_.mover().protocol().arriving() == cell)
    return false;
  TaskControl* const receiver = is_here ? domain_.cells[cell]->tasks.find(task) : nullptr;
  if (is_here) {
    const auto store = [&, this](const Posted& posted) { fill_from(posted, key, from, bytes); };
    if (give(receiver, key, bytes, store)) return true;
  } else if (from.form == nullptr &&
             outbound.send_to_offer(cell, processor, task, key,
                                    {reinterpret_cast<const std::byte*>(from.address), bytes})) {
    return true;
  }
  Buffer* const buffer = pool_->get(sizeof(Lease));
  buffer->size_class = Buffer::lease_class;
  buffer->key = key;
  buffer->bytes = bytes;
  Lease& lease = *::new (&buffer->lease()) Lease;
  lease.sides.from = from;
  lease.sent = &sent;
  sent.task = sent.owner = &self;
  sent.lease = buffer;
  sent.wish = {(key & ~MatchKey::cell_mask) | MatchKey::make(0, cell, 0, 0), ~std::uint64_t{0}};  // for reports
  sent.key = key;
  sent.bytes = sent.capacity = bytes;
  sent.how = Wake::done;
  sent.open = true;
  add_to_lent(sent);
  try {
    if (is_here) {
      queue_lease(*domain_.cells[cell], receiver, task, key, *buffer);
    } else {
      outbound.push(processor, EntryKind::lent_message, cell, task, key, BufferEntry{buffer, bytes});
    }
  } catch (...) {
    remove_from_lent(sent);
    sent.lease = nullptr;
    sent.open = false;
    pool_->put(buffer);
    throw;
  }
  return true;
}

// As long as the body of a lease lies in its sender's memory, only the overhead takes room.
void Inbound::count_body(const Buffer& lease, std::int64_t times) noexcept {
  if (unread_->add(times * static_cast<std::int64_t>(lease.bytes)) && times > 0) domain_.count_unread(*unread_);
}

// A message for a task that is not there has no receiver who would take the lease.
void Inbound::queue_lease(Cell& cell, TaskControl* receiver, std::uint32_t task, std::uint64_t key, Buffer& lease) {
  if (receiver != nullptr && !receiver->ended) {
    count_body(lease, -1);
    return queue(cell, receiver, task, key, lease);
  }
  const std::size_t bytes = lease.bytes;
  Buffer* const body = pool_->get(bytes);  // what this throws leaves the lease as it is
  pull(lease, {body->body()}, bytes);
  body->bytes = bytes;
  queue(cell, receiver, task, key, *body);
}

void Inbound::deliver_lease(Cell& cell, std::uint32_t task, std::uint64_t key, Buffer& lease, std::size_t bytes) {
  TaskControl* const receiver = cell.tasks.find(task);
  const auto store = [&, this](const Posted& posted) { receive_lease(posted, lease, bytes); };
  if (!give(receiver, key, bytes, store)) queue_lease(cell, receiver, task, key, lease);
}

void Inbound::fill_from(const Posted& posted, std::uint64_t key, const Side& from, std::size_t bytes) {
  if (posted.form != nullptr || posted.message == nullptr)
    return copy_part({posted.buffer, posted.form}, from, 0, std::min(bytes, posted.capacity));
  Buffer* const body = pool_->get(bytes);
  copy_part({body->body()}, from, 0, bytes);
  MessageAccess::set_buffer(*pool_, *posted.message, key, body, bytes);
}

void Inbound::receive_lease(const Posted& posted, Buffer& lease, std::size_t bytes) {
  if (posted.form != nullptr || posted.message == nullptr)
    return pull(lease, {posted.buffer, posted.form}, std::min(bytes, posted.capacity));
  const std::uint64_t key = lease.key;
  Buffer* const body = pool_->get(bytes);
  pull(lease, {body->body()}, bytes);
  MessageAccess::set_buffer(*pool_, *posted.message, key, body, bytes);
}

void Inbound::take_lease(const Posted& posted, Buffer& lease) noexcept {
  count_body(lease, 1);
  domain_.guarded([&] { receive_lease(posted, lease, lease.bytes); });
}

// The task ends, and with it the wish for what nobody has received.
void Inbound::drop_leases(TaskControl& task) noexcept {
  for (Buffer* buffer = task.mailbox.oldest(); buffer != nullptr;) {
    Buffer* const next = buffer->next;
    if (buffer->is_lease()) {
      task.mailbox.remove(*buffer);
      count_received(*buffer);
      count_body(*buffer, 1);
      pull(*buffer, {}, 0);
    }
    buffer = next;
  }
}

// Receiver: copies the first `bytes` bytes, and lets the sender go. The lease is gone then.
void Inbound::pull(Buffer& buffer, const Side& to, std::size_t bytes) noexcept {
  Lease& lease = buffer.lease();
  const std::uint32_t sender = MatchKey::cell(buffer.key);
  Outbound& outbound = here_.outbound();
  const std::uint32_t processor = outbound.route(sender);
  lease.sides.to = to;
  if (to.form == nullptr && lease.sides.from.form == nullptr) {
    buffer.transfer.begin(to.address, lease.sides.from.address, bytes);
  } else {
    buffer.transfer.begin(lease.sides, bytes);
  }
  if (!lease.state.take()) {
    if (lease.aside != nullptr) {
      count_body(buffer, -1);
      copy_part(to, {lease.aside->body()}, 0, bytes);
      pool_->put(lease.aside);
    }
    return pool_->put(&buffer);
  }
  if (processor != index_) {
    domain_.guarded([&] { outbound.push(processor, EntryKind::lease_taken, sender, 0, 0, &buffer); });
    return buffer.transfer.copy_from_front();
  }
  if (here_.mover().protocol().arriving() == sender) {
    domain_.guarded([&] { outbound.keep_taken(sender, &buffer); });
    return buffer.transfer.copy_from_front();
  }
  copy_part(to, lease.sides.from, 0, bytes);
  complete_lent(*lease.sent);
  pool_->put(&buffer);
}

// Sender's processor: helps with the copy.
void Inbound::lease_taken(Buffer& buffer) noexcept {
  if (Posted* const sent = buffer.lease().sent; sent != nullptr) {
    buffer.transfer.copy_from_back();
    complete_lent(*sent);
  }
  pool_->put(&buffer);
}

void Inbound::complete_lent(Posted& sent) noexcept {
  remove_from_lent(sent);
  sent.lease = nullptr;
  complete_request(sent);
}

void Inbound::take_back(Posted& sent, bool lasts) noexcept {
  Buffer& buffer = *sent.lease;
  Lease& lease = buffer.lease();
  if (lease.state.hold()) {
    domain_.guarded([&] {
      if (!lasts) return;
      Buffer* const body = pool_->get(buffer.bytes);
      copy_part({body->body()}, lease.sides.from, 0, buffer.bytes);
      lease.aside = body;
      count_body(buffer, 1);
    });
    lease.state.put_aside();  // from here on both are the receiver's
  } else {
    buffer.transfer.copy_from_back();
    lease.sent = nullptr;  // lease_taken() is on its way
  }
  complete_lent(sent);
}

}  // namespace aplib
