// SPDX-License-Identifier: MIT
// Inbound: what reaches a processor. It has the rings that lead to the processor, and brings each message to the
// receive that waits for it, or into the mailbox of its task. It also knows which cells have ended, because their ends
// come behind all they have sent.
//
// Invariants: (1) one place decides which receive gets a message: give(); (2) an entry stays in its ring
// until it is dealt with, so a message that must wait for a cell's move holds back all that comes behind it
// (mover.hpp); (3) a receive that is offered to senders of other processors is filled here only after it has been
// withdrawn from them; (4) no message in a mailbox is accepted by a receive that is open; (5) only the oldest open
// receive of a mailbox is offered, and only while its task waits for it: so no sender fills a receive that an older one
// should have preceded, or whose memory may be gone.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "aplib/message.hpp"
#include "arch/cpu.hpp"
#include "cell/buffer_pool.hpp"
#include "cell/cell.hpp"
#include "cell/idle.hpp"
#include "cell/outbound.hpp"

namespace aplib {

/// For the core: fills messages in place.
struct MessageAccess {
  [[gnu::always_inline]] static void set_small(Message& message, std::uint64_t key, const void* body,
                                               std::size_t bytes) noexcept {
    message.key_ = key;
    message.bytes_ = bytes;
    message.buffer_ = nullptr;
    __builtin_memcpy(message.inside_, body, Message::inline_bytes_max);  // fixed size: straight-line code
  }
  /// The same from memory that ends after `bytes`.
  [[gnu::always_inline]] static void set_small_exactly(Message& message, std::uint64_t key, const void* body,
                                                       std::size_t bytes) noexcept {
    message.key_ = key;
    message.bytes_ = bytes;
    message.buffer_ = nullptr;
    copy_small(message.inside_, body, bytes);
  }
  /// `pool`: of the processor on which this happens.
  static void set_buffer(BufferPool& pool, Message& message, std::uint64_t key, Buffer* buffer,
                         std::size_t bytes) noexcept {
    pool.lend();
    message.key_ = key;
    message.bytes_ = bytes;
    message.buffer_ = buffer;
    message.outside_ = buffer->body();
  }
  static bool has_buffer(const Message& message) noexcept { return message.buffer_ != nullptr; }
  static void release(Message& message) noexcept {
    if (has_buffer(message)) message.release();
  }
};

/// Some of a front end's requests.
struct RequestSet {
  const void* first = nullptr;
  std::size_t count = 0;
  Posted* (*at)(const void* first, std::size_t i) = nullptr;  ///< Null: one that is over.
};

class Inbound {
 public:
  using Entry = MessageRing::Entry;

  Inbound(Processor& here, Domain& domain, Idle& idle) : here_(here), domain_(domain), idle_(idle) {}

  /// Before any carrier runs.
  void prepare(std::uint32_t index, BufferPool& pool, UnreadMeter<>& unread);

  /// Another processor: this ring of yours leads here. [any thread]
  void connect(std::uint32_t from, MessageRing& ring) noexcept { rings_.connect(from, ring); }
  [[nodiscard]] bool has_rings() const noexcept { return rings_.has_some(); }
  [[nodiscard]] bool has_new_rings() const noexcept { return rings_.has_new(); }
  /// An entry is left in some ring, held back.
  [[nodiscard]] bool holds_some() const noexcept { return !rings_.all_empty(); }

  /// Takes messages until a task is ready or a receive in progress is satisfied, so that the receiver takes a stream at
  /// its own pace.
  void poll() noexcept;

