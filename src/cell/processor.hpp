// SPDX-License-Identifier: MIT
// Processor: an OS thread that carries cells. It runs their ready tasks round-robin, polls the rings that lead to it, and sleeps when there is
// nothing to do. All members are used by its own thread only, except where said.
//
// A task that must wait does not switch to a scheduler: it looks for the next ready task itself, and if there is none it polls on its own stack until
// there is one (often itself: then no switch happened at all). The thread's own stack is used only at the start and when a task has ended
// and nothing else is ready.
//
// Where to find what: processor.cpp (running, idling, sleeping), send.cpp, receive.cpp (messages), collectives.cpp, move.cpp (cells
// that change processor), tasks.cpp (spawn, join, end).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "aplib/message.hpp"
#include "cell/buffer_pool.hpp"
#include "cell/cell.hpp"
#include "cell/copy_small.hpp"
#include "cell/domain.hpp"
#include "cell/load_meter.hpp"
#include "cell/ring.hpp"
#include "task/ready_queue.hpp"

namespace aplib {

/// Thrown through a task's stack when it ends early. Never seen by users, unless by catch (...), which should rethrow.
struct TaskExit {
  int status;
};
struct Stopped {};

/// Kinds of ring slots.
enum class SlotKind : std::uint8_t {
  small_message,   ///< Body in the slot.
  buffer_message,  ///< Payload: BufferSlot.
  large_message,   ///< The same, and Buffer::transfer may still be under way: help.
  offer_taken,  ///< Payload: OfferSlot. The sender claimed a posted receive; its transfer may still be under way: help.
  start_task,   ///< Payload: Program*. From the host: start it on `cell`.
  cell_moved,   ///< `cell` is carried by processor `task` from here on. (move.cpp)
  fence,        ///< Old messages to `cell` from processor `task` are all through. (move.cpp)
  cell_ended,   ///< `cell` has ended; payload: CellEnd.
  call,         ///< Payload: CallSlot. From the network's processor: call it.
};

/// Slot::info: forwarded (bit 31), kind (bits 30..24), length of a small message (bits 23..0). A small message's kind is 0, so that its info is its length.
struct SlotInfo {
  static constexpr std::uint32_t forwarded_bit =
      0x8000'0000U;  ///< It comes by way of its cell's last processor (move.cpp).
  static constexpr std::uint32_t small_messages_end = 1U << 24;
  static_assert(static_cast<std::uint32_t>(SlotKind::small_message) == 0);

  static constexpr std::uint32_t make(SlotKind kind, std::size_t bytes = 0) noexcept {
    return static_cast<std::uint32_t>(kind) << 24 | static_cast<std::uint32_t>(bytes);
  }
  static constexpr SlotKind kind(std::uint32_t info) noexcept { return static_cast<SlotKind>((info >> 24) & 0x7fU); }
  static constexpr bool forwarded(std::uint32_t info) noexcept { return (info & forwarded_bit) != 0; }
  static constexpr std::uint32_t bytes(std::uint32_t info) noexcept { return info & 0xff'ffffU; }
};

/// From this size on a waiting receive's own buffer is offered to senders of other processors, and they look for it. Smaller: the receiver's second copy is
/// cheaper than claiming its buffer.
inline constexpr std::size_t offer_from_bytes = 2 * 1024;

class Network;
class Processor;

enum class ProcessorRole : std::uint8_t {
  carrier,  ///< A thread that carries cells.
  host,     ///< The thread of the host program.
  network,  ///< No thread: what comes from other processes (network.hpp). All its functions are called by whoever polls the network.
};

/// A large message from another process, while its body comes.
struct LargeArrival {
  std::uint32_t cell = 0;
  std::uint32_t task = 0;
  std::uint64_t key = 0;
  std::size_t bytes = 0;
  Posted* posted = nullptr;  ///< The receive whose own buffer it goes to; null: `buffer`.
  Buffer* buffer = nullptr;
};

namespace detail {
// Initial-exec: one load relative to the thread pointer, also from inside the shared library.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local Processor* current_processor;
}  // namespace detail

class Processor {
 public:
  using MessageRing = Ring<>;
  using Slot = MessageRing::Slot;

  Processor(Domain& domain, std::uint32_t index, ProcessorRole role);
  ~Processor();
  Processor(const Processor&) = delete;
  Processor& operator=(const Processor&) = delete;

