// SPDX-License-Identifier: MIT
// Condition: what a task waits for in memory that tasks of other cells write. Whoever writes wakes all
// carriers afterwards. No wake-up is lost, as with flags (Watch in cell.hpp).
#pragma once

#include <cstdint>
#include <string>

namespace aplib {

/// Lies on the stack of the task that waits.
class Condition {
 public:
  /// Conditions of one subject hold at the same time, so one of them is asked for all. Null: of none.
  explicit Condition(const void* subject = nullptr) noexcept : subject_(subject) {}
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;

  [[nodiscard]] const void* subject() const noexcept { return subject_; }
  /// Asked again and again, by the processor that carries the task, until it says true.
  [[nodiscard]] virtual bool holds() const noexcept = 0;
  /// It may begin to hold by what others write to memory, so it is worth a look all the time. Otherwise it does so only
  /// by what this processor does: takes a message, or runs another task.
  [[nodiscard]] virtual bool is_about_memory() const noexcept { return true; }
  /// The cell has ended. True: the condition will never hold. Asked only while it does not.
  [[nodiscard]] virtual bool needs(std::uint32_t cell) const noexcept = 0;
  /// "rank 3 of MPI_COMM_WORLD": for reports. Asked when everybody sleeps.
  [[nodiscard]] virtual std::string missing() const = 0;
  /// The processor of the task is about to sleep, or awake again. For conditions that other processes make hold, which
  /// wake nobody unless they know. Looks that follow are behind a fence.
  virtual void sleeps(bool /*does*/) const noexcept {}
  /// The machine stops, or there is no memory to wait; the task is about to unwind.
  virtual void let_go() noexcept = 0;

 protected:
  ~Condition() = default;

 private:
  const void* subject_;
};

}  // namespace aplib
