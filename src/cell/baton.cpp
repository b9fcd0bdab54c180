// SPDX-License-Identifier: MIT
#include "cell/baton.hpp"

#include <algorithm>
#include <chrono>

#include "aplib/error.hpp"
#include "arch/cpu.hpp"
#include "base/cpus.hpp"
#include "base/os/thread.hpp"
#include "cell/domain.hpp"
#include "cell/processor.hpp"

namespace aplib {

using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t spins_before_sleep = 2000;  // some 50 us: most calls are over by then
constexpr std::uint32_t spins_between_looks_max = 32;
constexpr std::uint32_t switches_per_look = 8;  // of Processor::dispatch()
constexpr std::uint32_t leaves_per_look = 16;
constexpr auto patience = std::chrono::milliseconds(1);
constexpr std::uint32_t spins_of_standby = 100;              // some 3 us: where it costs nobody's time, or
constexpr std::chrono::nanoseconds sleep_of_standby = 50us;  // as long as processors poll

// Of state_.
constexpr std::uint32_t taken = 1;      // somebody has the baton
constexpr std::uint32_t attention = 2;  // who lays it down gives somebody a sign: threads wait, and none is awake

}  // namespace

// ---------------------------------------------------------------- turns

void Baton::Turn::give(Sign what) noexcept {
  // release: all that the giver did. The turn may be gone after this; a wake-up too many does no harm.
  const std::uint32_t before = sign.exchange(static_cast<std::uint32_t>(what), std::memory_order_release);
  if (before == static_cast<std::uint32_t>(Sign::asleep)) os::futex_wake(sign);
}

Baton::Sign Baton::Turn::await(const Rest& rest) noexcept {
  constexpr auto none = static_cast<std::uint32_t>(Sign::none);
  constexpr auto asleep = static_cast<std::uint32_t>(Sign::asleep);
  for (std::uint32_t spin = 0; spin < rest.spins && sign.load(std::memory_order_relaxed) == none; ++spin)  // a hint
    cpu_relax();
  const bool sleeps = !rest.sleep || rest.sleep->count() != 0;
  std::uint32_t now = none;
  if (sleeps) sign.compare_exchange_strong(now, asleep, std::memory_order_acquire);  // acquire: what the giver did, ...
  while ((now = sign.load(std::memory_order_acquire)) == asleep) {                   // ... as here
    os::futex_wait(sign, asleep, rest.sleep);
    now = asleep;
    // relaxed: nothing was given
    if (rest.sleep && sign.compare_exchange_strong(now, none, std::memory_order_relaxed)) return Sign::none;
  }
  if (now != none) sign.store(none, std::memory_order_relaxed);  // relaxed: own until the thread is in a line again
  return static_cast<Sign>(now);
}

void Baton::Line::push(Turn& turn) noexcept {
  turn.next = nullptr;
  (first == nullptr ? first : last->next) = &turn;
  last = &turn;
}

void Baton::Line::push_front(Turn& turn) noexcept {
  turn.next = first;
  if (first == nullptr) last = &turn;
  first = &turn;
}

Baton::Turn* Baton::Line::pop() noexcept {
  Turn* const turn = first;
  if (turn != nullptr) first = turn->next;
  return turn;
}

bool Baton::Line::remove(const Turn& turn) noexcept {
  Turn* before = nullptr;
  for (Turn* each = first; each != nullptr; before = each, each = each->next) {
    if (each != &turn) continue;
    (before == nullptr ? first : before->next) = each->next;
    if (last == each) last = before;
    return true;
  }
  return false;
}

// ---------------------------------------------------------------- the baton

namespace {

/// Threads that wait for each other can run at the same time: those of a rank that is bound to a core cannot.
bool has_cores_to_spare(const Domain& domain) {
  return domain.poll_time.count() != 0 && allowed_cpus().size() > domain.carriers;
}

}  // namespace

// From here on dispatch() of the processor looks up from its usual way each time, as it does once in eight switches.
Baton::Baton(TaskControl& main)
    : processor_(*main.cell->processor),
      main_(main),
      main_thread_(pthread_self()),
      spins_(has_cores_to_spare(processor_.domain()) ? spins_before_sleep : 0),
      standby_{spins_ != 0 ? spins_of_standby : 0, spins_ != 0 ? std::chrono::nanoseconds(0) : sleep_of_standby},
      state_(taken) {
  main_.cell->stays = true;
  processor_.baton_ = this;
  processor_.count_switch(switches_per_look - 1 - processor_.switches() % switches_per_look);
}

Baton::~Baton() = default;

Baton::Turn& Baton::turn_of(TaskControl& task) noexcept {
  return &task == &main_ ? main_turn_ : static_cast<Guest&>(task).turn;
}

void Baton::take_over(TaskControl& task) noexcept {
  detail::current_processor = &processor_;
  processor_.running_.store(&task, std::memory_order_release);  // release: to glimpse()
}