  /// Sizes tables for the domain's grid and processors. Before any carrier runs.
  void prepare();
  /// Runs tasks until the machine is over. Call on the thread that is to be this processor.
  void run();

  /// The processor of the calling thread, or null. Never call across a switch and keep the result.
  static Processor* current() noexcept { return detail::current_processor; }

  [[nodiscard]] Domain& domain() noexcept { return domain_; }
  [[nodiscard]] std::uint32_t index() const noexcept { return index_; }
  [[nodiscard]] TaskControl* running() const noexcept { return running_; }
  [[nodiscard]] BufferPool& pool() noexcept { return *pool_; }

  /// For every call that may wait, before it waits and when a wait has ended: is the machine stopping? Then the calling task
  /// is to end: throws Stopped. A task that unwinds already must not throw, for the call is some destructor's: true, and the
  /// call returns without doing more. Relaxed: noticed sooner or later.
  /// Other tasks could run: who waits here for something outside must not make the thread sleep.
  [[nodiscard]] bool has_ready_tasks() const noexcept { return !ready_.empty(); }
  [[nodiscard]] bool stops() const { return domain_.stopping.load(std::memory_order_relaxed) && end_calling_task(); }

  // --- tasks (tasks.cpp, processor.cpp)
  /// What a task is made of.
  struct NewTask {
    void (*entry)(void* state) = nullptr;
    void* state = nullptr;  ///< Moved to the new task's stack by `move`.
    std::size_t state_bytes = 0;
    std::size_t state_alignment = 0;
    void (*move)(void* to, void* from) = nullptr;
    ProgramContext* parent = nullptr;     ///< The new task inherits from it; null: it runs no loaded program.
    std::size_t program_stack_bytes = 0;  ///< 0: a stack as every task has. Else a loaded program's.
    bool detached = false;
    bool from_kernel = false;
  };
  /// The new task is ready on return. Throws what moving and inheriting throw, and Error(exhausted); then there is no task.
  TaskControl& spawn(Cell& cell, std::uint32_t id, const NewTask& what);
  void make_ready(TaskControl& task) noexcept {
    task.ready = true;
    ready_.push(task);
  }
  /// Gives way until someone makes `self` ready. On return the cell may be on another processor. Says how the wait ended.
  static Wake wait(TaskControl& self, WaitFor what, const char* call) noexcept;
  /// Lets others run once.
  static void yield(TaskControl& self);
  static void sleep_until(TaskControl& self, Clock::time_point deadline, const char* call);
  static void join(TaskControl& self, std::uint32_t id);
  /// Waits until the flag has reached `count` (watch.hpp). False: the machine stops, see stops().
  static bool wait_flag(TaskControl& self, const char* call, const std::int32_t* flag, std::int32_t count);
  /// Host: waits until every program started on the cells has ended.
  static void wait_for_cells(TaskControl& self, const char* call);
  /// Host: has `program` started on `cell`, behind all messages sent there before.
  void send_start(std::uint32_t cell, const Program& program);
  /// Frees an ended, joined task.
  void bury(TaskControl& task) noexcept;
  void start_program(Cell& cell, const Program& program);

  // --- messages (send.cpp, receive.cpp)
  void send(TaskControl& self, const char* call, std::uint32_t cell, std::span<const std::byte> bytes, To to,
            std::uint32_t space);
  /// Waits for a match of `posted.wish`, stores it as `posted` says. Returns Wake::done when posted.key and posted.bytes are valid.
  static Wake receive(TaskControl& self, const char* call, bool closed_when_cells_end);
  bool probe(TaskControl& self, const MatchWish& wish);
  /// Looks at all rings that lead here once, and takes what is there until a task became ready.
  void poll() {
    satisfied_ = false;
    if (known_incoming_ != 0 || backlog_count_ != 0 || incoming_count_.load(std::memory_order_relaxed) != 0)
      poll_rings();  // relaxed: see there
  }

  /// Bytes of messages from other processes that wait here for a receive. Any thread: a snapshot.
  [[nodiscard]] std::int64_t unread_bytes() const noexcept {
    return unread_bytes_.load(
        std::memory_order_relaxed);  // relaxed: a measure, and the sum over processors is what counts
  }

