// SPDX-License-Identifier: MIT
// Running, idling and sleeping. Messages, collectives, moving cells and the life of tasks have files of their own.
#include "cell/processor.hpp"

#include <algorithm>
#include <exception>

#include "aplib/error.hpp"
#include "cell/network.hpp"

namespace aplib {

namespace {

constexpr std::uint32_t spins_per_clock_look = 16;
constexpr std::uint32_t spins_per_network_poll = 4;        // it costs a system call; the rings are next door
constexpr std::uint32_t polls_while_lately = 64;           // some 20 us: when something has come, the next is likely to
constexpr std::uint64_t cycles_per_network_look = 50'000;  // 15 to 50 us
constexpr std::uint32_t flag_spins = 200;
constexpr std::uint32_t flag_spins_per_look = 32;
constexpr std::size_t watches_spun_on_max = 4;
constexpr auto idle_before_asking = std::chrono::microseconds(10);
constexpr auto held_sleep = std::chrono::microseconds(50);

}  // namespace

namespace detail {
constinit thread_local Processor* current_processor = nullptr;
}
using detail::current_processor;

Processor::Processor(Domain& domain, std::uint32_t index, ProcessorRole role)
    : domain_(domain),
      index_(index),
      is_host_(role == ProcessorRole::host),
      is_network_(role == ProcessorRole::network),
      parker_(domain.os) {}

Processor::~Processor() = default;

void Processor::prepare() {
  const auto count = static_cast<std::uint32_t>(domain_.processors.size());
  network_ = domain_.network;
  network_index_ = domain_.network_index;
  if (is_host_) index_ = domain_.carriers;  // behind them
  if (pool_ == nullptr) pool_ = &domain_.pools->add();
  pool_->set_place(index_, count);
  cell_limit_ = domain_.carriers != 0 ? domain_.cell_count : 0;
  outgoing_table_.assign(count, nullptr);
  outgoing_ = outgoing_table_.data();
  owned_rings_.clear();
  owned_rings_.resize(count);
  backlogs_.resize(count);
  fenced_.assign(count, 0);
  incoming_table_ = std::make_unique<std::atomic<MessageRing*>[]>(count);
  parker_table_.clear();
  for (auto& processor : domain_.processors) parker_table_.push_back(&processor->parker_);
  parkers_ = parker_table_.data();
  route_table_.clear();
  for (const Cell* cell : domain_.cells) {
    std::uint32_t route = 0;
    if (cell == domain_.host_cell.get() && cell->processor != nullptr) {
      route = domain_.carriers;
    } else if (cell->processor != nullptr) {
      route = cell->processor->index_;
    } else if (network_ != nullptr) {
      route = network_index_;
    }
    route_table_.push_back(static_cast<std::uint16_t>(route));
    if (cell->processor == this && cell != domain_.host_cell.get()) residents_.push_back(cell->id);
  }
  route_ = route_table_.data();
  ended_cells_.assign(domain_.cells.size(), 0);
  ended_tasks_.assign(domain_.cells.size(), 0);
}

void Processor::run() {
  current_processor = this;
  if (domain_.thread_prologue) domain_.thread_prologue(index_);
  thread_.attach();
  adopt_thread(base_);
  coarse_now_ = Clock::now();
  load_.restart(coarse_now_);
  if (domain_.start_at_once && !is_host_) {
    for (const std::uint32_t cell : residents_) start_program(*domain_.cells[cell], domain_.first_program);
  }
  while (true) {
    TaskControl* next = ready_.pop();
    if (next == nullptr) next = idle(nullptr);
    if (next == nullptr) break;
    switch_to_task(base_, *next, false);
    landed();
  }
  pool_->flush();
  current_processor = nullptr;
}

void Processor::switch_to_task(Flow& from, TaskControl& to, bool ends) {
  to.ready = false;
  running_ = &to;
  switch_to(thread_, from, to, ends);
}

void Processor::landed() noexcept {
  if (dying_ != nullptr) {
    TaskControl* dead = dying_;
    dying_ = nullptr;
    if (dead->detached) bury(*dead);
  }
}

Wake Processor::wait(TaskControl& self, WaitFor what, const char* call) noexcept {
  Processor& here = *self.cell->processor;
  self.waits = what;
  self.call = call;
  self.wake = Wake::done;
  self.wait_since = here.coarse_now_;
  here.dispatch(self);
  self.waits = WaitFor::nothing;
  return self.wake;
}

// Leaves `self` for the next ready task. Returns when `self` is ready again, perhaps on another processor.
void Processor::dispatch(TaskControl& self) noexcept {
  if (network_ != nullptr) [[unlikely]]
    look_after_network();
  if ((++switches_ & 7U) == 0) [[unlikely]] {
    poll();
    if (!watches_.empty()) check_watches();
    if ((switches_ & 255U) == 0 && !timers_.empty()) expire_timers(Clock::now());
    if (ready_.size() > 1 && domain_.idle_processors.load(std::memory_order_relaxed) != 0) {  // relaxed: a hint
      offer_cells(self);
    }
  }
  TaskControl* next = ready_.pop();
  if (next == nullptr) next = idle(&self);
  if (next == &self) {
    self.ready = false;
    return;
  }
  switch_to_task(self, *next, false);
  self.cell->processor->landed();
}

// Between two tasks. What the last one has sent goes out now, for the next one may compute for long; and for the same reason we look what has come.
void Processor::look_after_network() noexcept {
  if (network_->holds_back.load(std::memory_order_relaxed)) network_->flush();  // relaxed: a hint
  const std::uint64_t now = cycles();
  if (now - last_network_look_ < cycles_per_network_look) return;
  last_network_look_ = now;
  domain_.guarded([this] { network_->poll_if_due(); });
}

bool Processor::poll_network() noexcept {
  bool polled = true;
  domain_.guarded([&] { polled = network_->poll(); });
  return polled;
}

// A task whose destructors run may call us, and what they throw would end the process.
bool Processor::end_calling_task() {
  if (std::uncaught_exceptions() == 0) throw Stopped{};
  return true;
}

void Processor::yield(TaskControl& self) {
  Processor& here = *self.cell->processor;
  static_cast<void>(here.stops());  // who unwinds lets others unwind, too
  here.poll();
  if (!here.watches_.empty()) here.check_watches();
  if (here.ready_.empty()) {
    if (here.network_ != nullptr && here.poll_network()) here.poll();
    if (!here.timers_.empty()) here.expire_timers(Clock::now());
    if (here.ready_.empty()) return;
  }
  here.make_ready(self);
  here.dispatch(self);
}

void Processor::sleep_until(TaskControl& self, Clock::time_point deadline, const char* call) {
  Processor& here = *self.cell->processor;
  if (here.stops()) return;
  here.timers_.push_back(Timer{deadline, &self, here.timer_order_++});
  std::push_heap(here.timers_.begin(), here.timers_.end());
  if (wait(self, WaitFor::time, call) == Wake::stopping) end_calling_task();
}

void Processor::expire_timers(Clock::time_point now) {
  coarse_now_ = now;
  while (!timers_.empty() && timers_.front().deadline <= now) {
    std::pop_heap(timers_.begin(), timers_.end());
    TaskControl& task = *timers_.back().task;
    timers_.pop_back();
    make_ready(task);
  }
}

// ---------------------------------------------------------------- flags

bool Processor::wait_flag(TaskControl& self, const char* call, const std::int32_t* flag, std::int32_t count) {
  self.watch = Watch{flag, count};
  if (self.watch.reached()) [[likely]]
    return true;
  Processor& here = *self.cell->processor;
  if (here.stops()) return false;
  if (here.ready_.empty() && here.watches_.empty() && here.network_ == nullptr && here.domain_.poll_time.count() != 0) {
    // The answer of another processor takes some 100 ns, less than to begin to wait. Where others of this processor wait for flags, too, it may be us whom they wait for.
    for (std::uint32_t spin = 0; spin < flag_spins; ++spin) {
      if (self.watch.reached()) return true;
    }
  }
  here.add_watch(self);
  if (wait(self, WaitFor::flag, call) == Wake::done) return true;
  end_calling_task();
  return false;
}

void Processor::add_watch(TaskControl& task) {
  watches_.push_back(&task);
  std::atomic<std::uint32_t>& watcher = task.cell->watcher;
  // relaxed: ordered before our sleep by announce(); see watch.hpp
  if (watcher.load(std::memory_order_relaxed) != index_ + 1) watcher.store(index_ + 1, std::memory_order_relaxed);
}

void Processor::check_watches() {
  std::erase_if(watches_, [this](TaskControl* task) {
    if (!task->watch.reached()) return false;
    make_ready(*task);
    return true;
  });
}

// Between two looks at the rings. A flag is written to memory that we can watch without disturbing anyone, so there is no need to look away from it.
void Processor::pause() noexcept {
  if (watches_.empty() || watches_.size() > watches_spun_on_max) {
    cpu_relax();
    return;
  }
  for (std::uint32_t spin = 0; spin < flag_spins_per_look; ++spin) {
    for (const TaskControl* task : watches_) {
      if (task->watch.reached()) return;
    }
  }
}

// Nothing is ready: polls for a bounded time, then sleeps, until something is. Returns the next task, already out of the queue; null when the
// machine is over. Runs on the stack of `self`, the task that waits (null: on the thread's own).
TaskControl* Processor::idle(TaskControl* self) noexcept {
  // The host program has no core of its own, so it does not poll.
  const std::chrono::nanoseconds poll_time = is_host_ ? std::chrono::nanoseconds(0) : domain_.poll_time;
  std::uint32_t spins = 0;
  Clock::time_point start{};
  Clock::time_point last_move{};  // the polling time runs from here
  std::uint64_t moves_seen = network_ != nullptr ? network_->moves() : 0;
  while (true) {
    poll();
    if (network_ != nullptr && (network_lately_ != 0 || spins % spins_per_network_poll == 0) && ready_.empty() &&
        poll_network()) {
      // In the middle of a large message: sleeping now would cost a wake-up for each piece of it.
      if (const std::uint64_t moves = network_->moves(); moves != moves_seen) {
        poll();
        moves_seen = moves;
        last_move = {};
        network_lately_ = polls_while_lately;
      } else if (network_lately_ != 0) {
        --network_lately_;
      }
    }
    if (!collective_waits_.empty()) check_collectives();
    if (!watches_.empty()) check_watches();
    if (!ready_.empty()) break;
    if (domain_.stopping.load(std::memory_order_relaxed) &&
        !stop_seen_) {  // relaxed: the tasks' own data needs no order here
      stop_tasks();
      if (!ready_.empty()) break;
    }
    if (self == nullptr && domain_.over.load(std::memory_order_acquire)) break;  // acquire: what the last cell wrote
    if (network_lately_ == 0) pause();  // else the system calls are pause enough
    if (++spins % spins_per_clock_look != 0 && poll_time.count() != 0) continue;

    const Clock::time_point now = Clock::now();
    if (start == Clock::time_point{}) start = now;
    if (last_move == Clock::time_point{}) last_move = now;
    if (self != nullptr && spins <= spins_per_clock_look) self->wait_since = now;
    expire_timers(now);
    if (!ready_.empty()) break;
    if (now - start >= idle_before_asking) show_idle(start);
    if (now - last_move >= poll_time) {
      show_idle(start);
      park();
      if (!ready_.empty()) break;
    }
  }
  if (start != Clock::time_point{}) {
    coarse_now_ = Clock::now();
    if (self != nullptr) self->cell->waiting += coarse_now_ - start;
    show_busy(coarse_now_);
  }
  return ready_.pop();
}

void Processor::show_idle(Clock::time_point since) noexcept {
  if (idle_flag_ || is_host_) return;
  idle_flag_ = true;
  load_.idle_since(since);
  domain_.idle_processors.fetch_add(1, std::memory_order_relaxed);  // relaxed: a hint
}

void Processor::show_busy(Clock::time_point now) noexcept {
  if (!idle_flag_) return;
  idle_flag_ = false;
  load_.busy_from(now);
  domain_.idle_processors.fetch_sub(1, std::memory_order_relaxed);  // relaxed: a hint
}

// Sleeps until woken. Every kind of work that can come from outside is looked for once more after announce(); whoever makes such work
// calls wake_if_asleep() after it.
void Processor::park() noexcept {
  pool_->flush();
  const bool in_network = network_ != nullptr && network_->begin_wait();
  parker_.announce(in_network);
  poll();
  bool held = false;
  if (network_ != nullptr) {
    // Who polls at this moment may miss what we have just handed to the network.
    held = !poll_network();
    poll();
  }
  check_collectives();
  check_watches();
  held = held || backlog_count_ != 0;
  for (const Incoming& in : incoming_) held = held || in.ring->peek() != nullptr;
  if (!ready_.empty() ||
      known_incoming_ != incoming_count_.load(std::memory_order_acquire) ||  // acquire: see refresh_incoming()
      (domain_.stopping.load(std::memory_order_acquire) && !stop_seen_) ||   // acquire: pairs with stop()
      domain_.over.load(std::memory_order_acquire)) {                        // acquire: what the last cell wrote
    parker_.cancel();
    if (in_network) network_->end_wait();
    return;
  }
  const auto sleep = [&](std::optional<std::chrono::nanoseconds> time) {
    if (in_network) {
      if (parker_.is_asleep()) network_->wait(time);
      parker_.cancel();
    } else {
      parker_.sleep(time);
    }
  };
  std::optional<std::chrono::nanoseconds> timeout;
  if (!timers_.empty())
    timeout = std::max<std::chrono::nanoseconds>(timers_.front().deadline - Clock::now(), std::chrono::nanoseconds(1));
  if (held) timeout = timeout ? std::min<std::chrono::nanoseconds>(*timeout, held_sleep) : held_sleep;
  if (timeout) {
    sleep(timeout);
    if (network_ != nullptr) {
      if (in_network) network_->end_wait();
      network_->stirred();
    }
    return;
  }
  constexpr std::uint64_t one_sleep = (std::uint64_t{1} << 32) + 1;
  // acq_rel: the last to fall asleep sees all that the others did before
  const std::uint64_t word = domain_.sleepers.fetch_add(one_sleep, std::memory_order_acq_rel) + one_sleep;
  if ((word & 0xffff'ffffU) == domain_.thread_count()) {
    if (network_ != nullptr) {
      network_->stirred();  // of several processes, the progress thread looks whether this lasts
    } else if (domain_.options.deadlock_report && deadlocked(word)) {
      domain_.guarded([this] { domain_.on_deadlock(domain_); });
    }
  }
  sleep(std::nullopt);
  domain_.sleepers.fetch_sub(1, std::memory_order_acq_rel);
  if (network_ != nullptr) {
    if (in_network) network_->end_wait();
    network_->stirred();
  }
}

// All processors have gone to sleep (the low half of `word` says so). Is that final? A processor that has been woken and did not get to
// run yet is awake; one that ran and slept again has changed the high half.
bool Processor::deadlocked(std::uint64_t word) {
  for (const auto& processor : domain_.processors) {
    if (!processor->parker_.is_asleep()) return false;
  }
  return domain_.sleepers.load(std::memory_order_acquire) == word && !domain_.over.load(std::memory_order_acquire) &&
         !domain_.stopping.load(std::memory_order_acquire);
}

// May throw: for want of memory.
void Processor::refresh_incoming() {
  known_incoming_ = incoming_count_.load(std::memory_order_acquire);  // acquire: the table entries before it
  incoming_.clear();
  for (std::uint32_t from = 0; from < domain_.processors.size(); ++from) {
    MessageRing* ring = incoming_table_[from].load(std::memory_order_acquire);  // acquire: the ring itself
    if (ring != nullptr) incoming_.push_back(Incoming{ring, from});
  }
}

// The machine is stopping: every task that waits here is woken to unwind.
void Processor::stop_tasks() {
  stop_seen_ = true;
  timers_.clear();
  watches_.clear();
  for (Cell* cell : collective_waits_) cell->collective.active = false;
  collective_waits_.clear();
  line_waits_ = 0;
  const auto stop_cell = [this](Cell& cell) {
    for (std::uint32_t id = 0; id < cell.tasks.end(); ++id) {
      TaskControl* task = cell.tasks.find(id);
      if (task != nullptr) wake_waiting(*task, Wake::stopping);
    }
  };
  for (const std::uint32_t cell : residents_) stop_cell(*domain_.cells[cell]);
  if (is_host_) stop_cell(*domain_.host_cell);
}

void Processor::wake_waiting(TaskControl& task, Wake how) noexcept {
  if (task.waits == WaitFor::nothing || task.ready || task.ended) return;
  if (task.waits == WaitFor::message) {
    if (!withdraw(task.posted)) return;  // a sender is filling its buffer right now: that ends the wait
    task.posted.open = false;
  }
  task.wake = domain_.stopping.load(std::memory_order_acquire) ? Wake::stopping : how;  // acquire: pairs with stop()
  make_ready(task);
}

}  // namespace aplib
