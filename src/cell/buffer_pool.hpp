// SPDX-License-Identifier: MIT
// Buffers carry messages that are too large for a ring entry. Each processor has a pool that it takes them from. A
// buffer that another processor has finished with goes back to its pool, in batches, so that a stream reuses a small
// hot set. Nobody writes its header on the way there and back, unless it waits in a mailbox, so both processors keep
// that line: free lists hold addresses, and the first buffer of a batch has those of the others in its body.
//
// The body of a large message from another process of this host lies in that process's BodyArena (body_arena.hpp),
// which is mapped here. Its buffer, of the smallest size, says where. When the message is done with, the body goes back
// there, and the buffer is an ordinary one again.
//
// A Message may outlive its machine. The pools of a machine count the buffers that messages hold, and stay until
// the last of them has come back. So do the arenas.
//
// UnreadMeter and SendGate bound the memory that messages take while they wait to be received.
//
// Invariants: (1) a buffer belongs to one pool for ever; (2) only the pool's owner touches its free lists; (3)
// others push batches onto returned_ (release), and the owner takes the whole chain (acquire), so there is no ABA
// problem; (4) the large buffers in the free lists take large_cached_bytes_ in all, at most large_cache_bytes_max.
// Buffers in use do not count: a message may be larger than that; (5) a free list has room for all buffers of its size,
// so putting one back does not throw.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "arch/cpu.hpp"
#include "cell/copy.hpp"
#include "cell/free_list.hpp"
#include "memory/body_arena.hpp"

namespace aplib {

class BufferPool;
class BufferPools;

/// A message's body in another process's arena.
struct SharedBody {
  BodyArena* arena;
  char* place;
  std::uint32_t number;
};

struct Lease;  // lease.hpp

/// Header in front of a message body; an entry of MatchQueue. The body follows at a cache-line boundary.
struct alignas(cache_line_bytes) Buffer {
  Buffer* next;             // match queue or return chain
  Buffer* previous;         // match queue
  Buffer* bucket_next;      // match queue
  Buffer* bucket_previous;  // match queue
  std::uint64_t key;        // match key
  std::size_t bytes;        // match queue: of the body; return chain: of the addresses in it, of others of its batch
  BufferPool* home;         // invariant (1)
  std::uint32_t size_class;
  std::uint32_t task;  // destination task, while it does not exist yet

  alignas(cache_line_bytes) Transfer<> transfer;  // for large bodies, and for copies that want help
  std::uint32_t large_index;                      // for large bodies only: place in BufferPool::large_

  static constexpr std::uint32_t shared_class = ~0U;  ///< The size_class of one whose body is a SharedBody.
  static constexpr std::uint32_t lease_class = ~1U;   ///< Of one without a body, which has a Lease.

  [[nodiscard]] char* body() noexcept { return size_class == shared_class ? shared().place : own_body(); }
  /// The same of a buffer that has its body itself, as every body of Message::inline_bytes_max or less.
  [[nodiscard]] char* own_body() noexcept { return reinterpret_cast<char*>(this + 1); }
  [[nodiscard]] SharedBody& shared() noexcept { return *reinterpret_cast<SharedBody*>(this + 1); }
  [[nodiscard]] bool is_lease() const noexcept { return size_class == lease_class; }
  [[nodiscard]] Lease& lease() noexcept { return *reinterpret_cast<Lease*>(this + 1); }
};

class BufferPool {
 public:
  BufferPool() = default;
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  /// Before any foreign buffer is put back: which of how many pools this is.
  void set_place(std::uint32_t index, std::uint32_t pool_count);
  /// The machine that it belongs to. Without one, messages cannot hold its buffers.
  void belong_to(BufferPools& pools) noexcept { pools_ = &pools; }

  /// Owner: a buffer for `bytes`. Throws Error(exhausted).
  Buffer* get(std::size_t bytes) {
    const std::uint32_t size_class = class_of(bytes);
    if (size_class >= large_class || free_[size_class].empty()) [[unlikely]]
      return get_slowly(size_class, bytes);
    return free_[size_class].pop();
  }

  /// Owner: a buffer whose body is that one, from here on the buffer's. Throws Error(exhausted).
  Buffer* get(const SharedBody& shared) {
    Buffer* buffer = get(sizeof shared);
    buffer->shared() = shared;
    buffer->size_class = Buffer::shared_class;
    return buffer;
  }