  // --- the network's processor (inject.cpp)
  /// A message from another process for `cell`, which is carried here.
  void inject(std::uint32_t cell, std::uint32_t task, std::uint64_t key, std::span<const std::byte> bytes);
  /// A large one: where its body shall go, until end_large(). Throws Error(exhausted).
  std::byte* begin_large(LargeArrival& arrival);
  /// The body is there; or, not complete, never will be: a receive that waits for it is let go, for the machine is stopping.
  void end_large(LargeArrival& arrival, bool complete);
  /// Tells the carriers that a cell of another process has ended.
  void inject_end(std::uint32_t cell, const CellEnd& end);
  /// Has `program` started on every cell of this process.
  void inject_start(const Program& program);
  /// Has every thread call `function` with itself, when it next looks at its rings.
  void inject_call(void (*function)(Processor& processor, void* state), void* state);
  /// What it could not hand over so far.
  [[nodiscard]] std::uint32_t backlog() const noexcept { return backlog_count_; }

  // --- collectives (collectives.cpp)
  static Operand collective(TaskControl& self, const CollectiveCall& what, const Operand& value,
                            void* broadcast_buffer);

  /// The cells it carries, ascending; the host's processor: none.
  [[nodiscard]] std::span<const std::uint32_t> residents() const noexcept { return residents_; }
  [[nodiscard]] bool is_host() const noexcept { return is_host_; }

  // --- the host's view
  [[nodiscard]] bool all_cells_ended() const noexcept;
  [[nodiscard]] bool cell_has_ended(std::uint32_t cell) const noexcept;

  Parker<>& parker() noexcept { return parker_; }  // [any thread]

 private:
  friend struct Domain;
  friend struct EpisodeAccess;  // tests: skips to a far episode
  friend struct SlotAccess;     // tests: puts slots into rings
  friend void task_body(Flow& flow);

  struct Incoming {
    MessageRing* ring;
    std::uint32_t from;
  };
  struct BufferSlot {
    Buffer* buffer;
    std::uint64_t bytes;
  };
  struct OfferSlot {
    Posted* posted;
    std::uint64_t bytes;
    std::uint32_t has_transfer;
  };
  struct CallSlot {
    void (*function)(Processor& processor, void* state);
    void* state;
  };
  /// A slot's worth that did not fit into a full ring.
  struct Waiting {
    std::uint32_t info;
    std::uint64_t key;
    std::uint32_t cell;
    std::uint32_t task;
    std::byte payload[MessageRing::inline_bytes_max];
  };

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

  // processor.cpp
  // What is done while a task waits concerns others, too: what goes wrong ends the machine (Domain::guarded), and is
  // never thrown into the task that happened to wait.
  static bool end_calling_task();
  void dispatch(TaskControl& self) noexcept;
  void look_after_network() noexcept;
  bool poll_network() noexcept;
  void switch_to_task(Flow& from, TaskControl& to, bool ends);
  void landed() noexcept;
  TaskControl* idle(TaskControl* self) noexcept;
  void park() noexcept;
  void stop_tasks();
  void expire_timers(Clock::time_point now);
  void check_watches();
  void pause() noexcept;
  void add_watch(TaskControl& task);
  void poll_rings() noexcept;
  void drop_oldest(MessageRing& ring) noexcept;
  void refresh_incoming();
  void show_idle(Clock::time_point since) noexcept;
  void show_busy(Clock::time_point now) noexcept;
  bool deadlocked(std::uint64_t sleepers_word);
  void end_task(TaskControl& self);
  void end_cell(Cell& cell);
  void drop_live_cell() noexcept;
  void check_canary(const TaskControl& task);

  // send.cpp
  void send_local(TaskControl& self, Cell& cell, std::uint32_t task, std::uint64_t key,
                  std::span<const std::byte> bytes);
  void send_remote(std::uint32_t cell, std::uint32_t processor, std::uint32_t task, std::uint64_t key,
                   std::span<const std::byte> bytes);
  Posted* claim_offer(std::uint32_t cell, std::uint32_t processor, std::uint32_t task, std::uint64_t key,
                      std::size_t bytes);
  bool send_to_offer(std::uint32_t cell, std::uint32_t processor, std::uint32_t task, std::uint64_t key,
                     std::span<const std::byte> bytes);
  void send_to_arriving(Cell& cell, std::uint32_t task, std::uint64_t key, std::span<const std::byte> bytes);
  MessageRing& ring_to(std::uint32_t processor) {
    MessageRing* ring = outgoing_[processor];
    return ring != nullptr ? *ring : make_ring(processor);
  }
  MessageRing& make_ring(std::uint32_t processor);
  Slot* slot_to(std::uint32_t processor);
  template <class Payload>
  void push(std::uint32_t processor, SlotKind kind, std::uint32_t cell, std::uint32_t task, std::uint64_t key,
            const Payload& payload) {
    static_assert(sizeof(Payload) <= MessageRing::inline_bytes_max);
    push_control(processor, kind, cell, task, key, &payload, sizeof payload);
  }
  void push_control(std::uint32_t processor, SlotKind kind, std::uint32_t cell, std::uint32_t task, std::uint64_t key,
                    const void* payload, std::size_t bytes);
  void push_raw(std::uint32_t processor, std::uint32_t info, std::uint64_t key, std::uint32_t cell, std::uint32_t task,
                const void* payload, std::size_t bytes);
  bool flush_backlog(std::uint32_t processor);
  void flush_backlogs();