  /// Gives a message to the receive that waits for it, the oldest that accepts its key; `store` fills that one, and is
  /// inlined for the one that its task blocks in. False: none waits, and the message is for the mailbox.
  template <class Store>
  [[gnu::always_inline]] bool give(TaskControl* receiver, std::uint64_t key, std::size_t bytes, const Store& store) {
    if (receiver == nullptr) return false;
    Posted& posted = receiver->posted;
    if (posted.open && posted.wish.accepts(key) && withdraw(posted)) [[likely]] {
      posted.key = key;
      posted.bytes = bytes;
      store(posted);
      complete(posted);
      return true;
    }
    return !receiver->requests.empty() && give_to_request(*receiver, key, bytes, store);
  }
  /// Gives a small message from a task of this processor to the receive that its task blocks in, if no sender of
  /// another processor may claim that. False: see take_local(). A call of ours runs, so a task whose receive is open
  /// waits, and is not ready.
  [[gnu::always_inline]] static bool give_at_once(Idle& idle, TaskControl* receiver, std::uint64_t key,
                                                  std::span<const std::byte> bytes) noexcept {
    if (receiver == nullptr) return false;
    Posted& posted = receiver->posted;
    if (!posted.open || posted.offered || !posted.wish.accepts(key)) return false;
    posted.key = key;
    posted.bytes = bytes.size();
    if (posted.message != nullptr) {
      MessageAccess::set_small_exactly(*posted.message, key, bytes.data(), bytes.size());
    } else {
      copy_small(posted.buffer, bytes.data(), std::min(bytes.size(), posted.capacity));
    }
    posted.open = false;
    idle.make_ready(*receiver);
    return true;
  }
  /// The task waits for a message of this key, or has asked for it.
  [[nodiscard]] static bool is_awaited(const Cell& cell, std::uint32_t task, std::uint64_t key) noexcept {
    TaskControl* const receiver = cell.tasks.find(task);
    return receiver != nullptr &&
           ((receiver->posted.open && receiver->posted.wish.accepts(key)) || receiver->requests.find(key) != nullptr);
  }
  /// A message from a cell of this processor. Returns the messages that its task has waiting then.
  [[gnu::always_inline]] std::size_t take_local(Cell& cell, std::uint32_t task, std::uint64_t key,
                                                std::span<const std::byte> bytes) {
    TaskControl* receiver = cell.tasks.find(task);
    const auto store = [ =, this ](const Posted& posted) __attribute__((always_inline)) { fill(posted, key, bytes); };
    if (give(receiver, key, bytes.size(), store)) return 0;
    Buffer* buffer = pool_->get(bytes.size());
    copy_body(buffer->own_body(), bytes.data(), bytes.size());
    buffer->bytes = bytes.size();
    queue(cell, receiver, task, key, *buffer);
    return receiver != nullptr ? receiver->mailbox.size() : 0;
  }
  /// A message from another process, found by this processor in the network: straight to the task that waits for it.
  /// `network`: of the network's processor. False: no task here waits for it, or it must stay behind others on their
  /// way through the ring.
  bool take_from_network(Outbound& network, std::uint32_t cell, std::uint32_t task, std::uint64_t key,
                         std::span<const std::byte> bytes);
  /// What waited for its cell's arrival.
  void take_kept(Cell& cell, const Outbound::Waiting& kept) {
    deliver_entry(cell, kept.info, kept.key, kept.task, kept.payload);
  }

  /// Processor::receive() and probe().
  Wake receive(TaskControl& self, const char* call, bool closed_when_cells_end) noexcept;
  [[gnu::noinline]] Wake look_and_receive(TaskControl& self, const char* call, bool closed_when_cells_end) noexcept;
  [[nodiscard]] static bool has(const TaskControl& self, const MatchWish& wish) noexcept {
    return !self.mailbox.empty() && self.mailbox.find(wish) != nullptr;
  }

