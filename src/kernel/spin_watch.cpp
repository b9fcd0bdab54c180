// SPDX-License-Identifier: MIT
#include "kernel/spin_watch.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/os/thread.hpp"
#include "cell/domain.hpp"
#include "loader/libc/signals.hpp"

namespace aplib {

namespace {

constexpr double time_slice = 0.02;
constexpr auto time_between_looks = std::chrono::milliseconds(10);
constexpr auto time_between_looks_at_idle = std::chrono::milliseconds(100);
constexpr double seconds_told_of = 3;

double seconds_on(clockid_t clock) noexcept {
  timespec now{};
  return clock_gettime(clock, &now) == 0 ? static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9
                                         : 0;
}

/// Whether there was such an object: a task may end meanwhile, and its record goes with its stack.
template <typename T>
bool copy_if_mapped(const T& from, T& to) noexcept {
  iovec there{const_cast<T*>(&from), sizeof(T)};
  iovec here{&to, sizeof(T)};
  return ::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) == static_cast<ssize_t>(sizeof(T));
}

/// So many tasks are ready there, if none is switched to meanwhile.
std::size_t count_ready(const Processor& processor) noexcept {
  constexpr std::size_t many = 10'000;
  std::size_t count = 0;
  TaskControl* next = nullptr;
  for (const TaskControl* task = processor.idle().ready().glimpse(); task != nullptr && count < many; task = next) {
    ++count;
    if (!copy_if_mapped(task->next, next)) break;
  }
  return count;
}

/// The thread waits in the system.
bool sleeps(pid_t thread) { return os::state_of(fmt::format("self/task/{}", thread)).state == 'S'; }

}  // namespace

SpinWatch::SpinWatch(const Domain& domain, std::vector<std::thread>& threads,
                     std::function<void(const std::string&)> tell)
    : domain_(domain), tell_(std::move(tell)) {
  for (std::size_t p = 0; p < threads.size(); ++p) {
    clockid_t clock{};
    if (pthread_getcpuclockid(threads[p].native_handle(), &clock) == 0)
      watched_.push_back({.processor = *domain.processors[p],
                          .clock = clock,
                          .since = seconds_on(clock),
                          .sampled = seconds_on(clock),
                          .since_then = Clock::now()});
  }
  thread_ = os::quiet_thread("aplib-watch", [this] { watch(); });
}

SpinWatch::~SpinWatch() {
  over_.store(1, std::memory_order_relaxed);  // relaxed: nothing is handed over
  os::futex_wake(over_);
  thread_.join();
}

void SpinWatch::watch() {
  bool some_compute = true;
  // relaxed: see above. There may be nobody to watch: threads that have ended already have no clock.
  while (over_.load(std::memory_order_relaxed) == 0) {
    os::futex_wait(over_, 0, some_compute ? time_between_looks : time_between_looks_at_idle);
    some_compute = false;
    for (Watched& each : watched_) {
      if (over_.load(std::memory_order_relaxed) != 0) return;  // relaxed: the same
      if (look(each)) some_compute = true;
    }
  }
}

// The task may end meanwhile, and others write where its record was. So its cell is believed only if there is such one.
void SpinWatch::sample(Watched& at, double now) {
  const auto computed = static_cast<std::int64_t>((now - std::exchange(at.sampled, now)) * 1e9);
  const TaskControl* const task = at.processor.glimpse();
  Cell* cell = nullptr;
  if (computed <= 0 || task == nullptr || !copy_if_mapped(task->cell, cell)) return;
  if (std::ranges::find(domain_.cells, cell) == domain_.cells.end()) return;
  cell->computed.fetch_add(computed, std::memory_order_relaxed);  // relaxed: a measure
}

/// False: it sleeps.
bool SpinWatch::look(Watched& at) {
  const std::uint32_t switches = at.processor.switches();
  const double now = seconds_on(at.clock);
  sample(at, now);
  const Clock::time_point wall = Clock::now();
  if (switches != at.switches || at.processor.parker().is_asleep()) {
    at.switches = switches;
    at.since = at.slice = now;
    at.since_then = wall;
    return !at.processor.parker().is_asleep();
  }
  if (now - at.slice >= time_slice) {
    at.slice = now;
    // A program that has its thread for itself may wait in the system, where a signal that it does not know of would
    // end its wait with EINTR.
    if (at.processor.live_residents() > 1) ::tgkill(::getpid(), at.processor.thread(), loader::libc::interrupt_signal);
  }
  tell(at, now, wall);
  return true;
}

void SpinWatch::tell(Watched& at, double now, Clock::time_point wall) {
  const double waits = std::chrono::duration<double>(wall - at.since_then).count();
  const double computes = now - at.since;
  if (told_ || waits < seconds_told_of) return;
  const bool is_in_system = computes < waits / 100 && sleeps(at.processor.thread());
  if (at.processor.idle().ready().glimpse() == nullptr || (computes < seconds_told_of && !is_in_system)) return;
  const TaskControl* const task = at.processor.glimpse();
  if (task == nullptr) return;
  Cell* cell = nullptr;
  std::uint32_t id = 0;
  if (!copy_if_mapped(task->cell, cell) || !copy_if_mapped(task->id, id)) return;
  const std::size_t waiting = count_ready(at.processor);
  if (at.processor.switches() != at.switches) return;  // it may have ended since
  told_ = true;
  const std::string others =
      waiting == 1 ? std::string("another task waits") : fmt::format("{} other tasks wait", waiting);
  if (is_in_system) {
    tell_(
        fmt::format("{} task {}: has waited in the system for {:.1f} s, for a file, a lock or the like, and {} for its "
                    "processor; if "
                    "it waits for what one of those is to do, give each cell its own thread (--threads per-cell or "
                    "APLIB_THREADS=per-cell)",
                    domain_.name_of(cell->id), id, waits, others));
    return;
  }
  tell_(fmt::format(
      "{} task {}: has computed for {:.1f} s without a call that lets others run, and {} for its "
      "processor; if it waits for a flag or a time, call sched_yield(), dgettime() or amcheck() in that loop "
      "(this_task::yield() in C++), or give each cell its own thread (--threads per-cell or APLIB_THREADS=per-cell)",
      domain_.name_of(cell->id), id, computes, others));
}

}  // namespace aplib