  // receive.cpp
  bool handle(std::uint32_t from, Slot& slot);
  enum class Admission : std::uint8_t { deliver, hold, done };
  Admission admit(std::uint32_t from, Slot& slot);
  void deliver_slot(Cell& cell, std::uint32_t info, std::uint64_t key, std::uint32_t task, const std::byte* payload);
  void deliver_small(Cell& cell, std::uint32_t task, std::uint64_t key, const std::byte* body, std::size_t bytes);
  void deliver_buffer(Cell& cell, std::uint32_t task, std::uint64_t key, Buffer* buffer, std::size_t bytes);
  void queue_buffer(Cell& cell, std::uint32_t task, std::uint64_t key, Buffer* buffer, std::size_t bytes);
  void complete(Posted& posted) noexcept {
    posted.open = false;
    satisfied_ = true;
    if (posted.task->waits == WaitFor::message && !posted.task->ready) make_ready(*posted.task);
  }
  /// Takes an offered receive back from senders of other processors. False: one of them has it and is going to fill it.
  static bool withdraw(Posted& posted) noexcept { return !posted.offered || withdraw_offered(posted); }
  static bool withdraw_offered(Posted& posted) noexcept;
  void take_from_mailbox(TaskControl& self, Buffer* found);
  /// A message joins (or leaves) a mailbox here: those of other processes count.
  void count_unread(const Buffer& buffer, bool joins) noexcept {
    if (network_ != nullptr && !domain_.is_local(MatchKey::cell(buffer.key))) [[unlikely]]
      add_unread(buffer, joins);
  }
  void add_unread(const Buffer& buffer, bool joins) noexcept;
  void cell_ended(std::uint32_t cell, const CellEnd& end);
  void wake_waiting(TaskControl& task, Wake how) noexcept;

  // collectives.cpp
  void arrive_all(Cell& cell, const CollectiveCall& what);
  void arrive_line(Group& group, std::uint64_t episode);
  void publish_arrivals();
  void begin_exchange() noexcept;
  void check_collectives();
  void check_all();
  Operand fold_all(std::uint64_t episode, bool& mismatch);
  static void complete_collective(Cell& cell, const Operand& result, bool mismatch) noexcept;
  static std::string describe_mismatch(Domain& domain, const Group& group, std::uint64_t episode);

  // move.cpp
  void offer_cells(TaskControl& self) noexcept;
  bool hand_over(Cell& cell, std::uint32_t to);
  void handle_cell_moved(std::uint32_t from, std::uint32_t cell, std::uint32_t to);
  void handle_fence(std::uint32_t of);
  void end_move();

  // hot: read or written on every message
  Domain& domain_;
  std::uint32_t index_;
  std::uint32_t cell_limit_ = 0;  // cells that can be sent to; 0 before the host program has started any
  std::uint32_t known_incoming_ = 0;
  TaskControl* running_ = nullptr;
  ReadyQueue<TaskControl> ready_;
  std::uint16_t* route_ = nullptr;    // cell -> processor, as this processor knows
  MessageRing** outgoing_ = nullptr;  // by processor
  std::uint32_t backlog_count_ = 0;   // messages that did not fit
  bool moving_ = false;               // a cell of ours is leaving or arriving: look closer at every message
  bool satisfied_ = false;            // poll() completed a receive
  bool settle_soon_ = false;          // a slot told of a claimed offer
  std::uint32_t next_ring_ = 0;       // where poll() starts, so that no ring starves
  std::vector<Incoming> incoming_;
  BufferPool* pool_ = nullptr;
  Parker<>** parkers_ = nullptr;  // by processor
  ThreadState thread_;
  std::uint32_t switches_ = 0;
  TaskControl* dying_ = nullptr;  // ended; its stack is free once we are off it

