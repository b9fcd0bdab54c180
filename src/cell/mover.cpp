// SPDX-License-Identifier: MIT
#include "cell/mover.hpp"

#include <algorithm>

#include "cell/domain.hpp"
#include "cell/processor.hpp"

namespace aplib {

namespace {

constexpr auto time_between_looks = std::chrono::microseconds(100);
/// A stack is read when its task goes to another thread (rebase_flow()): in a tenth of a millisecond.
constexpr std::size_t stack_read_max = std::size_t{1} << 20;
constexpr double least_gain = 0.1;  // of a processor's time; less is not worth a cell's cold caches

auto push_of(Processor& here) {
  return [&here](std::uint32_t to, MoveProtocol::Kind kind, std::uint32_t cell, std::uint32_t argument) {
    here.outbound().push_control(to, kind == MoveProtocol::Kind::fence ? EntryKind::fence : EntryKind::cell_moved, cell,
                                 argument);
  };
}

/// The end of the stack on which the waiting task stands; null: it stands on one of its program's own.
const char* top_of_stack(const TaskControl& task) noexcept {
  const Stack& stack = task.aside != nullptr ? *task.aside : task.stack;
  const auto* const at = static_cast<const char*>(task.context);
  return at >= stack.low && at < stack.top ? stack.top : nullptr;
}

bool has_much_stack(const TaskControl& task) noexcept {
  const char* const top = top_of_stack(task);
  return top != nullptr && used_stack(task, top) > stack_read_max;
}

}  // namespace

void Mover::prepare() { protocol_.prepare(here_.index(), static_cast<std::uint32_t>(domain_.processors.size())); }

void Mover::offer_cells(TaskControl& self) noexcept {
  if (!domain_.options.balance || here_.is_host() || active() || here_.live_residents() < 2) return;
  if (domain_.move_in_progress.load(std::memory_order_relaxed)) return;  // relaxed: the exchange in hand_over() decides
  const Clock::time_point now = Clock::now();
  if (now - last_offer_ < time_between_looks) return;
  last_offer_ = now;
  // A processor that would be less busy with one of our cells than we are now.
  const double ours = here_.idle().load().own_share(now);
  const double one_cell = ours / here_.live_residents();
  std::uint32_t taker = here_.index();
  double least = ours - least_gain - one_cell;
  for (std::uint32_t p = 0; p < domain_.carriers; ++p) {
    const LoadMeter& other = domain_.processors[p]->idle().load();
    if (p == here_.index() || !other.idle_now()) continue;
    const double theirs = other.busy_share(now);
    if (theirs >= least) continue;
    least = theirs;
    taker = p;
  }
  if (taker == here_.index()) return;
  // A cell that can run, other than the one whose stack we are on. One that can run must stay here.
  const auto movable = [&](const TaskControl& task) {
    Cell* cell = task.cell;
    return cell != self.cell && cell != domain_.host_cell.get() && !cell->stays && !cell->keeps_thread &&
           !cell->interrupted && !cell->collective.active && cell->id != protocol_.leaving() &&
           cell->id != protocol_.arriving() && !has_much_stack(task);
  };
  TaskControl* candidate = here_.idle().ready().last_of(movable);
  if (candidate == nullptr) return;
  const bool another = self.ready || here_.idle().ready().last_of([&](const TaskControl& task) {
    return task.cell != candidate->cell;
  }) != nullptr;
  if (!another) return;
  domain_.guarded([&] {
    if (hand_over(*candidate->cell, taker)) here_.idle().load().restart(now);
  });
}

bool Mover::hand_over(Cell& cell, std::uint32_t to) {
  if (domain_.move_in_progress.exchange(true, std::memory_order_acq_rel))
    return false;  // acq_rel: against the end of the last move
  // A sender may be filling a buffer of the cell: then it stays.
  if (cell.offering != nullptr && !Inbound::withdraw(*cell.offering)) {
    domain_.move_in_progress.store(false, std::memory_order_release);  // nothing has moved
    return false;
  }
  here_.idle().pack(cell);
  here_.remove_resident(cell.id);
  here_.outbound().set_route(cell.id, to);
  cell.processor = domain_.processors[to].get();
  protocol_.leave(cell.id, to, push_of(here_));
  domain_.moves.fetch_add(1, std::memory_order_relaxed);  // relaxed: a statistic
  here_.collectives().resident_left();
  return true;
}

void Mover::rebase(Cell& cell, const Processor& from) noexcept {
  for (std::uint32_t id = 0; id < cell.tasks.end(); ++id) {
    TaskControl* const task = cell.tasks.find(id);
    if (task == nullptr || task->ended) continue;
    if (const char* const top = top_of_stack(*task)) rebase_flow(*task, top, from.thread_state(), here_.thread_state());
  }
}

void Mover::cell_moved(std::uint32_t from, std::uint32_t cell_index, std::uint32_t to) {
  Cell& cell = *domain_.cells[cell_index];
  const bool comes_here = to == here_.index();
  if (comes_here) {  // what may throw comes before anything has changed, so it can be tried again
    here_.make_room_for_resident();
    here_.idle().make_room_for(cell);
  }
  here_.outbound().set_route(cell_index, to);
  if (comes_here) {
    rebase(cell, *domain_.processors[from]);
    here_.collectives().resident_joins(cell);
    here_.idle().load().restart(Clock::now());
    here_.add_resident(cell.id);
    here_.idle().unpack(cell);
  }
  domain_.guarded([&] { protocol_.moved(from, cell_index, to, push_of(here_)); });
}

void Mover::fence(std::uint32_t of) {
  if (protocol_.fence(of, push_of(here_))) end_move();
}

bool Mover::postpone_end(std::uint32_t cell) {
  if (protocol_.arriving() == MoveProtocol::none) return false;
  ended_meanwhile_.push_back(cell);
  return true;
}

void Mover::end_move() {
  Cell& cell = *domain_.cells[protocol_.arriving()];
  protocol_.arrived();
  // What our own cells have sent to it meanwhile, in order.
  while (const auto kept = here_.outbound().take_kept()) here_.inbound().take_kept(cell, *kept);
  for (const std::uint32_t id : ended_meanwhile_) {
    if (domain_.cells[id]->ended) here_.inbound().cell_ended(id, domain_.cells[id]->end());
  }
  ended_meanwhile_.clear();
  // Tasks of the new cell wait for cells that have ended, because their last messages might have been under way.
  if (here_.inbound().some_cell_ended()) here_.inbound().wake_receivers(cell, false);
  domain_.move_in_progress.store(false, std::memory_order_release);  // release: all of the above
}

}  // namespace aplib
