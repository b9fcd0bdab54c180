// SPDX-License-Identifier: MIT
// The public C++ API and the kernel's own (api.hpp): arguments are checked and turned into the core's terms here.
#include <dlfcn.h>
#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "aplib/aplib.hpp"
#include "aplib/error.hpp"
#include "aplib/export.hpp"
#include "aplib/one_sided.hpp"
#include "aplib/symmetric.hpp"
#include "base/log.hpp"
#include "base/program_context.hpp"
#include "base/sanitizer.hpp"
#include "cell/baton.hpp"
#include "cell/ended_error.hpp"
#include "cell/one_sided.hpp"
#include "cell/processor.hpp"
#include "kernel/api.hpp"
#include "kernel/machine_impl.hpp"
#include "kernel/process_run.hpp"
#include "kernel/program_threads.hpp"

namespace aplib {

// ---------------------------------------------------------------- for requests, too (machine_impl.hpp)

void give_back(Buffer* buffer) noexcept {
  if (Processor* processor = Processor::current()) {
    processor->pool().take_back(buffer);
  } else {
    BufferPool::take_back_outside(buffer);
  }
}

Envelope envelope_of(const Domain& domain, std::uint64_t key, std::size_t bytes) noexcept {
  return Envelope{CellId{domain.visible(MatchKey::cell(key))}, TaskId{MatchKey::task(key)},
                  static_cast<std::int32_t>(MatchKey::type(key)), bytes};
}

void refuse_left_nothing(const TaskControl& self, const char* call, const MatchWish& wish) {
  const Domain& domain = self.cell->processor->domain();
  const std::uint32_t cell = MatchKey::cell(wish.key);
  const CellEnd& end = self.cell->processor->inbound().end_of(cell);
  refuse_ended(
      self, end, call,
      fmt::format("{} has ended with status {} and left no such message ({}); nothing more will come from it{}",
                  domain.name_of(cell), end.status, describe_wish(*self.cell, wish), describe_unread(self)));
}

void refuse_too_long(const TaskControl& self, const char* call, std::uint64_t key, std::size_t bytes,
                     std::size_t capacity) {
  const Domain& domain = self.cell->processor->domain();
  refuse(self, Errc::mismatch, call,
         fmt::format("a message of {} bytes from {} task {}, type {}, does not fit into the buffer of {} bytes; "
                     "give a larger buffer",
                     bytes, domain.name_of(MatchKey::cell(key)), MatchKey::task(key), MatchKey::type(key), capacity));
}

namespace {

[[noreturn, gnu::cold, gnu::noinline]] void null_bytes(const char* call, std::size_t bytes) {
  refuse(self_or_throw(call), Errc::bad_argument, call,
         fmt::format("the span is null but has {} bytes; give the address of that many", bytes));
}

[[gnu::cold, gnu::noinline]] void bad_source(const TaskControl& self, const char* call, From from) {
  const Domain& domain = self.cell->processor->domain();
  if (from.cell != any_cell && index(from.cell) >= domain.cell_count &&
      !(domain.has_host && index(from.cell) == domain.host_id)) {
    std::string text =
        fmt::format("there is no cell {}; the machine has cells 0..{} ({}x{})",
                    static_cast<std::int32_t>(index(from.cell)), domain.cell_count - 1, domain.grid.nx, domain.grid.ny);
    if (domain.has_host) text += fmt::format(" and the host program, {}", domain.host_id);
    refuse(self, Errc::bad_argument, call, text);
  }
  if (from.task != any_task && index(from.task) > task_id_max) {
    refuse(self, Errc::bad_argument, call,
           fmt::format("task {} is out of range; use 0..{}, or any_task", index(from.task), task_id_max));
  }
  if (from.type < any_type || from.type > message_type_max) {
    refuse(self, Errc::bad_argument, call,
           fmt::format("message type {} is out of range; use 0..{}, or any_type", from.type, message_type_max));
  }
}

/// False: the source is the host program, or there may not be such a one.
[[gnu::always_inline]] inline bool make_wish(const Domain& domain, const From& from, api::Space space,
                                             MatchWish& wish) {
  std::uint64_t mask = MatchKey::space_mask;
  std::uint32_t cell = 0;
  std::uint32_t task = 0;
  std::uint32_t type = 0;
  if (from.cell != any_cell) {
    cell = index(from.cell);
    mask |= MatchKey::cell_mask;
    if (cell >= domain.cell_count) [[unlikely]]
      return false;
  }
  if (from.task != any_task) {
    task = index(from.task);
    mask |= MatchKey::task_mask;
    if (task > task_id_max) [[unlikely]]
      return false;
  }
  if (from.type != any_type) {
    type = static_cast<std::uint32_t>(from.type);
    mask |= MatchKey::type_mask;
    if (type > static_cast<std::uint32_t>(message_type_max)) [[unlikely]]
      return false;
  }
  wish = {MatchKey::make(static_cast<std::uint32_t>(space), cell, task, type), mask};
  return true;
}

[[gnu::noinline]] MatchWish wish_for(const TaskControl& self, const char* call, From from, api::Space space) {
  const Domain& domain = self.cell->processor->domain();
  MatchWish wish;
  if (make_wish(domain, from, space, wish)) return wish;
  bad_source(self, call, from);
  static_cast<void>(make_wish(domain, {any_cell, from.task, from.type}, space, wish));
  return {wish.key | MatchKey::make(0, domain.cell_count, 0, 0), wish.mask | MatchKey::cell_mask};  // the host
}

// It returns only where the task unwinds already. Then nothing has been received.
[[gnu::cold, gnu::noinline]] Envelope receive_failed(const char* call, Wake how) {
  const TaskControl& self = self_or_throw(call);
  if (how == Wake::stopping) {
    static_cast<void>(self.cell->processor->stops());
    return Envelope{any_cell, any_task, any_type, 0};
  }
  refuse_left_nothing(self, call, self.posted.wish);
}

[[gnu::cold, gnu::noinline]] api::Received receive_failed_into(const char* call, Wake how, bool closed_when_cells_end) {
  if (how == Wake::ended && closed_when_cells_end) return api::Received::closed;
  receive_failed(call, how);
  *self_or_throw(call).posted.message = Message{};
  return api::Received::message;
}

[[gnu::cold, gnu::noinline]] Envelope receive_cut(const TaskControl& self, const char* call, bool truncate) {
  const Posted& posted = self.posted;
  if (!truncate) refuse_too_long(self, call, posted.key, posted.bytes, posted.capacity);
  api::debug(call, fmt::format("the message has {} bytes, the buffer {}: the rest is not stored", posted.bytes,
                               posted.capacity));
  return envelope_of(self.cell->processor->domain(), posted.key, posted.capacity);
}

/// Receives what `self.posted.wish` says.
[[gnu::always_inline]] inline api::Received receive_wished(TaskControl& self, const char* call, Message& into,
                                                           bool closed_when_cells_end) {
  self.posted.message = &into;
  self.posted.capacity = 0;
  const Wake how = Processor::receive(self, call, closed_when_cells_end);
  if (how == Wake::done) [[likely]]
    return api::Received::message;
  return receive_failed_into(call, how, closed_when_cells_end);
}

/// The last message of `into` has a buffer, or a source is to be looked at more closely.
[[gnu::noinline]] api::Received release_and_receive(const char* call, Message& into, From from, api::Space space,
                                                    bool closed_when_cells_end) {
  TaskControl& self = self_or_throw(call);
  MessageAccess::release(into);
  self.posted.wish = wish_for(self, call, from, space);
  return receive_wished(self, call, into, closed_when_cells_end);
}

[[noreturn, gnu::cold, gnu::noinline]] void bad_scope(const TaskControl& self, const char* call, Scope scope) {
  refuse(self, Errc::bad_argument, call,
         fmt::format("there is no scope {}; use row, column or all", static_cast<unsigned>(scope)));
}

const Group& group_of(const Domain& domain, const Cell& cell, Scope scope) {
  return scope == Scope::all ? domain.all : scope == Scope::row ? domain.rows[cell.y] : domain.columns[cell.x];
}

/// What a member of a joined program tells the first one, and hears back. The bytes of a broadcast follow.
struct JoinedPart {
  std::uint32_t signature = 0;  ///< 0 in an answer: the members disagree.
  Operand value{};
};

void send_part(const TaskControl& self, const char* call, std::uint32_t cell, const JoinedPart& part,
               std::span<const std::byte> bytes) {
  std::vector<std::byte> whole(sizeof part + bytes.size());
  std::memcpy(whole.data(), &part, sizeof part);
  std::ranges::copy(bytes, whole.begin() + sizeof part);
  api::send(call, CellId{cell}, whole, {.task = TaskId{self.id}}, api::Space::kernel);
}

/// A collective of a program that has joined the machine: cells are in those of the first program at the same time, so
/// its tasks speak by messages. The first member hears all, combines along the tree of fold.hpp and answers.
[[gnu::cold, gnu::noinline]] Operand joined_collective(const TaskControl& self, const CollectiveCall& what,
                                                       const Operand& value, void* buffer) {
  const Group& group = group_of(self.cell->processor->domain(), *self.cell, what.scope);
  const bool is_broadcast = what.kind == CollectiveKind::broadcast;
  if (is_broadcast && !group.contains(what.root)) {
    refuse(self, Errc::bad_argument, what.call,
           fmt::format("root cell {} is not one of the cells that take part", what.root));
  }
  const auto cell_of = [&](std::uint32_t member) { return group.first + member * group.stride; };
  const std::size_t bytes = is_broadcast ? what.bytes : 0;
  const std::span<std::byte> body(static_cast<std::byte*>(buffer), bytes);
  const std::uint32_t root = is_broadcast ? group.member(what.root) : 0;
  const std::uint32_t member = group.member(self.cell->id);
  const auto own_body = [&](std::uint32_t from) { return from == root ? body : std::span<std::byte>(); };

  JoinedPart part{what.signature(), value};
  Message other;
  const auto hear = [&](std::uint32_t from) {
    api::receive(what.call, other, {.cell = CellId{cell_of(from)}, .task = TaskId{self.id}}, api::Space::kernel);
    if (other.size() < sizeof part) return false;  // nothing was received: the machine stops
    std::memcpy(&part, other.data(), sizeof part);
    return true;
  };
  const auto take_body = [&] {
    if (bytes != 0 && other.size() == sizeof part + bytes)
      std::memcpy(body.data(), static_cast<const std::byte*>(other.data()) + sizeof part, bytes);
  };
  bool agree = true;
  if (member == 0) {
    Fold fold(what.combine);
    fold.push(0, 0, value);
    for (std::uint32_t from = 1; from < group.count; ++from) {
      if (!hear(from)) return value;
      agree = agree && part.signature == what.signature();
      if (!agree) continue;
      if (is_broadcast && from == root) take_body();
      fold.push(from, 0, part.value);
    }
    part = {agree ? what.signature() : 0, agree && !is_broadcast ? fold.finish() : Operand{}};
    for (std::uint32_t to = 1; to < group.count; ++to)
      send_part(self, what.call, cell_of(to), part, agree && to != root ? body : std::span<std::byte>());
  } else {
    send_part(self, what.call, cell_of(0), part, own_body(member));
    if (!hear(0)) return value;
    agree = part.signature != 0;
    if (agree && is_broadcast && member != root) take_body();
  }
  if (!agree) {
    refuse(self, Errc::mismatch, what.call,
           fmt::format("the cells disagree: cell {} calls {}; all must make the same call", self.cell->id,
                       describe(what)));
  }
  return part.value;
}

/// Out of line: its lock needs a frame, which the collectives of all others would pay for.
[[gnu::cold, gnu::noinline]] bool has_joined(const TaskControl& self) {
  return Machine::Impl::of(self.cell->processor->domain()).joined.has(self.id);
}

/// A collective of the calling task. The caller may have made a Scope of any number.
Operand collective(const char* call, CollectiveCall& what, const Operand& value, void* buffer = nullptr) {
  TaskControl& self = self_or_throw(call);
  if (what.scope > Scope::last) [[unlikely]]
    bad_scope(self, call, what.scope);
  what.call = call;
  // The first program's tasks have number 0, unless a host program has chosen others.
  if (self.id != 0 && self.from_kernel && has_joined(self)) [[unlikely]]
    return joined_collective(self, what, value, buffer);
  return Processor::collective(self, what, value, buffer);
}

[[noreturn, gnu::cold, gnu::noinline]] void bad_reduction(const char* call, const Combine& combine) {
  const TaskControl& self = self_or_throw(call);
  if (combine.op > ReduceOp::last) {
    refuse(self, Errc::bad_argument, call,
           fmt::format("there is no operation {} of reductions", static_cast<unsigned>(combine.op)));
  }
  if (combine.located) refuse(self, Errc::bad_argument, call, "only max and min have a location");
  refuse(self, Errc::bad_argument, call, "and, or and xor work on integers only");
}

inline void check_reduction(const char* call, const Combine& combine) {
  const bool bits = combine.needs_integers();
  if (combine.op > ReduceOp::last || (bits && (combine.located || !combine.is_integral())) ||
      (combine.located && combine.op == ReduceOp::sum)) [[unlikely]]
    bad_reduction(call, combine);
}

}  // namespace

MatchWish check_receive(const TaskControl& self, const char* call, std::span<const std::byte> buffer, From from,
                        api::Space space) {
  if (buffer.data() == nullptr && !buffer.empty()) null_bytes(call, buffer.size());
  return wish_for(self, call, from, space);
}

// ---------------------------------------------------------------- for front ends

namespace api {

void send(const char* call, CellId cell, std::span<const std::byte> bytes, To to, Space space) {
  Processor* const here = Processor::current();
  TaskControl* const self = here != nullptr ? here->running() : nullptr;
  if (self == nullptr) [[unlikely]]
    outside_task(call);
  if (bytes.data() == nullptr && !bytes.empty()) [[unlikely]]
    null_bytes(call, bytes.size());
  here->send(*self, call, index(cell), bytes, to, static_cast<std::uint32_t>(space));
}

Received receive(const char* call, Message& into, From from, Space space, bool closed_when_cells_end) {
  TaskControl& self = self_or_throw(call);
  if (MessageAccess::has_buffer(into) || !make_wish(Processor::current()->domain(), from, space, self.posted.wish))
      [[unlikely]]
    return release_and_receive(call, into, from, space, closed_when_cells_end);
  return receive_wished(self, call, into, closed_when_cells_end);
}

Envelope receive_into(const char* call, std::span<std::byte> buffer, From from, Space space, bool truncate) {
  TaskControl& self = self_or_throw(call);
  if (buffer.data() == nullptr && !buffer.empty()) [[unlikely]]
    null_bytes(call, buffer.size());
  if (!make_wish(Processor::current()->domain(), from, space, self.posted.wish)) [[unlikely]]
    self.posted.wish = wish_for(self, call, from, space);
  self.posted.message = nullptr;
  self.posted.buffer = reinterpret_cast<char*>(buffer.data());
  self.posted.capacity = buffer.size();
  const Wake how = Processor::receive(self, call, false);
  if (how != Wake::done) [[unlikely]]
    return receive_failed(call, how);
  if (self.posted.bytes > self.posted.capacity) [[unlikely]]
    return receive_cut(self, call, truncate);
  return envelope_of(self.cell->processor->domain(), self.posted.key, self.posted.bytes);
}

bool probe(const char* call, From from, Space space) {
  TaskControl& self = self_or_throw(call);
  return self.cell->processor->probe(self, self, wish_for(self, call, from, space));
}

bool barrier(const char* call, bool stat, Scope scope) {
  CollectiveCall what;
  what.kind = CollectiveKind::barrier;
  what.scope = scope;
  what.combine = Combine{ReduceOp::bit_or, NumberType::int32, false};
  return collective(call, what, Operand::of(stat ? 1 : 0)).as<std::int32_t>() != 0;
}

std::uint64_t reduce(const char* call, ReduceOp op, NumberType type, std::uint64_t bits, std::int32_t* location,
                     Scope scope) {
  CollectiveCall what;
  what.kind = CollectiveKind::reduce;
  what.scope = scope;
  what.combine = Combine{op, type, location != nullptr};
  check_reduction(call, what.combine);
  const Operand result = collective(call, what, {bits, location != nullptr ? *location : 0});
  if (location != nullptr) *location = result.location;
  return result.bits;
}

// Arrays travel as messages along the tree of fold.hpp. For k from 0 up, member m, a multiple of 2^k, combines its
// array with that of m + 2^k, until it sends its own to m - 2^k. The first member then has the result and broadcasts
// it. So each element gets the bits that a reduction of it alone would have.
void reduce_array(const char* call, ReduceOp op, NumberType type, void* values, std::size_t count, Scope scope) {
  const Combine combine{op, type, false};
  check_reduction(call, combine);
  if (values == nullptr && count != 0) null_bytes(call, count * combine.number_bytes());
  const TaskControl& self = self_or_throw(call);

  // All must be here, for the same call. Messages also name the other's task: nearly always all have the same.
  CollectiveCall agree;
  agree.kind = CollectiveKind::reduce;
  agree.scope = scope;
  agree.combine = Combine{ReduceOp::bit_or, NumberType::uint64, false};
  agree.bytes = ArrayReduction{op, type, count}.word();
  constexpr std::uint64_t id_bits = 20;
  constexpr std::uint64_t id_mask = (1U << id_bits) - 1;
  static_assert(task_id_max <= id_mask);
  const std::uint64_t mine = self.id | (~std::uint64_t{self.id} & id_mask) << id_bits;
  const auto all = collective(call, agree, Operand::of(mine)).as<std::uint64_t>();
  if (count == 0) return;
  if ((all & id_mask & all >> id_bits) != 0) {
    auto* const bytes = static_cast<std::byte*>(values);
    for (std::size_t i = 0; i < count; ++i) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, bytes + i * combine.number_bytes(), combine.number_bytes());
      bits = reduce(call, op, type, bits, nullptr, scope);
      std::memcpy(bytes + i * combine.number_bytes(), &bits, combine.number_bytes());
    }
    return;
  }

