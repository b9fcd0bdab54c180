// SPDX-License-Identifier: MIT
// Outbound: what a processor sends to others. It has the rings that lead away from the processor, the backlogs of rings
// that are full, and the routes. A message travels in one of these ways:
//   small              inside a ring entry
//   larger             one copy into a pooled buffer whose pointer travels; from 32 KiB on both processors copy
//                      (copy.hpp)
//   lent by a sender   no copy at all: the receiver copies from the sender's memory (lease.hpp)
//   to a waiting receive with its own buffer that was offered: straight into that
//
// Invariants: (1) what goes to one processor goes through one ring, in order: while the ring's backlog holds something,
// everything joins the backlog; (2) a route changes only between two messages, and what was sent by the old route
// arrives first (mover.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cell/buffer_pool.hpp"
#include "cell/cell.hpp"
#include "cell/copy.hpp"
#include "cell/matching.hpp"
#include "cell/parker.hpp"
#include "cell/ring.hpp"

namespace aplib {

class Processor;
struct Domain;
struct CellProgram;

/// Kinds of ring entries.
enum class EntryKind : std::uint8_t {
  small_message,   ///< Body in the entry.
  buffer_message,  ///< Payload: BufferEntry.
  large_message,   ///< The same, and Buffer::transfer may still be under way: help.
  offer_taken,   ///< Payload: OfferEntry. The sender has claimed a posted receive. Its transfer may be under way: help.
  lent_message,  ///< Payload: BufferEntry of a Lease.
  lease_taken,   ///< Payload: Buffer* of the lease. Its transfer may be under way: help.
  start_task,    ///< Payload: CellProgram*. From the host: start it on `cell`.
  cell_moved,    ///< `cell` is carried by processor `task` from here on. (mover.hpp)
  fence,         ///< Old messages to `cell` from processor `task` are all through. (mover.hpp)
  cell_ended,    ///< `cell` has ended; payload: CellEnd.
  call,          ///< Payload: CallEntry. Call it: for the network's processor, or for a copy that wants help.
};

/// Entry::info: forwarded (bit 31), kind (bits 30..24), length of a small message (bits 23..0). A small message's
/// kind is 0, so that its info is its length.
struct EntryInfo {
  static constexpr std::uint32_t forwarded_bit =
      0x8000'0000U;  ///< It comes by way of its cell's last processor (mover.hpp).
  static constexpr std::uint32_t small_messages_end = 1U << 24;
  static constexpr std::uint32_t buffer_messages_end = 2U << 24;  ///< Small ones, and those of a buffer.
  static_assert(static_cast<std::uint32_t>(EntryKind::small_message) == 0);
  static_assert(static_cast<std::uint32_t>(EntryKind::buffer_message) == 1);

  static constexpr std::uint32_t make(EntryKind kind, std::size_t bytes = 0) noexcept {
    return static_cast<std::uint32_t>(kind) << 24 | static_cast<std::uint32_t>(bytes);
  }
  static constexpr EntryKind kind(std::uint32_t info) noexcept { return static_cast<EntryKind>((info >> 24) & 0x7fU); }
  static constexpr bool forwarded(std::uint32_t info) noexcept { return (info & forwarded_bit) != 0; }
  static constexpr std::uint32_t bytes(std::uint32_t info) noexcept { return info & 0xff'ffffU; }
};

/// From this size on a waiting receive offers its own buffer to senders of other processors, and they look for it. For
/// fewer bytes the receiver's second copy is cheaper than claiming its buffer, which takes one cache line.
inline constexpr std::size_t offer_from_bytes = 512;

/// A large message from another process, while its body comes.
struct LargeArrival {
  std::uint32_t cell = 0;
  std::uint32_t task = 0;
  std::uint64_t key = 0;
  std::size_t bytes = 0;
  Posted* posted = nullptr;  ///< The receive whose own buffer it goes to; null: `buffer`.
  Buffer* buffer = nullptr;
};

using MessageRing = Ring<>;

/// Payloads of entries.
struct BufferEntry {
  Buffer* buffer;
  std::uint64_t bytes;
};
struct OfferEntry {
  Posted* posted;
  std::uint64_t bytes;
  std::uint32_t has_transfer;
};
struct CallEntry {
  void (*function)(Processor& processor, void* state);
  void* state;
};

class Outbound {
 public:
  /// An entry's worth that did not fit into a full ring.
  struct Waiting {
    std::uint32_t info;
    std::uint64_t key;
    std::uint32_t cell;
    std::uint32_t task;
    std::byte payload[MessageRing::inline_bytes_max];
  };

