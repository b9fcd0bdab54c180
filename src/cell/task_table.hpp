// SPDX-License-Identifier: MIT
// TaskTable: the tasks of a cell by number; what a task is made of, and what ends it early.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "aplib/ids.hpp"
#include "base/program_context.hpp"

namespace aplib {

struct TaskControl;

/// What a task is made of.
struct NewTask {
  void (*entry)(void* state) = nullptr;
  void* state = nullptr;  ///< Moved to the new task's stack by `move`.
  std::size_t state_bytes = 0;
  std::size_t state_alignment = 0;
  void (*move)(void* to, void* from) = nullptr;
  ProgramContext* parent = nullptr;     ///< The new task inherits from it; null: it runs no loaded program.
  std::size_t program_stack_bytes = 0;  ///< 0: a stack as every task has. Else a loaded program's.
  bool detached = false;
  bool from_kernel = false;
};

/// Thrown through a task's stack when it ends early. Never seen by users, unless by catch (...), which should rethrow.
struct TaskExit {
  int status;
};
struct Stopped {};

/// Tasks of one cell by id. Ids are given out from 1 up; a freed id rests behind `id_rest` others before it is used
/// again, so that a late message does not reach a stranger.
class TaskTable {
 public:
  static constexpr std::size_t id_rest = 1024;

  [[nodiscard]] TaskControl* find(std::uint32_t id) const noexcept { return id < tasks_.size() ? tasks_[id] : nullptr; }
  /// A free id, or nothing when all are in use.
  std::optional<std::uint32_t> choose_id() {
    const bool full = tasks_.size() > task_id_max;
    while (resting_ > id_rest || (full && resting_ != 0)) {
      const std::uint32_t id = first_resting_;
      first_resting_ = std::exchange(rests_before_[id], rests_not);
      --resting_;
      if (tasks_[id] == nullptr) return id;  // someone may have asked for it by number meanwhile
    }
    return full ? std::nullopt : add_id();
  }
  /// Before insert() of this id.
  void make_room(std::uint32_t id) {
    if (id >= tasks_.size()) [[unlikely]]
      grow(id);
  }
  void insert(std::uint32_t id, TaskControl& task) noexcept {
    tasks_[id] = &task;
    ++count_;
  }
  void erase(std::uint32_t id) noexcept {
    tasks_[id] = nullptr;
    --count_;
    give_back(id);
  }
  /// A chosen id was not used after all.
  void give_back(std::uint32_t id) noexcept {
    if (id == 0 || rests_before_[id] != rests_not) return;  // 0 is never chosen; one that was asked for may rest yet
    rests_before_[id] = 0;
    (resting_ != 0 ? rests_before_[last_resting_] : first_resting_) = id;
    last_resting_ = id;
    ++resting_;
  }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  /// Ids 0 .. end()-1 may be in use.
  [[nodiscard]] std::uint32_t end() const noexcept { return static_cast<std::uint32_t>(tasks_.size()); }

 private:
  friend struct DebuggerAccess;

  static constexpr std::uint32_t rests_not = ~0U;

  std::optional<std::uint32_t> add_id();
  void grow(std::uint32_t id);

  std::vector<TaskControl*> tasks_;
  std::vector<std::uint32_t> rests_before_;  // by id: which one does that is behind it in the queue of resting ids
  std::uint32_t first_resting_ = 0;
  std::uint32_t last_resting_ = 0;
  std::size_t resting_ = 0;
  std::size_t count_ = 0;
};

}  // namespace aplib