  const Group& group = group_of(self.cell->processor->domain(), *self.cell, scope);
  const auto cell_of = [&](std::uint32_t member) { return CellId{group.first + member * group.stride}; };
  const std::size_t bytes = count * combine.number_bytes();
  const std::uint32_t member = group.member(self.cell->id);
  Message other;
  for (std::uint32_t distance = 1; distance < group.count; distance *= 2) {
    if ((member & distance) != 0) {
      send(call, cell_of(member - distance), {static_cast<const std::byte*>(values), bytes}, {.task = TaskId{self.id}},
           Space::kernel);
      break;
    }
    if (group.count - member <= distance) continue;
    receive(call, other, {.cell = cell_of(member + distance), .task = TaskId{self.id}}, Space::kernel);
    if (other.size() != bytes) return;  // nothing was received: the machine stops
    combine_arrays(combine, values, other.data(), count);
  }
  broadcast(call, cell_of(0), {static_cast<std::byte*>(values), bytes}, scope);
}

void broadcast(const char* call, CellId root, std::span<std::byte> buffer, Scope scope) {
  if (buffer.data() == nullptr && !buffer.empty()) [[unlikely]]
    null_bytes(call, buffer.size());
  CollectiveCall what;
  what.kind = CollectiveKind::broadcast;
  what.scope = scope;
  what.bytes = buffer.size();
  what.root = index(root);
  collective(call, what, Operand{}, buffer.data());
}

