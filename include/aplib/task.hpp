// SPDX-License-Identifier: MIT
// Tasks: user-level threads of a cell. Tasks of one cell never run at the same time. A task gives way only inside
// library calls whose card says "Switches tasks: yes".
//
//   aplib::Task t = aplib::spawn([] { work(); });
//   t.join();
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <new>
#include <type_traits>
#include <utility>

#include "aplib/export.hpp"
#include "aplib/ids.hpp"

namespace aplib {

namespace detail {
/// What a new task runs: `move` moves the callable from `state` onto the task's own stack, and `call` invokes it there.
struct TaskEntry {
  void (*call)(void* state);
  void* state;
  std::size_t bytes;
  std::size_t alignment;
  void (*move)(void* to, void* from);  // move-constructs `to` from `from`; the task owns `to`
};
APLIB_API TaskId spawn(const TaskEntry& entry, TaskId wanted, bool detached);
APLIB_API void join(TaskId id);
APLIB_API void detach(TaskId id);
}  // namespace detail

/// Handle of a task of this cell. Destroying a joinable handle detaches the task; it does not end it.
/// REQUIRES: used on the cell that made it. Movable, not copyable.
class Task {
 public:
  Task() noexcept = default;
  explicit Task(TaskId id) noexcept : id_(id) {}
  Task(Task&& other) noexcept : id_(std::exchange(other.id_, any_task)) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      if (joinable()) detail::detach(id_);
      id_ = std::exchange(other.id_, any_task);
    }
    return *this;
  }
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  ~Task() {
    if (joinable()) detail::detach(id_);
  }

  [[nodiscard]] bool joinable() const noexcept { return id_ != any_task; }
  [[nodiscard]] TaskId id() const noexcept { return id_; }

  /// Waits until the task has ended. Switches tasks: yes.
  /// REQUIRES: joinable(); called from another task of the same cell; nobody else joins it. Otherwise throws
  /// Error(bad_argument).
  void join() { detail::join(std::exchange(id_, any_task)); }
  /// Gives up the handle. The task goes on and cleans up after itself.
  void detach() { detail::detach(std::exchange(id_, any_task)); }

 private:
  TaskId id_ = any_task;
};

/// Starts a task on this cell that runs `f()`. The callable is moved onto the new task's stack, without allocation.
/// `id`: a free task id, or any_task to have one chosen (from 1 up). REQUIRES: called from a task. Switches tasks: no;
/// the new task runs at the next switch. Throws Error(bad_argument) when the id is in use, and Error(exhausted) when
/// there is no memory for a stack. An exception that leaves `f` ends the machine with a report.
template <class F>
Task spawn(F&& f, TaskId id = any_task) {
  using Callable = std::decay_t<F>;
  Callable local(std::forward<F>(f));
  const detail::TaskEntry entry{
      [](void* state) {
        auto* callable = static_cast<Callable*>(state);
        struct Destroy {
          Callable* c;
          ~Destroy() { c->~Callable(); }
        } destroy{callable};
        (*callable)();
      },
      &local, sizeof(Callable), alignof(Callable),
      [](void* to, void* from) { ::new (to) Callable(std::move(*static_cast<Callable*>(from))); }};
  return Task(detail::spawn(entry, id, false));
}

/// About the calling task. REQUIRES: called from a task.
namespace this_task {
[[nodiscard]] APLIB_API TaskId id();
/// Lets the other ready tasks of this processor run once. Switches tasks: yes.
APLIB_API void yield();
/// Waits at least this long; nanoseconds::max() means for ever. Switches tasks: yes.
APLIB_API void sleep_for(std::chrono::nanoseconds duration);
/// Ends the calling task now. Its stack unwinds, so destructors run. A status other than 0 becomes the cell's (CellOS:
/// cell_exit).
[[noreturn]] APLIB_API void exit(int status);
/// True inside a task, false on any other thread. Call from: any thread.
[[nodiscard]] APLIB_API bool inside() noexcept;
}  // namespace this_task

}  // namespace aplib
