// SPDX-License-Identifier: MIT
#include "mpi/pending_call.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "kernel/coroutine.hpp"
#include "mpi/comm.hpp"
#include "mpi/meeting.hpp"
#include "mpi/rank.hpp"
#include "mpi/request.hpp"

namespace aplib::mpi {

/// A stack on which calls are carried out, one after the other.
struct PendingCall::Runner {
  explicit Runner(const char* name)
      : coroutine(
            name, [](void* runner) { static_cast<Runner*>(runner)->run(); }, this) {}

  [[noreturn]] void run() noexcept {
    while (true) {
      call->run(call->plan_);
      coroutine.pause();
    }
  }

  PendingCall* call = nullptr;
  api::Coroutine coroutine;
};

/// The calls of a communicator that came before are over.
class PendingCall::Turn final : public Condition {
 public:
  Turn(const Comm& comm, std::uint32_t number) noexcept : comm_(comm), number_(number) {}

  [[nodiscard]] bool holds() const noexcept override { return comm_.ended_calls == number_; }
  [[nodiscard]] bool is_about_memory() const noexcept override { return false; }
  [[nodiscard]] bool needs(std::uint32_t) const noexcept override { return false; }
  [[nodiscard]] std::string missing() const override { return "an earlier nonblocking call of " + comm_.title(); }
  void let_go() noexcept override {}