// In a buffer as the bodies of messages have, because small ones lie in it.
[[gnu::cold, gnu::noinline]] static void make_cellos_state(TaskControl& self) {
  BufferPool& pool = self.cell->processor->pool();
  Buffer* const buffer = pool.get(sizeof(CellosState));
  pool.lend();
  self.cellos_state = ::new (buffer->body()) CellosState;
  self.free_cellos_state = [](void* state) {
    static_cast<CellosState*>(state)->~CellosState();
    give_back(static_cast<Buffer*>(state) - 1);
  };
}

CellosState& cellos_state(const char* call) {
  TaskControl& self = self_or_throw(call);
  if (self.cellos_state == nullptr) [[unlikely]]
    make_cellos_state(self);
  return *static_cast<CellosState*>(self.cellos_state);
}

[[gnu::noinline]] static MpiState& mpi_state(const char* call) {
  if (running_task() == nullptr) adopt_thread_as_cell(call);
  TaskControl& self = self_or_throw(call);
  if (self.cell->id == self.cell->processor->domain().cell_count) [[unlikely]]
    refuse(self, Errc::bad_argument, call, "the host program is no rank of MPI; call it in the programs of the cells");
  return self.cell->mpi;
}

[[gnu::cold, gnu::noinline]] static void* find_mpi_rank(const char* call) {
  if (running_task() == nullptr && is_thread_of_program()) return nullptr;
  return mpi_state(call).rank;
}