Baton::Guest& Baton::free_guest() {
  if (!free_guests_.empty()) {
    Guest& guest = *free_guests_.back();
    free_guests_.pop_back();
    return guest;
  }
  free_guests_.reserve(guests_.size() + 1);  // so that leave() does not throw
  guests_.reserve(guests_.size() + 1);
  auto guest = std::make_unique<Guest>();
  Cell& cell = *main_.cell;
  const auto id = cell.tasks.choose_id();
  if (!id) throw Error(Errc::exhausted, "the cell has no number left for a thread that calls; it has too many tasks");
  guest->cell = &cell;
  guest->id = *id;
  guest->is_guest = true;
  cell.tasks.insert(*id, *guest);
  guests_.push_back(std::move(guest));
  return *guests_.back();
}

bool Baton::enter() {
  Turn turn;
  if (!take(turn)) return false;
  take_over(main_);  // the making of a guest changes the cell
  if (is_main_thread()) return true;
  try {
    Guest& guest = free_guest();
    ++calls_;
    take_over(guest);
  } catch (...) {
    leave();
    throw;
  }
  return true;
}

void Baton::leave() noexcept {
  TaskControl& self = *processor_.running();
  if (waits_ != 0 && ++leaves_ % leaves_per_look == 0) processor_.look_around();
  if (&self != &main_) {
    free_guests_.push_back(static_cast<Guest*>(&self));
    --calls_;
  }
  processor_.running_.store(&main_, std::memory_order_relaxed);  // relaxed: it has been there
  detail::current_processor = nullptr;
  TaskControl* ready = processor_.idle().pop_ready();
  std::uint32_t state = taken;
  // release: all that we did, to who takes it
  if (ready == nullptr && state_.compare_exchange_strong(state, 0, std::memory_order_release)) return;
  std::pair<Turn*, Sign> told;
  {
    const std::lock_guard lock(mutex_);
    for (; ready != nullptr; ready = processor_.idle().pop_ready()) call_ready(*ready);
    told = lay_down();
  }
  if (told.first != nullptr) told.first->give(told.second);
}

void Baton::dispatch(TaskControl& self) noexcept {
  processor_.count_switch(switches_per_look - 1);
  Turn& turn = turn_of(self);
  const bool yields = self.ready;
  bool runs = false;
  while (true) {
    TaskControl* ready = processor_.idle().pop_ready();
    if (ready == nullptr && !processor_.is_wanted()) {
      ready = processor_.idle().await_ready(&self);
    } else if (processor_.network_ != nullptr) {
      processor_.look_after_network();
    }
    if (ready == &self && !processor_.idle().has_ready() && !processor_.is_wanted()) break;
    std::pair<Turn*, Sign> told;
    {
      const std::lock_guard lock(mutex_);
      for (; ready != nullptr; ready = processor_.idle().pop_ready()) {
        if (ready == &self) {
          runs = true;
        } else {
          call_ready(*ready);
        }
      }
      const bool is_wanted = processor_.is_wanted();
      if (runs && !(yields && is_wanted)) {
        show_attention();  // of those that are ready, too
        break;
      }
      if (!is_wanted) continue;
      if (!runs) {
        turn.wants = false;
        pollers_.push(turn);
        stand_by(turn, true);
      }
      ++waits_;
      told = lay_down();
    }
    if (told.first != nullptr) told.first->give(told.second);
    bool has = runs ? take(turn) : await_turn(turn, false, true);
    while (!has) has = await_turn(turn, false, false);  // closed: the call never returns
    take_over(self);
    --waits_;
    if (runs || turn.wants) break;
  }
  self.ready = false;
}

// ---------------------------------------------------------------- how it changes hands

bool Baton::try_take() noexcept {
  std::uint32_t state = state_.load(std::memory_order_relaxed);  // relaxed: a hint
  while ((state & taken) == 0) {
    // acquire: what the last to have it did; relaxed: nothing came of it
    if (state_.compare_exchange_weak(state, state | taken, std::memory_order_acquire, std::memory_order_relaxed))
      return true;
  }
  return false;
}

bool Baton::take(Turn& turn) noexcept {
  if (try_take()) return true;
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return false;
    turn.wants = true;
    ++awake_;
    want(1);
  }
  processor_.parker().wake_if_asleep();
  return await_turn(turn, true, false);
}

// Looks rarer and rarer, so as not to take the cache line from those that have more luck.
bool Baton::look_for_it() noexcept {
  std::uint32_t pause = 1;
  for (std::uint32_t spin = 0; spin < spins_; spin += pause) {
    if (try_take()) return true;
    pause = std::min(2 * pause, spins_between_looks_max);
    for (std::uint32_t each = 0; each < pause; ++each) cpu_relax();
  }
  return false;
}