  // --- requests: receives that a task does not block in (requests.cpp)
  /// Fills `posted` with the oldest message in the mailbox that it accepts. False: none is there.
  bool take(TaskControl& owner, Posted& posted) noexcept;
  /// `owner`, a task of a cell of ours, asks for a message that it waits for later. `request` stays until it is no
  /// longer open.
  void post(TaskControl& owner, Posted& request) noexcept;
  /// Takes an open request back. A send cannot be: it is over then. REQUIRES: no task waits for it.
  static void cancel(Posted& request) noexcept;
  /// Tells the sender of a message that asks for it that the message to this task of `cell`, which is ours, is
  /// received.
  void give_receipt(const Cell& cell, std::uint32_t task, std::uint64_t key) noexcept;
  /// Waits until one of the requests is not open, or `all` are not. Wake::stopping: the machine stops; some may be
  /// open.
  static Wake wait(TaskControl& self, const char* call, const RequestSet& set, bool all) noexcept;
  /// The same without waiting. Lets others run after a few misses.
  static bool test(TaskControl& self, const RequestSet& set, bool all);
  /// As Processor::receive(), by a request in the mailbox of `owner`, a task of the same cell.
  static Wake receive_from(TaskControl& self, TaskControl& owner, const char* call,
                           bool closed_when_cells_end = false) noexcept;
  /// post() and wait(). Whatever comes of it, the request is not open afterwards.
  static Wake post_and_wait(TaskControl& self, TaskControl& owner, const char* call, Posted& request) noexcept;
  /// The task ends: its requests get no message, and its memory is its own again. Without `lasts`, the memory is gone
  /// already, and what was to be sent from it is lost; REQUIRES: the machine stops.
  void close_requests(TaskControl& owner, bool lasts = true) noexcept;

  // --- leases: large messages that are copied from the memory of their sender (lease.cpp)
  /// Sends a message from `self`, a task of a cell of ours, without copying it. `sent`, which stays until it is over,
  /// is open while the memory is read by others. False: it must be sent in another way. Throws Error(exhausted).
  bool lend(TaskControl& self, std::uint32_t cell, std::uint32_t task, std::uint64_t key, const Side& from,
            std::size_t bytes, Posted& sent);
  /// Ends an open send now: nobody reads the sender's memory afterwards. Without `lasts`, as in close_requests().
  /// REQUIRES: as cancel().
  void take_back(Posted& sent, bool lasts = true) noexcept;
  /// The task ends: nobody will receive what it was lent.
  void drop_leases(TaskControl& task) noexcept;

  /// Gives up the messages of a task that ends.
  void empty_mailbox(TaskControl& task) noexcept;
  /// Wakes a task that waits, if its wait can end now.
  void wake_waiting(TaskControl& task, Wake how) noexcept;
  /// Takes an offered receive back from senders of other processors. False: one of them has it and is going to fill it.
  static bool withdraw(Posted& posted) noexcept { return !posted.offered || withdraw_offered(posted); }

  /// `cell` sends nothing any more, and all it has sent is here.
  void cell_ended(std::uint32_t cell, const CellEnd& end);
  /// The wish, of a task of `cell`, is for messages of one cell, which has ended, and all it has sent is here.
  [[nodiscard]] bool is_in_vain(const Cell& cell, const MatchWish& wish) const noexcept;
  /// The condition does not hold, and a cell that it needs has ended.
  [[nodiscard]] bool is_in_vain(const Condition& condition) const noexcept;
  /// Ends the waits and requests of the cell's tasks that are in vain. `all_ended`: also those until all cells have
  /// ended.
  void wake_receivers(Cell& cell, bool all_ended) noexcept;
  /// For good: no other program is going to run there. A cell without a task is idle as long as a host program can
  /// start one there.
  [[nodiscard]] bool cell_has_ended(std::uint32_t cell) const noexcept;
  /// It has no task now, as far as is known here.
  [[nodiscard]] bool cell_is_idle(std::uint32_t cell) const noexcept { return ended_cells_[cell] != 0; }
  /// How a cell that is idle or has ended came to that.
  [[nodiscard]] const CellEnd& end_of(std::uint32_t cell) const noexcept { return ends_[cell]; }
  [[nodiscard]] bool all_cells_ended() const noexcept;
  [[nodiscard]] bool some_cell_ended() const noexcept { return ended_count_ != 0; }