void* mpi_rank(const char* call) {
  const TaskControl* const self = running_task();
  return self != nullptr && self->cell->mpi.rank != nullptr ? self->cell->mpi.rank : find_mpi_rank(call);
}

void keep_mpi_rank(const char* call, void* rank, void (*free_rank)(void* rank),
                   std::string (*describe_wish)(const void* rank, const MatchWish& wish)) {
  MpiState& state = mpi_state(call);
  state.rank = rank;
  state.free_rank = free_rank;
  state.describe_wish = describe_wish;
}

void end_machine(const char* call, int status, const std::string& text) {
  TaskControl& self = self_or_throw(call);
  Domain& domain = self.cell->processor->domain();
  self.cell->status = status;
  const std::string caller = self.is_guest ? "thread" : fmt::format("task {}", self.id);
  domain.fail(status, fmt::format("{} {}: {}", domain.name_of(self.cell->id), caller, text));
  Processor::prepare_to_unwind();
  if (Baton* const baton = self.cell->processor->baton()) baton->leave();  // the jump below skips what would
  if (current_program_context != nullptr)
    current_program_context->ops->abandon(*current_program_context, status, false);
  throw Stopped{};
}

void preset_status(const char* call, std::int32_t value) {
  TaskControl& self = self_or_throw(call);
  Domain& domain = self.cell->processor->domain();
  if (self.cell->id != domain.cell_count) refuse(self, Errc::bad_argument, call, "only the host program can do this");
  preset_status_words(domain, static_cast<std::uint32_t>(value));
  if (ProcessRun* process = Machine::Impl::of(domain).process)
    process->announce_preset(static_cast<std::uint32_t>(value));
}

