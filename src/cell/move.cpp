// SPDX-License-Identifier: MIT
// Moving a cell from one processor to another, without losing or reordering a message.
//
// A busy processor P that holds several runnable cells gives one, C, to an idle processor Q. At most one cell moves at a time in a machine.
//
//   1. P, at a switch point: takes C's ready tasks and timers out of its queues, sets its route of C to Q, and sends cell_moved(C, Q) to
//      everybody, Q first. From here on it forwards every message to C that still reaches it to Q.
//   2. Every other processor X, on reading cell_moved: sets its route of C to Q and answers P with fence(C). What it had sent to C before lies before the
//      fence in the ring X -> P, what it sends from now on goes to Q.
//   3. P, on reading a fence of X: passes it on to Q, behind all it has forwarded.
//   4. Q runs C at once. It leaves messages to C from X in their ring until it has read cell_moved and X's fence has come by way of P. When all
//      have come, the move is over.
//
// Messages *from* C: what C sent from P to Y lies before cell_moved in the ring P -> Y. So Y leaves messages of C that come from Q in their ring until
// it has read cell_moved from P, that is, until its route of C is Q (see handle()).
//
// No ring is held back by another that is held back: P -> anyone is never held (P's own route to C is right at once, forwarded messages
// are marked), and all others only wait for a message that comes from P, or for P to pass one on.
#include <algorithm>

#include "cell/processor.hpp"

