// SPDX-License-Identifier: MIT
#include "kernel/deadlock.hpp"

#include <fmt/format.h>

#include <vector>

#include "cell/domain.hpp"
#include "cell/processor.hpp"

namespace aplib {

namespace {

constexpr std::size_t lines_max = 200;

std::string describe_source(const Domain& domain, const MatchWish& wish) {
  const std::string cell =
      (wish.mask & MatchKey::cell_mask) == 0 ? "any cell" : domain.name_of(MatchKey::cell(wish.key));
  const std::string task =
      (wish.mask & MatchKey::task_mask) == 0 ? "any task" : fmt::format("task {}", MatchKey::task(wish.key));
  const std::string type =
      (wish.mask & MatchKey::type_mask) == 0 ? "any type" : fmt::format("type {}", MatchKey::type(wish.key));
  return fmt::format("{}, {}, {}", cell, task, type);
}

std::string describe_group(const Domain& domain, const Group& group) {
  switch (group.scope) {
    case Scope::row:
      return fmt::format("row {}", group.first / domain.grid.nx);
    case Scope::column:
      return fmt::format("column {}", group.first);
    case Scope::all:
      break;
  }
  return "all cells";
}

// Members of the group that have not come.
std::string describe_missing(const Domain& domain, const Group& group, std::uint64_t episode) {
  std::string missing;
  std::uint32_t count = 0;
  for (const std::uint32_t id : group.local) {
    const Cell& cell = *domain.cells[id];
    if (cell.collective.active && cell.collective.group == &group && cell.collective.episode == episode) continue;
    if (++count <= 8) missing += fmt::format("{}{}", count == 1 ? "" : ", ", cell.id);
  }
  if (count > 8) missing += fmt::format(" and {} more", count - 8);
  if (!missing.empty()) return fmt::format("missing: cell {}", missing);
  return group.exchange != nullptr ? "none is missing in this process" : "none is missing";
}

std::string describe_task(Domain& domain, const Cell& cell, const TaskControl& task, Clock::time_point now) {
  std::string line = fmt::format("{} task {}: ", domain.name_of(cell.id), task.id);
  const double seconds = std::chrono::duration<double>(now - task.wait_since).count();
  switch (task.waits) {
    case WaitFor::message:
      line += fmt::format("waits in {} for a message from {}", task.call, describe_source(domain, task.posted.wish));
      break;
    case WaitFor::collective:
      line += fmt::format("waits in {} ({}; {})", task.call, describe_group(domain, *cell.collective.group),
                          describe_missing(domain, *cell.collective.group, cell.collective.episode));
      break;
    case WaitFor::task_end:
      line += fmt::format("waits in {} for the end of task {}", task.call, task.wait_task);
      break;
    case WaitFor::cells_end:
      line += fmt::format("waits in {} for the end of all cells", task.call);
      break;
    case WaitFor::flag:
      line += fmt::format("waits in {} for flag {} to reach {}, it is {}", task.call,
                          static_cast<const void*>(task.watch.flag), task.watch.count, task.watch.now());
      break;
    case WaitFor::time:
      line += fmt::format("sleeps in {}", task.call);
      break;
    case WaitFor::nothing:
      return line + (task.ready ? "is ready" : "runs");
  }
  line += fmt::format(", for {:.1f} s", seconds);
  if (!task.mailbox.empty()) {
    const Buffer& first = *task.mailbox.oldest();
    line +=
        fmt::format("; {} other message{} unread, the oldest from {}, task {}, type {}, {} bytes", task.mailbox.size(),
                    task.mailbox.size() == 1 ? "" : "s", domain.name_of(MatchKey::cell(first.key)),
                    MatchKey::task(first.key), MatchKey::type(first.key), first.bytes);
  }
  return line;
}

}  // namespace

namespace {

/// Lines of tasks, as many as a reader can take.
class TaskList {
 public:
  explicit TaskList(Domain& domain) : domain_(domain) {}

  void add(const Cell& cell) {
    if (cell.ended) ended_.push_back(cell.id);
    for (std::uint32_t id = 0; id < cell.tasks.end(); ++id) {
      const TaskControl* task = cell.tasks.find(id);
      if (task == nullptr || task->ended) continue;
      if (++lines_ <= lines_max) text_ += "\n  " + describe_task(domain_, cell, *task, now_);
    }
  }

  std::string text() {
    if (lines_ > lines_max) text_ += fmt::format("\n  ... and {} more tasks", lines_ - lines_max);
    if (!ended_.empty()) {
      text_ += "\n  ended already:";
      for (std::size_t i = 0; i < ended_.size() && i < 16; ++i)
        text_ += fmt::format(" {}{}", domain_.name_of(ended_[i]), i + 1 < ended_.size() ? "," : "");
      if (ended_.size() > 16) text_ += fmt::format(" and {} more", ended_.size() - 16);
    }
    return text_;
  }

 private:
  Domain& domain_;
  const Clock::time_point now_ = Clock::now();
  std::string text_;
  std::size_t lines_ = 0;
  std::vector<std::uint32_t> ended_;
};

}  // namespace

std::string describe_tasks(Domain& domain) {
  TaskList list(domain);
  for (const Cell* cell : domain.cells) {
    if (cell->processor != nullptr) list.add(*cell);
  }
  return list.text();
}

std::string describe_tasks(Domain& domain, const Processor& processor) {
  TaskList list(domain);
  for (const std::uint32_t cell : processor.residents()) list.add(*domain.cells[cell]);
  if (processor.is_host()) list.add(*domain.host_cell);
  return list.text();
}

std::string describe_deadlock(Domain& domain) {
  return "deadlock: every task waits and no message is on its way, so nothing can go on" + describe_tasks(domain) +
         "\n  look for a receive whose source, task or type no send has, a flag that too few transfers raise, or a "
         "collective that not all cells call";
}

}  // namespace aplib