void configure(const char* call, Grid grid) {
  Options wanted = Machine::Impl::of(self_or_throw(call).cell->processor->domain()).options;
  wanted.cells = grid;
  configure(call, wanted);
}

void configure(const char* call, const Options& options) {
  TaskControl& self = self_or_throw(call);
  Domain& domain = self.cell->processor->domain();
  if (self.cell->id != domain.cell_count)
    refuse(self, Errc::bad_argument, call, "only the host program can choose the grid and other options");
  if (domain.carriers != 0)
    refuse(self, Errc::bad_argument, call, "programs run on the cells already; choose the grid before the first start");
  Machine::Impl::of(domain).configure(self, options);
}

void check_start(const char* call, TaskId task) {
  TaskControl& self = self_or_throw(call);
  Domain& domain = self.cell->processor->domain();
  if (self.cell->id != domain.cell_count)
    refuse(self, Errc::bad_argument, call, "only the host program can start programs on cells");
  if (index(task) > task_id_max) {
    refuse(self, Errc::bad_argument, call,
           fmt::format("task {} is out of range; use 0..{}", static_cast<std::int32_t>(index(task)), task_id_max));
  }
}

void start_cells(const char* call, std::function<void()> program, TaskId task) {
  check_start(call, task);
  TaskControl& self = self_or_throw(call);
  Machine::Impl::of(self.cell->processor->domain()).start_cells(self, std::move(program), task);
}

void wait_cells(const char* call) {
  TaskControl& self = self_or_throw(call);
  Processor& host = *self.cell->processor;
  if (self.cell->id != host.domain().cell_count)
    refuse(self, Errc::bad_argument, call, "only the host program can wait for all cells");
  Processor::wait_for_cells(self, call);
}

bool has_host(const char* call) { return self_or_throw(call).cell->processor->domain().has_host; }

bool on_host(const char* call) {
  TaskControl& self = self_or_throw(call);
  return self.cell->id == self.cell->processor->domain().cell_count;
}