 private:
  const Comm& comm_;
  std::uint32_t number_;
};

// ---------------------------------------------------------------- one call

PendingCall::PendingCall(Request& request) noexcept : rank_(request.rank()), request_(request) {}

void PendingCall::clear() noexcept {
  for (Object* const each : kept_) each->release();
  kept_.clear();
  if (!kept_numbers_.empty()) kept_numbers_.clear();
  if (request_.is_persistent && aside_ != nullptr) aside_->release();
  aside_ = nullptr;
}

void PendingCall::keep(Object& object) {
  if (std::ranges::find(kept_, &object) != kept_.end()) return;
  kept_.push_back(&object);
  object.hold();
}

Numbers PendingCall::keep(Numbers given, int count) {
  if (given.is_null()) return given;
  if (numbers_used_ == kept_numbers_.size()) {
    auto copy = std::make_unique_for_overwrite<MPI_Count[]>(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) copy[i] = given[i];
    kept_numbers_.push_back(std::move(copy));
  }
  return Numbers(kept_numbers_[numbers_used_++].get());
}

void Call::keep_pending(Object& object) const { pending_->keep(object); }
Numbers Call::kept(Numbers given, int count) const {
  return pending_ == nullptr ? given : pending_->keep(given, count);
}

// It and what it has allocated may be those of an earlier call.
Request& PendingCall::make_request(const Call& call, Comm& comm) {
  Request& request = Request::make(comm, Request::Does::collective);
  if (request.pending == nullptr) [[unlikely]]
    make_first(request);
  request.pending->name_ = call.name();
  request.pending->is_large_ = call.is_large();
  return request;
}

void PendingCall::make_first(Request& request) {
  try {
    request.pending = std::make_unique<PendingCall>(request);
  } catch (...) {
    request.release();
    throw;
  }
}

void PendingCall::begin(const Call& call, Comm& comm, MPI_Request* place, std::initializer_list<Object*> kept,
                        const Plan& plan) {
  Request& request = make_request(call, comm);
  PendingCall& its = *request.pending;
  try {
    its.aside_ = &comm.of_nonblocking_calls();  // it lives as long as comm
    if (its.can_be_brief(plan)) {
      its.start_briefly(plan, kept);
    } else {
      its.plan_ = plan;
      its.keep_all(kept);
      its.start_on_stack();
    }
    if (request.failure) throw Failure(std::move(*request.failure));
  } catch (...) {
    request.release();
    throw;
  }
  *place = handle_of<MPI_Request>(request);
}

void PendingCall::make(const Call& call, Comm& comm, MPI_Request* place, std::initializer_list<Object*> kept,
                       const Plan& plan) {
  Request& request = make_request(call, comm);
  request.is_persistent = true;
  request.is_active = false;
  try {
    request.pending->plan_ = plan;
    request.pending->keep_all(kept);
    request.pending->check(comm);
    request.pending->aside_ = &comm.for_persistent_call(call);
  } catch (...) {
    request.release();
    throw;
  }
  *place = handle_of<MPI_Request>(request);
}

void PendingCall::keep_all(std::initializer_list<Object*> objects) {
  for (Object* const each : objects) {
    kept_.push_back(each);
    each->hold();
  }
}

// The blocking call comes as far as it can fail by its own arguments.
void PendingCall::check(Comm& comm) {
  only_checks_ = true;
  is_brief_ = false;
  numbers_used_ = 0;
  try {
    plan_(Call(name_, rank_, is_large_, *this), comm);
  } catch (const Checked&) {
    only_checks_ = false;
  }
}

// All that it might wait for has come, but for what its rest needs.
bool PendingCall::can_be_brief(const Plan& plan) const noexcept {
  return plan.bytes() <= Board::copied_max && aside_->board != nullptr && !aside_->is_inter() &&
         (aside_->is_of_persistent_call() || aside_->collective_calls == aside_->ended_calls) &&
         Meeting::can_begin(*aside_);
}

void PendingCall::start() {
  if (can_be_brief(plan_)) {
    start_briefly(plan_, {});
  } else {
    start_on_stack();
  }
}

void PendingCall::reset(bool is_brief) noexcept {
  only_checks_ = false;
  is_over_ = false;
  is_brief_ = is_brief;
  numbers_ = 0;
  numbers_used_ = 0;
  runner_ = nullptr;
}

// What others wait for comes first.
void PendingCall::start_briefly(const Plan& plan, std::initializer_list<Object*> kept) {
  kept_.reserve(kept.size());
  rank_.pending_calls.make_room();
  reset(true);
  run(plan);
  if (stopped_) std::rethrow_exception(std::exchange(stopped_, nullptr));
  if (is_over_) return;
  keep_all(kept);
  rank_.pending_calls.add_brief(*this);
}

void PendingCall::start_on_stack() {
  reset(false);
  rank_.pending_calls.add(*this);
}

void PendingCall::begin(Comm& comm) {
  if (only_checks_) throw Checked{};
  if (comm.is_of_persistent_call()) return;
  const std::uint32_t number = comm.collective_calls++;
  if (&comm != aside_ || numbers_++ != 0) return;  // a part of a call that has begun
  Turn turn(comm, number);
  if (wait(turn) == Wake::stopping) fail(MPI_ERR_OTHER, "the machine stops");
}

Wake PendingCall::wait(Condition& condition) {
  if (condition.holds()) return Wake::done;
  if (runner_ == nullptr) return api::wait(api::task(name_), name_, condition);
  awaited_ = &condition;
  runner_->coroutine.pause();
  return how_;
}

template <class Part>
void PendingCall::carry_out(const Part& part) noexcept {
  try {
    part();
  } catch (...) {
    try {
      const std::unique_ptr<Failure> failure(caught());
      request_.failure = std::move(*failure);
    } catch (...) {
      stopped_ = std::current_exception();
    }
  }
  if (rest_ != nullptr) return;
  aside_->ended_calls += numbers_;
  is_over_ = true;
}

void PendingCall::run(const Plan& plan) noexcept {
  carry_out([&] { plan(again(), *aside_); });
}

void PendingCall::go_on() noexcept {
  if (rest_ == nullptr) return runner_->coroutine.resume();
  Rest* const rest = std::exchange(rest_, nullptr);
  carry_out([&] { rest->carry_out(how_); });
  std::destroy_at(rest);
}

// ---------------------------------------------------------------- those of a rank

/// The caller's condition holds, or that of a call that is pending.
class PendingCalls::Any final : public Condition {
 public:
  Any(const PendingCalls& pending, Condition& own) noexcept : pending_(pending), own_(own) {}

