// SPDX-License-Identifier: MIT
#include "kernel/spin_watch.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/uio.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "cell/domain.hpp"

namespace aplib {

namespace {

constexpr auto time_between_looks = std::chrono::seconds(1);
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

}  // namespace

SpinWatch::SpinWatch(const Domain& domain, std::vector<std::thread>& threads,
                     std::function<void(const std::string&)> tell)
    : domain_(domain), tell_(std::move(tell)) {
  for (std::size_t p = 0; p < threads.size(); ++p) {
    clockid_t clock{};
    if (pthread_getcpuclockid(threads[p].native_handle(), &clock) == 0)
      watched_.push_back({.processor = *domain.processors[p], .clock = clock});
  }
  thread_ = os::quiet_thread("aplib-watch", [this] { watch(); });
}

SpinWatch::~SpinWatch() {
  over_.store(1, std::memory_order_relaxed);  // relaxed: nothing is handed over
  os::futex_wake(over_);
  thread_.join();
}

void SpinWatch::watch() {
  // relaxed: see above. There may be nobody to watch: threads that have ended already have no clock.
  while (over_.load(std::memory_order_relaxed) == 0) {
    os::futex_wait(over_, 0, time_between_looks);
    for (Watched& each : watched_) {
      if (over_.load(std::memory_order_relaxed) != 0) return;  // relaxed: the same
      const std::string text = look(each);
      if (text.empty()) continue;
      tell_(text);
      return;
    }
  }
}

/// What there is to tell; empty: nothing.
std::string SpinWatch::look(Watched& at) const {
  const std::uint32_t switches = at.processor.switches();
  const double now = seconds_on(at.clock);
  const std::size_t waiting = at.processor.idle().ready().size();
  if (switches != at.switches || waiting == 0) {
    at.switches = switches;
    at.since = now;
    return {};
  }
  if (now - at.since < seconds_told_of) return {};
  const TaskControl* const task = at.processor.glimpse();
  if (task == nullptr) return {};
  Cell* cell = nullptr;
  std::uint32_t id = 0;
  if (!copy_if_mapped(task->cell, cell) || !copy_if_mapped(task->id, id)) return {};
  if (at.processor.switches() != switches) return {};  // it may have ended since
  return fmt::format(
      "{} task {}: has computed for {:.1f} s without a call that lets others run, and {} for its "
      "processor; if it waits for a flag or a time, call sched_yield(), dgettime() or amcheck() in that loop "
      "(this_task::yield() in C++), or give each cell its own thread (--threads per-cell or APLIB_THREADS=per-cell)",
      domain_.name_of(cell->id), id, now - at.since,
      waiting == 1 ? std::string("another task waits") : fmt::format("{} other tasks wait", waiting));
}

}  // namespace aplib