CellId cell_id(const char* call) { return CellId{self_or_throw(call).cell->number}; }

TaskId task_id(const char* call) { return TaskId{self_or_throw(call).id}; }
CellId host_cell(const char* call) { return CellId{self_or_throw(call).cell->processor->domain().host_id}; }
Grid grid(const char* call) { return self_or_throw(call).cell->processor->domain().grid; }
std::uint32_t process_of(const char* call, CellId cell) {
  return self_or_throw(call).cell->processor->domain().process_of(index(cell));
}

void fail(Errc code, const char* call, const std::string& text) {
  Processor* processor = Processor::current();
  if (processor == nullptr || processor->running() == nullptr) throw Error(code, fmt::format("{}: {}", call, text));
  refuse(*processor->running(), code, call, text);
}

void warn(const char* call, const std::string& text) {
  TaskControl& self = self_or_throw(call);
  Domain& domain = self.cell->processor->domain();
  const std::string subject = fmt::format("{} task {}: {}: ", domain.name_of(self.cell->id), self.id, call);
  Machine::Impl::of(domain).log.warn("{}{}", text.starts_with(subject) ? "" : subject, text);
}

void debug(const char* call, const std::string& text) {
  TaskControl& self = self_or_throw(call);
  Domain& domain = self.cell->processor->domain();
  Machine::Impl::of(domain).log.debug("{} task {}: {}: {}", domain.name_of(self.cell->id), self.id, call, text);
}

}  // namespace api

// ---------------------------------------------------------------- messages

Message::Message(Message&& other) noexcept
    : key_(other.key_), bytes_(other.bytes_), buffer_(other.buffer_), outside_(other.outside_) {
  std::memcpy(inside_, other.inside_, sizeof inside_);
  other.buffer_ = nullptr;
  other.bytes_ = 0;
}

Message& Message::operator=(Message&& other) noexcept {
  if (this == &other) return *this;
  if (buffer_ != nullptr) release();
  key_ = other.key_;
  bytes_ = other.bytes_;
  buffer_ = other.buffer_;
  outside_ = other.outside_;
  std::memcpy(inside_, other.inside_, sizeof inside_);
  other.buffer_ = nullptr;
  other.bytes_ = 0;
  return *this;
}

void Message::release() noexcept {
  auto* buffer = static_cast<Buffer*>(buffer_);
  buffer_ = nullptr;
  bytes_ = 0;
  give_back(buffer);
}

Envelope Message::envelope() const noexcept {
  const Processor* processor = Processor::current();
  const std::uint32_t cell = MatchKey::cell(key_);
  return Envelope{CellId{processor != nullptr ? const_cast<Processor*>(processor)->domain().visible(cell) : cell},
                  TaskId{MatchKey::task(key_)}, static_cast<std::int32_t>(MatchKey::type(key_)), bytes_};
}

void Message::throw_size_mismatch(std::size_t wanted) const {
  const Envelope label = envelope();
  throw Error(Errc::mismatch, fmt::format("message from cell {} task {}, type {}, has {} bytes where a value of {} "
                                          "bytes is expected; sender and receiver must agree",
                                          index(label.source), index(label.source_task), label.type, bytes_, wanted));
}

void send(CellId cell, std::span<const std::byte> bytes, To to) {
  api::send("send", cell, bytes, to, api::Space::plain);
}

Message receive(From from) {
  Message message;
  api::receive("receive", message, from, api::Space::plain);
  return message;
}

void receive(Message& message, From from) { api::receive("receive", message, from, api::Space::plain); }

Envelope receive_into(std::span<std::byte> buffer, From from) {
  return api::receive_into("receive_into", buffer, from, api::Space::plain);
}

bool probe(From from) { return api::probe("probe", from, api::Space::plain); }

// ---------------------------------------------------------------- collectives

bool barrier(bool stat, Scope scope) { return api::barrier("barrier", stat, scope); }
std::uint64_t detail::reduce(ReduceOp op, NumberType type, std::uint64_t bits, std::int32_t* location, Scope scope) {
  return api::reduce("reduce", op, type, bits, location, scope);
}
void detail::reduce_array(ReduceOp op, NumberType type, void* values, std::size_t count, Scope scope) {
  api::reduce_array("reduce", op, type, values, count, scope);
}
void broadcast(CellId root, std::span<std::byte> buffer, Scope scope) {
  api::broadcast("broadcast", root, buffer, scope);
}

namespace status {

void post(std::int32_t value) {
  TaskControl& self = self_or_throw("status::post");
  // relaxed: a word on its own, as on the original hardware; it orders nothing
  self.cell->posted_status.store(std::uint64_t{1} << 32 | static_cast<std::uint32_t>(value), std::memory_order_relaxed);
  if (ProcessRun* process = Machine::Impl::of(self.cell->processor->domain()).process) process->status_changed();
}

std::int32_t combined() {
  Domain& domain = self_or_throw("status::combined").cell->processor->domain();
  std::uint32_t all = 0;
  for (const std::uint32_t c : domain.local_cells()) {
    all |= static_cast<std::uint32_t>(
        domain.cells[c]->posted_status.load(std::memory_order_relaxed));  // relaxed: see post()
  }
  if (const ProcessRun* process = Machine::Impl::of(domain).process) all |= process->other_status_words();
  return std::bit_cast<std::int32_t>(all);
}

}  // namespace status

