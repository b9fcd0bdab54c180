// SPDX-License-Identifier: MIT
// TaskContext: the view that one task, or one foreign thread, has of the instance it runs in. The switch keeps
// aplib::current_program_context. All that the loader gives to programs (thread-locals, libc state, dl*) starts from
// here().
//
// Invariants: (1) An instance lives as long as it has a context. (2) Only the flow that owns a context uses it.
// (3) Code of an instance runs only on flows that have a context of that instance. Signal handlers and threads made
// without our knowledge are exceptions; for them calling() finds the instance by the address of the caller.
//
// Thread-locals of instances. General and local dynamic: the module number that relocation stores is ours
// (own_module() + the image's number), and so is the __tls_get_addr that programs call: it finds the block of the
// running task's context. Initial-exec: a pool in every thread's static block, whose contents the switch exchanges.
// Local-exec, of executables: their code reaches them at fixed distances below the thread pointer, where those of the
// process's own executable lie. That lends us its own (lend_executable_tls), and the switch exchanges their contents.
//
// Source: Drepper, "ELF Handling For Thread-Local Storage". TLS descriptors: arch/elf.hpp.
//
// Where exit() of a program lands. libc declares it nothrow, so a C++ caller's frame would turn an exception that
// leaves it into std::terminate; and by the language it destroys no automatic objects. So it does not unwind: it
// jumps to the frame below the program.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock_reads.hpp"
#include "base/program_context.hpp"

namespace aplib::loader {

class Instance;
struct LoadedImage;
struct TlsTemplate;

/// CPU time that a flow has used. The switch tells when it comes and goes; any thread may read meanwhile.
class CpuMeter {
 public:
  /// The flow goes on, on the calling thread. `now`: of steady_clock, in ns.
  void start(std::int64_t now) noexcept;
  /// It leaves that thread. Nothing where it was not started.
  void stop(std::int64_t now) noexcept;
  [[nodiscard]] bool runs() const noexcept { return thread_.load(std::memory_order_relaxed) != 0; }
  /// What was used before the first start, in ns. Call from: the flow.
  void add(std::int64_t used) noexcept;
  /// In ns.
  [[nodiscard]] std::int64_t used() const noexcept;

 private:
  void begin_change() noexcept;
  void end_change() noexcept;

  std::atomic<std::uint32_t> changes_{0};     // odd: being changed
  std::atomic<std::int64_t> used_{0};         // up to the last stop
  std::atomic<std::int64_t> since_{0};        // the start
  std::atomic<std::int64_t> thread_used_{0};  // by the thread until then
  std::atomic<pid_t> thread_{0};              // that it runs on
};

struct TaskContext : ProgramContext {
  explicit TaskContext(Instance& owner);
  ~TaskContext();
  TaskContext(const TaskContext&) = delete;
  TaskContext& operator=(const TaskContext&) = delete;

