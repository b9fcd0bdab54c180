// SPDX-License-Identifier: MIT
// ModuleNetwork: the Network of the processors (cell/domain.hpp) over a module (comm/module.hpp). It joins the two and
// checks what comes, for a frame is another process's word. ProgressThread looks after it while no processor does.
//
// Invariants: (1) the module is polled, and the network's processor used, only under poll_mutex_; (2) sent_ is
// raised before a frame goes to the module, received_ after it has reached a ring: while sums over all processes
// differ, something is on its way.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/spin_lock.hpp"
#include "cell/domain.hpp"
#include "cell/processor.hpp"
#include "comm/module.hpp"
#include "kernel/errand.hpp"
#include "kernel/one_sided_network.hpp"
#include "kernel/overseer.hpp"
#include "kernel/process.hpp"
#include "kernel/shared_bodies.hpp"

namespace aplib {

/// Kinds of frames.
enum class FrameKind : std::uint32_t {
  message = 1,  ///< Label: as in a ring's entry.
  cell_ended,   ///< Label: cell. Body: CellEnd.
  exchange,     ///< Label: its group, by scope (extra) and index (cell). Body: cell/collectives.hpp.
  put,          ///< These: one_sided_network.hpp.
  put_blocks,
  get,
  fetch,
  reply,
  put_landed,
  carried_out,
  memory_request,
  memory_key,
  heap_request,
  heap_place,
  arena_place,  ///< These: shared_bodies.hpp.
  arena_answer,
  shared_message,
  shared_begin,
  shared_part,
  errand,  ///< Body: of a front end (Errands).
};

/// The pauses of the progress thread. Others end them with a 0 and a wake-up.
struct ProgressPauses {
  std::atomic<std::uint32_t> dozes{0};   ///< 1: a long pause. Who leaves a frame behind ends it.
  std::atomic<std::uint32_t> asleep{0};  ///< 1: it sleeps until a processor stirs.
};

class ModuleNetwork final : public Network, public comm::Receiver {
 public:
  ModuleNetwork(Domain& domain, const Process& process);
  ~ModuleNetwork() override;

  /// The domain's processors are made: frames may come from here on. Throws Error, as Module::start().
  void begin();

  // Network
  void send(TaskControl& self, const char* call, std::uint32_t cell, std::uint32_t task, std::uint64_t key,
            std::span<const std::byte> bytes) override;
  void send_empty(std::uint32_t cell, std::uint32_t task, std::uint64_t key) override;
  void put(TaskControl& self, const char* call, const one_sided::Copy& copy, bool acknowledge) override {
    one_sided_.put(self, call, copy, acknowledge);
  }
  void get(TaskControl& self, const char* call, const one_sided::Copy& copy) override {
    one_sided_.get(self, call, copy);
  }
  std::uint64_t fetch(TaskControl& self, const char* call, const one_sided::Operation& operation) override {
    return one_sided_.fetch(self, call, operation);
  }
  bool poll() override;
  void flush() noexcept override {
    holds_back.store(false,
                     std::memory_order_relaxed);  // relaxed: a hint; who sends now sets it again, behind its frame
    module_.flush();
  }
  [[nodiscard]] std::uint64_t arrivals() const noexcept override {
    return arrivals_.load(std::memory_order_relaxed);  // relaxed: a hint
  }
  void poll_if_due() override;
  bool begin_wait() noexcept override { return !waiter_.exchange(true, std::memory_order_seq_cst); }
  void wait(std::optional<std::chrono::nanoseconds> timeout) noexcept override;
  void end_wait() noexcept override {
    waiter_.store(false, std::memory_order_seq_cst);
    stirred();  // the progress thread may have seen that somebody waits, and sleeps
  }
  void wake() noexcept override { module_.wake(); }
  void stirred() noexcept override;
  void cell_ended(std::uint32_t cell, const CellEnd& end) override;
  void all_ended() noexcept override;
  void send_exchange(std::uint32_t process, std::span<const std::byte> frame) override;
  [[nodiscard]] std::uint64_t own_status() const noexcept override {
    return own_status_.load(std::memory_order_relaxed);  // relaxed: a word on its own
  }
  void other_status(std::uint32_t process, std::uint64_t status) noexcept override;
  /// Receives into which a body was coming are let go, too.
  void end() override;