// ---------------------------------------------------------------- tasks

namespace detail {

TaskId spawn(const TaskEntry& entry, TaskId wanted, bool detached) {
  TaskControl& self = self_or_throw("spawn");
  Cell& cell = *self.cell;
  std::uint32_t id = index(wanted);
  if (wanted == any_task) {
    const std::optional<std::uint32_t> chosen = cell.tasks.choose_id();
    if (!chosen)
      refuse(self, Errc::exhausted, "spawn",
             fmt::format("the cell has {} tasks, the most it can; spread them over more cells", cell.tasks.size()));
    id = *chosen;
  } else if (id > task_id_max) {
    refuse(self, Errc::bad_argument, "spawn",
           fmt::format("task {} is out of range; use 0..{}, or any_task", id, task_id_max));
  } else if (cell.tasks.find(id) != nullptr) {
    refuse(self, Errc::bad_argument, "spawn",
           fmt::format("task {} exists already in this cell; choose another id, or any_task", id));
  }
  cell.processor->spawn(cell, id,
                        {.entry = entry.call,
                         .state = entry.state,
                         .state_bytes = entry.bytes,
                         .state_alignment = entry.alignment,
                         .move = entry.move,
                         .parent = self.program,
                         .detached = detached});
  return TaskId{id};
}

void join(TaskId id) { Processor::join(self_or_throw("join"), index(id)); }

void detach(TaskId id) {
  Processor* processor = Processor::current();
  if (processor == nullptr || processor->running() == nullptr) return;  // a handle that outlived its machine
  TaskControl* task = processor->running()->cell->tasks.find(index(id));
  if (task == nullptr || task->detached) return;
  task->detached = true;
  if (task->ended) processor->bury(*task);
}

}  // namespace detail

namespace this_task {

TaskId id() { return api::task_id("this_task::id"); }
void yield() { Processor::yield(self_or_throw("yield")); }
void sleep_for(std::chrono::nanoseconds duration) {
  Processor::sleep_until(self_or_throw("sleep_for"), deadline_after(duration), "sleep_for");
}
void exit(int status) {
  self_or_throw("exit");
  Processor::prepare_to_unwind();
  throw TaskExit{status};
}
bool inside() noexcept {
  const Processor* processor = Processor::current();
  return processor != nullptr && processor->running() != nullptr;
}

}  // namespace this_task

// ---------------------------------------------------------------- machine and cell

namespace this_machine {

Grid grid() { return api::grid("grid"); }
std::uint32_t cell_count() { return self_or_throw("cell_count").cell->processor->domain().cell_count; }
std::uint32_t processor_count() { return self_or_throw("processor_count").cell->processor->domain().carriers; }
CellId host_cell() { return api::host_cell("host_cell"); }

void configure(Grid grid) { api::configure("configure", grid); }
void set_options(const Options& options) { api::configure("set_options", options); }
Options options() { return Machine::Impl::of(self_or_throw("options").cell->processor->domain()).options; }
void start_cells(std::function<void()> program, TaskId task) {
  api::start_cells("start_cells", std::move(program), task);
}
void wait_cells() { api::wait_cells("wait_cells"); }

}  // namespace this_machine

namespace this_cell {

CellId id() { return api::cell_id("this_cell::id"); }
std::uint32_t x() { return self_or_throw("this_cell::x").cell->x; }
std::uint32_t y() { return self_or_throw("this_cell::y").cell->y; }
std::uint32_t processor() { return self_or_throw("this_cell::processor").cell->processor->index(); }
double waiting_seconds() {
  return std::chrono::duration<double>(self_or_throw("this_cell::waiting_seconds").cell->waiting).count();
}

}  // namespace this_cell

}  // namespace aplib

// ---------------------------------------------------------------- one-sided communication

namespace aplib::detail {

void put(const char* call, CellId cell, const void* local, std::size_t bytes, void* remote, const PutFlags& flags) {
  one_sided::put(self_or_throw(call), call, index(cell), local, bytes, remote, flags);
}

void put(const char* call, CellId cell, const void* local, void* remote, const Blocks& blocks, const PutFlags& flags) {
  one_sided::put(self_or_throw(call), call, index(cell), local, remote, blocks, flags);
}

void get(const char* call, CellId cell, void* local, std::size_t bytes, const void* remote, const GetFlags& flags) {
  one_sided::get(self_or_throw(call), call, index(cell), local, bytes, remote, flags);
}

void get(const char* call, CellId cell, void* local, const void* remote, const Blocks& blocks, const GetFlags& flags) {
  one_sided::get(self_or_throw(call), call, index(cell), local, remote, blocks, flags);
}

void wait_flag(const char* call, const std::int32_t* flag, std::int32_t count) {
  Processor::wait_flag(self_or_throw(call), call, flag, count);
}

void wait_acknowledged(const char* call) { one_sided::wait_acknowledged(self_or_throw(call), call); }

std::uint64_t fetch(const char* call, Fetch what, CellId cell, void* remote, Word word, std::uint64_t operand,
                    std::uint64_t expected) {
  return one_sided::fetch(self_or_throw(call), call,
                          {what, word, index(cell), static_cast<std::byte*>(remote), operand, expected});
}

}  // namespace aplib::detail