bool Baton::await_turn(Turn& turn, bool looks, bool stands_by) noexcept {
  bool was_in_line = !looks;
  Rest rest = stands_by ? standby_ : Rest{};
  while (true) {
    if (looks) {
      const bool has = look_for_it();
      const Clock::time_point now = has ? Clock::time_point{} : Clock::now();
      const std::lock_guard lock(mutex_);
      --awake_;
      if (is_closed_) return false;
      if (has || try_take_at_last()) {
        if (turn.wants) want(-1);
        show_attention();
        return true;
      }
      stand_in_line(turn, was_in_line, now);
      rest = turn.stands_by ? standby_ : Rest{};
    }
    const Sign sign = turn.await(rest);
    if (sign == Sign::given || sign == Sign::refused) return sign == Sign::given;
    if (sign == Sign::none && ends_standby(turn)) return true;
    looks = sign == Sign::look;
    was_in_line = true;
    rest = Rest{.spins = spins_};
  }
}

// Who lays it down after this gives a sign; who has just done so may not have.
bool Baton::try_take_at_last() noexcept {
  state_.fetch_or(attention, std::memory_order_relaxed);  // relaxed: mutex_ orders it
  return try_take();
}

// True: it has the baton, which was free.
bool Baton::ends_standby(Turn& turn) noexcept {
  const std::lock_guard lock(mutex_);
  if (!turn.stands_by) return false;  // a sign is on its way, or it stands in line_
  stand_by(turn, false);
  const bool has = !is_closed_ && try_take_at_last();
  if (has) pollers_.remove(turn);
  show_attention();
  return has;
}

void Baton::stand_by(Turn& turn, bool does) noexcept {
  if (turn.stands_by == does) return;
  turn.stands_by = does;
  standing_by_ += does ? 1 : -1;
}

void Baton::stand_in_line(Turn& turn, bool again, Clock::time_point now) noexcept {
  Line& line = turn.wants ? line_ : pollers_;
  if (again) {
    line.push_front(turn);
  } else {
    turn.since = now;
    line.push(turn);
  }
  if (!turn.wants) stand_by(turn, true);
  is_starving_ = line_.first != nullptr && now - line_.first->since >= patience;
  show_attention();
}

void Baton::want(int more) noexcept {
  auto& wanted = processor_.wanted_;  // relaxed: mutex_ orders it, and wake_if_asleep() before a sleep
  wanted.store(wanted.load(std::memory_order_relaxed) + static_cast<std::uint32_t>(more), std::memory_order_relaxed);
}

void Baton::show_attention() noexcept {
  const bool some = line_.first != nullptr || (pollers_.first != nullptr && standing_by_ == 0);
  if (is_starving_ || (some && awake_ == 0)) {
    state_.fetch_or(attention, std::memory_order_relaxed);  // relaxed: who sees it asks under mutex_
  } else {
    state_.fetch_and(~attention, std::memory_order_relaxed);  // relaxed: as above
  }
}

// The wait of `task` has ended.
void Baton::call_ready(TaskControl& task) noexcept {
  Turn& turn = turn_of(task);
  turn.since = Clock::now();
  if (pollers_.remove(turn)) line_.push(turn);  // else its thread looks for the baton
  stand_by(turn, false);
  turn.wants = true;
  want(1);
}

std::pair<Baton::Turn*, Baton::Sign> Baton::lay_down() noexcept {
  Turn* next = nullptr;
  if (awake_ == 0 || is_starving_) {
    next = line_.pop();
    if (next == nullptr && standing_by_ == 0) next = pollers_.pop();
  }
  if (next != nullptr && is_starving_) {
    is_starving_ = false;
    if (next->wants) want(-1);
    show_attention();
    return {next, Sign::given};
  }
  if (next != nullptr) ++awake_;
  state_.store(0, std::memory_order_release);  // release: all that we did, to who takes it
  return {next, Sign::look};
}

// ---------------------------------------------------------------- the end

void Baton::close() noexcept {
  if (detail::current_processor == nullptr) static_cast<void>(enter());
  if (is_closed_) return;  // only this thread closes it
  // When the machine stops, every wait ends.
  while (calls_ != 0 && processor_.domain().stopping.load(std::memory_order_acquire)) {  // acquire: pairs with stop()
    if (!processor_.has_seen_stop()) processor_.stop_tasks();
    processor_.poll();
    processor_.make_ready(main_);
    dispatch(main_);
  }
  dismiss_guests();
  processor_.baton_ = nullptr;
  Line refused;
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    refused = line_;
    line_ = {};
    processor_.wanted_.store(0, std::memory_order_relaxed);  // relaxed: nobody asks any more
  }
  while (Turn* const turn = refused.pop()) turn->give(Sign::refused);
}

// The waits of those that are in a call end for the core; the threads sleep on, and so their guests stay.
void Baton::dismiss_guests() noexcept {
  Inbound& inbound = processor_.inbound();
  for (const auto& guest : guests_) {
    inbound.wake_waiting(*guest, Wake::stopping);
    inbound.close_requests(*guest);
    main_.cell->tasks.erase(guest->id);
  }
  if (calls_ != 0) inbound.close_requests(main_);
  processor_.idle().forget_waits();
  while (processor_.idle().pop_ready() != nullptr) {
  }
  if (calls_ == 0) return;
  for (auto& guest : guests_) static_cast<void>(guest.release());
}

}  // namespace aplib
