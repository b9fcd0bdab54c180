// SPDX-License-Identifier: MIT
#include "scheduler.hpp"

#include <cstdlib>
#include <deque>
#include <utility>

#include <fmt/format.h>

namespace aplib::det {

namespace {

thread_local Scheduler* current_scheduler = nullptr;

bool acquires(std::memory_order order) {
  return order == std::memory_order_acquire || order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst || order == std::memory_order_consume;
}

bool releases(std::memory_order order) {
  return order == std::memory_order_release || order == std::memory_order_acq_rel || order == std::memory_order_seq_cst;
}

constexpr std::size_t history_max = 8;  // stores kept per location
constexpr std::size_t steps_kept = 64;  // for the report
constexpr unsigned stale_loads_max =
    12;  // in a row, of one location by one thread, because stores become visible eventually
constexpr std::chrono::nanoseconds step_time{20};
constexpr std::size_t nobody = ~std::size_t{0};

}  // namespace

struct Scheduler::Store {
  std::uint64_t value;
  View view;  // what an acquire of this store sees
};

struct Scheduler::Location {
  std::deque<Store> stores;  // the newest history_max, oldest first
  std::uint32_t first = 0;   // index of stores.front() in the whole history
  [[nodiscard]] std::uint32_t newest() const { return first + static_cast<std::uint32_t>(stores.size()) - 1; }
  [[nodiscard]] const Store& at(std::uint32_t index) const { return stores[index - first]; }
};

struct Scheduler::Thread {
  enum class State : std::uint8_t { ready, waiting, ended };
  State state = State::ready;
  Fiber* fiber = nullptr;
  const std::function<void()>* body = nullptr;
  Scheduler* scheduler = nullptr;
  View view;      // what it has seen
  View unread;    // views of relaxed loads, which the next acquire fence adds
  View released;  // its view at the last release fence, which relaxed stores carry
  std::vector<std::uint8_t> stale_loads;
  const void* waits_on = nullptr;
  std::chrono::nanoseconds deadline{};
  Wait woken_by = Wait::woken;
};

struct Scheduler::Step {
  std::uint32_t thread;
  const char* what;
  const void* address;
  std::uint64_t value;
};

Scheduler::Scheduler() = default;
Scheduler::~Scheduler() = default;

Scheduler* Scheduler::current() noexcept { return current_scheduler; }

std::uint64_t Scheduler::random(std::uint64_t below) {
  // splitmix64 (Steele, Lea, Flood 2014)
  std::uint64_t z = (random_state_ += 0x9e37'79b9'7f4a'7c15ULL);
  z = (z ^ (z >> 30U)) * 0xbf58'476d'1ce4'e5b9ULL;
  z = (z ^ (z >> 27U)) * 0x94d0'49bb'1331'11ebULL;
  return (z ^ (z >> 31U)) % below;
}

Outcome Scheduler::run(const Settings& settings, const std::vector<std::function<void()>>& threads) {
  settings_ = settings;
  outcome_ = {};
  outcome_.seed = settings.seed;
  random_state_ = settings.seed;
  constexpr std::array<unsigned, 4> stickinesses{1, 3, 10, 40};  // from a switch at each step to long runs
  stickiness_ = stickinesses[random(stickinesses.size())];
  now_ = std::chrono::nanoseconds{0};
  threads_.clear();
  location_of_.clear();
  locations_.clear();
  plain_.clear();
  fenced_ = {};
  steps_.clear();
  if (threads.size() > thread_count_max) std::abort();
  while (fibers_.size() < threads.size()) fibers_.push_back(std::make_unique<Fiber>());
  for (std::size_t i = 0; i < threads.size(); ++i) {
    auto thread = std::make_unique<Thread>();
    thread->fiber = fibers_[i].get();
    thread->body = &threads[i];
    thread->scheduler = this;
    thread->view.clock[i] = 1;
    thread->fiber->start([](void* self) { (*static_cast<Thread*>(self)->body)(); }, thread.get());
    threads_.push_back(std::move(thread));
  }
  Scheduler* const outer = std::exchange(current_scheduler, this);
  running_ = static_cast<std::uint32_t>(threads.size());  // nobody yet
  while (outcome_.ok) {
    const std::size_t next = choose_next(true);
    if (next == nobody) {
      if (pass_time()) continue;
      bool waiting = false;
      for (const auto& thread : threads_) waiting = waiting || thread->state == Thread::State::waiting;
      if (waiting) {
        outcome_.ok = false;
        outcome_.failure = "deadlock (a lost wake-up?): nobody can go on";
        for (std::size_t i = 0; i < threads_.size(); ++i) {
          const Thread& thread = *threads_[i];
          outcome_.failure += thread.state == Thread::State::ended
                                  ? fmt::format("; thread {} has ended", i)
                                  : fmt::format("; thread {} waits on {}", i, thread.waits_on);
        }
      }
      break;
    }
    running_ = static_cast<std::uint32_t>(next);
    Thread& thread = *threads_[next];
    thread.fiber->resume();
    if (thread.fiber->ended()) thread.state = Thread::State::ended;
  }
  current_scheduler = outer;
  if (!outcome_.ok) outcome_.failure += history();
  return outcome_;
}

std::size_t Scheduler::choose_next(bool give_way) {
  std::array<std::size_t, thread_count_max> ready{};
  std::size_t count = 0;
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    Thread& thread = *threads_[i];
    if (thread.state == Thread::State::waiting && settings_.spurious_wakes && random(1000) == 0) {
      thread.state = Thread::State::ready;
      thread.woken_by = Wait::spurious;
    }
    if (thread.state == Thread::State::ready && !(give_way && i == running_)) ready[count++] = i;
  }
  if (count == 0 && give_way && running_ < threads_.size() && threads_[running_]->state == Thread::State::ready)
    return running_;
  return count == 0 ? nobody : ready[random(count)];
}

bool Scheduler::pass_time() {
  Thread* earliest = nullptr;
  for (const auto& thread : threads_) {
    if (thread->state == Thread::State::waiting && thread->deadline != std::chrono::nanoseconds::max() &&
        (earliest == nullptr || thread->deadline < earliest->deadline)) {
      earliest = thread.get();
    }
  }
  if (earliest == nullptr) return false;
  now_ = std::max(now_, earliest->deadline);
  earliest->state = Thread::State::ready;
  earliest->woken_by = Wait::timed_out;
  ++outcome_.timeout_count;
  return true;
}

// A scheduling point: before every operation, another thread may run.
void Scheduler::point(bool give_way) {
  now_ += step_time;
  if (++outcome_.step_count > settings_.step_count_max)
    fail(fmt::format("livelock: more than {} steps", settings_.step_count_max));
  if (!give_way && random(stickiness_) != 0) return;
  const std::size_t next = choose_next(give_way);
  if (next != running_ && next != nobody) threads_[running_]->fiber->suspend();
}

void Scheduler::yield() { point(true); }

void Scheduler::fail(std::string&& text) {
  outcome_.ok = false;
  outcome_.failure = std::move(text);  // the caller's stack is never unwound, so leave nothing on it
  outcome_.failure += fmt::format(" (thread {})", running_);
  threads_[running_]->fiber->suspend();
  std::abort();  // a failed run is never resumed
}

std::size_t Scheduler::locate(const void* address, std::uint64_t initial) {
  const auto [found, fresh] = location_of_.try_emplace(address, locations_.size());
  if (fresh) {
    locations_.emplace_back();
    locations_.back().stores.push_back(Store{initial, View{}});
  }
  return found->second;
}

void Scheduler::created(const void* address) { location_of_.erase(address); }

std::memory_order Scheduler::as_modelled(std::memory_order order) const {
  if (settings_.memory == Memory::weak || order == std::memory_order_seq_cst) return order;
  return std::memory_order_acq_rel;
}

void Scheduler::take(const Store& store, std::memory_order order) {
  Thread& thread = *threads_[running_];
  if (acquires(order)) {
    thread.view.join(store.view);
  } else {
    thread.unread.join(store.view);
  }
}

// Chooses any store that is not older than what the thread has seen.
std::uint32_t Scheduler::choose_store(std::size_t location, std::memory_order order) {
  const Location& at = locations_[location];
  Thread& thread = *threads_[running_];
  const std::uint32_t newest = at.newest();
  std::uint32_t oldest = std::max(at.first, thread.view.oldest_at(location));
  if (order == std::memory_order_seq_cst) oldest = std::max(oldest, fenced_.oldest_at(location));
  if (thread.stale_loads.size() <= location) thread.stale_loads.resize(location + 1, 0);
  std::uint8_t& stale_loads = thread.stale_loads[location];
  std::uint32_t chosen = newest;
  if (settings_.memory != Memory::interleaving && oldest < newest && stale_loads < stale_loads_max && random(2) == 0) {
    chosen = oldest + static_cast<std::uint32_t>(random(newest - oldest + 1));
  }
  stale_loads = chosen == newest ? 0 : static_cast<std::uint8_t>(stale_loads + 1);
  return chosen;
}

std::uint64_t Scheduler::load(const void* address, std::uint64_t initial, std::memory_order order) {
  point();
  order = as_modelled(order);
  const std::size_t location = locate(address, initial);
  const std::uint32_t chosen = choose_store(location, order);
  const Store& store = locations_[location].at(chosen);
  threads_[running_]->view.raise(location, chosen);
  take(store, order);
  note(chosen == locations_[location].newest() ? "loads" : "loads an older value of", address, store.value);
  return store.value;
}

void Scheduler::append(std::size_t location, std::uint64_t value, std::memory_order order, const View* sequence) {
  Location& at = locations_[location];
  Thread& thread = *threads_[running_];
  const std::uint32_t index = at.newest() + 1;
  thread.view.raise(location, index);
  Store store{value, releases(order) ? thread.view : thread.released};
  if (sequence != nullptr) store.view.join(*sequence);
  store.view.raise(location, index);
  at.stores.push_back(std::move(store));
  if (at.stores.size() > history_max) {
    at.stores.pop_front();
    ++at.first;
  }
  if (order == std::memory_order_seq_cst) {
    fenced_.raise(location, index);
    if (settings_.memory == Memory::tso) fence_of(thread);  // x86: such a store drains the store buffer
  }
}

void Scheduler::store(const void* address, std::uint64_t initial, std::uint64_t value, std::memory_order order) {
  point();
  append(locate(address, initial), value, as_modelled(order), nullptr);
  note("stores", address, value);
}

// A read-modify-write reads the newest store, comes directly after it and continues its release sequence.
std::uint64_t Scheduler::replace_newest(std::size_t location, std::uint64_t value, std::memory_order order) {
  const Store old = locations_[location].stores.back();
  take(old, order);
  append(location, value, order, &old.view);
  if (settings_.memory == Memory::tso)
    fence_of(*threads_[running_]);  // x86: a locked instruction drains the store buffer
  return old.value;
}

std::uint64_t Scheduler::update(const void* address, std::uint64_t initial, std::memory_order order,
                                const std::function<std::uint64_t(std::uint64_t)>& change) {
  point();
  const std::size_t location = locate(address, initial);
  const std::uint64_t value = change(locations_[location].stores.back().value);
  const std::uint64_t old = replace_newest(location, value, as_modelled(order));
  note("updates to", address, value);
  return old;
}

bool Scheduler::compare_exchange(const void* address, std::uint64_t initial, std::uint64_t& expected,
                                 std::uint64_t desired, std::memory_order success, std::memory_order failure,
                                 bool weak) {
  point();
  success = as_modelled(success);
  failure = as_modelled(failure);
  const std::size_t location = locate(address, initial);
  std::uint32_t seen = choose_store(location, failure);
  const Location& at = locations_[location];
  if (at.at(seen).value == expected) {
    if (at.stores.back().value == expected && !(weak && random(8) == 0)) {
      replace_newest(location, desired, success);
      note("exchanges to", address, desired);
      return true;
    }
    if (!weak) seen = at.newest();  // a strong one fails only on another value
  }
  const Store& store = at.at(seen);
  threads_[running_]->view.raise(location, seen);
  take(store, failure);
  expected = store.value;
  note("does not exchange", address, store.value);
  return false;
}

// All seq_cst fences have one order. What a thread has seen before its own fence is common from then on.
void Scheduler::fence_of(Thread& thread) {
  thread.view.join(thread.unread);
  thread.view.join_oldest(fenced_);
  fenced_.join_oldest(thread.view);
  thread.released = thread.view;
}

void Scheduler::fence(std::memory_order order) {
  point();
  Thread& thread = *threads_[running_];
  if (order == std::memory_order_seq_cst) {
    fence_of(thread);
  } else {
    if (acquires(order)) thread.view.join(thread.unread);
    if (releases(order)) thread.released = thread.view;
  }
  note("fences", nullptr, static_cast<std::uint64_t>(order));
}

// The kernel has full barriers around its look at the word, and handles waits and wakes under one lock. The look itself
// may miss a store whose thread has not yet run a fence.
Scheduler::Wait Scheduler::futex_wait(const void* address, std::uint64_t initial, std::uint32_t expected,
                                      std::chrono::nanoseconds timeout) {
  point();
  Thread& thread = *threads_[running_];
  fence_of(thread);
  const std::size_t location = locate(address, initial);
  const Location& at = locations_[location];
  const std::uint32_t oldest = std::max(at.first, thread.view.oldest_at(location));
  std::uint32_t chosen = at.newest();
  if (settings_.memory != Memory::interleaving && random(2) == 0) {
    chosen = oldest + static_cast<std::uint32_t>(random(at.newest() - oldest + 1));
  }
  thread.view.raise(location, chosen);
  if (static_cast<std::uint32_t>(at.at(chosen).value) != expected) {
    note("does not sleep on", address, at.at(chosen).value);
    return Wait::changed;
  }
  note("sleeps on", address, expected);
  thread.state = Thread::State::waiting;
  thread.waits_on = address;
  thread.deadline = timeout == std::chrono::nanoseconds::max() ? timeout : now_ + timeout;
  thread.fiber->suspend();
  thread.waits_on = nullptr;
  fence_of(thread);
  note("wakes from", address, static_cast<std::uint64_t>(thread.woken_by));
  return thread.woken_by;
}

int Scheduler::futex_wake(const void* address, int count) {
  point();
  fence_of(*threads_[running_]);
  int woken = 0;
  while (woken < count) {
    std::array<Thread*, thread_count_max> waiting{};
    std::size_t found = 0;
    for (const auto& thread : threads_) {
      if (thread->state == Thread::State::waiting && thread->waits_on == address) waiting[found++] = thread.get();
    }
    if (found == 0) break;
    Thread& chosen = *waiting[random(found)];
    chosen.state = Thread::State::ready;
    chosen.woken_by = Wait::woken;
    ++woken;
  }
  note("wakes sleepers of", address, static_cast<std::uint64_t>(woken));
  return woken;
}

void Scheduler::plain_read(const void* address) {
  const Thread& thread = *threads_[running_];
  Plain& plain = plain_[address];
  if (plain.written && thread.view.clock[plain.write.thread] < plain.write.time) {
    fail(fmt::format("data race: reads {} that thread {} wrote, and nothing orders the two", address,
                     plain.write.thread));
  }
  plain.read[running_] = stamp().time;
}

void Scheduler::plain_write(const void* address) {
  const Thread& thread = *threads_[running_];
  Plain& plain = plain_[address];
  if (plain.written && thread.view.clock[plain.write.thread] < plain.write.time) {
    fail(fmt::format("data race: overwrites {} that thread {} wrote, and nothing orders the two", address,
                     plain.write.thread));
  }
  for (std::uint32_t reader = 0; reader < threads_.size(); ++reader) {
    if (thread.view.clock[reader] < plain.read[reader]) {
      fail(fmt::format("data race: overwrites {} that thread {} may still read", address, reader));
    }
  }
  plain.write = stamp();
  plain.written = true;
  plain.read.fill(0);
}

Stamp Scheduler::stamp() { return Stamp{running_, ++threads_[running_]->view.clock[running_]}; }

bool Scheduler::happened_before(Stamp stamp) const {
  return threads_[running_]->view.clock[stamp.thread] >= stamp.time;
}

void Scheduler::note(const char* what, const void* address, std::uint64_t value) {
  if (steps_.size() >= 2 * steps_kept)
    steps_.erase(steps_.begin(), steps_.begin() + static_cast<std::ptrdiff_t>(steps_kept));
  steps_.push_back(Step{running_, what, address, value});
}

std::string Scheduler::history() const {
  std::string text = fmt::format("\nseed {}, the last steps:\n", settings_.seed);
  const std::size_t from = steps_.size() > steps_kept ? steps_.size() - steps_kept : 0;
  for (std::size_t i = from; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    text += fmt::format("  thread {} {}", step.thread, step.what);
    if (step.address != nullptr) text += fmt::format(" {}", step.address);
    text += fmt::format(" {0} ({0:#x})\n", step.value);
  }
  return text;
}

}  // namespace aplib::det
