// SPDX-License-Identifier: MIT
#include "cell/baton.hpp"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "aplib/error.hpp"
#include "base/cpus.hpp"
#include "cell/domain.hpp"
#include "cell/processor.hpp"

namespace aplib {

using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t spins_before_sleep = 2000;  // some 50 us: most calls are over by then
constexpr std::uint32_t switches_per_look = 8;      // of Processor::dispatch()
constexpr std::uint32_t leaves_per_look = 16;
constexpr std::uint32_t spins_of_standby = 100;              // some 3 us: where it costs nobody's time, or
constexpr std::chrono::nanoseconds sleep_of_standby = 50us;  // as long as processors poll

/// Threads that wait for each other can run at the same time: those of a rank that is bound to a core cannot.
bool has_cores_to_spare(const Domain& domain) {
  return domain.poll_time.count() != 0 && allowed_cpus().size() > domain.carriers;
}

std::uint32_t spins_of(const Domain& domain) { return has_cores_to_spare(domain) ? spins_before_sleep : 0; }

Turns<std::atomic, TurnsOs>::Rest standby_of(const Domain& domain) {
  if (has_cores_to_spare(domain)) return {.spins = spins_of_standby, .sleep = 0ns};
  return {.spins = 0, .sleep = sleep_of_standby};
}

}  // namespace

void TurnsOs::wake_poller() const noexcept { processor.parker().wake_if_asleep(); }

// From here on dispatch() of the processor looks up from its usual way each time, as it does once in eight switches.
Baton::Baton(TaskControl& main)
    : processor_(*main.cell->processor),
      main_(main),
      main_thread_(pthread_self()),
      turns_(TurnsOs{processor_}, processor_.wanted_, spins_of(processor_.domain()), standby_of(processor_.domain())) {
  main_.cell->stays = true;
  processor_.baton_ = this;
  processor_.count_switch(switches_per_look - 1 - processor_.switches() % switches_per_look);
}

Baton::~Baton() = default;

Baton::Turn& Baton::turn_of(TaskControl& task) noexcept {
  return &task == &main_ ? main_turn_ : static_cast<Guest&>(task).turn;
}

Baton::Turn* Baton::ReadyTurns::operator()() noexcept {
  if (next == nullptr) return nullptr;
  Turn& turn = baton.turn_of(*next);
  next = baton.processor_.idle().pop_ready();
  return &turn;
}

void Baton::take_over(TaskControl& task) noexcept { processor_.take_over(task); }

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
  if (!turns_.take(turn)) return false;
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
  if (turns_.has_waits() && ++leaves_ % leaves_per_look == 0) processor_.look_around();
  if (&self != &main_) {
    free_guests_.push_back(static_cast<Guest*>(&self));  // reserved by free_guest()
    --calls_;
  }
  lay_down();
}

void Baton::leave_for_ever() noexcept {
  --calls_;
  ++lost_calls_;
  lay_down();
}

namespace {

[[noreturn]] void stay_for_ever() noexcept {
  ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  sigset_t all;
  sigfillset(&all);
  while (true) ::sigsuspend(&all);
}

}  // namespace

void Baton::lend() noexcept {
  detail::current_processor = nullptr;
  lent_.store(Lent::yes, std::memory_order_seq_cst);  // seq_cst: either we see closes_, or the main thread this
  if (!closes_.load(std::memory_order_seq_cst)) return;
  take_back();
  leave_for_ever();
  stay_for_ever();
}

void Baton::take_back() noexcept {
  Lent lent = Lent::yes;
  // relaxed: nobody else has had it
  if (!lent_.compare_exchange_strong(lent, Lent::no, std::memory_order_relaxed)) stay_for_ever();
  detail::current_processor = &processor_;
}

void Baton::lay_down() noexcept {
  processor_.running_.store(&main_, std::memory_order_relaxed);  // relaxed: it has been there
  detail::current_processor = nullptr;
  TaskControl* ready = processor_.idle().pop_ready();
  if (ready == nullptr && turns_.try_lay_down()) return;
  turns_.lay_down(ReadyTurns{*this, ready});
}

void Baton::dispatch(TaskControl& self) noexcept {
  processor_.count_switch(switches_per_look - 1);
  Turn& turn = turn_of(self);
  const bool yields = self.ready;
  while (true) {
    TaskControl* ready = processor_.idle().pop_ready();
    if (ready == nullptr && !processor_.is_wanted()) {
      ready = processor_.idle().await_ready(&self);
    } else if (processor_.network_ != nullptr) {
      processor_.look_after_network();
    }
    if (ready == &self && !processor_.idle().has_ready() && !processor_.is_wanted()) break;
    const bool runs = turns_.pass_on(turn, yields, ReadyTurns{*this, ready});
    take_over(self);
    if (runs) break;
  }
  self.ready = false;
}

// ---------------------------------------------------------------- the end

// A function that computes for a moment may end; one that does not end may be meant to end with the process.
void Baton::enter_to_close() noexcept {
  constexpr auto patience = 1s;
  constexpr auto pause = 1ms;
  const Clock::time_point end = Clock::now() + patience;
  // relaxed: a hint
  while (lent_.load(std::memory_order_relaxed) == Lent::yes && Clock::now() < end) std::this_thread::sleep_for(pause);
  closes_.store(true, std::memory_order_seq_cst);  // seq_cst: see lend()
  Lent lent = Lent::yes;
  if (!lent_.compare_exchange_strong(lent, Lent::for_ever, std::memory_order_seq_cst)) {
    static_cast<void>(enter());
    return;
  }
  --calls_;
  ++lost_calls_;
  take_over(main_);
}

void Baton::close() noexcept {
  if (detail::current_processor == nullptr) enter_to_close();
  if (turns_.is_closed()) return;  // only this thread closes it
  // When the machine stops, every wait ends.
  while (calls_ != 0 && processor_.domain().stopping.load(std::memory_order_acquire)) {  // acquire: pairs with stop()
    if (!processor_.has_seen_stop()) processor_.stop_tasks();
    processor_.poll();
    processor_.make_ready(main_);
    dispatch(main_);
  }
  dismiss_guests();
  processor_.baton_ = nullptr;
  turns_.close();
}

// The waits of those that are in a call end for the core; the threads sleep on, and so their guests stay.
void Baton::dismiss_guests() noexcept {
  Inbound& inbound = processor_.inbound();
  for (const auto& guest : guests_) {
    inbound.wake_waiting(*guest, Wake::stopping);
    inbound.close_requests(*guest);
    main_.cell->tasks.erase(guest->id);
  }
  if (calls_ != 0 || lost_calls_ != 0) inbound.close_requests(main_);
  processor_.idle().forget_waits();
  while (processor_.idle().pop_ready() != nullptr) {
  }
  if (calls_ == 0 && lost_calls_ == 0) return;
  for (auto& guest : guests_) static_cast<void>(guest.release());
}

}  // namespace aplib