  Instance* instance;
  /// Thread-local blocks by image index of the instance; null: not touched yet.
  std::vector<char*> tls_blocks;
  /// Destructors that __cxa_thread_atexit_impl has registered; they run in reverse order when the task ends.
  struct ThreadExit {
    void (*function)(void*);
    void* argument;
    const void* dso;  ///< In the image that has the object.
  };
  std::vector<ThreadExit> thread_exits;
  /// Its value of a key of thread-specific data (libc/keys.cpp), by key.
  struct KeyValue {
    void* value = nullptr;
    std::uint32_t use = 0;
  };
  std::vector<KeyValue> key_values;
  void (*once)() = nullptr;     ///< Given to pthread_once(), until libc calls it.
  bool of_thread = false;       ///< Of a thread that the program has made; false: of a task.
  bool of_pool = false;         ///< A thread that a library keeps: the instance ends without it (libc/threads.cpp).
  bool ends_as_thread = false;  ///< Main task: it has called pthread_exit().
  struct Cancellation {
    int state = PTHREAD_CANCEL_ENABLE;
    int type = PTHREAD_CANCEL_DEFERRED;
    bool pending = false;  ///< It has cancelled itself while that was disabled.
  } cancellation;          ///< Of tasks; libc has that of threads.
  std::unique_ptr<char[]>
      static_tls;  ///< Its initial-exec thread-locals while it does not run; null: the program has none.
  std::size_t static_tls_bytes = 0;        ///< Of the pool, that they take.
  std::unique_ptr<char[]> executable_tls;  ///< The same of its local-exec ones.
  std::size_t executable_tls_bytes = 0;
  std::optional<pthread_t> thread;  ///< Task: what pthread_self() gives, once it was asked (libc/threads.cpp).
  void* exit_frame = nullptr;       ///< Where exit() of this task lands; null: it was spawned by the program.
  ClockReads clock_reads;           ///< Of libc's clocks.
  struct HandlersRun {
    unsigned long all = 0;
    unsigned long without_restart = 0;  ///< Their actions have no SA_RESTART.
  } handlers_run;                       ///< Handlers of signals, by this flow (libc/signals.cpp).
  CpuMeter cpu;                         ///< Of tasks, once the program asks for its CPU time (LibcState::measures_cpu).
};

/// The running flow's context, or null outside programs.
inline TaskContext* here() noexcept { return static_cast<TaskContext*>(current_program_context); }

/// The instance whose code calls us. `caller`: __builtin_return_address(0) of the function bound into the program.
/// Null: no instance at all.
Instance* calling(const void* caller) noexcept;
/// Gives the calling thread, which was made behind our back (not by pthread_create), a context of the instance whose
/// code it runs, for good. Null: no instance at all. May throw std::bad_alloc.
TaskContext* adopt_thread(const void* caller);

// State that the kernel or libc keeps per thread and a program believes to be its own: locale, working directory,
// umask, initial-exec thread-locals. Cells share threads, so the switch exchanges it (ProgramContextOps::swap), but
// only from and to contexts that have changed any of it.

/// The instance's thread_locale, thread_directory or thread_mask was changed: applies it to the calling thread and
/// has every context of the instance swap from now on. Returns 0, or errno when the thread cannot have a working
/// directory of its own (unshare(CLONE_FS) forbidden). Call from: a flow of the instance.
int thread_state_changed(Instance& instance) noexcept;

/// A thread of the program begins: gives it the program's working directory and umask. Call from: that thread.
void start_thread_files(Instance& instance) noexcept;

/// The umask of the calling thread. The call that returns it changes it, for all threads that share it; /proc says it
/// without. Where there is no /proc: the usual one.
[[nodiscard]] mode_t mask_of_thread() noexcept;

/// The program has asked for its CPU time: the switch measures from now on, which costs it some 50 ns. What was used
/// before, the cell's carrier has seen (CellServices::computed()). Call from: a flow of the instance.
void measure_cpu(Instance& instance) noexcept;
/// Of a thread that the program has made, from its beginning on. Call from: that thread.
void measure_thread(TaskContext& context) noexcept;
/// CPU time of the program in ns, with that of flows that have ended. Call from: a flow of the instance.
std::int64_t cpu_used(Instance& instance) noexcept;

/// ProgramContextOps::swap.
void swap_thread_state(ProgramContext* from, ProgramContext* to) noexcept;

// ---------------------------------------------------------------- thread-locals

/// What a reference passes to __tls_get_addr (tls_index in the ABI), and what a TLS descriptor's second word points to.
struct TlsIndex {
  std::uint64_t module;
  std::uint64_t offset;
};

/// Module numbers of instances' images have this bit; the system's have not.
inline constexpr std::uint64_t own_module_bit = std::uint64_t{1} << 63;
constexpr std::uint64_t own_module(std::uint32_t module) noexcept { return own_module_bit | module; }

/// What programs' references to __tls_get_addr are bound to.
void* tls_get_addr(const TlsIndex* index);

/// Finds room in the pool for initial-exec thread-locals of an instance that has `used` bytes of it; those of other
/// programs may lie at the same place. Returns their offset from the thread pointer (negative). Throws Error(exhausted)
/// naming `path` and the flag that needs no pool. Call from: any thread.
std::int64_t place_static_tls(const char* path, const TlsTemplate& tls, std::size_t used);
/// Bytes of the pool up to the end of thread-locals at `offset`. Call from: any thread.
std::size_t static_tls_end(std::int64_t offset, const TlsTemplate& tls) noexcept;

/// The calling executable's thread-locals from `begin` on are programs'. False: they do not end at the thread pointer,
/// and no program can have them. Call from: any thread, before programs are loaded.
bool lend_executable_tls(const void* begin, std::size_t bytes) noexcept;

/// Bytes that are lent; 0: none.
[[nodiscard]] std::size_t executable_tls_room() noexcept;

/// The offset of an executable's thread-locals from the thread pointer (negative). Throws Error(failed) naming `path`
/// when there is no room for them.
std::int64_t place_executable_tls(const char* path, const TlsTemplate& tls);

inline constexpr std::size_t static_tls_pool_bytes = 2048;
/// Puts the initial contents of the instance's initial-exec and local-exec thread-locals into a context that is about
/// to run for the first time; nothing for programs that have none.
void start_static_tls(TaskContext& context);
/// The same of one image; `runs`: `context` is the running flow's.
void start_static_tls(TaskContext& context, const LoadedImage& image, bool runs);

// ---------------------------------------------------------------- ends

/// How a program, or a task of it, ended.
struct Outcome {
  int status = 0;
  bool jumped = false;  ///< By exit() or the like, not by return.
};

struct ExitFrame {
  std::jmp_buf place;
  int status = 0;
};

/// Runs `body`, an int(), until it returns or exit_to_frame(context, ...) is called inside. No object with a
/// destructor may live in this function's frame: the jump lands here.
template <class Body>
[[gnu::noinline]] Outcome until_exit(TaskContext& context, const Body& body) {
  ExitFrame frame;
  void* const outer = context.exit_frame;
  context.exit_frame = &frame;
  Outcome outcome;
  try {
    if (setjmp(frame.place) == 0) {
      outcome = {body(), false};
    } else {
      outcome = {frame.status, true};
    }
  } catch (...) {
    context.exit_frame = outer;
    throw;
  }
  context.exit_frame = outer;
  return outcome;
}

/// Ends the innermost until_exit() of the context. Call from: the flow that owns it, inside until_exit().
[[noreturn]] inline void exit_to_frame(TaskContext& context, int status) {
  auto* frame = static_cast<ExitFrame*>(context.exit_frame);
  frame->status = status;
  std::longjmp(frame->place, 1);
}

}  // namespace aplib::loader
