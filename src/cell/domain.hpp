// SPDX-License-Identifier: MIT
// Domain: what the processors of one machine share in this process. Made by the kernel before any processor runs. And
// Network: the other processes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aplib/error.hpp"
#include "aplib/machine.hpp"
#include "base/cell_map.hpp"
#include "cell/buffer_pool.hpp"
#include "cell/cell.hpp"
#include "cell/parker.hpp"
#include "cell/wake_cost.hpp"

namespace aplib {

class Exchange;
class Processor;
namespace one_sided {
struct Copy;
struct Operation;
}  // namespace one_sided

/// The other processes of the machine, as the processors of this one see them. The kernel implements it over a module
/// (src/kernel/module_network.cpp).
///
/// What goes out, a processor hands to the network itself: send(). What comes in arrives by one more Processor, which
/// has no thread: the network's. Its rings lead to every carrier, and whoever polls the network, one thread at a time,
/// fills them and reads the rings that lead to it. So cells may move, messages keep their order, and nobody waits for a
/// special thread, by the protocols that hold between processors anyway.
class Network {
 public:
  virtual ~Network() = default;

  /// Frames may have been held back, to go out together: flush() when the task that has sent them waits. Set by
  /// send(). relaxed: a hint.
  std::atomic<bool> holds_back{false};
  virtual void flush() noexcept = 0;

  /// Sends a message of `self` to a cell of another process. Waits, and lets other tasks run, only while more than
  /// send-limit bytes wait for that process. Throws Error(exhausted) when none of them is taken for send-wait.
  virtual void send(TaskControl& self, const char* call, std::uint32_t cell, std::uint32_t task, std::uint64_t key,
                    std::span<const std::byte> bytes) = 0;

  /// Sends a message without a body on behalf of no task. Never waits, so it may be called while something is polled.
  virtual void send_empty(std::uint32_t cell, std::uint32_t task, std::uint64_t key) = 0;

  /// One-sided communication with a cell of another process (one_sided.hpp). Wait and throw as send(); fetch()
  /// waits for the old value.
  virtual void put(TaskControl& self, const char* call, const one_sided::Copy& copy, bool acknowledge) = 0;
  virtual void get(TaskControl& self, const char* call, const one_sided::Copy& copy) = 0;
  virtual std::uint64_t fetch(TaskControl& self, const char* call, const one_sided::Operation& operation) = 0;

  /// Puts out what was held back and takes what has come. Any thread of this process. False: another thread is at it.
  virtual bool poll() = 0;
  /// Grows whenever a poll() took something, be it a part of a large message: who has nothing else to do goes on
  /// polling then. Any thread; a snapshot.
  [[nodiscard]] virtual std::uint64_t arrivals() const noexcept { return 0; }
  /// poll(), if nobody has done so for some time. For processors that are busy.
  virtual void poll_if_due() = 0;

  /// A processor has nothing to do: may it sleep by wait()? True for one at a time; then end_wait() must follow.
  /// Others sleep as usual.
  virtual bool begin_wait() noexcept = 0;
  /// Sleeps until something has come, wake() is called, or the timeout has passed.
  virtual void wait(std::optional<std::chrono::nanoseconds> timeout) noexcept = 0;
  /// The end of begin_wait(), after a wait() or without one. As stirred() besides.
  virtual void end_wait() noexcept = 0;
  /// Ends wait(). Any thread, async-signal-safe.
  virtual void wake() noexcept = 0;
  /// A processor goes on after a sleep, or the last one has fallen asleep.
  virtual void stirred() noexcept = 0;