namespace aplib {

namespace {

constexpr auto time_between_looks = std::chrono::microseconds(100);
constexpr double least_gain = 0.1;  // of a processor's time; less is not worth a cell's cold caches

}  // namespace

// Called at a switch point of `self` when other processors are idle: perhaps one of our cells is better off there.
void Processor::offer_cells(TaskControl& self) noexcept {
  if (!domain_.options.balance || is_host_ || moving_ || residents_.size() < 2) return;
  if (domain_.move_in_progress.load(std::memory_order_relaxed)) return;  // relaxed: the exchange in hand_over() decides
  const Clock::time_point now = Clock::now();
  if (now - last_offer_ < time_between_looks) return;
  last_offer_ = now;
  // Is there a processor that would be less busy with one of our cells than we are now?
  const auto live = std::count_if(residents_.begin(), residents_.end(),
                                  [&](std::uint32_t cell) { return !domain_.cells[cell]->ended; });
  if (live < 2) return;
  const double ours = load_.own_share(now);
  const double one_cell = ours / static_cast<double>(live);
  std::uint32_t taker = index_;
  double least = ours - least_gain - one_cell;
  for (std::uint32_t p = 0; p < domain_.carriers; ++p) {
    const LoadMeter& other = domain_.processors[p]->load_;
    if (p == index_ || !other.idle_now()) continue;
    const double theirs = other.busy_share(now);
    if (theirs >= least) continue;
    least = theirs;
    taker = p;
  }
  if (taker == index_) return;
  // A cell with something to run, but not the one whose stack we stand on, and leave one that can run here.
  const auto movable = [&](const TaskControl& task) {
    Cell* cell = task.cell;
    return cell != self.cell && cell != domain_.host_cell.get() && !cell->collective.active && cell != leaving_ &&
           cell != arriving_;
  };
  TaskControl* candidate = ready_.last_of(movable);
  if (candidate == nullptr) return;
  const bool another =
      self.ready || ready_.last_of([&](const TaskControl& task) { return task.cell != candidate->cell; }) != nullptr;
  if (!another) return;
  domain_.guarded([&] {
    if (hand_over(*candidate->cell, taker)) load_.restart(now);
  });
}

bool Processor::hand_over(Cell& cell, std::uint32_t to) {
  cell.parcel_timers.reserve(timers_.size());  // what may throw comes before anything has changed
  cell.parcel_watches.reserve(watches_.size());
  if (domain_.move_in_progress.exchange(true, std::memory_order_acq_rel))
    return false;                                                      // acq_rel: against the end of the last move
  if (cell.offering != nullptr && !withdraw(*cell.offering)) {         // a sender is filling a buffer of it: not now
    domain_.move_in_progress.store(false, std::memory_order_release);  // nothing has moved
    return false;
  }
  ready_.split_to(cell.parcel, [&](const TaskControl& task) { return task.cell == &cell; });
  const auto first =
      std::partition(timers_.begin(), timers_.end(), [&](const Timer& timer) { return timer.task->cell != &cell; });
  cell.parcel_timers.assign(first, timers_.end());
  timers_.erase(first, timers_.end());
  std::make_heap(timers_.begin(), timers_.end());
  const auto watching =
      std::partition(watches_.begin(), watches_.end(), [&](const TaskControl* task) { return task->cell != &cell; });
  cell.parcel_watches.assign(watching, watches_.end());
  watches_.erase(watching, watches_.end());
  std::erase(residents_, cell.id);

  moving_ = true;
  leaving_ = &cell;
  move_peer_ = to;
  const auto processors = static_cast<std::uint32_t>(domain_.processors.size());
  fences_missing_ = processors - 1;
  route_[cell.id] = static_cast<std::uint16_t>(to);
  cell.processor = domain_.processors[to].get();
  push_control(to, SlotKind::cell_moved, cell.id, to, 0, nullptr, 0);
  for (std::uint32_t p = 0; p < processors; ++p) {
    if (p != index_ && p != to) push_control(p, SlotKind::cell_moved, cell.id, to, 0, nullptr, 0);
  }
  domain_.moves.fetch_add(1, std::memory_order_relaxed);  // relaxed: a statistic
  if (arrived_ != 0 && arrived_ == residents_.size() && published_ != arrived_)
    publish_arrivals();  // we waited only for the one that left
  return true;
}

void Processor::handle_cell_moved(std::uint32_t from, std::uint32_t cell_index, std::uint32_t to) {
  if (to == index_) {  // what may throw comes before anything has changed: then it is tried again
    const Cell& cell = *domain_.cells[cell_index];
    residents_.reserve(residents_.size() + 1);
    timers_.reserve(timers_.size() + cell.parcel_timers.size());
    watches_.reserve(watches_.size() + cell.parcel_watches.size());
  }
  route_[cell_index] = static_cast<std::uint16_t>(to);
  if (to == index_) {
    Cell& cell = *domain_.cells[cell_index];
    if (residents_.empty()) {
      episode_ = cell.place(Scope::all).episode;
      arrived_ = 0;
      published_ = 0;
    } else if (cell.place(Scope::all).episode != episode_) {
      check_all();  // it has seen an episode complete that we have not looked at yet
    }
    load_.restart(Clock::now());
    residents_.insert(std::lower_bound(residents_.begin(), residents_.end(), cell.id), cell.id);
    moving_ = true;
    arriving_ = &cell;
    move_peer_ = from;
    fences_missing_ = static_cast<std::uint32_t>(domain_.processors.size()) - 1;
    std::fill(fenced_.begin(), fenced_.end(), std::uint8_t{0});
    fenced_[from] = 1;  // what P itself had for C is in C's mailboxes, or forwarded
    while (TaskControl* task = cell.parcel.pop()) make_ready(*task);
    for (const Timer& timer : cell.parcel_timers) {
      timers_.push_back(timer);
      std::push_heap(timers_.begin(), timers_.end());
    }
    cell.parcel_timers.clear();
    for (TaskControl* task : cell.parcel_watches) add_watch(*task);
    cell.parcel_watches.clear();
    if (stop_seen_) stop_seen_ = false;  // stop its tasks, too
  }
  domain_.guarded([&] { push_control(from, SlotKind::fence, cell_index, index_, 0, nullptr, 0); });
}

// At P: `of` has sent its last message for the leaving cell. At Q: it has all come through.
void Processor::handle_fence(std::uint32_t of) {
  if (leaving_ != nullptr) {
    const std::uint32_t cell = leaving_->id;
    if (--fences_missing_ == 0) {
      leaving_ = nullptr;
      moving_ = false;
    }
    push_control(move_peer_, SlotKind::fence, cell, of, 0, nullptr, 0);
    return;
  }
  fenced_[of] = 1;
  if (--fences_missing_ == 0) end_move();
}

void Processor::end_move() {
  Cell& cell = *arriving_;
  arriving_ = nullptr;
  moving_ = false;
  // What our own cells sent it meanwhile, in order.
  Backlog& waiting = backlogs_[index_];
  while (!waiting.empty()) {
    const Waiting item = waiting.front();
    waiting.pop_front();
    --backlog_count_;
    deliver_slot(cell, item.info, item.key, item.task, item.payload);
  }
  for (const std::uint32_t id : ended_meanwhile_) {
    if (domain_.cells[id]->ended) cell_ended(id, domain_.cells[id]->end());
  }
  ended_meanwhile_.clear();
  // receive() has let tasks of the new cell wait for cells that have ended, because their last messages could have been under way.
  for (std::uint32_t id = 0; ended_count_ != 0 && id < cell.tasks.end(); ++id) {
    TaskControl* task = cell.tasks.find(id);
    if (task == nullptr || task->ended || task->ready || task->waits != WaitFor::message || !task->posted.open)
      continue;
    const MatchWish& wish = task->posted.wish;
    if ((wish.mask & MatchKey::cell_mask) != 0 && cell_has_ended(MatchKey::cell(wish.key)))
      wake_waiting(*task, Wake::ended);
  }
  domain_.move_in_progress.store(false, std::memory_order_release);  // release: all of the above
}

// Only while a cell leaves or arrives here: is this message for it?
Processor::Admission Processor::admit(std::uint32_t from, Slot& slot) {
  if (leaving_ != nullptr && slot.cell == leaving_->id) {
    push_raw(move_peer_, slot.info | SlotInfo::forwarded_bit, slot.key, slot.cell, slot.task, slot.payload,
             MessageRing::inline_bytes_max);
    return Admission::done;
  }
  if (arriving_ != nullptr && slot.cell == arriving_->id && fenced_[from] == 0) return Admission::hold;
  return Admission::deliver;
}

}  // namespace aplib