  explicit Outbound(Domain& domain) : domain_(domain) {}

  /// Before any carrier runs. `is_network`: of the network's processor.
  void prepare(std::uint32_t index, bool is_network, BufferPool& pool, UnreadMeter<>& unread);

  /// Who carries a cell, as far as this processor knows. Cells of other processes: the network's processor.
  [[nodiscard]] std::uint32_t route(std::uint32_t cell) const noexcept { return route_[cell]; }
  void set_route(std::uint32_t cell, std::uint32_t processor) noexcept {
    route_[cell] = static_cast<std::uint16_t>(processor);
  }

  /// Sends a small message, if there is a ring with room and no backlog, as for most messages. False: use send().
  [[gnu::always_inline]] bool try_small(std::uint32_t processor, std::uint32_t cell, std::uint32_t task,
                                        std::uint64_t key, std::span<const std::byte> bytes) noexcept {
    MessageRing* ring = outgoing_[processor];
    if (bytes.size() > MessageRing::inline_bytes_max || backlog_count_ != 0 || ring == nullptr) return false;
    MessageRing::Entry* entry = ring->prepare();
    if (entry == nullptr) [[unlikely]]
      return false;
    copy_small(entry->payload, bytes.data(), bytes.size());
    publish(*ring, *entry, EntryInfo::make(EntryKind::small_message, bytes.size()), key, cell, task);
    parkers_[processor]->wake_if_asleep();
    return true;
  }
  /// The same of one that goes into a buffer, and is too short for offers. Throws Error(exhausted).
  bool try_buffered(std::uint32_t processor, std::uint32_t cell, std::uint32_t task, std::uint64_t key,
                    std::span<const std::byte> bytes);
  /// A message to a cell that another processor carries.
  void send(std::uint32_t cell, std::uint32_t processor, std::uint32_t task, std::uint64_t key,
            std::span<const std::byte> bytes);

  /// A message to a cell that another processor carries: straight into a receive that is offered. False: none is.
  bool send_to_offer(std::uint32_t cell, std::uint32_t processor, std::uint32_t task, std::uint64_t key,
                     std::span<const std::byte> bytes);

  template <class Payload>
  void push(std::uint32_t processor, EntryKind kind, std::uint32_t cell, std::uint32_t task, std::uint64_t key,
            const Payload& payload) {
    static_assert(sizeof(Payload) <= MessageRing::inline_bytes_max);
    push_raw(processor, EntryInfo::make(kind), key, cell, task, &payload, sizeof payload);
  }
  /// An entry without payload.
  void push_control(std::uint32_t processor, EntryKind kind, std::uint32_t cell, std::uint32_t task) {
    push_raw(processor, EntryInfo::make(kind), 0, cell, task, nullptr, 0);
  }
  /// Sends an entry on to the processor that carries its cell now.
  void forward(std::uint32_t processor, const MessageRing::Entry& entry) {
    push_raw(processor, entry.info | EntryInfo::forwarded_bit, entry.key, entry.cell, entry.task, entry.payload,
             MessageRing::inline_bytes_max);
  }
  /// Has a program started on `cell`, behind all messages sent there before.
  void push_start(std::uint32_t cell, const CellProgram& program);
  /// The same entry to every thread of this process, but `except`.
  template <class Payload>
  void push_to_threads(EntryKind kind, std::uint32_t cell, const Payload& payload, std::uint32_t except = ~0U) {
    for (std::uint32_t p = 0; p < thread_count(); ++p) {
      if (p != except) push(p, kind, cell, 0, MatchKey::make(0, cell, 0, 0), payload);
    }
  }

  /// Copies memory that a cell of another processor reads or writes, as one-sided calls do; that processor copies, too,
  /// from the other end. False: it does not look at its rings now, or it is this one; nothing is done.
  bool copy_together(std::uint32_t processor, void* to, const void* from, std::size_t bytes);