  /// `cell` has ended here: the other processes must know, behind all it has sent. Called while the network is polled.
  virtual void cell_ended(std::uint32_t cell, const CellEnd& end) = 0;
  /// No cell of this process is live.
  virtual void all_ended() noexcept = 0;
  /// One frame of a collective (Exchange), for another process.
  virtual void send_exchange(std::uint32_t process, std::span<const std::byte> frame) = 0;
  /// The status words of this process's cells combined; and by how often they have changed it is known which of two
  /// is newer.
  [[nodiscard]] virtual std::uint64_t own_status() const noexcept = 0;
  virtual void other_status(std::uint32_t process, std::uint64_t status) noexcept = 0;
  /// The machine stops or has ended. On return, nobody here writes to the tasks' memory for another process any more,
  /// and nothing is polled. Any thread; not in an upcall.
  virtual void end() {}
};

/// A program started on all cells at once. Kept until the run is over.
struct CellProgram {
  std::function<void()> body;
  std::uint32_t task = 0;
  std::size_t stack_bytes = 0;  ///< 0: as for every task. Else a loaded program's.
};

/// Why a run ends before all tasks are through.
struct Failure {
  int status = 0;
  std::string text;
};

struct Domain {
  static constexpr std::size_t failure_bytes = 2000;

  std::unique_ptr<BufferPools, BufferPools::Retire> pools{
      new BufferPools};  ///< First: all below holds buffers of them.

  void* owner = nullptr;  ///< The kernel's machine.
  // Constant while processors run.
  Options options;
  Grid grid;
  std::uint32_t cell_count = 0;  ///< Without the host.
  bool has_host = false;
  std::uint32_t host_id = 4096;  ///< What users call the host cell.
  std::chrono::nanoseconds poll_time{};
  bool owns_cores = true;               ///< No two carriers share one.
  bool learns_poll_time = false;        ///< The poll time is only what to begin with. The carriers own their cores.
  std::unique_ptr<HeapFile> heap_file;  ///< Of the cells' heaps, where other processes can map them. Else null.
  std::vector<Cell*> cells;             ///< cell_count, and the host at [cell_count].
  std::vector<std::unique_ptr<Cell>> owned_cells;
  std::unique_ptr<Cell> host_cell;
  std::vector<std::unique_ptr<Processor>> processors;  ///< The host's, if any, is last.
  std::uint32_t carriers = 0;                          ///< Processors that carry cells: 0 .. carriers-1.
  ParkerOs os;
  CellMap cell_map;           ///< Which process carries which cell.
  std::uint32_t process = 0;  ///< This one.
  // Of a machine of several processes.
  Network* network = nullptr;
  std::uint32_t network_index = ~0U;  ///< The network's processor: the last one, and not a thread.
  std::vector<std::unique_ptr<Exchange>> exchanges;
  Group all;
  std::vector<Group> rows;
  std::vector<Group> columns;
  std::unique_ptr<ArrivalLines[]> arrivals;        ///< One per carrier, for group `all`.
  std::function<void(const std::string&)> report;  ///< Prints one text on stderr. [any thread]
  /// Where the calling task's program calls the library from: "solve+0x1c of prog"; empty: not known.
  std::string (*place_of_call)() = nullptr;
  /// Of a message that its task never received. Null: nobody wants to know. [the processor of its cell]
  std::function<void(const TaskControl&)> on_unread;
  std::function<void(Domain&)>
      on_deadlock;  ///< Every processor sleeps and nothing can wake one. Must stop the machine. [any thread]
  std::function<void(std::uint32_t processor)>
      thread_prologue;        ///< Called first on each carrier's thread (binding, signal stacks).
  CellProgram first_program;  ///< run(): started by each processor on its own cells.
  bool start_at_once = false;