  // comm::Receiver
  bool wants(comm::Peer from) override;
  void frame(comm::Peer from, const comm::Label& label, std::span<const std::byte> body) override;
  std::byte* large_begin(comm::Peer from, const comm::Label& label, std::size_t bytes) override;
  void large_end(comm::Peer from, const comm::Label& label, std::size_t bytes, bool complete) override;
  void peer_lost(comm::Peer peer, const std::string& why) override;
  void memory_done(std::uint64_t context, bool ok) override {
    if (!ended_) one_sided_.memory().done(context, ok);
  }

  // For the process's run. Any thread.
  void remote_cell_ended(std::uint32_t cell, const CellEnd& end);
  void start_program(const CellProgram& program);
  /// Has every thread call `function` with itself, when it next looks at its rings.
  void call_on_each(void (*function)(Processor& processor, void* state), void* state);
  /// The status words of other processes combined.
  [[nodiscard]] std::uint32_t other_status_words() const noexcept;
  /// A cell here has posted. The others hear of it at once, or soon when they heard of a post just before.
  void status_changed() noexcept;
  [[nodiscard]] bool status_due() const noexcept {
    return status_due_.load(std::memory_order_relaxed);  // relaxed: a hint; true under the mutex
  }
  /// Tells the others, if they do not know yet.
  void tell_status() noexcept;
  /// How often a run has been given a program, besides the first one without host program.
  std::atomic<std::uint64_t> starts{0};
  std::mutex starts_mutex;  ///< Of starts and live cells together: what all_ended() tells.

  // For the progress thread.
  [[nodiscard]] bool someone_waits() const noexcept { return waiter_.load(std::memory_order_seq_cst); }
  /// Too many messages wait here to be received, so frames stay with their senders. Someone must look after it, even
  /// while all sleep.
  [[nodiscard]] bool is_short_of_memory() const noexcept {
    return short_of_memory_.load(std::memory_order_relaxed);  // relaxed: looked at again and again
  }
  [[nodiscard]] std::uint64_t polls() const noexcept {
    return polls_.load(std::memory_order_relaxed);
  }  // relaxed: a clock
  [[nodiscard]] QuietNote counts() const noexcept;
  /// All processors sleep without a timer, and nothing is left here for them.
  [[nodiscard]] bool all_asleep() const noexcept;
  /// Nothing has come that would wake one; no processor has slept or woken since domain.sleepers was `word`.
  [[nodiscard]] bool is_quiet(std::uint64_t word);

  [[nodiscard]] ProgressPauses& progress() noexcept { return progress_; }

  // For errand.hpp.
  std::shared_ptr<Errands> errands(std::unique_ptr<Errands> (*make)(Domain& domain));
  void send_errand(TaskControl& self, const char* call, std::uint32_t cell, std::span<const std::byte> errand);
  void answer_errand(std::uint32_t process, std::span<const std::byte> errand);

  // For its parts, OneSidedNetwork and RemoteMemory.
  [[nodiscard]] comm::Module& module() noexcept { return module_; }
  /// Sends a frame. Any thread.
  void post(std::uint32_t process, FrameKind kind, comm::Label label, std::span<const std::byte> body);
  /// Waits until less than send-limit waits to be taken by the process of `cell`.
  void make_room(TaskControl& self, const char* call, std::uint32_t cell, std::uint32_t process) {
    if (module_.queued(process) > domain_.options.send_limit_bytes) [[unlikely]]
      wait_for_room(self, call, cell, process);
  }
  /// A peer has sent what makes no sense: the machine ends.
  void nonsense(comm::Peer from, const std::string& what);
  // Invariant (2), for what goes by the module's remote memory.
  void count_sent() noexcept { sent_.fetch_add(1, std::memory_order_relaxed); }  // relaxed: the module orders it
  void count_received() noexcept {
    received_.store(received_.load(std::memory_order_relaxed) + 1,
                    std::memory_order_release);  // release: the frame is in a ring; one writer at a time
  }