 private:
  void drop_oldest(MessageRing& ring) noexcept;
  [[nodiscard]] bool host_may_start() const noexcept;
  bool handle(std::uint32_t from, Entry& entry);
  void deliver_entry(Cell& cell, std::uint32_t info, std::uint64_t key, std::uint32_t task, const std::byte* payload);
  void deliver_small(Cell& cell, std::uint32_t task, std::uint64_t key, const std::byte* body, std::size_t bytes);
  void deliver_buffer(Cell& cell, std::uint32_t task, std::uint64_t key, Buffer* buffer, std::size_t bytes);
  void deliver_large(Cell& cell, std::uint32_t task, std::uint64_t key, Buffer* buffer, std::size_t bytes);
  void store_buffer(const Posted& posted, std::uint64_t key, Buffer* buffer, std::size_t bytes) noexcept;
  void deliver_lease(Cell& cell, std::uint32_t task, std::uint64_t key, Buffer& lease, std::size_t bytes);
  void queue_lease(Cell& cell, TaskControl* receiver, std::uint32_t task, std::uint64_t key, Buffer& lease);
  void fill_from(const Posted& posted, std::uint64_t key, const Side& from, std::size_t bytes);
  void receive_lease(const Posted& posted, Buffer& lease, std::size_t bytes);
  void take_lease(const Posted& posted, Buffer& lease) noexcept;
  void pull(Buffer& lease, const Side& to, std::size_t bytes) noexcept;
  void lease_taken(Buffer& lease) noexcept;
  void count_body(const Buffer& lease, std::int64_t times) noexcept;
  void complete_lent(Posted& sent) noexcept;
  /// Into the mailbox of the receiver, which is task number `task` of the cell, or null while there is none.
  void queue(Cell& cell, TaskControl* receiver, std::uint32_t task, std::uint64_t key, Buffer& buffer);
  [[gnu::always_inline]] void fill(const Posted& posted, std::uint64_t key, std::span<const std::byte> bytes) {
    if (posted.message == nullptr) {
      copy_body(posted.buffer, bytes.data(), std::min(bytes.size(), posted.capacity));
    } else if (bytes.size() <= Message::inline_bytes_max) {
      MessageAccess::set_small_exactly(*posted.message, key, bytes.data(), bytes.size());
    } else {
      Buffer* buffer = pool_->get(bytes.size());
      copy_long(buffer->body(), bytes.data(), bytes.size());
      MessageAccess::set_buffer(*pool_, *posted.message, key, buffer, bytes.size());
    }
  }
  void take_from_mailbox(Posted& posted, Buffer* found) noexcept;
  Posted* find_request(TaskControl& owner, std::uint64_t key, std::size_t bytes) noexcept;
  /// `store` by value: its captures are not in memory on the way past here.
  template <class Store>
  [[gnu::noinline]] bool give_to_request(TaskControl& owner, std::uint64_t key, std::size_t bytes, Store store) {
    Posted* const request = find_request(owner, key, bytes);
    if (request == nullptr) return false;
    request->key = key;
    request->bytes = bytes;
    store(*request);  // what it throws leaves the request open
    complete_request(*request);
    return true;
  }
  void end_requests_in_vain(TaskControl& owner, bool all_ended) noexcept;
  void offer(Posted& posted) noexcept;
  void offer_oldest(const TaskControl& owner, const TaskControl& waiter) noexcept;
  void complete_request(Posted& request) noexcept;
  /// The receive that its task blocks in.
  void complete(Posted& posted) noexcept {
    posted.open = false;
    satisfied_ = true;
    if (posted.task->waits == WaitFor::message && !posted.task->ready) idle_.make_ready(*posted.task);
  }
  static bool withdraw_offered(Posted& posted) noexcept;
  void count_received(const Buffer& buffer) noexcept {
    static_cast<void>(unread_->add(-UnreadMeter<>::overhead - static_cast<std::int64_t>(buffer.bytes)));
  }

  Processor& here_;
  Domain& domain_;
  Idle& idle_;
  BufferPool* pool_ = nullptr;
  UnreadMeter<>* unread_ = nullptr;
  std::uint32_t index_ = 0;
  RingTable<MessageRing> rings_;
  std::uint32_t next_ring_ = 0;  // where poll() starts, so that no ring starves
  bool satisfied_ = false;       // poll() completed a receive
  bool settle_soon_ = false;     // an entry told of a claimed offer
  bool has_network_ = false;
  std::vector<std::uint8_t> ended_cells_;
  std::vector<CellEnd> ends_;  // by cell, of those
  std::uint32_t ended_count_ = 0;
};

}  // namespace aplib