  // Any processor.
  alignas(cache_pair_bytes) WakeCost wake_cost;
  alignas(cache_pair_bytes) std::atomic<bool> stopping{false};
  SendGate<> send_gate;
  /// Messages of MPI have waited for room in vain: until there is some, they go without.
  std::atomic<bool> room_is_stalled{false};
  /// Programs of MPI run here: limits make their sends slower, and let no run fail.
  std::atomic<bool> limits_yield{false};
  std::atomic<bool> over{false};  ///< No live cell is left.
  /// Of a machine that stops: it has not failed. The host program is through, and who still waits waits for it.
  std::atomic<bool> stops_well{false};
  static constexpr std::uint32_t no_cell = ~0U;
  std::atomic<std::uint32_t> failed_first{no_cell};  ///< The first cell that has ended with another status than 0.
  std::atomic<std::uint32_t> live_cells{0};          ///< Cells with tasks or about to get some; the host counts as one.
  std::atomic<std::uint32_t> begun_cells{0};         ///< Cells of this process that have begun() or ended.
  std::atomic<std::uint64_t> programs_started{0};    ///< Times cells were given programs, by run() or start_cells().
  alignas(cache_pair_bytes) std::atomic<std::uint64_t> sleepers{
      0};  ///< High half: sleeps so far; low half: processors asleep without a timer.
  alignas(cache_pair_bytes) std::atomic<std::uint32_t> idle_processors{0};  ///< Idle for some time: would like a cell.
  std::atomic<bool> move_in_progress{false};                                ///< At most one cell moves at a time.
  std::atomic<std::uint64_t> moves{0};

  std::atomic<const std::vector<Processor*>*> wakeable{nullptr};  ///< See publish_processors().
  std::vector<std::unique_ptr<std::vector<Processor*>>> wake_lists;

  std::atomic<int> signal{0};  ///< SIGINT or SIGTERM that stopped the machine.
  int node = 0;                ///< As in Process. Set before it can end us.

  std::mutex failure_mutex;
  Failure failure;                    ///< The first one. Has room for failure_bytes from the beginning.
  bool stopped_from_outside = false;  ///< Another process's failure stopped us.
  std::mutex programs_mutex;
  std::vector<std::unique_ptr<CellProgram>> programs;  ///< Started while it runs.

