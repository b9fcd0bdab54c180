// SPDX-License-Identifier: MIT
#include "cell/idle.hpp"

#include <optional>
#include <utility>

#include "cell/domain.hpp"
#include "cell/processor.hpp"

namespace aplib {

namespace {

constexpr std::uint32_t spins_per_clock_look = 16;
constexpr std::uint32_t spins_per_network_poll = 4;  // it costs a system call; the rings are next door
constexpr std::uint32_t polls_while_lately = 64;     // some 20 us: when something has come, the next is likely to
constexpr std::uint32_t flag_spins_per_look = 32;
constexpr std::size_t watches_spun_on_max = 4;
constexpr std::uint32_t ring_spins_per_look = 8;
constexpr auto idle_before_asking = std::chrono::microseconds(10);
constexpr std::chrono::nanoseconds poll_of_computed = std::chrono::microseconds(2);
constexpr auto held_sleep = std::chrono::microseconds(50);
constexpr int shared_poll_max = 10;  // polling times that others may have the core for before this thread sleeps

/// The clock, or what it has said after an offer of the core: a look costs no more than the clock.
Clock::time_point time_since(Clock::time_point& offered) noexcept {
  return offered == Clock::time_point{} ? Clock::now() : std::exchange(offered, {});
}

}  // namespace

Idle::Idle(Processor& here, Domain& domain) : here_(here), domain_(domain), parker_(domain.os) {}

void Idle::prepare() { network_ = domain_.network; }

void Idle::begin() {
  sharing_ = CoreSharing(domain_.owns_cores);
  coarse_now_ = Clock::now();
  load_.restart(coarse_now_);
  show_choice(coarse_now_);
}

void Idle::expire_timers(Clock::time_point now) noexcept {
  coarse_now_ = now;
  while (!timers_.empty() && timers_.front().deadline <= now) {
    std::pop_heap(timers_.begin(), timers_.end());
    TaskControl& task = *timers_.back().task;
    timers_.pop_back();
    make_ready(task);
  }
}

void Idle::add_watch(TaskControl& task) {
  const Condition* const condition = task.watch.condition;
  watches_.push_back({&task, condition != nullptr ? condition->subject() : nullptr});
  if (condition != nullptr) return;  // who changes something about conditions wakes all carriers
  std::atomic<std::uint32_t>& watcher = task.cell->watcher;
  // relaxed: ordered before our sleep by announce(); see Watch
  if (watcher.load(std::memory_order_relaxed) != here_.index() + 1)
    watcher.store(here_.index() + 1, std::memory_order_relaxed);
}

void Idle::check_watches() noexcept {
  const void* asked = nullptr;
  bool reached = false;
  auto kept = watches_.begin();
  for (const Watching& each : watches_) {
    if (each.subject == nullptr || each.subject != asked) reached = each.task->watch.reached();
    asked = each.subject;
    if (reached) {
      make_ready(*each.task);
    } else {
      *kept++ = each;
    }
  }
  watches_.erase(kept, watches_.end());
}

void Idle::pack(Cell& cell) {
  cell.parcel_timers.reserve(timers_.size());
  cell.parcel_watches.reserve(watches_.size());
  ready_.split_to(cell.parcel, [&](const TaskControl& task) { return task.cell == &cell; });
  const auto first =
      std::partition(timers_.begin(), timers_.end(), [&](const Timer& timer) { return timer.task->cell != &cell; });
  cell.parcel_timers.assign(first, timers_.end());
  timers_.erase(first, timers_.end());
  std::make_heap(timers_.begin(), timers_.end());
  const auto watching =
      std::partition(watches_.begin(), watches_.end(), [&](const Watching& each) { return each.task->cell != &cell; });
  for (auto each = watching; each != watches_.end(); ++each) cell.parcel_watches.push_back(each->task);
  watches_.erase(watching, watches_.end());
}

void Idle::make_room_for(const Cell& cell) {
  timers_.reserve(timers_.size() + cell.parcel_timers.size());
  watches_.reserve(watches_.size() + cell.parcel_watches.size());
}

void Idle::unpack(Cell& cell) {
  while (TaskControl* task = cell.parcel.pop()) make_ready(*task);
  for (const Timer& timer : cell.parcel_timers) {
    timers_.push_back(timer);
    std::push_heap(timers_.begin(), timers_.end());
  }
  cell.parcel_timers.clear();
  for (TaskControl* task : cell.parcel_watches) add_watch(*task);
  cell.parcel_watches.clear();
}

bool Idle::watches_memory() const noexcept {
  return std::ranges::any_of(watches_, [](const Watching& each) { return each.task->watch.is_about_memory(); });
}

// The pause between two looks at everything. Reading a flag again and again disturbs nobody, so flags are watched all
// the time. Where nothing but a message in a ring ends the wait soon, one that is looked for alone is found sooner.
void Idle::pause() noexcept {
  const bool has_many = watches_.size() > watches_spun_on_max;
  const bool watches = !watches_.empty() && !has_many && watches_memory();
  if (!watches && !has_many && network_ == nullptr && !here_.collectives().has_waits()) {
    for (std::uint32_t spin = 0; spin < ring_spins_per_look; ++spin) {
      cpu_relax();
      if (here_.inbound().holds_some() || here_.is_wanted()) return;
    }
    return;
  }
  if (!watches) {
    cpu_relax();
    return;
  }
  for (std::uint32_t spin = 0; spin < flag_spins_per_look; ++spin) {
    for (const Watching& each : watches_) {
      if (each.task->watch.reached()) return;
    }
  }
}

// The host program has no core of its own, so it does not poll.
std::chrono::nanoseconds Idle::poll_time(Clock::time_point now) const noexcept {
  if (here_.is_host()) return std::chrono::nanoseconds(0);
  if (sharing_.is_computed_on(now)) return std::min(domain_.poll_time, poll_of_computed);
  if (!domain_.learns_poll_time || sharing_.is_shared()) return domain_.poll_time;
  return std::max(domain_.wake_cost.poll_time(), length_.poll_time());
}

void Idle::show_choice(Clock::time_point now) noexcept {
  const WaitChoice::Core core = sharing_.is_computed_on(now) ? WaitChoice::Core::computed_on
                                : sharing_.is_shared()       ? WaitChoice::Core::shared
                                                             : WaitChoice::Core::own;
  choice_.store({std::chrono::duration_cast<decltype(WaitChoice::polls)>(poll_time(now)), core},
                std::memory_order_relaxed);  // relaxed: a hint
}

// Where threads wait for a core, neither is what wake-ups cost their own cost, nor what waits take their own length.
void Idle::learn(Clock::duration waited, bool has_slept) noexcept {
  if (!domain_.learns_poll_time || sharing_.is_wanted(coarse_now_)) return;
  length_.waited(waited);
  if (!has_slept) domain_.wake_cost.polled_for(waited);
}

TaskControl* Idle::await_ready(TaskControl* self) noexcept {
  const bool polls = !here_.is_host() && domain_.poll_time.count() != 0;
  std::uint32_t spins = 0;
  Clock::time_point start{};
  Clock::time_point last_move{};  // the polling time runs from here,
  Clock::duration others{};       // without the time for which others have had the core
  std::uint64_t arrivals_seen = network_ != nullptr ? network_->arrivals() : 0;
  bool asked_network = false;
  bool has_slept = false;
  bool is_timer = false;  // has ended the wait: to poll for it would be to sleep without sleep
  Clock::time_point offered{};
  while (true) {
    const bool offers = sharing_.is_shared() && polls;  // after each look at everything
    here_.poll();
    if (network_ != nullptr && (offers || network_lately_ != 0 || spins % spins_per_network_poll == 0) &&
        ready_.empty() && (asked_network = here_.poll_network())) {
      // A large message is under way. Sleeping now would cost a wake-up for each piece of it.
      if (const std::uint64_t arrivals = network_->arrivals(); arrivals != arrivals_seen) {
        if (ready_.empty()) here_.poll();
        arrivals_seen = arrivals;
        last_move = {};
        network_lately_ = polls_while_lately;
      } else if (network_lately_ != 0) {
        --network_lately_;
      }
    }
    if (here_.collectives().has_waits()) here_.collectives().check();
    if (!watches_.empty()) check_watches();
    if (!ready_.empty()) break;
    if (domain_.stopping.load(std::memory_order_relaxed) &&
        !here_.has_seen_stop()) {  // relaxed: the tasks' own data needs no order here
      here_.stop_tasks();
      if (!ready_.empty()) break;
    }
    if (self == nullptr && domain_.over.load(std::memory_order_acquire)) break;  // acquire: what the last cell wrote
    if (here_.is_wanted()) break;
    if (network_lately_ == 0 && !offers) pause();  // else the system calls are pause enough
    if (++spins % spins_per_clock_look != 0 && polls && !offers) continue;
    const Clock::time_point now = time_since(offered);
    if (start == Clock::time_point{}) start = now;
    if (last_move == Clock::time_point{}) {
      last_move = now;
      others = {};
    }
    if (self != nullptr && spins <= spins_per_clock_look) self->wait_since = now;
    expire_timers(now);
    if (!ready_.empty()) {
      is_timer = true;
      break;
    }
    if (now - start >= idle_before_asking) show_idle(start);
    const std::chrono::nanoseconds polling = poll_time(now);
    if (now - last_move - others >= polling || others >= shared_poll_max * polling) {
      show_idle(start);
      show_choice(now);
      park();
      has_slept = true;
      if (!ready_.empty()) break;
    } else if (!sharing_.is_computed_on(now) && sharing_.is_due(start, now)) {
      offered = offer_core(now, others);
    }
  }
  if (start != Clock::time_point{}) {
    coarse_now_ = time_since(offered);
    if (self != nullptr) self->cell->waiting += coarse_now_ - start;
    show_busy(coarse_now_);
    if (!is_timer) learn(coarse_now_ - start, has_slept);
    show_choice(coarse_now_);
  }
  if (network_ != nullptr && !asked_network) here_.look_after_network();
  return ready_.pop();
}

// Returns the time after it, if the next look is at once. `others`: for how long they have had the core.
Clock::time_point Idle::offer_core(Clock::time_point now, Clock::duration& others) noexcept {
  os::offer_core();
  const Clock::time_point after = Clock::now();
  others += sharing_.offered(now, after);
  return sharing_.is_shared() ? after : Clock::time_point{};
}

void Idle::offer_core_in_loop() noexcept {
  const Clock::time_point now = Clock::now();
  Clock::duration others{};
  if (sharing_.is_due({}, now)) offer_core(now, others);
}

void Idle::show_idle(Clock::time_point since) noexcept {
  if (idle_flag_ || here_.is_host()) return;
  idle_flag_ = true;
  load_.idle_since(since);
  domain_.idle_processors.fetch_add(1, std::memory_order_relaxed);  // relaxed: a hint
}

void Idle::show_busy(Clock::time_point now) noexcept {
  if (!idle_flag_) return;
  idle_flag_ = false;
  load_.busy_from(now);
  domain_.idle_processors.fetch_sub(1, std::memory_order_relaxed);  // relaxed: a hint
}

// Sleeps until it is woken. It looks once more for every kind of work that can come from outside after announce();
// whoever makes such work calls wake_if_asleep() afterwards.
void Idle::park() noexcept {
  here_.pool().flush();
  const bool in_network = network_ != nullptr && network_->begin_wait();
  bool held = false;
  bool told = false;
  const auto look = [&] {
    here_.poll();
    if (network_ != nullptr) {
      // Another thread that polls at this moment may miss what we have just handed to the network.
      held = !here_.poll_network();
      here_.poll();
    }
    here_.collectives().check();
    if (network_ != nullptr && !watches_.empty()) {
      announce_watches(told = true);
      std::atomic_thread_fence(std::memory_order_seq_cst);  // own word before the look at the flags; see Watch
    }
    check_watches();
    held = held || here_.outbound().backlog_count() != 0 || here_.inbound().holds_some();
    return !ready_.empty() || here_.is_wanted() || here_.inbound().has_new_rings() ||
           (domain_.stopping.load(std::memory_order_acquire) &&
            !here_.has_seen_stop()) ||                    // acquire: pairs with stop()
           domain_.over.load(std::memory_order_acquire);  // acquire: what the last cell wrote
  };
  const bool slept = sleep_unless(parker_, in_network, look, [&] { sleep(in_network, held); });
  if (const Clock::time_point began = parker_.waker_began(); slept && began != Clock::time_point{}) {
    const Clock::time_point now = Clock::now();
    if (domain_.learns_poll_time && !sharing_.is_wanted(now)) domain_.wake_cost.woken_after(now - began);
  }
  if (in_network) {
    network_->end_wait();
  } else if (slept && network_ != nullptr) {
    network_->stirred();
  }
  if (told) announce_watches(false);
}

// To other processes, which see of a cell here no more than its heap, and what its conditions show.
void Idle::announce_watches(bool sleeps) noexcept {
  for (const Watching& each : watches_) {
    if (each.task->watch.condition != nullptr) each.task->watch.condition->sleeps(sleeps);
  }
  for (const std::uint32_t cell : here_.residents()) {
    if (SlotHeap* const heap = domain_.cells[cell]->heap.made()) heap->set_sleeps(sleeps);
  }
}

// `held`: something is held back, and nobody will wake us for it.
void Idle::sleep(bool in_network, bool held) noexcept {
  const auto until_woken = [&](std::optional<std::chrono::nanoseconds> time) {
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
  if (timeout || here_.baton() != nullptr) return until_woken(timeout);  // a thread of the program may run, and call
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
  until_woken(std::nullopt);
  domain_.sleepers.fetch_sub(1, std::memory_order_acq_rel);  // acq_rel: the same
}

// All processors have gone to sleep, as the low half of `word` says. That is final unless one has been woken since: a
// processor that has not run yet is awake, and one that ran and slept again has changed the high half.
bool Idle::deadlocked(std::uint64_t word) {
  for (const auto& processor : domain_.processors) {
    if (!processor->parker().is_asleep()) return false;
  }
  return domain_.sleepers.load(std::memory_order_acquire) == word && !domain_.over.load(std::memory_order_acquire) &&
         !domain_.stopping.load(std::memory_order_acquire);
}

}  // namespace aplib