  [[nodiscard]] bool holds() const noexcept override {
    return own_.holds() || std::ranges::any_of(pending_.calls_, [](const PendingCall* each) {
             return each->awaited_ != nullptr && each->awaited_->holds();
           });
  }
  [[nodiscard]] bool is_about_memory() const noexcept override {
    return own_.is_about_memory() || std::ranges::any_of(pending_.calls_, [](const PendingCall* each) {
             return each->awaited_ != nullptr && each->awaited_->is_about_memory();
           });
  }
  [[nodiscard]] bool needs(std::uint32_t cell) const noexcept override {
    return own_.needs(cell) || std::ranges::any_of(pending_.calls_, [&](const PendingCall* each) {
             return each->awaited_ != nullptr && !each->awaited_->holds() && each->awaited_->needs(cell);
           });
  }
  [[nodiscard]] std::string missing() const override {
    std::string text = own_.missing();
    for (const PendingCall* const each : pending_.calls_) {
      if (each->awaited_ != nullptr) text += (text.empty() ? "" : "; ") + each->awaited_->missing();
    }
    return text;
  }
  void sleeps(bool does) const noexcept override { own_.sleeps(does); }
  void let_go() noexcept override {
    own_.let_go();
    for (const PendingCall* const each : pending_.calls_) {
      if (each->awaited_ != nullptr) each->awaited_->let_go();
    }
  }

