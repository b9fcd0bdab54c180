// SPDX-License-Identifier: MIT
#include "farm/queue.hpp"

#include <algorithm>
#include <utility>

namespace aplib::farm {
namespace {

// A number is a place and how often that has been used: 12 days at a million tasks a second in one place.
constexpr std::uint64_t index_bits = 24;
constexpr std::uint64_t index_mask = (std::uint64_t{1} << index_bits) - 1;
constexpr std::uint64_t generation_mask = ~std::uint64_t{0} >> index_bits;

/// The mean of the last dozen or so.
void learn(double& mean, Time ran) {
  const double value = std::max(1.0, static_cast<double>(ran.count()));
  mean = mean == 0 ? value : mean + (value - mean) / 16;
}

}  // namespace

Queue::Queue(const Policy& policy) : policy_(policy) { policy_.tasks_max = std::min(policy_.tasks_max, index_mask); }

TaskNumber Queue::number_of(Index index) const noexcept { return tasks_[index].generation << index_bits | index; }

bool Queue::is_held(TaskNumber number) const noexcept {
  const std::size_t place = place_of(number);
  return place < tasks_.size() && tasks_[place].state != State::free &&
         tasks_[place].generation == number >> index_bits;
}

Queue::Task* Queue::find(TaskNumber number) noexcept { return is_held(number) ? &tasks_[place_of(number)] : nullptr; }

void Queue::append(List& list, Task& task) noexcept {
  const Index index = index_of(task);
  task.previous = list.last;
  task.next = no_index;
  (list.last == no_index ? list.first : tasks_[list.last].next) = index;
  list.last = index;
}

void Queue::prepend(List& list, Task& task) noexcept {
  const Index index = index_of(task);
  task.previous = no_index;
  task.next = list.first;
  (list.first == no_index ? list.last : tasks_[list.first].previous) = index;
  list.first = index;
}

void Queue::remove(List& list, Task& task) noexcept {
  (task.previous == no_index ? list.first : tasks_[task.previous].next) = task.next;
  (task.next == no_index ? list.last : tasks_[task.next].previous) = task.previous;
  task.previous = task.next = no_index;
}

std::size_t Queue::place_of(TaskNumber number) noexcept { return number & index_mask; }

bool Queue::has_room(std::uint64_t bytes) const noexcept {
  if (held_ == 0) return policy_.tasks_max > 0;
  return held_ < policy_.tasks_max && held_bytes_ <= policy_.bytes_max && bytes <= policy_.bytes_max - held_bytes_;
}

std::optional<TaskNumber> Queue::submit(const Terms& terms) {
  if (!has_room(terms.bytes) && !(terms.beyond && held_ < index_mask)) return std::nullopt;
  if (free_.empty()) {
    free_.reserve(tasks_.size() + 1);  // end() must not fail
    tasks_.emplace_back();
    free_.push_back(static_cast<Index>(tasks_.size() - 1));
  }
  Task& task = tasks_[free_.back()];
  const std::uint64_t generation = task.generation;
  task = Task{.terms = terms, .generation = generation, .retries_left = terms.retries};
  wait(task, false);
  free_.pop_back();
  ++held_;
  held_bytes_ += terms.bytes;
  return number_of(index_of(task));
}

void Queue::wait(Task& task, bool first) {
  List& list = waiting_[task.terms.priority];
  first ? prepend(list, task) : append(list, task);
  task.state = State::waiting;
  ++waiting_count_;
}

void Queue::stop_waiting(Task& task) {
  const auto list = waiting_.find(task.terms.priority);
  remove(list->second, task);
  --waiting_count_;
  // One list stays, because a queue often becomes empty and is filled again.
  if (list->second.first == no_index && waiting_.size() > 1) waiting_.erase(list);
}

/// Ends the task. Who else holds it is told to stop.
void Queue::end(Task& task, WorkerNumber but, Outcome stop_reason, Actions& actions) {
  const TaskNumber number = number_of(index_of(task));
  for (const WorkerNumber holder : task.holders) {
    if (holder == nobody || holder == but) continue;
    actions.push_back({.kind = Action::Kind::stop, .worker = holder, .task = number, .outcome = stop_reason});
  }
  if (task.state == State::waiting) stop_waiting(task);
  if (task.state == State::given && !task.copied) remove(given_, task);
  task.state = State::free;
  task.generation = (task.generation + 1) & generation_mask;
  --held_;
  held_bytes_ -= task.terms.bytes;
  free_.push_back(index_of(task));
}

bool Queue::cancel(TaskNumber number, Actions& actions) {
  Task* task = find(number);
  if (task == nullptr) return false;
  for (const WorkerNumber holder : task->holders) {
    if (const auto worker = workers_.find(holder); worker != workers_.end()) worker->second.cancelled.insert(number);
  }
  end(*task, nobody, Outcome::cancelled, actions);
  return true;
}

WorkerNumber Queue::join() {
  const WorkerNumber number = next_worker_++;
  note_hungry(number, workers_[number]);
  return number;
}

void Queue::retire(WorkerNumber number) {
  if (const auto found = workers_.find(number); found != workers_.end()) found->second.retired = true;
}

std::size_t Queue::held_by(WorkerNumber number) const {
  const auto found = workers_.find(number);
  return found == workers_.end() ? 0 : found->second.held.size();
}

bool Queue::runs_for_nothing(WorkerNumber number) const {
  const auto found = workers_.find(number);
  if (found == workers_.end() || found->second.held.empty()) return false;
  const Worker& worker = found->second;
  if (is_held(worker.held.front())) return false;
  // Where a copy has ended first, this run may be over, too: workers keep results for a while, and tell them late where
  // a long task is the next.
  return worker.cancelled.contains(worker.held.front()) ||
         std::ranges::none_of(worker.held, [this](TaskNumber task) { return is_held(task); });
}

/// How many tasks the worker should hold.
std::uint32_t Queue::target(const Worker& worker) const noexcept {
  if (policy_.batch_max <= 1 || worker.mean == 0) return 1;
  const double fit = static_cast<double>(policy_.batch_time.count()) / worker.mean;
  // Near the end everybody gets a share of what is left.
  const std::uint64_t share = waiting_count_ / (2 * std::max<std::size_t>(1, workers_.size()));
  const double limit =
      static_cast<double>(std::min<std::uint64_t>(policy_.batch_max, std::max<std::uint64_t>(share, 1)));
  return static_cast<std::uint32_t>(std::clamp(fit, 1.0, limit));
}

bool Queue::wants(const Worker& worker) const noexcept {
  if (worker.retired || worker.alone) return false;
  return worker.held.empty() || worker.held.size() * 2 <= target(worker);
}

void Queue::note_hungry(WorkerNumber number, Worker& worker) {
  if (worker.hungry || !wants(worker)) return;
  hungry_.push_back(number);
  worker.hungry = true;
}

/// When the task that has been given first is worth a copy.
std::optional<Time> Queue::copy_time() const noexcept {
  if (!policy_.copies || mean_ == 0 || given_.first == no_index) return std::nullopt;
  if (static_cast<double>(copies_) > policy_.copies_max * static_cast<double>(done_)) return std::nullopt;
  const Task& task = tasks_[given_.first];
  const double usual = policy_.copy_after * mean_ * task.position;
  return task.given + std::max(policy_.copy_least, Time(static_cast<Time::rep>(std::min(usual, 1e18))));
}

bool Queue::anything_for_hungry(Time now) const noexcept {
  if (waiting_count_ != 0) return true;
  const auto time = copy_time();
  return time && *time <= now;
}

void Queue::hold(WorkerNumber number, Worker& worker, Task& task, Time now) {
  worker.held.push_back(number_of(index_of(task)));
  worker.alone = task.alone;
  (task.holders[0] == nobody ? task.holders[0] : task.holders[1]) = number;
  if (worker.held.size() == 1) begin_first(number, worker, now);
}

/// The worker does not run the task any more. True: another one does.
bool Queue::let_go(Task& task, WorkerNumber worker) noexcept {
  bool held = false;
  for (WorkerNumber& holder : task.holders) {
    if (holder == worker) holder = nobody;
    held = held || holder != nobody;
  }
  if (task.overdue == worker) task.overdue = nobody;
  if (task.copied) append(given_, task);  // worth another copy
  task.copied = false;
  return held;
}

void Queue::begin_first(WorkerNumber number, const Worker& worker, Time now) {
  if (worker.held.empty()) return;
  const Task* task = find(worker.held.front());
  if (task == nullptr || task->terms.timeout <= Time{0}) return;
  const Time deadline = task->terms.timeout < Time::max() - now ? now + task->terms.timeout : Time::max();
  deadlines_.emplace(deadline, worker.held.front(), number);
  deadline_of_[{worker.held.front(), number}] = deadline;
}

void Queue::end_run(WorkerNumber worker, TaskNumber task) {
  const auto found = deadline_of_.find({task, worker});
  if (found == deadline_of_.end()) return;
  deadlines_.erase({found->second, task, worker});
  deadline_of_.erase(found);
}

void Queue::take(WorkerNumber number, Time now, std::vector<TaskNumber>& tasks) {
  const auto found = workers_.find(number);
  if (found == workers_.end() || !wants(found->second)) return;
  Worker& worker = found->second;
  const std::size_t before = tasks.size();
  const std::uint32_t most = target(worker);
  while (waiting_count_ != 0 && worker.held.size() < most && !worker.alone) {
    auto list = waiting_.begin();
    if (list->second.first == no_index) list = waiting_.erase(list);
    Task& task = tasks_[list->second.first];
    if (task.alone && !worker.held.empty()) break;
    stop_waiting(task);
    task.state = State::given;
    task.given = now;
    task.position = static_cast<std::uint32_t>(worker.held.size() + 1);
    append(given_, task);
    hold(number, worker, task, now);
    tasks.push_back(worker.held.back());
  }
  if (waiting_count_ == 0 && worker.held.empty() && !worker.retired && anything_for_hungry(now)) {
    Task& task = tasks_[given_.first];
    remove(given_, task);
    task.copied = true;
    ++copies_;
    hold(number, worker, task, now);
    tasks.push_back(worker.held.back());
  }
  if (tasks.size() == before) note_hungry(number, worker);
}

void Queue::give(Time now, const std::function<void(WorkerNumber, const std::vector<TaskNumber>&)>& to) {
  std::vector<TaskNumber> tasks;
  for (std::size_t left = hungry_.size(); left != 0 && anything_for_hungry(now); --left) {
    const WorkerNumber number = hungry_.front();
    hungry_.pop_front();
    const auto worker = workers_.find(number);
    if (worker == workers_.end()) continue;
    worker->second.hungry = false;
    tasks.clear();
    take(number, now, tasks);
    if (!tasks.empty()) to(number, tasks);
  }
}

void Queue::hand_over(TaskNumber number, WorkerNumber from, WorkerNumber to, Time now) {
  const auto giver = workers_.find(from);
  const auto taker = workers_.find(to);
  if (giver == workers_.end() || taker == workers_.end()) return;
  std::deque<TaskNumber>& held = giver->second.held;
  const auto place = std::ranges::find(held, number);
  if (place == held.end()) return;
  const bool was_first = place == held.begin();
  end_run(from, number);
  held.erase(place);
  giver->second.cancelled.erase(number);
  if (was_first) begin_first(from, giver->second, now);
  giver->second.alone = false;
  note_hungry(from, giver->second);
  if (Task* task = find(number); task != nullptr) {
    std::ranges::replace(task->holders, from, to);
    taker->second.alone = task->alone;
  }
  taker->second.held.push_back(number);
  if (taker->second.held.size() == 1) begin_first(to, taker->second, now);
}

/// Whether it has retries left. Then it waits behind the others.
bool Queue::run_again(Task& task) {
  if (task.retries_left == 0) return false;
  --task.retries_left;
  remove(given_, task);
  wait(task, false);
  return true;
}

Queue::Verdict Queue::finished(WorkerNumber number, TaskNumber task_number, Outcome outcome, Time ran, Time now,
                               Actions& actions) {
  const auto found = workers_.find(number);
  if (found == workers_.end()) return Verdict::stale;
  Worker& worker = found->second;
  const auto place = std::ranges::find(worker.held, task_number);
  if (place == worker.held.end()) return Verdict::stale;
  const bool was_first = place == worker.held.begin();
  end_run(number, task_number);
  worker.held.erase(place);
  worker.cancelled.erase(task_number);
  worker.alone = false;
  if (was_first) begin_first(number, worker, now);
  if (outcome == Outcome::done) {
    learn(worker.mean, ran);
    learn(mean_, ran);
    ++done_;
  }
  note_hungry(number, worker);

  Task* task = find(task_number);
  if (task == nullptr) return Verdict::stale;
  const bool held_elsewhere = let_go(*task, number);
  if (outcome != Outcome::done && (held_elsewhere || run_again(*task))) return Verdict::again;
  end(*task, number, Outcome::cancelled, actions);
  return Verdict::counts;
}

void Queue::died(WorkerNumber number, Actions& actions) {
  const auto found = workers_.find(number);
  if (found == workers_.end()) return;
  const std::deque<TaskNumber> held = std::move(found->second.held);
  workers_.erase(found);
  if (held.empty()) return;
  const Task* first = find(held.front());
  const bool overdue = first != nullptr && first->overdue == number;
  for (auto each = held.rbegin(); each != held.rend(); ++each) {  // so that they wait in their order
    end_run(number, *each);
    Task* task = find(*each);
    if (task == nullptr) continue;
    const bool held_elsewhere = let_go(*task, number);
    std::optional<Outcome> outcome;
    if (!overdue) task->alone = true;
    if (*each == held.front() && !overdue && ++task->crashes >= policy_.crash_limit) outcome = Outcome::crashed;
    if (*each == held.front() && overdue && !held_elsewhere) {
      if (run_again(*task)) continue;
      outcome = Outcome::timed_out;
    }
    if (outcome) {
      end(*task, number, Outcome::cancelled, actions);
      actions.push_back({.kind = Action::Kind::ended, .worker = number, .task = *each, .outcome = *outcome});
    } else if (!held_elsewhere) {
      remove(given_, *task);
      wait(*task, true);
    }
  }
}

void Queue::tick(Time now, Actions& actions) {
  while (!deadlines_.empty() && std::get<Time>(*deadlines_.begin()) <= now) {
    const auto [time, number, worker] = *deadlines_.begin();
    deadlines_.erase(deadlines_.begin());
    deadline_of_.erase({number, worker});
    if (Task* task = find(number); task != nullptr) task->overdue = worker;
    actions.push_back({.kind = Action::Kind::stop, .worker = worker, .task = number, .outcome = Outcome::timed_out});
  }
}

std::optional<Time> Queue::next_time() const {
  std::optional<Time> time;
  if (!deadlines_.empty()) time = std::get<Time>(*deadlines_.begin());
  const auto copy = hungry_.empty() || waiting_count_ != 0 ? std::nullopt : copy_time();
  if (copy && (!time || *copy < *time)) time = copy;
  return time;
}

}  // namespace aplib::farm