// ---------------------------------------------------------------- symmetric memory

namespace aplib {
namespace {

Cell& calling_cell(const char* call) {
  TaskControl* const self = running_task();
  if (self == nullptr) api::fail(Errc::bad_argument, call, "called outside a task; only cells have such memory");
  return *self->cell;
}

SlotHeap& heap_of(Cell& cell, const char* call) {
  const Domain& domain = cell.processor->domain();
  const std::uint32_t slot = domain.slot_of(cell.id);
  SlotHeap* const heap = cell.heap.get(slot, domain.heap_source(cell.id));
  if (heap == nullptr) {
    api::fail(Errc::exhausted, call,
              fmt::format("the cell's heap cannot be made at {}: {}; run one machine at a time in a process",
                          static_cast<void*>(SlotPlan::heap_of(slot)), std::strerror(errno)));
  }
  return *heap;
}

/// The heap of this process that the block is of.
SlotHeap& heap_around(const Cell& caller, const char* call, const void* memory) {
  SlotHeap* const heap = SlotHeap::around(memory);
  if (heap != nullptr && heap == caller.heap.made()) return *heap;
  const Domain& domain = caller.processor->domain();
  const auto is_it = [heap](const Cell* cell) { return cell != nullptr && cell->heap.made() == heap; };
  if (heap == nullptr || std::ranges::none_of(domain.cells, is_it)) {
    api::fail(
        Errc::bad_argument, call,
        fmt::format("{} is not in the heap of a cell of this process; give what symmetric_allocate gave", memory));
  }
  return *heap;
}

}  // namespace

namespace api {

void* symmetric_allocate(const char* call, std::size_t bytes, std::size_t alignment, bool zeroed) {
  Cell& cell = calling_cell(call);
  if (!std::has_single_bit(alignment))
    fail(Errc::bad_argument, call, fmt::format("{} is no alignment; use a power of two", alignment));
  if (alignment > SlotPlan::alignment) {
    fail(Errc::bad_argument, call,
         fmt::format("memory aligned to {} bytes would lie at another place in each cell; align it to {} at most",
                     alignment, SlotPlan::alignment));
  }
  SlotHeap& heap = heap_of(cell, call);
  return zeroed ? heap.allocate_zeroed(bytes) : heap.allocate(bytes, alignment);
}

void symmetric_free(const char* call, void* memory) {
  if (memory == nullptr) return;
  const Cell& cell = calling_cell(call);
  SlotHeap& heap = heap_around(cell, call, memory);
  if (!(&heap == cell.heap.made() ? heap.release(memory) : heap.release_from_outside(memory)))
    fail(Errc::bad_argument, call, fmt::format("{} is no block of the heap, or was freed before", memory));
}

void* symmetric_resize(const char* call, void* memory, std::size_t bytes) {
  Cell& cell = calling_cell(call);
  if (memory == nullptr) return heap_of(cell, call).allocate(bytes);
  SlotHeap& heap = heap_around(cell, call, memory);
  if (&heap == cell.heap.made()) return heap.resize(memory, bytes);
  void* const moved = heap_of(cell, call).allocate(bytes);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, memory, std::min(bytes, SlotHeap::usable_bytes(memory)));
  symmetric_free(call, memory);
  return moved;
}

}  // namespace api

void* symmetric_allocate(std::size_t bytes, std::size_t alignment) {
  constexpr const char* call = "symmetric_allocate";
  if (void* memory = api::symmetric_allocate(call, bytes, alignment)) return memory;
  api::fail(Errc::exhausted, call,
            fmt::format("no room for {} bytes in the cell's heap, which holds {} MiB in all; allocate less, or use "
                        "more cells",
                        bytes, SlotPlan::heap_bytes() >> 20U));
}

void symmetric_free(void* memory) { api::symmetric_free("symmetric_free", memory); }

}  // namespace aplib

#if !APLIB_ASAN && !APLIB_TSAN
// Found before libc's, which would end the thread that carries the task and others. What loaded programs call is bound
// by the loader.
extern "C" APLIB_API void pthread_exit(void* result) {
  const aplib::TaskControl* const self = aplib::running_task();
  if (aplib::current_program_context == nullptr && self != nullptr && !aplib::is_adopted(*self))
    throw aplib::TaskExit{0};
  static const auto next = reinterpret_cast<void (*)(void*)>(dlsym(RTLD_NEXT, "pthread_exit"));
  next(result);
  __builtin_unreachable();
}
#endif