 private:
  const PendingCalls& pending_;
  Condition& own_;
};

PendingCalls::PendingCalls() = default;
PendingCalls::~PendingCalls() = default;

void PendingCalls::add(PendingCall& call) {
  if (call.aside_->size() == 1 && !call.aside_->is_inter()) {
    call.run(call.plan_);
    if (call.stopped_) std::rethrow_exception(std::exchange(call.stopped_, nullptr));
    return;
  }
  make_room();
  give_runner(call);
  calls_.push_back(&call);
  call.request_.is_pending = true;
  resume(call, Wake::done);
}

void PendingCalls::add_brief(PendingCall& call) noexcept {
  calls_.push_back(&call);  // reserved by make_room()
  call.request_.is_pending = true;
}

// No call is brief before one that is not, which makes the board.
void PendingCalls::give_runner(PendingCall& call) {
  if (free_runners_.empty()) {
    api::at_leaving([](void* rank, std::uint32_t task) noexcept {
      auto& its = *static_cast<Rank*>(rank);
      if (task == its.main_task) its.pending_calls.abandon();
    });
    runners_.push_back(std::make_unique<PendingCall::Runner>(call.name_));
    free_runners_.reserve(runners_.size());
    free_runners_.push_back(runners_.back().get());
  }
  call.runner_ = free_runners_.back();
  call.runner_->call = &call;
  free_runners_.pop_back();
}

// What it calls may let other threads of the program run, which go on with other calls.
void PendingCalls::resume(PendingCall& call, Wake how) {
  call.how_ = how;
  call.awaited_ = nullptr;
  call.go_on();
  if (!call.is_over_) return;
  if (calls_.back() == &call) {
    calls_.pop_back();
  } else {
    std::erase(calls_, &call);
  }
  if (call.runner_ != nullptr) free_runners_.push_back(call.runner_);
  call.request_.is_pending = false;
  if (call.stopped_ && std::uncaught_exceptions() == 0) std::rethrow_exception(std::exchange(call.stopped_, nullptr));
}

void PendingCalls::go_on(const char* call) {
  for (std::size_t i = 0; i < calls_.size();) {
    PendingCall* const each = calls_[i];
    if (Condition* const awaited = each->awaited_; awaited != nullptr) {
      if (awaited->holds()) {
        resume(*each, Wake::done);
      } else if (api::is_in_vain(api::task(call), *awaited)) {
        resume(*each, Wake::ended);
      }
    }
    if (i < calls_.size() && calls_[i] == each) ++i;
  }
}

namespace {

/// Then pending calls do not go on: they would unwind, perhaps below a task that does so already.
bool stops(const TaskControl& self) noexcept {
  return self.cell->processor->domain().stopping.load(std::memory_order_acquire);  // acquire: pairs with stop()
}

}  // namespace

// The main thread's task, and guests: see Baton.
bool PendingCalls::others_call() noexcept { return running_task()->cell->processor->baton() != nullptr; }

Wake PendingCalls::wait(const Call& call, Condition& condition) {
  if (call.pending() != nullptr) return call.pending()->wait(condition);
  while (!stays_empty()) {
    TaskControl& self = api::task(call.name());
    if (stops(self)) break;
    go_on(call.name());
    if (condition.holds()) return Wake::done;
    if (api::is_in_vain(self, condition)) return Wake::ended;
    Any any(*this, condition);
    if (api::wait(self, call.name(), any) == Wake::stopping) return Wake::stopping;
  }
  return condition.holds() ? Wake::done : api::wait(api::task(call.name()), call.name(), condition);
}

// Conditions of one subject are asked once for all ranks (Condition::subject()), so this is worth a way of its own.
Wake PendingCalls::wait_for(const Call& call, PendingCall& only) {
  TaskControl& self = api::task(call.name());
  const bool is_shared = self.cell->live_tasks != 1 || self.cell->processor->baton() != nullptr;
  while (!is_shared && calls_.size() == 1 && calls_.front() == &only && !stops(self)) {
    Condition& awaited = *only.awaited_;
    const Wake how = awaited.holds() ? Wake::done : api::wait(self, call.name(), awaited);
    if (how == Wake::stopping) return how;
    resume(only, how);
  }
  return Wake::done;
}

void PendingCalls::await(const Call& call, const Posted& posted) {
  const RequestSet one{&posted, 1, [](const void* first, std::size_t) {
                         return const_cast<Posted*>(static_cast<const Posted*>(first));
                       }};
  static_cast<void>(wait_for_messages(call, one));
}

void PendingCalls::check_over() const {
  if (calls_.empty()) return;
  const PendingCall& first = *calls_.front();
  fail(MPI_ERR_PENDING,
       fmt::format("{} on {} is not over; wait for its request before", first.name_, first.aside_->title()));
}

void PendingCalls::abandon() noexcept {
  for (const PendingCall* const each : calls_) {
    if (each->awaited_ != nullptr) each->awaited_->let_go();
  }
  calls_.clear();
}

// ---------------------------------------------------------------- messages

bool Received::holds() const noexcept {
  for (std::size_t i = 0; i < set_.count; ++i) {
    const Posted* const posted = set_.at(set_.first, i);
    if (posted != nullptr && posted->open) return false;
  }
  return true;
}

std::string Received::missing() const {
  constexpr std::size_t named_max = 4;
  std::string text;
  std::size_t count = 0;
  for (std::size_t i = 0; i < set_.count; ++i) {
    const Posted* const posted = set_.at(set_.first, i);
    if (posted == nullptr || !posted->open || ++count > named_max) continue;
    text += count == 1 ? "" : "; ";
    text += posted->lease != nullptr ? "the receive of a message" : "a message from " + rank_.describe(posted->wish);
  }
  return count > named_max ? fmt::format("{}; and {} more", text, count - named_max) : text;
}

bool wait_for_messages(const Call& call, const RequestSet& set) {
  PendingCalls& pending = call.rank().pending_calls;
  if (call.pending() == nullptr && pending.stays_empty()) [[likely]]
    return api::wait(call.name(), set, true);
  Received all(call.rank(), set);
  return pending.wait(call, all) != Wake::stopping;
}

}  // namespace aplib::mpi