  /// Owner: finished with `buffer`, wherever it came from.
  void put(Buffer* buffer) noexcept {
    if (buffer->home == this) {
      put_own(buffer);
    } else {
      put_foreign(buffer);
    }
  }

  /// Owner: a Message holds one more buffer, wherever that came from.
  void lend() noexcept { ++lent_; }
  /// Owner: a Message gives `buffer` back, which may be another machine's.
  void take_back(Buffer* buffer) noexcept {
    if (buffer->home == this) {
      --lent_;
      put_own(buffer);
    } else if (buffer->home->pools_ == pools_) {
      --lent_;
      put_foreign(buffer);
    } else {
      take_back_outside(buffer);
    }
  }
  /// Any thread that owns no pool: the same.
  static void take_back_outside(Buffer* buffer) noexcept;

  /// Owner: sends all batches home. Called before the processor sleeps.
  void flush() noexcept;

  [[nodiscard]] std::size_t committed_bytes() const noexcept { return committed_bytes_; }

  static constexpr std::size_t smallest_body = 128;
  /// Free large buffers beyond this go back to the system.
  static constexpr std::size_t large_cache_bytes_max = std::size_t{256} << 20;

 private:
  static constexpr std::uint32_t class_count = 40;
  static constexpr std::uint32_t large_class = 9;  // 128 << 9 = 64 KiB: own mappings from here on
  static constexpr std::uint32_t batch_count_max = 16;
  static constexpr std::size_t batch_bytes_max = 16 * 1024;  // large buffers go home at once, while they are hot

  struct Batch {
    std::array<Buffer*, batch_count_max> buffers;
    std::uint32_t count = 0;
    std::size_t bytes = 0;
  };
  static_assert((batch_count_max - 1) * sizeof(Buffer*) <= smallest_body, "the first has the addresses of the others");

  static constexpr std::uint32_t class_of(std::size_t bytes) noexcept {
    return bytes <= smallest_body ? 0 : static_cast<std::uint32_t>(std::bit_width((bytes - 1) / smallest_body));
  }
  static constexpr std::size_t body_bytes(std::uint32_t size_class) noexcept { return smallest_body << size_class; }

  void put_own(Buffer* buffer) noexcept {
    if (buffer->size_class >= large_class) [[unlikely]]
      return put_large(buffer);
    push_free(buffer);
  }
  void push_free(Buffer* buffer) noexcept { free_[buffer->size_class].push(buffer); }
  void put_large(Buffer* buffer) noexcept;
  static void make_ordinary(Buffer* buffer) noexcept;
  void put_foreign(Buffer* buffer) noexcept;
  void send_home(Batch& batch) noexcept;
  void push_returned(Buffer* batch) noexcept;
  bool collect() noexcept;
  Buffer* get_slowly(std::uint32_t size_class, std::size_t bytes);
  Buffer* pop_free(std::uint32_t size_class) noexcept;
  [[nodiscard]] void* map(std::size_t bytes, std::size_t wanted) const;
  Buffer* map_large(std::uint32_t size_class, std::size_t bytes);
  void carve(std::uint32_t size_class, std::size_t bytes);
  bool keep_large(std::uint32_t size_class) noexcept;
  void unmap(Buffer* buffer) noexcept;

  friend class BufferPools;

  std::array<FreeList<Buffer>, class_count> free_;
  BufferPools* pools_ = nullptr;
  std::int64_t lent_ = 0;  // to messages by us, less those that messages gave us
  std::uint32_t index_ = 0;
  std::size_t committed_bytes_ = 0;
  std::size_t large_cached_bytes_ = 0;
  std::vector<Batch> batches_;             // by home pool
  std::vector<std::uint32_t> batch_live_;  // indices of batches that hold something
  std::vector<void*> chunks_;              // small buffers are carved from these
  std::vector<Buffer*> large_;             // mapped one by one
  alignas(cache_pair_bytes) std::atomic<Buffer*> returned_{nullptr};
};

/// Counts the bytes of messages that wait for a receive, in one processor's mailboxes and backlogs. A cell that moves
/// takes messages along that were counted elsewhere, so only the sum over all processors says something.
template <template <class> class Atom = std::atomic>
class UnreadMeter {
 public:
  /// What a message takes besides its body.
  static constexpr std::int64_t overhead = sizeof(Buffer) + BufferPool::smallest_body;

