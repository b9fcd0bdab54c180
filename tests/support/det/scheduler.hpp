// SPDX-License-Identifier: MIT
// Scheduler: runs the threads of a scenario one at a time on fibers. At every atomic operation, the seed chooses which
// thread runs next, and which of the stores that the C++ memory model permits a load returns. The same seed gives the
// same run. Usage: explore.hpp. The model ("views"): a location keeps its stores in the order in which they were made.
// A load may return any store that is not older than what its thread has seen or acquired. A release store carries its
// thread's view, and an acquire load takes it over. Read-modify-writes read the newest store and continue release
// sequences. seq_cst fences exchange views in one total order. Not modelled: stores of two threads to one location
// ordered against their execution order, and loads that return values stored later (load buffering).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "fiber.hpp"
#include "view.hpp"

namespace aplib::det {

enum class Memory : std::uint8_t {
  interleaving,  ///< every load returns the newest store: finds only wrong orders of steps
  tso,           ///< as x86: only a store followed by a load may swap
  weak,          ///< as in the C++ memory model: each order means what it declares
};

struct Settings {
  std::uint64_t seed = 1;
  Memory memory = Memory::weak;
  std::uint64_t step_count_max = 100'000;  ///< more are reported as a livelock
  bool spurious_wakes = true;              ///< futex waits may return without a reason, as the kernel's may
};

struct Outcome {
  bool ok = true;
  std::uint64_t seed = 0;
  std::uint64_t step_count = 0;
  std::uint64_t timeout_count = 0;  ///< timed waits that timed out, which happens only when no other thread can go on
  std::string failure;              ///< what went wrong, then the last steps of the run
};

/// A moment of one thread; see Scheduler::stamp.
struct Stamp {
  std::uint32_t thread = 0;
  std::uint32_t time = 0;
};

class Scheduler {
 public:
  Scheduler();
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// Runs the threads until they end, or until the first failure. Then the stacks of the others are discarded without
  /// unwinding.
  Outcome run(const Settings& settings, const std::vector<std::function<void()>>& threads);

  /// The scheduler whose thread is calling, or null outside a run.
  static Scheduler* current() noexcept;

  // Atomic operations on the location at `address`; `initial` is its value when the run has not seen it before.
  std::uint64_t load(const void* address, std::uint64_t initial, std::memory_order order);
  void store(const void* address, std::uint64_t initial, std::uint64_t value, std::memory_order order);
  /// Replaces the newest value v by change(v); returns v.
  std::uint64_t update(const void* address, std::uint64_t initial, std::memory_order order,
                       const std::function<std::uint64_t(std::uint64_t)>& change);
  bool compare_exchange(const void* address, std::uint64_t initial, std::uint64_t& expected, std::uint64_t desired,
                        std::memory_order success, std::memory_order failure, bool weak);
  void created(const void* address);  ///< a new atomic is at this address: forget what was known about it
  void fence(std::memory_order order);

  enum class Wait : std::uint8_t { woken, changed, spurious, timed_out };
  Wait futex_wait(const void* address, std::uint64_t initial, std::uint32_t expected,
                  std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max());
  int futex_wake(const void* address, int count);

  /// Lets another thread run if there is one; for spin loops.
  void yield();
  /// Simulated time: 20 ns per step, and the length of every wait that timed out.
  [[nodiscard]] std::chrono::nanoseconds now() const { return now_; }

  // Plain (non-atomic) memory is watched where the test says so. A race fails the run.
  void plain_read(const void* address);
  void plain_write(const void* address);
  /// Marks this moment of the calling thread. Later, happened_before(stamp) says whether its caller may rely on all
  /// that the thread did until then.
  Stamp stamp();
  [[nodiscard]] bool happened_before(Stamp stamp) const;

  [[noreturn]] void fail(std::string&& text);
  [[nodiscard]] std::uint32_t this_thread() const noexcept { return running_; }
  std::uint64_t random(std::uint64_t below);

 private:
  struct Store;
  struct Location;
  struct Thread;
  struct Step;
  struct Plain {
    Stamp write{};
    bool written = false;
    std::array<std::uint32_t, thread_count_max> read{};  // last read of each thread, 0: none
  };

  std::size_t locate(const void* address, std::uint64_t initial);
  void point(bool give_way = false);
  std::size_t choose_next(bool give_way);
  void note(const char* what, const void* address, std::uint64_t value);
  [[nodiscard]] std::uint32_t choose_store(std::size_t location, std::memory_order order);
  void append(std::size_t location, std::uint64_t value, std::memory_order order, const View* sequence);
  std::uint64_t replace_newest(std::size_t location, std::uint64_t value, std::memory_order order);
  void take(const Store& store, std::memory_order order);
  void fence_of(Thread& thread);
  [[nodiscard]] std::memory_order as_modelled(std::memory_order order) const;
  [[nodiscard]] std::string history() const;
  [[nodiscard]] bool pass_time();

  Settings settings_;
  Outcome outcome_;
  std::uint64_t random_state_ = 0;
  unsigned stickiness_ = 1;  // one in this many steps may change the thread
  std::chrono::nanoseconds now_{0};
  std::uint32_t running_ = 0;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::unordered_map<const void*, std::size_t> location_of_;
  std::vector<Location> locations_;
  std::unordered_map<const void*, Plain> plain_;
  View fenced_;  // what seq_cst fences and accesses have made common
  std::vector<Step> steps_;
  std::vector<std::unique_ptr<Fiber>> fibers_;  // kept from run to run
};

}  // namespace aplib::det
