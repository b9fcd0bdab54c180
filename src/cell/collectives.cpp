// SPDX-License-Identifier: MIT
#include "cell/collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "aplib/error.hpp"
#include "cell/ended_error.hpp"
#include "cell/processor.hpp"

namespace aplib {

namespace {

[[noreturn]] void nonsense(const char* what) {
  throw Error(Errc::failed, fmt::format("a frame of a collective makes no sense: {}", what));
}

[[noreturn, gnu::cold]] void refuse_member(const TaskControl& self, const char* call, std::uint32_t cell) {
  const CellEnd& end = self.cell->processor->inbound().end_of(cell);
  refuse_ended(
      self, end, call,
      fmt::format("cell {} has ended and takes no part any more; all cells must call it; its exit status is {}", cell,
                  end.status));
}

bool all_have_arrived(const Domain& domain, std::uint64_t episode) noexcept {
  std::uint32_t count = 0;
  for (std::uint32_t p = 0; p < domain.carriers; ++p) count += domain.arrivals[p].of(episode).arrived_in(episode);
  return count == domain.local_count();
}

const char* name_of(NumberType type) noexcept {
  switch (type) {
    case NumberType::int32:
      return "int";
    case NumberType::float32:
      return "float";
    case NumberType::float64:
      return "double";
    case NumberType::int64:
      return "long";
    case NumberType::uint32:
      return "unsigned int";
    case NumberType::uint64:
      return "unsigned long";
  }
  return "?";
}

const char* name_of(ReduceOp op) noexcept {
  constexpr const char* names[] = {"sum", "max", "min", "or", "and", "xor"};
  static_assert(std::size(names) == static_cast<std::size_t>(ReduceOp::last) + 1);
  return names[static_cast<std::size_t>(op)];
}

}  // namespace

std::string describe(const CollectiveCall& call) {
  switch (call.kind) {
    case CollectiveKind::barrier:
      return call.call;
    case CollectiveKind::reduce:
      if (call.bytes != 0) {
        const ArrayReduction array = ArrayReduction::from(call.bytes);
        return fmt::format("{} ({} of {} {})", call.call, name_of(array.op), array.count, name_of(array.type));
      }
      return fmt::format("{} ({} of {}{})", call.call, name_of(call.combine.op), name_of(call.combine.type),
                         call.combine.located ? " with location" : "");
    case CollectiveKind::broadcast:
      return fmt::format("{} ({} bytes from cell {})", call.call, call.bytes, call.root);
  }
  return call.call;
}

namespace {

/// The machine stops. What the root of a broadcast shows may be gone next.
void stop_showing(Cell& cell, const CollectiveCall& what, std::uint64_t episode) noexcept {
  if (what.kind == CollectiveKind::broadcast && cell.id == what.root && what.bytes > BroadcastPlace::staged_bytes_max)
    cell.place(what.scope).shown[episode & 1U].await_readers();
}

/// The end of a broadcast: the cell takes what the root shows.
void take_broadcast(TaskControl& self, const CollectiveCall& what, const Group& group, std::uint64_t episode,
                    void* buffer) {
  Cell& cell = *self.cell;
  const Domain& domain = cell.processor->domain();
  if (cell.id != what.root && what.bytes != 0) {
    if (domain.is_local(what.root)) {
      domain.cells[what.root]->place(what.scope).shown[episode & 1U].copy_to(buffer, what.bytes, domain.stopping);
    } else {
      std::memcpy(buffer, group.exchange->payload(episode).data(), what.bytes);
    }
  }
  if (what.bytes <= BroadcastPlace::staged_bytes_max) return;
  // The others read the root's own memory, so the root goes on only when all have read it.
  CollectiveCall leave = what;
  leave.kind = CollectiveKind::barrier;
  try {
    Collectives::call(self, leave, Operand::of(0), nullptr);
  } catch (...) {
    stop_showing(cell, what, episode);
    throw;
  }
}

}  // namespace

Operand Collectives::call(TaskControl& self, const CollectiveCall& what, const Operand& value, void* buffer) {
  Cell& cell = *self.cell;
  Processor& here = *cell.processor;
  Collectives& ours = here.collectives();
  Domain& domain = here.domain();
  if (cell.id >= domain.cell_count) [[unlikely]] {
    refuse(self, Errc::bad_argument, what.call, "the host program takes no part in collectives; only cells do");
  }
  if (here.stops()) [[unlikely]]
    return value;
  Group& group = what.scope == Scope::all   ? domain.all
                 : what.scope == Scope::row ? domain.rows[cell.y]
                                            : domain.columns[cell.x];
  if (cell.collective.active) [[unlikely]] {
    refuse(self, Errc::bad_argument, what.call,
           fmt::format("task {} of this cell is in a collective already; one task of a cell at a time takes part",
                       cell.collective.task != nullptr ? static_cast<int>(cell.collective.task->id) : -1));
  }
  if (here.inbound().some_cell_ended()) [[unlikely]] {
    for (std::uint32_t c = 0; c < domain.cell_count; ++c) {
      if (here.inbound().cell_has_ended(c) && group.contains(c)) {
        refuse_member(self, what.call, c);
      }
    }
  }
  if (what.kind == CollectiveKind::broadcast && !group.contains(what.root)) [[unlikely]] {
    refuse(self, Errc::bad_argument, what.call,
           fmt::format("root cell {} is not one of the cells that take part ({}..{})", what.root, group.first,
                       group.first + (group.count - 1) * group.stride));
  }

  CollectivePlace& place = cell.place(what.scope);
  const std::uint64_t episode = place.episode;
  const std::uint64_t parity = episode & 1U;
  if (what.kind == CollectiveKind::broadcast && cell.id == what.root) place.shown[parity].show(buffer, what.bytes);

  place.operands[parity] = value;
  place.calls[parity] = what;
  ours.waits_.push_back(&cell);  // may throw, so nothing says yet that the cell takes part
  cell.collective.active = true;
  cell.collective.group = &group;
  cell.collective.episode = episode;
  cell.collective.task = &self;
  if (&group == &domain.all) {
    ours.arrive_all(cell, what);
  } else {
    ++ours.line_waits_;
    ours.arrive_line(group, episode);
  }
  ours.check();
  if (cell.collective.active && Processor::wait(self, WaitFor::collective, what.call) != Wake::done) {
    if (self.wake == Wake::stopping) {
      stop_showing(cell, what, episode);
      Processor::end_calling_task();
      return value;
    }
    refuse_member(self, what.call, cell.collective.ended_cell);
  }
  if (cell.collective.mismatch) refuse(self, Errc::mismatch, what.call, describe_mismatch(domain, group, episode));
  const Operand result = cell.collective.result;

  if (what.kind == CollectiveKind::broadcast) take_broadcast(self, what, group, episode, buffer);
  return result;
}

void Collectives::complete(Cell& cell, const Operand& result, bool mismatch) noexcept {
  CollectiveWait& wait = cell.collective;
  wait.active = false;
  wait.result = result;
  wait.mismatch = mismatch;
  ++cell.place(wait.group->scope).episode;
  if (wait.task->waits == WaitFor::collective && !wait.task->ready) cell.processor->make_ready(*wait.task);
}

void Collectives::arrive_all(Cell& cell, const CollectiveCall& what) {
  if (cell.place(Scope::all).episode != episode_) check_all();  // complete, but not noticed here yet
  const std::uint32_t signature = what.signature();
  if (arrived_ == 0) {
    signature_ = signature;
    call_ = what;
    disagree_ = false;
  } else if (signature != signature_) {
    disagree_ = true;
  }
  ++arrived_;
  if (arrived_ == here_.residents().size()) publish_arrivals();
}

// All our cells have arrived. Tells the others, with the parts of the tree that lie wholly with us.
void Collectives::publish_arrivals() {
  ArrivalLine& line = domain_.arrivals[here_.index()].of(episode_);
  const std::uint64_t parity = episode_ & 1U;
  line.signature = disagree_ ? 0 : signature_;
  line.pieces = 0;
  const auto count = static_cast<std::uint32_t>(here_.residents().size());
  if (!disagree_ && call_.kind != CollectiveKind::broadcast &&
      here_.residents().back() - here_.residents().front() + 1 == count) {
    const auto operand_of = [&](std::uint32_t cell) -> const Operand& {
      return domain_.cells[cell]->place(Scope::all).operands[parity];
    };
    if (count == 1) {
      line.first = static_cast<std::uint16_t>(here_.residents().front());
      line.pieces = 1;
      line.bits[0] = operand_of(here_.residents().front()).bits;
      line.locations[0] = operand_of(here_.residents().front()).location;
      line.levels[0] = 0;
    } else {
      Fold fold(call_.combine);
      for (const std::uint32_t cell : here_.residents()) fold.push(cell, 0, operand_of(cell));
      if (fold.count() <= ArrivalLine::piece_count_max) {
        line.first = static_cast<std::uint16_t>(here_.residents().front());
        line.pieces = static_cast<std::uint16_t>(fold.count());
        for (std::uint32_t i = 0; i < fold.count(); ++i) {
          line.bits[i] = fold.part(i).value.bits;
          line.locations[i] = fold.part(i).value.location;
          line.levels[i] = static_cast<std::uint8_t>(fold.part(i).level);
        }
      }
    }
  }
  line.publish(episode_, arrived_);
  published_ = arrived_;
  if (domain_.all.exchange != nullptr) return;  // its end wakes them
  // Others that sleep go on when all have arrived, and would look in vain before. Of several that arrive at the same
  // time one sees it: own line before the look at the others'.
  domain_.os.waker_fence();
  if (all_have_arrived(domain_, episode_)) domain_.wake_carriers();
}

// If the episode is complete, all our cells that wait in it go on.
void Collectives::check_all() {
  if (!all_have_arrived(domain_, episode_)) return;
  bool mismatch = false;
  Operand result{};
  if (domain_.all.exchange == nullptr) {
    result = fold_all(episode_, mismatch);
  } else {
    if (domain_.all.done.load(std::memory_order_acquire) <= episode_) begin_exchange();  // acquire: the result
    if (domain_.all.done.load(std::memory_order_acquire) <= episode_) return;            // acquire: the result
    result = domain_.all.result[episode_ & 1U];
    mismatch = domain_.all.mismatch[episode_ & 1U];
  }
  ++episode_;
  arrived_ = 0;
  published_ = 0;
  std::size_t kept = 0;
  for (Cell* cell : waits_) {
    if (cell->collective.group == &domain_.all) {
      complete(*cell, result, mismatch);
    } else {
      waits_[kept++] = cell;
    }
  }
  waits_.resize(kept);
}

// All cells of this process have arrived. The first carrier that sees it begins the exchange with other processes.
void Collectives::begin_exchange() noexcept {
  const std::uint64_t parity = episode_ & 1U;
  const auto place_of = [&](std::uint32_t cell) -> const CollectivePlace& {
    return domain_.cells[cell]->place(Scope::all);
  };
  const std::uint32_t caller = domain_.local_cells().front();
  const CollectiveCall& call = place_of(caller).calls[parity];
  const std::uint32_t signature = call.signature();
  bool disagree = false;
  for (std::uint32_t p = 0; p < domain_.carriers; ++p) {
    const ArrivalLine& line = domain_.arrivals[p].of(episode_);
    if (line.arrived_in(episode_) != 0) disagree = disagree || line.signature != signature;
  }
  domain_.guarded([&] {
    std::span<const std::byte> payload;
    Pieces pieces(call.combine);
    if (!disagree && call.kind == CollectiveKind::broadcast && domain_.is_local(call.root)) {
      payload = {static_cast<const std::byte*>(place_of(call.root).shown[parity].bytes), call.bytes};
    } else if (!disagree && call.kind != CollectiveKind::broadcast) {
      for (const std::uint32_t c : domain_.local_cells()) pieces.push(c, place_of(c).operands[parity]);
    }
    domain_.all.exchange->begin(episode_, call, caller, disagree, pieces.parts(), payload);
  });
}

Operand Collectives::fold_all(std::uint64_t episode, bool& mismatch) {
  const std::uint64_t parity = episode & 1U;
  std::uint32_t signature = 0;
  std::uint32_t next = 0;  // first cell not covered by published pieces in order
  bool in_order = true;
  for (std::uint32_t p = 0; p < domain_.carriers; ++p) {
    const ArrivalLine& line = domain_.arrivals[p].of(episode);
    const std::uint32_t arrived = line.arrived_in(episode);
    if (arrived == 0) continue;
    if (line.signature == 0 || (signature != 0 && signature != line.signature)) mismatch = true;
    signature = line.signature;
    if (line.pieces == 0 || line.first != next) in_order = false;
    next += arrived;
  }
  if (mismatch || call_.kind == CollectiveKind::broadcast) return {};
  Fold fold(call_.combine);
  if (in_order) {
    for (std::uint32_t p = 0; p < domain_.carriers; ++p) {
      const ArrivalLine& line = domain_.arrivals[p].of(episode);
      if (line.arrived_in(episode) == 0) continue;
      std::uint32_t first = line.first;
      for (std::uint32_t i = 0; i < line.pieces; ++i) {
        Operand operand;
        operand.bits = line.bits[i];
        operand.location = line.locations[i];
        fold.push(first, line.levels[i], operand);
        first += 1U << line.levels[i];
      }
    }
  } else {
    // Cells have moved. Takes every cell's own value, which is slower; tree and result are the same.
    for (std::uint32_t c = 0; c < domain_.cell_count; ++c)
      fold.push(c, 0, domain_.cells[c]->place(Scope::all).operands[parity]);
  }
  return fold.finish();
}

// A row or a column. The last to arrive does the work.
void Collectives::arrive_line(Group& group, std::uint64_t episode) {
  const std::uint64_t parity = episode & 1U;
  const std::uint64_t arrived =
      group.arrived.fetch_add(1, std::memory_order_acq_rel) + 1;  // acq_rel: operands out and in
  if (arrived != std::uint64_t{group.local.size()} * (episode + 1)) return;
  const auto place_of = [&](std::uint32_t cell) -> const CollectivePlace& {
    return domain_.cells[cell]->place(group.scope);
  };
  const CollectiveCall& call = place_of(group.local.front()).calls[parity];
  bool mismatch = false;
  for (const std::uint32_t cell : group.local) {
    if (place_of(cell).calls[parity].signature() != call.signature()) mismatch = true;
  }
  const bool folds = !mismatch && call.kind != CollectiveKind::broadcast;
  if (group.exchange != nullptr) {
    domain_.guarded([&] {  // the others wait for it as this task does
      Pieces pieces(call.combine);
      if (folds) {
        for (const std::uint32_t cell : group.local) pieces.push(group.member(cell), place_of(cell).operands[parity]);
      }
      std::span<const std::byte> payload;
      if (!mismatch && call.kind == CollectiveKind::broadcast && domain_.is_local(call.root))
        payload = {static_cast<const std::byte*>(place_of(call.root).shown[parity].bytes), call.bytes};
      group.exchange->begin(episode, call, group.local.front(), mismatch, pieces.parts(), payload);
    });
    return;
  }
  group.mismatch[parity] = mismatch;
  if (folds) {
    Fold fold(call.combine);
    for (const std::uint32_t cell : group.local) fold.push(group.member(cell), 0, place_of(cell).operands[parity]);
    group.result[parity] = fold.finish();
  }
  group.done.store(episode + 1, std::memory_order_release);  // release: result and mismatch
  domain_.wake_carriers();
}

void Collectives::check() {
  if (arrived_ != 0 && published_ == arrived_) check_all();
  if (line_waits_ == 0) return;
  std::size_t kept = 0;
  for (Cell* cell : waits_) {
    Group& group = *cell->collective.group;
    const std::uint64_t parity = cell->collective.episode & 1U;
    if (&group != &domain_.all &&
        group.done.load(std::memory_order_acquire) > cell->collective.episode) {  // acquire: the result
      --line_waits_;
      complete(*cell, group.result[parity], group.mismatch[parity]);
    } else {
      waits_[kept++] = cell;
    }
  }
  waits_.resize(kept);
}

void Collectives::member_ended(std::uint32_t cell, const CellEnd& end) {
  const std::vector<Cell*> waits = waits_;
  for (Cell* waiting : waits) {
    const Group& group = *waiting->collective.group;
    if (!group.contains(cell)) continue;
    // The cell may have taken part and ended, while parts of the result are still on their way from other processes.
    if (end.episodes[static_cast<std::size_t>(group.scope)] > waiting->collective.episode) continue;
    std::erase(waits_, waiting);
    if (waiting->collective.group != &domain_.all) --line_waits_;
    waiting->collective.active = false;
    waiting->collective.ended_cell = cell;
    here_.inbound().wake_waiting(*waiting->collective.task, Wake::ended);
  }
}

void Collectives::forget_waits() noexcept {
  for (Cell* cell : waits_) cell->collective.active = false;
  waits_.clear();
  line_waits_ = 0;
}

void Collectives::resident_left() {
  // Perhaps we waited only for the one that left.
  if (arrived_ != 0 && arrived_ == here_.residents().size() && published_ != arrived_) publish_arrivals();
}

void Collectives::resident_joins(Cell& cell) {
  if (here_.residents().empty()) {
    episode_ = cell.place(Scope::all).episode;
    arrived_ = 0;
    published_ = 0;
  } else if (cell.place(Scope::all).episode != episode_) {
    check_all();  // it has seen an episode complete that we have not looked at yet
  }
}

// Names two cells of the group that asked for different things.
std::string Collectives::describe_mismatch(Domain& domain, const Group& group, std::uint64_t episode) {
  const std::uint64_t parity = episode & 1U;
  const std::uint32_t first_cell = group.local.front();
  const CollectiveCall& first = domain.cells[first_cell]->place(group.scope).calls[parity];
  for (const std::uint32_t cell : group.local) {
    const CollectiveCall& other = domain.cells[cell]->place(group.scope).calls[parity];
    if (other.signature() != first.signature()) {
      return fmt::format("the cells disagree: cell {} calls {}, cell {} calls {}; all must make the same call",
                         first_cell, describe(first), cell, describe(other));
    }
  }
  if (group.exchange != nullptr && !group.exchange->mismatch(episode).empty()) return group.exchange->mismatch(episode);
  return "the cells disagree about which collective this is; all must make the same call";
}

// ---------------------------------------------------------------- between processes

Exchange::Exchange(Domain& domain, Group& group, std::uint32_t index, std::vector<std::uint32_t> processes,
                   std::uint32_t place)
    : domain_(domain), group_(group), index_(index), processes_(std::move(processes)), place_(place) {
  episodes_[1].number = 1;
}

std::uint32_t Exchange::place_of(std::uint32_t process) const {
  return static_cast<std::uint32_t>(std::ranges::find(processes_, process) - processes_.begin());
}

void Exchange::begin(std::uint64_t number, const CollectiveCall& call, std::uint32_t caller, bool disagree,
                     std::span<const Fold::Part> parts, std::span<const std::byte> payload) {
  const std::lock_guard lock(mutex_);
  Episode& episode = episodes_[number & 1U];
  if (episode.number != number || episode.begun) return;  // another carrier has seen it, too
  episode.begun = true;
  episode.call = call;
  std::strncpy(episode.call_text, call.call, call_text_max - 1);
  episode.call.call = episode.call_text;
  episode.caller = caller;
  episode.disagree = disagree;
  episode.mismatch.clear();
  episode.parts.clear();
  for (const Fold::Part& part : parts) episode.parts.push_back({part, place_});
  episode.statuses.clear();
  if (const std::uint64_t own = domain_.network->own_status(); own != 0)
    episode.statuses.push_back({own, domain_.process, 0});
  episode.own_payload = payload;
  episode.has_payload = call.kind == CollectiveKind::broadcast && domain_.is_local(call.root);
  episode.payload.clear();
  advance(episode);
}

void Exchange::advance(Episode& episode) {
  const auto count = static_cast<std::uint32_t>(processes_.size());
  while ((1U << episode.step) < count) {
    if (episode.sent == episode.step) {
      send_step(episode);
      ++episode.sent;
    }
    std::vector<std::byte>& frame = episode.early[episode.step];
    if (frame.empty()) return;
    merge(episode, frame);
    frame.clear();
    ++episode.step;
  }
  complete(episode);
}

void Exchange::send_step(Episode& episode) {
  const auto count = static_cast<std::uint32_t>(processes_.size());
  const std::uint32_t distance = 1U << episode.step;
  // In the last step the other lacks only the first few of those we know of, counted from us.
  const std::uint32_t wanted = std::min(distance, count - distance);
  const auto is_wanted = [&](std::uint32_t place) { return (place + count - place_) % count < wanted; };
  const auto parts = static_cast<std::uint16_t>(
      std::ranges::count_if(episode.parts, [&](const PlacedPart& part) { return is_wanted(part.place); }));
  const bool with_payload = episode.has_payload && is_wanted(place_of(domain_.process_of(episode.call.root)));
  const std::span<const std::byte> payload = !with_payload ? std::span<const std::byte>()
                                             : domain_.is_local(episode.call.root)
                                                 ? episode.own_payload
                                                 : std::span<const std::byte>(episode.payload);
  Head head{};
  head.scope = static_cast<std::uint32_t>(group_.scope);
  head.index = index_;
  head.episode = episode.number;
  head.step = static_cast<std::uint16_t>(episode.step);
  head.parts = parts;
  head.statuses = static_cast<std::uint16_t>(episode.statuses.size());
  head.has_payload = with_payload ? 1 : 0;
  head.disagree = episode.disagree ? 1 : 0;
  head.signature = episode.call.signature();
  head.caller = episode.caller;
  head.kind = static_cast<std::uint8_t>(episode.call.kind);
  head.op = static_cast<std::uint8_t>(episode.call.combine.op);
  head.type = static_cast<std::uint8_t>(episode.call.combine.type);
  head.located = episode.call.combine.located ? 1 : 0;
  head.bytes = episode.call.bytes;
  head.root = episode.call.root;
  std::memcpy(head.call, episode.call_text, call_text_max);

  frame_.resize(sizeof head + parts * sizeof(WirePart) + episode.statuses.size() * sizeof(Status) + payload.size());
  std::byte* at = frame_.data();
  std::memcpy(at, &head, sizeof head);
  at += sizeof head;
  for (const auto& [part, place] : episode.parts) {
    if (!is_wanted(place)) continue;
    const WirePart wire{part.value.bits, part.first, part.level, part.value.location, place};
    std::memcpy(at, &wire, sizeof wire);
    at += sizeof wire;
  }
  if (!episode.statuses.empty()) std::memcpy(at, episode.statuses.data(), episode.statuses.size() * sizeof(Status));
  at += episode.statuses.size() * sizeof(Status);
  if (!payload.empty()) std::memcpy(at, payload.data(), payload.size());
  domain_.network->send_exchange(processes_[(place_ + count - distance) % count], frame_);
}

std::pair<Scope, std::uint32_t> Exchange::group_of(std::span<const std::byte> frame) noexcept {
  Head head{};
  if (frame.size() < sizeof head) return {Scope::all, ~0U};
  std::memcpy(&head, frame.data(), sizeof head);
  if (head.scope > static_cast<std::uint32_t>(Scope::all)) return {Scope::all, ~0U};
  return {static_cast<Scope>(head.scope), head.index};
}

void Exchange::receive(std::span<const std::byte> frame) {
  Head head{};
  if (frame.size() < sizeof head) nonsense("it is too short");
  std::memcpy(&head, frame.data(), sizeof head);
  check(head, frame.subspan(sizeof head));
  const std::lock_guard lock(mutex_);
  Episode& episode = episodes_[head.episode & 1U];
  if (head.episode != episode.number) nonsense("it is not of this time");  // invariant (1)
  if (head.step >= steps_max || (1U << head.step) >= processes_.size() || head.step < episode.step ||
      !episode.early[head.step].empty())
    nonsense("its step");
  episode.early[head.step].assign(frame.begin(), frame.end());
  if (episode.begun) advance(episode);
}

// Checks all of a frame that does not depend on what was called here. What follows relies on it.
void Exchange::check(const Head& head, std::span<const std::byte> rest) const {
  if (head.kind > static_cast<std::uint8_t>(CollectiveKind::last) ||
      head.op > static_cast<std::uint8_t>(ReduceOp::last) || head.type > static_cast<std::uint8_t>(NumberType::last))
    nonsense("what it says was called");
  if (head.call[call_text_max - 1] != '\0') nonsense("the name of what was called");
  const std::size_t fixed_bytes = head.parts * sizeof(WirePart) + head.statuses * sizeof(Status);
  if (rest.size() < fixed_bytes || (rest.size() > fixed_bytes && head.has_payload == 0)) nonsense("its length");
  if (head.has_payload != 0 && head.kind != static_cast<std::uint8_t>(CollectiveKind::broadcast))
    nonsense("bytes of a broadcast without one");
  for (std::uint32_t i = 0; i < head.parts; ++i) {
    WirePart wire{};
    std::memcpy(&wire, rest.data() + i * sizeof wire, sizeof wire);
    if (wire.first >= group_.count || !Fold::is_node(wire.first, wire.level) || wire.place >= processes_.size() ||
        wire.place == place_)
      nonsense("a part of it");
  }
}

void Exchange::merge(Episode& episode, std::span<const std::byte> frame) {
  Head head{};
  std::memcpy(&head, frame.data(), sizeof head);
  std::span<const std::byte> rest = frame.subspan(sizeof head);
  if (head.disagree != 0) episode.disagree = true;
  if (head.signature != episode.call.signature()) {
    episode.disagree = true;
    if (episode.mismatch.empty()) {
      CollectiveCall other;
      other.call = head.call;
      other.kind = static_cast<CollectiveKind>(head.kind);
      other.combine = {static_cast<ReduceOp>(head.op), static_cast<NumberType>(head.type), head.located != 0};
      other.bytes = head.bytes;
      other.root = head.root;
      episode.mismatch =
          fmt::format("the cells disagree: cell {} calls {}, cell {} calls {}; all must make the same call",
                      episode.caller, describe(episode.call), head.caller, describe(other));
    }
  }
  for (std::uint32_t i = 0; i < head.parts; ++i) {
    WirePart wire{};
    std::memcpy(&wire, rest.data() + i * sizeof wire, sizeof wire);
    Fold::Part part{wire.first, wire.level, {}};
    part.value.bits = wire.bits;
    part.value.location = wire.location;
    episode.parts.push_back({part, wire.place});
  }
  rest = rest.subspan(head.parts * sizeof(WirePart));
  for (std::uint32_t i = 0; i < head.statuses; ++i) {
    Status status{};
    std::memcpy(&status, rest.data() + i * sizeof status, sizeof status);
    domain_.network->other_status(status.process, status.status);
    if (std::ranges::none_of(episode.statuses, [&](const Status& each) { return each.process == status.process; }))
      episode.statuses.push_back(status);
  }
  rest = rest.subspan(head.statuses * sizeof(Status));
  if (head.has_payload != 0 && !episode.has_payload && !episode.disagree) {
    if (rest.size() != episode.call.bytes) nonsense("the bytes of a broadcast");
    episode.payload.assign(rest.begin(), rest.end());
    episode.has_payload = true;
  }
}

void Exchange::complete(Episode& episode) {
  const std::uint64_t parity = episode.number & 1U;
  if (!episode.disagree && episode.call.kind != CollectiveKind::broadcast) {
    std::ranges::sort(episode.parts, {}, [](const PlacedPart& each) { return each.part.first; });
    Fold fold(episode.call.combine);
    std::uint32_t next = 0;
    for (const auto& [part, place] : episode.parts) {
      if (part.first != next) nonsense("its parts leave a gap");
      fold.push(part.first, part.level, part.value);
      next = std::min(part.first + (1U << part.level), group_.count);
    }
    if (fold.count() == 0 || next != group_.count) nonsense("its parts do not cover the group");
    group_.result[parity] = fold.finish();
  } else {
    group_.result[parity] = {};
  }
  if (!episode.disagree && episode.call.kind == CollectiveKind::broadcast && !episode.has_payload)
    nonsense("a broadcast without its bytes");
  group_.mismatch[parity] = episode.disagree;
  const std::uint64_t done = episode.number + 1;
  episode.number += 2;
  episode.begun = false;
  episode.step = 0;
  episode.sent = 0;
  group_.done.store(done, std::memory_order_release);  // release: result, mismatch and payload
  domain_.wake_carriers();
}

}  // namespace aplib