  /// Owner: more bytes wait, or (below 0) fewer. True: they have become so many that all meters should be counted; see
  /// look_again_after().
  [[nodiscard]] bool add(std::int64_t bytes) noexcept {
    const std::int64_t sum = bytes_.load(std::memory_order_relaxed) + bytes;  // relaxed: only the owner writes it
    bytes_.store(sum, std::memory_order_relaxed);                             // relaxed: a measure
    return sum > look_from_;
  }
  /// Owner: how many more bytes may join before add() asks for the next count.
  void look_again_after(std::int64_t bytes) noexcept {
    look_from_ = bytes_.load(std::memory_order_relaxed) + bytes;  // relaxed: own value
  }
  /// Anyone: a snapshot.
  [[nodiscard]] std::int64_t bytes() const noexcept {
    return bytes_.load(std::memory_order_relaxed);  // relaxed: a measure
  }

 private:
  alignas(cache_pair_bytes) Atom<std::int64_t> bytes_{0};
  std::int64_t look_from_ = 0;
};

/// Every send looks at this word first. The gate is closed while more than the limit waits unread in this process, and
/// when the machine stops.
///
/// Invariants: (1) `stopping` stays once it is set; (2) `full` says what the last count of all meters gave. A task that
/// waits for room counts again by itself, so nobody need wake it.
template <template <class> class Atom = std::atomic>
class SendGate {
 public:
  /// Any thread.
  [[nodiscard]] bool closed() const noexcept {
    return word_.load(std::memory_order_relaxed) != 0;  // relaxed: noticed sooner or later
  }
  /// Async-signal-safe.
  void stop() noexcept { word_.fetch_or(stopping, std::memory_order_relaxed); }  // relaxed: the same
  /// `unread` bytes wait, by a count of all meters. True: there is room. Any thread.
  bool judge(std::int64_t unread, std::int64_t limit) noexcept {
    const bool room = unread <= limit;
    const bool was_full = (word_.load(std::memory_order_relaxed) & full) != 0;
    if (room && was_full) word_.fetch_and(~full, std::memory_order_relaxed);  // relaxed: a measure
    if (!room && !was_full) word_.fetch_or(full, std::memory_order_relaxed);
    return room;
  }

 private:
  static constexpr std::uint32_t stopping = 1;
  static constexpr std::uint32_t full = 2;
  Atom<std::uint32_t> word_{0};
};

/// How many more bytes a processor may take before all meters are counted again: its share of the room that is left, so
/// that the processors together find out in time, but never so few that counting costs much.
[[nodiscard]] constexpr std::int64_t unread_step(std::int64_t unread, std::int64_t limit,
                                                 std::size_t processors) noexcept {
  const std::int64_t room = unread > 0 ? limit - unread : limit;  // meters are read one by one: a sum may be too low
  const std::int64_t share = room / static_cast<std::int64_t>(processors);
  const std::int64_t least = limit / 64;
  return share > least ? share : least;
}

/// The pools of one machine.
class BufferPools {
 public:
  BufferPool& add();

  /// From here on, memory for buffers is below 2 GiB, for programs that keep pointers in ints. [any thread]
  void use_low_memory() noexcept { low_.store(true, std::memory_order_relaxed); }  // relaxed: noticed sooner or later
  [[nodiscard]] bool uses_low_memory() const noexcept { return low_.load(std::memory_order_relaxed); }  // the same
  /// Bodies of buffers will lie there. [one thread at a time, while the machine runs]
  BodyArena& keep(std::unique_ptr<BodyArena> arena) { return *arenas_.emplace_back(std::move(arena)); }

  /// Ends the pools once no owner uses them: now, or when the last Message gives its buffer back.
  struct Retire {
    void operator()(BufferPools* pools) const noexcept { pools->retire(); }
  };

 private:
  friend class BufferPool;
  ~BufferPools() = default;
  void retire() noexcept;
  void give_up(std::int64_t count) noexcept;

  std::vector<std::unique_ptr<BufferPool>> pools_;
  std::vector<std::unique_ptr<BodyArena>> arenas_;  // of other processes
  // While the machine lives: alive, less the buffers that came back from outside. Then: how many are still out.
  static constexpr std::int64_t alive = std::int64_t{1} << 62;
  std::atomic<std::int64_t> out_{alive};
  std::atomic<bool> low_{false};
};

}  // namespace aplib
