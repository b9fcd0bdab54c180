// SPDX-License-Identifier: MIT
#include "kernel/mailbox.hpp"

#include <fmt/format.h>

#include "cell/processor.hpp"
#include "kernel/machine_impl.hpp"
#include "kernel/mailbox_inline.hpp"

namespace aplib::api {

static_assert(static_cast<std::uint32_t>(Space::mpi) == ContextKey::rank_space);
static_assert(static_cast<std::uint32_t>(Space::mpi_collective) == ContextKey::collective_space);
static_assert(static_cast<std::uint32_t>(Space::mpi_receipt) == ContextKey::receipt_space);

namespace {

[[noreturn, gnu::cold, gnu::noinline]] void mailbox_gone(const TaskControl& self, const char* call,
                                                         const Mailbox& mailbox) {
  refuse(self, Errc::bad_argument, call,
         fmt::format("task {} of this cell has ended, and its mailbox with it; receive before", index(mailbox.task)));
}

/// The task of the calling cell whose mailbox it is.
TaskControl& owner_of(TaskControl& self, const char* call, const Mailbox& mailbox) {
  if (index(mailbox.task) == self.id) return self;
  TaskControl* const owner = self.cell->tasks.find(index(mailbox.task));
  if (owner == nullptr || owner->ended) [[unlikely]]
    mailbox_gone(self, call, mailbox);
  return *owner;
}

void set_form(Posted& posted, const Form* form, std::size_t bytes, Message* apart) noexcept {
  posted.form = form;
  posted.capacity = bytes;
  posted.message = apart;
}

void set_buffer(Posted& posted, std::span<std::byte> buffer) noexcept {
  posted.message = nullptr;
  posted.buffer = reinterpret_cast<char*>(buffer.data());
  posted.capacity = buffer.size();
}

Processor& processor_of(const TaskControl& self) noexcept { return *self.cell->processor; }

[[noreturn, gnu::cold, gnu::noinline]] void refuse_label(const TaskControl& self, const char* call,
                                                         std::uint32_t context, std::uint32_t tag) {
  refuse(self, Errc::bad_argument, call,
         fmt::format("context {} or tag {} is out of range; use 0..{} and 0..{}", context, tag, Label::context_max,
                     Label::tag_max));
}

[[noreturn, gnu::cold, gnu::noinline]] void refuse_cell(const TaskControl& self, const char* call, std::uint32_t cell) {
  refuse(self, Errc::bad_argument, call,
         fmt::format("there is no cell {}; the machine has {}", cell, processor_of(self).domain().cell_count));
}

/// Nothing: the machine stops, and the task unwinds already.
[[gnu::cold, gnu::noinline]] std::optional<Arrived> receive_failed(const TaskControl& self, const char* call,
                                                                   const Mailbox& mailbox, const MatchWish& wish,
                                                                   Wake how) {
  if (how == Wake::ended) refuse_left_nothing(self, call, wish);
  if (!processor_of(self).stops()) mailbox_gone(self, call, mailbox);
  return std::nullopt;
}

MatchWish wish_for(const TaskControl& self, const char* call, const Mailbox& mailbox, const LabelWish& wish) {
  const std::uint32_t tag = wish.tag.value_or(0);
  if (wish.context > Label::context_max || tag > Label::tag_max) [[unlikely]]
    refuse_label(self, call, wish.context, tag);
  std::uint64_t mask = MatchKey::space_mask | ContextKey::context_mask;
  std::uint32_t cell = 0;
  if (wish.cell != any_cell) {
    cell = index(wish.cell);
    mask |= MatchKey::cell_mask;
    if (cell >= processor_of(self).domain().cell_count) [[unlikely]]
      refuse_cell(self, call, cell);
  }
  if (wish.tag) mask |= ContextKey::tag_mask;
  return {ContextKey::make(static_cast<std::uint32_t>(mailbox.space), cell, wish.context, tag), mask};
}

}  // namespace

namespace inlined {

Wake receive(TaskControl& self, const char* call) noexcept { return Processor::receive(self, call, false); }

[[gnu::cold]] std::optional<Arrived> receive_failed(const TaskControl& self, const char* call, const Mailbox& mailbox,
                                                    Wake how) {
  return api::receive_failed(self, call, mailbox, self.posted.wish, how);
}

[[gnu::cold]] void give_receipt(const TaskControl& self, const Mailbox& mailbox, std::uint64_t key) noexcept {
  processor_of(self).inbound().give_receipt(*self.cell, index(mailbox.task), key);
}

void post(TaskControl& owner, MailboxReceive& receive) noexcept {
  receive.how = Wake::done;
  receive.cancelled = false;
  receive.form = nullptr;
  processor_of(owner).inbound().post(owner, receive);
}

}  // namespace inlined

void send(const char* call, const Mailbox& to, const Label& label, std::span<const std::byte> bytes) {
  TaskControl& self = self_or_throw(call);
  if (label.context > (Label::context_max | Label::asks_for_receipt) || label.tag > Label::tag_max) [[unlikely]]
    refuse_label(self, call, label.context, label.tag);
  inlined::send(self, call, to, index(label.cell), label.context, label.tag, bytes);
}

bool lend(const char* call, const Mailbox& to, const Label& label, const Side& from, std::size_t bytes,
          MailboxReceive& sent) {
  TaskControl& self = self_or_throw(call);
  sent.cancelled = false;
  sent.how = Wake::done;
  Processor& here = processor_of(self);
  if (label.context > Label::context_max || label.tag > Label::tag_max || index(label.cell) >= here.domain().cell_count)
    return false;  // send() says what is wrong
  const std::uint64_t key =
      ContextKey::make(static_cast<std::uint32_t>(to.space), self.cell->id, label.context, label.tag);
  return here.inbound().lend(self, index(label.cell), index(to.task), key, from, bytes, sent);
}

void let_limits_yield(const char* call) {
  std::atomic<bool>& yield = processor_of(self_or_throw(call)).domain().limits_yield;
  if (!yield.load(std::memory_order_relaxed)) yield.store(true, std::memory_order_relaxed);  // relaxed: a hint
}

bool is_full() noexcept {
  const TaskControl* const self = running_task();
  if (self == nullptr) return false;
  Domain& domain = processor_of(*self).domain();
  return domain.send_gate.closed() && !domain.has_room();
}

void post(const char* call, const Mailbox& mailbox, MailboxReceive& receive, std::span<std::byte> buffer,
          const LabelWish& wish) {
  TaskControl& self = self_or_throw(call);
  receive.wish = wish_for(self, call, mailbox, wish);
  set_buffer(receive, buffer);
  inlined::post(owner_of(self, call, mailbox), receive);
}

void post(const char* call, const Mailbox& mailbox, MailboxReceive& receive, const Form& form, std::size_t bytes,
          Message& apart, const LabelWish& wish) {
  TaskControl& self = self_or_throw(call);
  receive.wish = wish_for(self, call, mailbox, wish);
  receive.how = Wake::done;
  receive.cancelled = false;
  apart = Message();
  set_form(receive, &form, bytes, &apart);
  processor_of(self).inbound().post(owner_of(self, call, mailbox), receive);
}

bool wait(const char* call, const RequestSet& set, bool all) {
  TaskControl& self = self_or_throw(call);
  if (Inbound::wait(self, call, set, all) == Wake::done) [[likely]]
    return true;
  static_cast<void>(processor_of(self).stops());
  return false;
}

bool test(const char* call, const RequestSet& set, bool all) { return Inbound::test(self_or_throw(call), set, all); }

bool cancel(MailboxReceive& receive) noexcept {
  if (!receive.open) return false;
  const bool is_receive = receive.lease == nullptr;
  Inbound::cancel(receive);
  if (!is_receive) return false;
  receive.cancelled = true;
  return true;
}

namespace {

/// `self.posted` says what it wants of the mailbox of `owner`.
std::optional<Arrived> receive_posted(TaskControl& self, TaskControl& owner, const char* call, const Mailbox& mailbox) {
  const Wake how = &owner == &self ? Processor::receive(self, call, false) : Inbound::receive_from(self, owner, call);
  if (how != Wake::done) [[unlikely]]
    return inlined::receive_failed(self, call, mailbox, how);
  if (ContextKey::asks_for_receipt(self.posted.key)) [[unlikely]]
    inlined::give_receipt(self, mailbox, self.posted.key);
  return arrived_as(self.posted.key, self.posted.bytes);
}

}  // namespace

std::optional<Arrived> receive(const char* call, const Mailbox& mailbox, std::span<std::byte> buffer,
                               const LabelWish& wish) {
  TaskControl& self = self_or_throw(call);
  TaskControl& owner = owner_of(self, call, mailbox);
  self.posted.wish = wish_for(self, call, mailbox, wish);
  set_buffer(self.posted, buffer);
  return receive_posted(self, owner, call, mailbox);
}

std::optional<Arrived> receive(const char* call, const Mailbox& mailbox, const Form& form, std::size_t bytes,
                               Message& apart, const LabelWish& wish) {
  struct UnsetForm {
    Posted& posted;
    ~UnsetForm() { posted.form = nullptr; }
  };
  TaskControl& self = self_or_throw(call);
  TaskControl& owner = owner_of(self, call, mailbox);
  const MatchWish wanted = wish_for(self, call, mailbox, wish);
  const UnsetForm unset{self.posted};
  self.posted.wish = wanted;
  apart = Message();
  set_form(self.posted, &form, bytes, &apart);
  return receive_posted(self, owner, call, mailbox);
}

std::optional<Arrived> probe(const char* call, const Mailbox& mailbox, const LabelWish& wish) {
  TaskControl& self = self_or_throw(call);
  const TaskControl& owner = owner_of(self, call, mailbox);
  const MatchWish wanted = wish_for(self, call, mailbox, wish);
  if (!processor_of(self).probe(self, owner, wanted)) return std::nullopt;
  const Buffer* const found = owner.mailbox.find(wanted);
  return arrived_as(found->key, found->bytes);
}

std::optional<Arrived> await(const char* call, const Mailbox& mailbox, const LabelWish& wish) {
  TaskControl& self = self_or_throw(call);
  const MatchWish wanted = wish_for(self, call, mailbox, wish);
  while (true) {
    TaskControl& owner = owner_of(self, call, mailbox);
    if (const Buffer* const found = owner.mailbox.find(wanted)) return arrived_as(found->key, found->bytes);
    Posted look;
    look.wish = wanted;
    look.looks = true;
    // Then it is here, or in a ring that leads here, or another task has taken it.
    const Wake how = Inbound::post_and_wait(self, owner, call, look);
    if (how != Wake::done) return receive_failed(self, call, mailbox, wanted, how);
  }
}

std::optional<Arrived> take(const char* call, const Mailbox& mailbox, Message& into, const LabelWish& wish) {
  TaskControl& self = self_or_throw(call);
  TaskControl& owner = owner_of(self, call, mailbox);
  const MatchWish wanted = wish_for(self, call, mailbox, wish);
  if (!processor_of(self).probe(self, owner, wanted)) return std::nullopt;
  MessageAccess::release(into);
  Posted posted;
  posted.wish = wanted;
  posted.message = &into;
  static_cast<void>(processor_of(self).inbound().take(owner, posted));
  return arrived_as(posted.key, posted.bytes);
}

void give_receipt(const char* call, const Mailbox& mailbox, const Arrived& arrived) {
  const Label& label = arrived.label;
  inlined::give_receipt(
      self_or_throw(call), mailbox,
      ContextKey::make(static_cast<std::uint32_t>(mailbox.space), index(label.cell), label.context, label.tag));
}

std::string Failed::text() const { return fmt::format("cell {} failed first, with status {}", cell, status); }

std::optional<Failed> failed_cell(const char* call) {
  // The news of a failure may come by the launcher, and that of a later end from the cell itself.
  constexpr std::chrono::milliseconds patience{100};
  TaskControl& self = self_or_throw(call);
  for (const auto until = Clock::now() + patience;;) {
    Processor& processor = processor_of(self);
    // acquire: its end
    const std::uint32_t cell = processor.domain().failed_first.load(std::memory_order_acquire);
    if (cell != Domain::no_cell && processor.inbound().cell_is_idle(cell))
      return Failed{cell, processor.inbound().end_of(cell).status};
    const bool stops = processor.domain().stopping.load(std::memory_order_relaxed);  // relaxed: no sleep finds out
    if (stops || Clock::now() >= until) return std::nullopt;
    Processor::sleep_until(self, Clock::now() + std::chrono::milliseconds(1), call);
  }
}

}  // namespace aplib::api