 private:
  struct PeerState {
    std::atomic<bool> used{false};    ///< We have sent to it.
    std::atomic<bool> stalls{false};  ///< It takes nothing, so messages of MPI do not wait for room there.
    bool lost = false;
    bool lands = false;  ///< A large put or reply is under way, to memory that the program knows.
    LargeArrival large;
    std::unique_ptr<std::byte[]> body;  ///< Of a large frame: of a collective, or one that nobody wants any more.
  };

  void poll_alone();  // under poll_mutex_
  /// False: the peer has taken nothing for `stall_max`. True also where the machine stops.
  [[nodiscard]] bool await_room(TaskControl& self, std::uint32_t process, Clock::duration stall_max);
  void wait_for_room(TaskControl& self, const char* call, std::uint32_t cell, std::uint32_t process);
  void wait_while_it_takes(TaskControl& self, std::uint32_t process);
  void check_unread();
  [[nodiscard]] bool is_message_of(comm::Peer from, const comm::Label& label) const noexcept;
  void take_frame(comm::Peer from, const comm::Label& label, std::span<const std::byte> body);
  void take_message(const comm::Label& label, std::span<const std::byte> body);
  void end_large(comm::Peer from, const comm::Label& label, std::size_t bytes, bool complete);
  /// Of the group, if cells here and elsewhere take part; else null. Of any numbers.
  [[nodiscard]] Exchange* exchange_of(std::uint32_t scope, std::uint32_t index) noexcept;
  void receive_exchange(comm::Peer from, std::span<const std::byte> body);

  Domain& domain_;
  const Process& process_;
  comm::Module& module_;
  Processor& port_;
  std::vector<PeerState> peers_;
  OneSidedNetwork one_sided_;
  SharedBodies shared_bodies_;

  SpinLock poll_mutex_;
  bool begun_ = false;
  bool ended_ = false;
  std::atomic<bool> short_of_memory_{false};
  bool errands_answered_ = false;  // since the last poll began
  std::mutex errands_mutex_;
  std::shared_ptr<Errands> owned_errands_;
  std::atomic<Errands*> errands_{nullptr};  // null: nobody has asked for them yet
  std::int64_t unread_seen_ = 0;
  std::int64_t allowed_ = 0;  // that may wait beyond unread-limit, since nobody has received for some time
  Clock::time_point unread_since_{};

  std::atomic<bool> waiter_{false};
  alignas(cache_pair_bytes) std::atomic<std::uint64_t> sent_{0};
  alignas(cache_pair_bytes) std::atomic<std::uint64_t> received_{0};
  std::atomic<std::uint64_t> arrivals_{0};  // written under poll_mutex_
  std::atomic<std::uint64_t> polls_{0};
  std::atomic<std::int64_t> last_poll_{0};  // nanoseconds of Clock

  void tell_status_alone() noexcept;  // under status_mutex_
  /// Ends whatever pause the progress thread makes.
  void wake_progress() noexcept;

  ProgressPauses progress_;
  std::mutex status_mutex_;
  std::atomic<bool> status_due_{false};  // changed under the mutex
  Clock::time_point status_told_{};
  std::atomic<std::uint64_t> own_status_{0};                    // changes so far, words combined
  std::unique_ptr<std::atomic<std::uint64_t>[]> other_status_;  // by process: the same
};

/// Looks after the network while no processor does. Idle processors poll the network, and one of them sleeps in it; but
/// all of them may compute for long. Then this thread sends what was held back and takes what has come, within about a
/// millisecond. When it was not needed for some time, it looks only every 16 ms.
///
/// It also notices that all processors sleep for good, and tells the overseer. While they sleep, it sleeps, too.
class ProgressThread {
 public:
  ProgressThread(Domain& domain, ModuleNetwork& network, Supervisor& supervisor);
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

 private:
  void run();
  void look_after_network();
  void sleep_until_stirred(std::uint64_t quiet_word);
  bool pause(std::chrono::milliseconds time);

  Domain& domain_;
  ModuleNetwork& network_;
  Supervisor& supervisor_;
  std::atomic<bool> closing_{false};
  std::atomic<std::uint32_t> tick_{0};
  std::thread thread_;
};

}  // namespace aplib
