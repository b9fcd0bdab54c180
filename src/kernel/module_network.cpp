// SPDX-License-Identifier: MIT
#include "kernel/module_network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "aplib/error.hpp"
#include "base/os/thread.hpp"
#include "base/text.hpp"
#include "cell/collectives.hpp"
#include "kernel/process.hpp"

namespace aplib {

namespace {

constexpr auto due_after = std::chrono::microseconds(20);
constexpr std::uint64_t polls_per_clock_look = 32;
constexpr auto room_sleep = std::chrono::milliseconds(1);
constexpr auto status_pause = std::chrono::milliseconds(1);  // between two notes of status words

constexpr const char* no_such_group = "a collective of cells that are not here";

/// Whose body may be large.
bool is_one_sided(const comm::Label& label) noexcept {
  return label.kind == static_cast<std::uint32_t>(FrameKind::put) ||
         label.kind == static_cast<std::uint32_t>(FrameKind::reply);
}

std::int64_t nanoseconds_now() noexcept { return Clock::now().time_since_epoch().count(); }

}  // namespace

ModuleNetwork::ModuleNetwork(Domain& domain, const Process& process)
    : domain_(domain),
      process_(process),
      module_(*process.module),
      port_(*domain.processors.back()),
      peers_(process.processes()),
      one_sided_(*this, domain, process.processes()),
      shared_bodies_(*this, domain, process.processes()) {
  other_status_ = std::make_unique<std::atomic<std::uint64_t>[]>(process.processes());
}

ModuleNetwork::~ModuleNetwork() = default;

void ModuleNetwork::begin() {
  module_.start(*this);
  const std::lock_guard lock(poll_mutex_);
  begun_ = true;
}

void ModuleNetwork::end() {
  const std::lock_guard lock(poll_mutex_);
  if (ended_) return;
  ended_ = true;
  // Below, memory that was lent to the module becomes the tasks' again. acquire: pairs with stop()
  if (domain_.stopping.load(std::memory_order_acquire)) module_.let_go();
  for (PeerState& peer : peers_) {
    if (peer.large.posted != nullptr || peer.large.buffer != nullptr) port_.outbound().end_large(peer.large, false);
  }
  shared_bodies_.end(port_.outbound());
  port_.poll();
  one_sided_.memory().end();
}

void ModuleNetwork::post(std::uint32_t process, FrameKind kind, comm::Label label, std::span<const std::byte> body) {
  std::atomic<bool>& used = peers_[process].used;
  // relaxed: whoever reports a cell's end has seen what that cell did
  if (!used.load(std::memory_order_relaxed)) used.store(true, std::memory_order_relaxed);
  label.kind = static_cast<std::uint32_t>(kind);
  sent_.fetch_add(1, std::memory_order_relaxed);  // relaxed: see invariant (2); the module orders it before the frame
  try {
    module_.send(process, label, body);
  } catch (...) {
    sent_.fetch_sub(1, std::memory_order_relaxed);  // relaxed: the same; else the sums would differ for ever
    throw;
  }
  if (!holds_back.load(std::memory_order_relaxed)) holds_back.store(true, std::memory_order_relaxed);  // a hint
  // relaxed: a frame of who sees it too late goes when that waits, or some ms later by the progress thread
  if (progress_.dozes.load(std::memory_order_relaxed) != 0 && module_.queued(process) != 0) {
    progress_.dozes.store(0, std::memory_order_release);
    os::futex_wake(progress_.dozes);
  }
}

void ModuleNetwork::send(TaskControl& self, const char* call, std::uint32_t cell, std::uint32_t task, std::uint64_t key,
                         std::span<const std::byte> bytes) {
  const std::uint32_t process = domain_.process_of(cell);
  const bool is_over_limit = module_.queued(process) > domain_.options.send_limit_bytes;
  std::atomic<bool>& stalls = peers_[process].stalls;
  // relaxed: a hint
  if (!is_over_limit && stalls.load(std::memory_order_relaxed)) stalls.store(false, std::memory_order_relaxed);
  if (is_over_limit) [[unlikely]] {
    if (!ContextKey::is_of_mpi(key)) {
      wait_for_room(self, call, cell, process);
    } else if (ContextKey::is_from_rank_to_rank(key)) {
      wait_while_it_takes(self, process);
    }
  }
  comm::Label label;
  label.key = key;
  label.cell = cell;
  label.task = task;
  if (bytes.size() >= SharedBodies::from_bytes && shared_bodies_.send(process, label, bytes)) return;
  post(process, FrameKind::message, label, bytes);
}

void ModuleNetwork::send_empty(std::uint32_t cell, std::uint32_t task, std::uint64_t key) {
  comm::Label label;
  label.key = key;
  label.cell = cell;
  label.task = task;
  post(domain_.process_of(cell), FrameKind::message, label, {});
}

std::shared_ptr<Errands> ModuleNetwork::errands(std::unique_ptr<Errands> (*make)(Domain& domain)) {
  const std::lock_guard lock(errands_mutex_);
  if (owned_errands_ == nullptr) {
    owned_errands_ = make(domain_);
    errands_.store(owned_errands_.get(), std::memory_order_release);  // release: what it has
  }
  return owned_errands_;
}

static_assert(Errands::bytes_max < comm::Module::large_from_bytes);

void ModuleNetwork::send_errand(TaskControl& self, const char* call, std::uint32_t cell,
                                std::span<const std::byte> errand) {
  const std::uint32_t process = domain_.process_of(cell);
  make_room(self, call, cell, process);
  post(process, FrameKind::errand, {}, errand);
}

void ModuleNetwork::answer_errand(std::uint32_t process, std::span<const std::byte> errand) {
  post(process, FrameKind::errand, {}, errand);
  errands_answered_ = true;
}

bool ModuleNetwork::await_room(TaskControl& self, std::uint32_t process, Clock::duration stall_max) {
  std::size_t least = module_.queued(process);
  Clock::time_point since = Clock::now();
  while (true) {
    poll();
    Processor::yield(self);
    if (self.cell->processor->stops()) return true;
    const std::size_t queued = module_.queued(process);
    if (queued <= domain_.options.send_limit_bytes) return true;
    const Clock::time_point now = Clock::now();
    if (queued < least) {
      least = queued;
      since = now;
    } else if (now - since > stall_max) {
      return false;
    }
    if (!self.cell->processor->idle().has_ready()) module_.wait(room_sleep);
  }
}

void ModuleNetwork::wait_for_room(TaskControl& self, const char* call, std::uint32_t cell, std::uint32_t process) {
  if (await_room(self, process, domain_.options.send_wait)) return;
  throw Error(
      Errc::exhausted,
      fmt::format("{} task {}: {}: {} MiB wait to be taken by {} ({}), which has taken nothing for {}; let {} receive "
                  "more often, send less at a time, or raise send-limit (APLIB_SEND_LIMIT) or send-wait",
                  domain_.name_of(self.cell->id), self.id, call, module_.queued(process) >> 20, process_.names[process],
                  domain_.cell_map.text(process), text::print_duration(domain_.options.send_wait),
                  domain_.name_of(cell)));
}

// MPI's sends must end without the help of others. A peer that has taken nothing for some ms is not waited for again
// before there is room.
void ModuleNetwork::wait_while_it_takes(TaskControl& self, std::uint32_t process) {
  std::atomic<bool>& stalls = peers_[process].stalls;
  if (stalls.load(std::memory_order_relaxed)) return;  // relaxed: a hint, here and below
  if (!await_room(self, process, Domain::stall_max)) stalls.store(true, std::memory_order_relaxed);
}

void ModuleNetwork::send_exchange(std::uint32_t process, std::span<const std::byte> frame) {
  const auto [scope, index] = Exchange::group_of(frame);
  comm::Label label;
  label.cell = index;
  label.extra = static_cast<std::uint32_t>(scope);
  post(process, FrameKind::exchange, label, frame);
}

bool ModuleNetwork::poll() {
  const std::unique_lock lock(poll_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  poll_alone();
  return true;
}

void ModuleNetwork::poll_alone() {
  if (!begun_ || ended_) return;
  port_.poll();  // what processors have for it: moves, ends of cells; and its backlog
  if (domain_.send_gate.closed() || is_short_of_memory()) check_unread();
  // relaxed: a hint
  if (holds_back.load(std::memory_order_relaxed)) holds_back.store(false, std::memory_order_relaxed);
  if (module_.poll())
    arrivals_.store(arrivals_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);  // relaxed: a hint
  if (one_sided_.has_answered() || std::exchange(errands_answered_, false)) module_.flush();
  if (port_.outbound().backlog_count() != 0) port_.poll();
  const std::uint64_t polls = polls_.load(std::memory_order_relaxed) + 1;  // relaxed: a clock
  polls_.store(polls, std::memory_order_relaxed);                          // relaxed: the same
  // Idle processors poll again and again, and need not know when.
  if (polls % polls_per_clock_look == 0) last_poll_.store(nanoseconds_now(), std::memory_order_relaxed);  // the same
}

void ModuleNetwork::poll_if_due() {
  const std::int64_t since = nanoseconds_now() - last_poll_.load(std::memory_order_relaxed);  // relaxed: a clock
  if (since <= std::chrono::nanoseconds(due_after).count()) return;
  if (poll()) last_poll_.store(nanoseconds_now(), std::memory_order_relaxed);  // relaxed: a clock
}

void ModuleNetwork::wait(std::optional<std::chrono::nanoseconds> timeout) noexcept {
  try {
    module_.wait(timeout);
  } catch (const std::exception& error) {  // perhaps that there is no memory, so this takes none
    std::array<char, Domain::failure_bytes> text;
    const auto* const end =
        fmt::format_to_n(text.data(), text.size(), "the network cannot be waited for: {}", error.what()).out;
    domain_.fail(static_cast<int>(ExitStatus::peer_lost), {text.data(), end});
  }
}

void ModuleNetwork::stirred() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // own wake before the look; pairs with the progress thread's
  if (progress_.asleep.load(std::memory_order_relaxed) == 0) return;  // the fence orders it
  progress_.asleep.store(0, std::memory_order_release);               // release: to the progress thread
  os::futex_wake(progress_.asleep);
}

void ModuleNetwork::wake_progress() noexcept {
  stirred();
  if (progress_.dozes.load(std::memory_order_relaxed) == 0) return;  // the fence in stirred() orders it
  progress_.dozes.store(0, std::memory_order_release);               // release: to the progress thread
  os::futex_wake(progress_.dozes);
}

// ---------------------------------------------------------------- what comes

// Whose meter grows, closes the gate when too much waits (Inbound::queue()); we open it again.
void ModuleNetwork::check_unread() {
  const bool has_room = domain_.has_room();
  const std::int64_t unread = domain_.unread_bytes();
  if (has_room) allowed_ = 0;
  if (has_room || unread <= allowed_) {
    short_of_memory_.store(false, std::memory_order_relaxed);  // relaxed: under poll_mutex_, for others a hint
    return;
  }
  const Clock::time_point now = Clock::now();
  if (!is_short_of_memory() || unread < unread_seen_) unread_since_ = now;
  short_of_memory_.store(true, std::memory_order_relaxed);  // relaxed: the same
  unread_seen_ = unread;
  if (domain_.limits_yield.load(std::memory_order_relaxed)) {  // relaxed: set before anything is sent
    // What is awaited may lie behind what has come. So more of it is let in, as nobody receives any of this.
    if (now - unread_since_ > Domain::stall_max)
      allowed_ = unread + static_cast<std::int64_t>(domain_.options.unread_limit_bytes);
    return;
  }
  if (now - unread_since_ < domain_.options.send_wait) return;
  domain_.fail(
      static_cast<int>(ExitStatus::program_failed),
      fmt::format("{}: {} MiB of messages wait here to be received, those of other processes among them, and none has "
                  "been for {}; receive them, or raise unread-limit (APLIB_UNREAD_LIMIT)",
                  domain_.cell_map.text(domain_.process), unread >> 20,
                  text::print_duration(domain_.options.send_wait)));
}

bool ModuleNetwork::wants(comm::Peer from) {
  // While the machine stops, tasks unwind, and the target of a large body may be gone. Acquire: pairs with stop().
  if (peers_[from].lands && domain_.stopping.load(std::memory_order_acquire)) return false;
  return !is_short_of_memory() && !ended_;
}

void ModuleNetwork::nonsense(comm::Peer from, const std::string& what) {
  domain_.fail(static_cast<int>(ExitStatus::peer_lost),
               fmt::format("a frame from {} makes no sense: {}; are all installations of APlib the same?",
                           process_.names[from], what));
}

bool ModuleNetwork::is_message_of(comm::Peer from, const comm::Label& label) const noexcept {
  return domain_.is_of(domain_.process, label.cell) && domain_.is_of(from, MatchKey::cell(label.key)) &&
         label.task <= task_id_max;
}

// What these upcalls do is the machine's work. What it throws is no failure of the module, nor of the peer.

void ModuleNetwork::frame(comm::Peer from, const comm::Label& label, std::span<const std::byte> body) {
  domain_.guarded([&] { take_frame(from, label, body); });
}

void ModuleNetwork::large_end(comm::Peer from, const comm::Label& label, std::size_t bytes, bool complete) {
  domain_.guarded([&] { end_large(from, label, bytes, complete); });
}

void ModuleNetwork::peer_lost(comm::Peer peer, const std::string& why) {
  peers_[peer].lost = true;
  if (ended_) return;
  domain_.guarded([&] {
    ByteWriter note = begin_note(NoteKind::lost_peer);
    note.number(peer);
    note.text(why);
    process_.supervisor->send_note(note.bytes());
  });
}

void ModuleNetwork::take_frame(comm::Peer from, const comm::Label& label, std::span<const std::byte> body) {
  if (ended_) return;
  switch (static_cast<FrameKind>(label.kind)) {
    case FrameKind::message:
      if (!is_message_of(from, label)) return nonsense(from, "a message that is not for here, or not from there");
      take_message(label, body);
      break;
    case FrameKind::cell_ended: {
      if (!domain_.is_of(from, label.cell)) return nonsense(from, "the end of a cell that is not there");
      CellEnd end;
      if (body.size() != sizeof end) return nonsense(from, "the end of a cell of another length");
      std::memcpy(&end, body.data(), sizeof end);
      domain_.note_end(label.cell, end.status);
      port_.outbound().push_to_threads(EntryKind::cell_ended, label.cell, end);
      break;
    }
    case FrameKind::exchange:
      receive_exchange(from, body);
      break;
    case FrameKind::shared_message:
    case FrameKind::shared_begin: {
      const auto arrival = is_message_of(from, label) ? shared_bodies_.find(from, body) : std::nullopt;
      if (!arrival) return nonsense(from, "a message in memory that is not there, or not for here");
      const bool is_whole = label.kind == static_cast<std::uint32_t>(FrameKind::shared_message);
      if (is_whole ? !shared_bodies_.take(from, label, *arrival, port_.outbound())
                   : !shared_bodies_.begin_parts(from, label, *arrival, port_.outbound()))
        return nonsense(from, "a message that comes in the parts of another one");
      break;
    }
    case FrameKind::shared_part:
      if (!shared_bodies_.take_part(from, body)) return nonsense(from, "a part of a message that is not there");
      break;
    case FrameKind::arena_place:
      if (!shared_bodies_.take_place(from, body)) return nonsense(from, "a second place of its arena, or none");
      break;
    case FrameKind::arena_answer:
      if (!shared_bodies_.take_answer(from, label)) return nonsense(from, "an answer to what was not asked");
      break;
    case FrameKind::errand: {
      Errands* const errands = errands_.load(std::memory_order_acquire);  // acquire: what it has
      if (errands == nullptr || !errands->take(from, body)) return nonsense(from, "an errand that nobody knows");
      break;
    }
    default:
      if (!one_sided_.frame(from, label, body)) return;
  }
  count_received();
}

/// To the task that waits for it, if that is carried by who polls; else through a ring.
void ModuleNetwork::take_message(const comm::Label& label, std::span<const std::byte> body) {
  Processor* const here = Processor::current();
  const bool is_ours = here != nullptr && &here->domain() == &domain_;
  if (is_ours && here->inbound().take_from_network(port_.outbound(), label.cell, label.task, label.key, body)) return;
  port_.outbound().inject(label.cell, label.task, label.key, body);
}

std::byte* ModuleNetwork::large_begin(comm::Peer from, const comm::Label& label, std::size_t bytes) {
  if (ended_) return nullptr;
  PeerState& peer = peers_[from];
  try {
    // The length is the peer's word: memory is taken as the bytes come, for it is not written before.
    const auto make_body = [&] {
      peer.body = std::make_unique_for_overwrite<std::byte[]>(bytes);
      return peer.body.get();
    };
    if (label.kind == static_cast<std::uint32_t>(FrameKind::exchange)) {
      if (exchange_of(label.extra, label.cell) != nullptr) return make_body();
      nonsense(from, no_such_group);
      return nullptr;
    }
    if (is_one_sided(label)) {
      if (domain_.stopping.load(std::memory_order_acquire)) return make_body();  // acquire: pairs with stop()
      std::byte* place = one_sided_.large_begin(from, label, bytes);
      peer.lands = place != nullptr;
      return place;
    }
    if (label.kind != static_cast<std::uint32_t>(FrameKind::message) || !is_message_of(from, label)) {
      nonsense(from, "a large frame that is no message for here");
      return nullptr;
    }
    peer.large = LargeArrival{.cell = label.cell, .task = label.task, .key = label.key, .bytes = bytes};
    return port_.outbound().begin_large(peer.large);
  } catch (const std::exception& error) {
    domain_.fail(static_cast<int>(ExitStatus::program_failed),
                 fmt::format("{}: there is no room for a message of {} bytes from {}: {}", domain_.name_of(label.cell),
                             bytes, domain_.name_of(MatchKey::cell(label.key)), error.what()));
    return nullptr;
  }
}

void ModuleNetwork::end_large(comm::Peer from, const comm::Label& label, std::size_t bytes, bool complete) {
  PeerState& peer = peers_[from];
  if (ended_) return;
  if (label.kind == static_cast<std::uint32_t>(FrameKind::exchange)) {
    if (!complete) return;  // the module may still write there
    receive_exchange(from, {peer.body.get(), bytes});
    count_received();
    peer.body.reset();
    return;
  }
  const bool landed = std::exchange(peer.lands, false);
  if (!complete) return;  // the peer is lost, so the machine stops: end() lets the receiver go
  if (is_one_sided(label)) {
    if (landed && !one_sided_.large_end(from, label, bytes)) return;
  } else {
    port_.outbound().end_large(peer.large, true);
  }
  count_received();
}

Exchange* ModuleNetwork::exchange_of(std::uint32_t scope, std::uint32_t index) noexcept {
  if (scope > static_cast<std::uint32_t>(Scope::last)) return nullptr;
  if (static_cast<Scope>(scope) == Scope::all) return index == 0 ? domain_.all.exchange : nullptr;
  const std::vector<Group>& lines = static_cast<Scope>(scope) == Scope::row ? domain_.rows : domain_.columns;
  return index < lines.size() ? lines[index].exchange : nullptr;
}

void ModuleNetwork::receive_exchange(comm::Peer from, std::span<const std::byte> body) {
  const auto [scope, index] = Exchange::group_of(body);
  Exchange* const exchange = exchange_of(static_cast<std::uint32_t>(scope), index);
  if (exchange == nullptr) return nonsense(from, no_such_group);
  try {
    exchange->receive(body);
  } catch (const Error& error) {
    nonsense(from, error.what());
  }
}

// ---------------------------------------------------------------- ends, starts, status

void ModuleNetwork::cell_ended(std::uint32_t cell, const CellEnd& end) {
  // While the machine stops, a cell's end is a consequence. Others must not take it for the cause. Acquire: pairs with
  // stop().
  if (domain_.stopping.load(std::memory_order_acquire)) return;
  tell_status();  // its last word is known when its end is
  // The processes to which it may have sent hear of it behind its messages. The overseer tells the others, which then
  // need no connection for it.
  std::vector<std::uint32_t> told;
  for (std::uint32_t p = 0; p < peers_.size(); ++p) {
    if (p == domain_.process || !peers_[p].used.load(std::memory_order_relaxed)) continue;  // relaxed: see post()
    comm::Label label;
    label.cell = cell;
    post(p, FrameKind::cell_ended, label, std::as_bytes(std::span(&end, 1)));
    told.push_back(p);
  }
  if (end.status == 0 && told.size() + 1 == peers_.size()) return;  // else it must know who failed first
  ByteWriter note = begin_note(NoteKind::cell_ended);
  note.number(cell);
  note.number(end.tasks);
  for (const std::uint64_t episode : end.episodes) note.number(episode);
  note.number(static_cast<std::uint32_t>(end.status));
  note.numbers(told);
  process_.supervisor->send_note(note.bytes());
}

void ModuleNetwork::all_ended() noexcept {
  tell_status();
  const std::lock_guard lock(starts_mutex);
  if (domain_.live_cells.load(std::memory_order_acquire) != 0) return;  // acquire: a program was started meanwhile
  domain_.guarded([this] {
    ByteWriter note = begin_note(NoteKind::all_ended);
    note.number(starts.load(std::memory_order_relaxed));  // relaxed: changed under the mutex
    process_.supervisor->send_note(note.bytes());
  });
}

void ModuleNetwork::remote_cell_ended(std::uint32_t cell, const CellEnd& end) {
  const std::lock_guard lock(poll_mutex_);
  if (ended_ || domain_.is_of(domain_.process, cell)) return;
  domain_.note_end(cell, end.status);
  port_.outbound().push_to_threads(EntryKind::cell_ended, cell, end);
}

void ModuleNetwork::start_program(const CellProgram& program) {
  const std::lock_guard lock(poll_mutex_);
  if (ended_) return;
  for (const std::uint32_t cell : domain_.local_cells()) port_.outbound().push_start(cell, program);
}

void ModuleNetwork::call_on_each(void (*function)(Processor& processor, void* state), void* state) {
  const std::lock_guard lock(poll_mutex_);
  port_.outbound().push_to_threads(EntryKind::call, 0, CallEntry{function, state});
}

void ModuleNetwork::status_changed() noexcept {
  {
    const std::lock_guard lock(status_mutex_);
    std::uint32_t words = 0;
    for (const std::uint32_t c : domain_.local_cells())
      words |= static_cast<std::uint32_t>(
          domain_.cells[c]->posted_status.load(std::memory_order_relaxed));   // relaxed: words on their own
    const std::uint64_t known = own_status_.load(std::memory_order_relaxed);  // relaxed: under the mutex
    if (known >> 32 != 0 && static_cast<std::uint32_t>(known) == words) return;
    const std::uint32_t age = std::max(static_cast<std::uint32_t>(known >> 32) + 1, 1U);  // 0: none yet
    own_status_.store(std::uint64_t{age} << 32 | words, std::memory_order_relaxed);       // the same
    const bool was_due = status_due_.exchange(true, std::memory_order_relaxed);           // the same
    if (Clock::now() - status_told_ >= status_pause) return tell_status_alone();
    if (was_due) return;
  }
  // It goes soon, with what is posted until then, so that a loop of posts does not become a queue of notes.
  wake_progress();
}

void ModuleNetwork::tell_status() noexcept {
  const std::lock_guard lock(status_mutex_);
  if (status_due()) tell_status_alone();
}

void ModuleNetwork::tell_status_alone() noexcept {
  status_due_.store(false, std::memory_order_relaxed);  // relaxed: under the mutex
  status_told_ = Clock::now();
  domain_.guarded([this] {
    ByteWriter note = begin_note(NoteKind::status);
    note.number(own_status_.load(std::memory_order_relaxed));  // relaxed: the same
    process_.supervisor->send_note(note.bytes());
  });
}

void ModuleNetwork::other_status(std::uint32_t process, std::uint64_t status) noexcept {
  if (process >= peers_.size() || process == domain_.process) return;
  std::atomic<std::uint64_t>& known = other_status_[process];
  std::uint64_t seen = known.load(std::memory_order_relaxed);  // relaxed: a word on its own; the younger one stays
  // Ages wrap around.
  const auto is_younger = [&] {
    return seen == 0 || static_cast<std::int32_t>(static_cast<std::uint32_t>(status >> 32) -
                                                  static_cast<std::uint32_t>(seen >> 32)) > 0;
  };
  while (is_younger() && !known.compare_exchange_weak(seen, status, std::memory_order_relaxed)) {
  }
}

std::uint32_t ModuleNetwork::other_status_words() const noexcept {
  std::uint32_t words = 0;
  for (std::uint32_t p = 0; p < peers_.size(); ++p)
    words |= static_cast<std::uint32_t>(other_status_[p].load(std::memory_order_relaxed));  // relaxed: the same
  return words;
}

// ---------------------------------------------------------------- for the progress thread

QuietNote ModuleNetwork::counts() const noexcept {
  QuietNote note;
  note.received = received_.load(std::memory_order_acquire);  // acquire: pairs with count_received()
  note.sent = sent_.load(std::memory_order_relaxed);          // relaxed: all processors sleep
  // relaxed: counts agree twice before anything is decided
  note.host_ended =
      domain_.host_cell != nullptr && std::atomic_ref(domain_.host_cell->ended).load(std::memory_order_relaxed) ? 1 : 0;
  return note;
}

bool ModuleNetwork::is_quiet(std::uint64_t word) {
  const std::lock_guard lock(poll_mutex_);
  poll_alone();
  return all_asleep() && port_.outbound().backlog_count() == 0 &&
         domain_.sleepers.load(std::memory_order_acquire) == word;  // acquire: as in all_asleep()
}

bool ModuleNetwork::all_asleep() const noexcept {
  const std::uint64_t word = domain_.sleepers.load(std::memory_order_acquire);  // acquire: what they did before
  if ((word & 0xffff'ffffU) != domain_.thread_count()) return false;
  for (std::size_t p = 0; p < domain_.thread_count(); ++p) {
    if (!domain_.processors[p]->parker().is_asleep()) return false;
  }
  return true;
}

// ---------------------------------------------------------------- the progress thread

namespace {

constexpr auto tick_time = std::chrono::milliseconds(1);
/// The longest pause. Each look that was not needed doubles the pause, because ticks cost much on a host with a share
/// of a core, or with many processes.
constexpr auto pause_max = std::chrono::milliseconds(16);
constexpr std::uint32_t quiet_ticks = 20;  // asleep for so long: told to the overseer

}  // namespace

ProgressThread::ProgressThread(Domain& domain, ModuleNetwork& network, Supervisor& supervisor)
    : domain_(domain),
      network_(network),
      supervisor_(supervisor),
      thread_(os::quiet_thread("aplib-progress", [this] { run(); })) {}

ProgressThread::~ProgressThread() {
  closing_.store(true, std::memory_order_seq_cst);
  tick_.store(1, std::memory_order_release);
  os::futex_wake(tick_);
  network_.progress().dozes.store(0, std::memory_order_release);
  os::futex_wake(network_.progress().dozes);
  network_.progress().asleep.store(0, std::memory_order_release);
  os::futex_wake(network_.progress().asleep);
  network_.wake();
  thread_.join();
}

void ProgressThread::sleep_until_stirred(std::uint64_t quiet_word) {
  network_.progress().asleep.store(1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // own word before the looks; pairs with stirred()
  const bool nothing_new = domain_.sleepers.load(std::memory_order_acquire) == quiet_word && network_.someone_waits() &&
                           !network_.status_due() && !closing_.load(std::memory_order_acquire);
  while (nothing_new && network_.progress().asleep.load(std::memory_order_acquire) == 1)
    os::futex_wait(network_.progress().asleep, 1, std::nullopt);
  network_.progress().asleep.store(0, std::memory_order_relaxed);  // relaxed: a waker in between wakes nobody
}

/// Whoever leaves a frame behind ends a long pause; rarely, when it learns of the pause too late, it does not. Returns
/// whether somebody has.
bool ProgressThread::pause(std::chrono::milliseconds time) {
  if (time == tick_time) {
    os::futex_wait(tick_, 0, time);
    return false;
  }
  network_.progress().dozes.store(1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // own word before the looks; pairs with wake_progress()
  if (!closing_.load(std::memory_order_seq_cst) && !network_.status_due())
    os::futex_wait(network_.progress().dozes, 1, time);
  return network_.progress().dozes.exchange(0, std::memory_order_relaxed) == 0;  // relaxed: a waker now wakes nobody
}

void ProgressThread::run() {
  // What throws fails the machine, which needs this thread until its end.
  while (!closing_.load(std::memory_order_acquire)) domain_.guarded([this] { look_after_network(); });
}

void ProgressThread::look_after_network() {
  std::uint64_t quiet_word = 0;
  auto time = tick_time;
  std::uint32_t ticks = 0;
  bool told = false;
  bool frames_left = false;  // by who does not wait, now and then
  while (!closing_.load(std::memory_order_acquire)) {
    if (network_.status_due()) {  // collected for a tick
      os::futex_wait(tick_, 0, tick_time);
      network_.tell_status();
    }
    const std::uint64_t word = domain_.sleepers.load(std::memory_order_acquire);
    const bool all_asleep = network_.all_asleep();
    const bool stands_still = word == quiet_word;
    if (!all_asleep || !stands_still) {
      ticks = 0;
      told = false;
    }
    quiet_word = word;
    if (all_asleep && ticks < quiet_ticks) ++ticks;
    if (ticks == quiet_ticks && !told && network_.is_quiet(word)) {
      told = true;
      ByteWriter note = begin_note(NoteKind::quiet);
      network_.counts().write(note);
      supervisor_.send_note(note.bytes());
    }
    // Where processors sleep and wake all the time, to be stirred each time would cost more than to look now and then.
    if (network_.someone_waits() && (told || (!all_asleep && stands_still)) && !network_.is_short_of_memory()) {
      sleep_until_stirred(word);
      continue;
    }
    if ((all_asleep && stands_still) || network_.is_short_of_memory()) time = tick_time;
    const std::uint64_t polls = network_.polls();
    const bool called = pause(time);
    frames_left = called || (frames_left && network_.holds_back.load(std::memory_order_relaxed));  // relaxed: a hint
    const auto longer = std::min(2 * time, pause_max);
    if (network_.polls() != polls || network_.someone_waits()) {
      if (network_.is_short_of_memory()) network_.poll();
      time = frames_left ? tick_time : longer;
      network_.flush();
      continue;
    }
    // Nobody looks after the network. Wait for what comes, so that it need not wait for the next tick.
    const std::uint64_t arrivals = network_.arrivals();
    network_.poll();
    network_.wait(tick_time);
    network_.poll();
    time = network_.arrivals() != arrivals ? tick_time : longer;
    // A processor may have begun to wait beside us, and what woke us may have been meant for it.
    if (network_.someone_waits()) network_.wake();
  }
}

}  // namespace aplib
