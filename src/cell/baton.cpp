// SPDX-License-Identifier: MIT
#include "cell/baton.hpp"

#include "aplib/error.hpp"
#include "arch/cpu.hpp"
#include "base/os/thread.hpp"
#include "cell/domain.hpp"
#include "cell/processor.hpp"

namespace aplib {

namespace {

constexpr std::uint32_t spins_before_sleep = 2000;  // some 50 us: most calls are over by then
constexpr std::uint32_t switches_per_look = 8;      // of Processor::dispatch()

}  // namespace

// ---------------------------------------------------------------- turns

void Baton::Turn::give() noexcept {
  // release: all that the giver did. The turn may be gone after this; a wake-up too many does no harm.
  if (given.exchange(1, std::memory_order_release) == 2) os::futex_wake(given);
}

void Baton::Turn::await(std::uint32_t spins) noexcept {
  for (std::uint32_t spin = 0; spin < spins && given.load(std::memory_order_relaxed) == 0; ++spin)  // relaxed: a hint
    cpu_relax();
  std::uint32_t state = 0;
  given.compare_exchange_strong(state, 2, std::memory_order_acquire);  // acquire: what the giver did, as below
  while (given.load(std::memory_order_acquire) != 1) os::futex_wait(given, 2, std::nullopt);
  given.store(0, std::memory_order_relaxed);  // relaxed: own until the thread is in a line again
}

void Baton::Line::push(Turn& turn) noexcept {
  turn.next = nullptr;
  (first == nullptr ? first : last->next) = &turn;
  last = &turn;
}

Baton::Turn* Baton::Line::pop() noexcept {
  Turn* const turn = first;
  if (turn != nullptr) first = turn->next;
  return turn;
}

void Baton::Line::remove(const Turn& turn) noexcept {
  Turn* before = nullptr;
  for (Turn* each = first; each != nullptr; before = each, each = each->next) {
    if (each != &turn) continue;
    (before == nullptr ? first : before->next) = each->next;
    if (last == each) last = before;
    return;
  }
}

// ---------------------------------------------------------------- the baton

// From here on dispatch() of the processor looks up from its usual way each time, as it does once in eight switches.
Baton::Baton(TaskControl& main)
    : processor_(*main.cell->processor),
      main_(main),
      main_thread_(pthread_self()),
      spins_(processor_.domain().poll_time.count() != 0 ? spins_before_sleep : 0) {
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
  bool waits = false;
  {
    const std::lock_guard lock(mutex_);
    waits = is_taken_ && !is_closed_;
    if (waits) {
      line_.push(turn);
      processor_.wanted_.store(true, std::memory_order_relaxed);  // relaxed: wake_if_asleep() orders it before a sleep
    }
    is_taken_ = true;
  }
  if (waits) {
    processor_.parker().wake_if_asleep();
    turn.await(spins_);
  }
  // Whoever was in line when it closed has been told so by a turn.
  if (const std::lock_guard lock(mutex_); is_closed_) return false;
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

Baton::Turn* Baton::choose(TaskControl* ready) noexcept {
  if (ready != nullptr) {
    Turn& turn = turn_of(*ready);
    waiting_.remove(turn);
    turn.runs = true;
    return &turn;
  }
  Turn* turn = line_.pop();
  processor_.wanted_.store(line_.first != nullptr, std::memory_order_relaxed);  // relaxed: the mutex orders it
  if (turn == nullptr) turn = waiting_.pop();
  return turn;
}

void Baton::leave() noexcept {
  TaskControl& self = *processor_.running();
  if (&self != &main_) {
    free_guests_.push_back(static_cast<Guest*>(&self));
    --calls_;
  }
  TaskControl* const ready = processor_.idle().pop_ready();
  processor_.running_.store(&main_, std::memory_order_relaxed);  // relaxed: it has been there
  detail::current_processor = nullptr;
  Turn* next = nullptr;
  {
    const std::lock_guard lock(mutex_);
    next = choose(ready);
    is_taken_ = next != nullptr;
  }
  if (next != nullptr) next->give();
}

void Baton::dispatch(TaskControl& self) noexcept {
  processor_.count_switch(switches_per_look - 1);
  Turn& turn = turn_of(self);
  turn.runs = false;
  bool yields = self.ready;
  while (!turn.runs) {
    TaskControl* ready = processor_.idle().pop_ready();
    if (yields && ready == &self && processor_.is_wanted()) {
      processor_.make_ready(self);
      ready = nullptr;
    }
    yields = false;
    if (ready != nullptr) {
      if (processor_.network_ != nullptr) processor_.look_after_network();
    } else if (!processor_.is_wanted()) {  // relaxed: as in enter()
      ready = processor_.idle().await_ready(&self);
    }
    if (ready == &self) break;
    Turn* next = nullptr;
    {
      const std::lock_guard lock(mutex_);
      waiting_.push(turn);
      next = choose(ready);
    }
    if (next != &turn) {
      next->give();
      turn.await(spins_);
      take_over(self);
    }
  }
  self.ready = false;
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
    processor_.wanted_.store(false, std::memory_order_relaxed);  // relaxed: nobody asks any more
  }
  while (Turn* const turn = refused.pop()) turn->give();
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