  Flow base_;                   // the thread's own stack
  Network* network_ = nullptr;  // null: one process
  std::uint32_t network_index_ = ~0U;
  std::uint64_t last_network_look_ = 0;  // in cycles()
  std::uint32_t network_lately_ = 0;     // polls for which the network is worth every look: something has come just now
  bool is_host_;
  bool is_network_;
  bool stop_seen_ = false;
  bool idle_flag_ = false;
  std::vector<std::uint16_t> route_table_;
  std::vector<MessageRing*> outgoing_table_;
  std::vector<std::unique_ptr<MessageRing>> owned_rings_;
  std::vector<Parker<>*> parker_table_;
  std::vector<Backlog> backlogs_;  // by processor; oldest first
  std::vector<std::uint8_t> ended_cells_;
  std::vector<std::uint64_t> ended_tasks_;  // by cell: kernel-started tasks that have ended there
  std::uint32_t ended_count_ = 0;
  std::vector<Timer> timers_;  // a heap
  std::uint64_t timer_order_ = 0;
  std::vector<TaskControl*> watches_;  // tasks that wait for flags
  Clock::time_point coarse_now_{};     // of the last look at the clock
  Clock::time_point last_offer_{};

  // collectives of group `all`
  std::uint64_t episode_ = 0;    // the one our cells arrive in
  std::uint32_t arrived_ = 0;    // of our cells, in that episode
  std::uint32_t published_ = 0;  // how many of them the others know
  std::uint32_t signature_ = 0;
  CollectiveCall call_;  // of the first of them to arrive
  bool disagree_ = false;
  std::vector<std::uint32_t> residents_;  // cells we carry, ascending
  std::uint32_t line_waits_ = 0;          // of collective_waits_: rows and columns
  std::vector<Cell*> collective_waits_;   // cells that wait in any collective

  // leaving or arriving cell
  Cell* leaving_ = nullptr;
  Cell* arriving_ = nullptr;
  std::uint32_t move_peer_ = 0;  // where it goes, where it comes from
  std::uint32_t fences_missing_ = 0;
  std::vector<std::uint32_t> ended_meanwhile_;  ///< Cells of ours that ended while one arrives; made known when it has.
  std::vector<std::uint8_t> fenced_;            // by processor

  Parker<> parker_;
  // written by others
  alignas(cache_pair_bytes) std::atomic<std::uint32_t> incoming_count_{0};
  // written here, read by who polls the network
  alignas(cache_pair_bytes) std::atomic<std::int64_t> unread_bytes_{0};
  alignas(cache_pair_bytes) LoadMeter load_;
  std::unique_ptr<std::atomic<MessageRing*>[]> incoming_table_;  // by processor
};

inline void Domain::wake_watcher(const Cell& cell) noexcept {
  os.light_fence();  // what was written before the look at the watcher; see watch.hpp
  const std::uint32_t watcher = cell.watcher.load(std::memory_order_relaxed);  // relaxed: the fence orders it
  if (watcher != 0) processors[watcher - 1]->parker().wake_if_asleep();
}

/// How far down a task's stack begins, so that tasks' control blocks do not compete for the same few sets of the first-level cache.
constexpr std::size_t stack_colour(std::size_t stack_bytes, std::uint32_t cell, std::uint32_t task) noexcept {
  constexpr std::size_t from_bytes = 64 * 1024;  // where pages are not scarce
  return stack_bytes >= from_bytes ? (cell + task) % 4 * 1024 : 0;
}

/// For the core: fills messages in place.
struct MessageAccess {
  static void set_small(Message& message, std::uint64_t key, const void* body, std::size_t bytes) noexcept {
    message.key_ = key;
    message.bytes_ = bytes;
    message.buffer_ = nullptr;
    __builtin_memcpy(message.inside_, body, Message::inline_bytes_max);  // fixed size: straight-line code
  }
  /// The same from memory that ends after `bytes`.
  static void set_small_exactly(Message& message, std::uint64_t key, const void* body, std::size_t bytes) noexcept {
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
  static void release(Message& message) noexcept {
    if (message.buffer_ != nullptr) message.release();
  }
};

}  // namespace aplib