  /// Records a failure (the first wins), prints it, and stops the machine. Works without memory, too: then a long
  /// text is cut. [any thread, not async-signal-safe]
  void fail(int status, std::string_view text) noexcept;
  /// In a catch block: the same with what was caught. `subject`: who suffers it, "cell 3 task 0"; null: the cells
  /// of this process.
  void fail_by_exception(const char* subject) noexcept;
  /// Does work of the machine, not of the task that happens to run. False: the work threw, and the machine has failed.
  template <class Work>
  bool guarded(Work work) noexcept {
    try {
      work();
      return true;
    } catch (...) {
      fail_by_exception(nullptr);
      return false;
    }
  }
  /// A cell, here or in another process, has ended: failed_first is the first that failed. Any thread.
  void note_end(std::uint32_t cell, int status) noexcept {
    std::uint32_t nobody = no_cell;
    if (status != 0 && cell < cell_count)
      failed_first.compare_exchange_strong(nobody, cell, std::memory_order_release);  // release: its status
  }
  /// The cell's program begins together with others (api::begin_together()), or will not. Call from: its processor.
  void begun(Cell& cell) noexcept;
  /// Makes every wait end with Wake::stopping. Async-signal-safe.
  void stop() noexcept;
  /// Before a task unwinds because the machine stops: takes its memory back from those who write there for others. A
  /// transfer that is under way would hit what the destructors of its frames call, or what the program maps next. Two
  /// are not waited for, as nobody can end them: a copy that another task of this process makes, and those of processes
  /// that have mapped the cell's heap. Both end with their next call, or when the launcher stops them. They write only
  /// where the program lets them, and hit what it had there, because heaps use no freed block again. [any task]
  void take_memory_back() noexcept;
  std::once_flag memory_is_back;
  /// `processors` is complete: wake_all() wakes these from here on. A signal may come while they are being made, so
  /// wake_all() uses a list that changes in one store; old lists stay until the domain is gone.
  void publish_processors();
  /// Wakes every processor that sleeps. Async-signal-safe.
  void wake_all() noexcept;
  /// Has the cell's tasks that wait for flags look again, because something has been written into its memory. Any
  /// thread.
  void wake_watcher(const Cell& cell) noexcept;
  /// Bytes of messages that wait in this process to be received. [any thread, once the processors are made]
  [[nodiscard]] std::int64_t unread_bytes() const noexcept;
  /// Counts all meters, because UnreadMeter::add() of this one has said so.
  void count_unread(UnreadMeter<>& meter) noexcept;
  /// There is room for more messages in this process. [any thread, once the processors are made]
  [[nodiscard]] bool has_room() noexcept {
    const bool room = send_gate.judge(unread_bytes(), static_cast<std::int64_t>(options.unread_limit_bytes));
    if (room && room_is_stalled.load(std::memory_order_relaxed))  // relaxed: a hint, here and below
      room_is_stalled.store(false, std::memory_order_relaxed);
    return room;
  }
  /// As long as no receiver takes anything, a message of MPI waits.
  static constexpr std::chrono::milliseconds stall_max{5};
  /// Keeps a program until the run is over. [any thread]
  const CellProgram& keep(std::unique_ptr<CellProgram> program) {
    const std::lock_guard lock(programs_mutex);
    programs.push_back(std::move(program));
    return *programs.back();
  }
  /// Wakes those that carry cells. [any thread]
  void wake_carriers() noexcept;
  /// wake_carriers() would wake one. The same promise: none is missed that has not seen what the caller wrote.
  [[nodiscard]] bool some_carrier_sleeps() const noexcept;
  /// Processors that are threads.
  [[nodiscard]] std::size_t thread_count() const noexcept { return processors.size() - (network != nullptr ? 1 : 0); }
  /// This process carries the cell. False for the host program.
  [[nodiscard]] bool is_local(std::uint32_t cell) const noexcept { return cell_map.carries(process, cell); }
  /// Another process carries the cell. Cheap where there is none. REQUIRES: cell < cell_count, and tasks run.
  [[nodiscard]] bool is_elsewhere(std::uint32_t cell) const noexcept {
    return network != nullptr && cell_map.process_of(cell) != process;
  }
  /// The cells of this process, ascending.
  [[nodiscard]] std::span<const std::uint32_t> local_cells() const noexcept { return cell_map.cells_of(process); }
  [[nodiscard]] std::uint32_t local_count() const noexcept { return static_cast<std::uint32_t>(local_cells().size()); }
  /// Where the heap of a cell of this process comes from.
  [[nodiscard]] HeapSource heap_source(std::uint32_t cell) const noexcept;
  /// The process has the cell, or the host program, which has the number behind the last cell. Of any numbers: for
  /// what another process says.
  [[nodiscard]] bool is_of(std::uint32_t process_number, std::uint32_t cell) const noexcept {
    return cell == cell_count ? has_host && process_number == 0 : cell_map.carries(process_number, cell);
  }
  /// Who carries a cell; the host program is with process 0. REQUIRES: the cell exists.
  [[nodiscard]] std::uint32_t process_of(std::uint32_t cell) const noexcept {
    return cell < cell_count ? cell_map.process_of(cell) : 0;
  }
  /// User-visible id of a cell index.
  [[nodiscard]] std::uint32_t visible(std::uint32_t cell) const noexcept { return cell == cell_count ? host_id : cell; }
  /// The host program's number changes with the grid, its slot does not.
  [[nodiscard]] std::uint32_t slot_of(std::uint32_t cell) const noexcept {
    return cell == cell_count ? SlotPlan::host : cell;
  }
  /// "cell 3" or "host program".
  [[nodiscard]] std::string name_of(std::uint32_t cell) const;
  Domain();
  ~Domain();
  /// Builds cells and groups for `new_grid`. Only while no carrier runs.
  void build_cells(Grid new_grid);
};

/// Throws Error: "cell 3 task 0: <call>: <text>", and where the program calls from, if that is known.
[[noreturn, gnu::cold]] void refuse(const TaskControl& self, Errc code, const char* call, const std::string& text);

}  // namespace aplib