  /// Nothing is on its way to this processor. Call from: whoever may send here, on the thread of that processor.
  [[nodiscard]] bool is_drained(std::uint32_t processor) const noexcept {
    MessageRing* const ring = outgoing_[processor];
    return backlogs_[processor].empty() && (ring == nullptr || ring->peek() == nullptr);
  }
  /// The network's processor: a message from another process.
  void inject(std::uint32_t cell, std::uint32_t task, std::uint64_t key, std::span<const std::byte> bytes) {
    send(cell, route_[cell], task, key, bytes);
  }
  /// The same, of a body in another process's arena, which it goes back to when the message is done with.
  void inject(std::uint32_t cell, std::uint32_t task, std::uint64_t key, const SharedBody& shared, std::size_t bytes);
  /// A large message begins to come. Returns where its body goes until end_large(). Throws Error(exhausted).
  std::byte* begin_large(LargeArrival& arrival);
  /// The same of one that is kept elsewhere if no receive waits for it with a buffer of its own. Null: none does.
  std::byte* claim_large(LargeArrival& arrival);
  /// The body is there. Not `complete`: it never will be, because the machine stops, and a receive that waits for it is
  /// let go.
  void end_large(LargeArrival& arrival, bool complete);

  /// Keeps a message from a cell of this processor to one that is still arriving here. Older messages travel by way of
  /// that cell's last processor, so this one waits.
  void keep(std::uint32_t cell, std::uint32_t task, std::uint64_t key, std::span<const std::byte> bytes);
  /// The same of the news that a lease is taken.
  void keep_taken(std::uint32_t cell, Buffer* lease);
  /// The oldest message kept, until none is left.
  [[nodiscard]] std::optional<Waiting> take_kept();

  /// Messages that did not fit.
  [[nodiscard]] std::uint32_t backlog_count() const noexcept { return backlog_count_; }
  void flush_backlogs();

 private:
  /// First in, first out. Empty ones hold no memory: there is one per pair of processors.
  class Backlog {
   public:
    [[nodiscard]] bool empty() const noexcept { return head_ == items_.size(); }
    [[nodiscard]] const Waiting& front() const noexcept { return items_[head_]; }
    void push_back(const Waiting& item) { items_.push_back(item); }
    /// Position of the ring at which waiting for room was last given up.
    [[nodiscard]] std::uint32_t stuck_at() const noexcept { return stuck_at_; }
    void stick(std::uint32_t position) noexcept { stuck_at_ = position; }
    void pop_front() {
      if (++head_ == items_.size()) {
        items_.clear();
        head_ = 0;
      } else if (head_ >= 1024 && head_ * 2 >= items_.size()) {
        items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(head_));
        head_ = 0;
      }
    }

   private:
    std::vector<Waiting> items_;
    std::size_t head_ = 0;
    std::uint32_t stuck_at_ = 0;
  };

  MessageRing& ring_to(std::uint32_t processor) {
    MessageRing* ring = outgoing_[processor];
    return ring != nullptr ? *ring : make_ring(processor);
  }
  MessageRing& make_ring(std::uint32_t processor);
  /// Shows the receiver an entry that the ring has prepared, and whose payload is there.
  [[gnu::always_inline]] static void publish(MessageRing& ring, MessageRing::Entry& entry, std::uint32_t info,
                                             std::uint64_t key, std::uint32_t cell, std::uint32_t task) noexcept {
    entry.info = info;
    entry.key = key;
    entry.cell = cell;
    entry.task = task;
    ring.publish();
  }
  MessageRing::Entry* entry_to(std::uint32_t processor);
  void push_raw(std::uint32_t processor, std::uint32_t info, std::uint64_t key, std::uint32_t cell, std::uint32_t task,
                const void* payload, std::size_t bytes);
  void hold(std::uint32_t processor, const Waiting& item);
  void drop_oldest(std::uint32_t processor) noexcept;
  bool flush_backlog(std::uint32_t processor);
  Posted* claim_offer(std::uint32_t cell, std::uint32_t processor, std::uint32_t task, std::uint64_t key,
                      std::size_t bytes);
  [[nodiscard]] std::uint32_t thread_count() const noexcept;

  Domain& domain_;
  std::uint16_t* route_ = nullptr;    // by cell
  MessageRing** outgoing_ = nullptr;  // by processor
  Parker<>** parkers_ = nullptr;      // by processor
  std::uint32_t backlog_count_ = 0;
  std::uint32_t index_ = 0;
  std::uint32_t network_index_ = ~0U;
  bool is_network_ = false;
  BufferPool* pool_ = nullptr;
  UnreadMeter<>* unread_ = nullptr;
  std::vector<std::uint16_t> route_table_;
  std::vector<MessageRing*> outgoing_table_;
  std::vector<std::unique_ptr<MessageRing>> owned_rings_;
  std::vector<Parker<>*> parker_table_;
  std::vector<Backlog> backlogs_;  // by processor; oldest first. Our own: messages kept for a cell that arrives
};

}  // namespace aplib
