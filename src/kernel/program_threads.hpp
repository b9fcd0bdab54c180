// SPDX-License-Identifier: MIT
// Calls of the threads that a program makes: they are carried out on behalf of the program's cell, whose processor the
// thread becomes while a call lasts (cell/baton.hpp). That takes a processor that carries no other cell.
#pragma once

#include <cstdint>
#include <string>

#include "aplib/export.hpp"

namespace aplib {
class Baton;
struct Cell;
}  // namespace aplib

namespace aplib::api {

enum class Threads : std::uint8_t {
  none,      ///< They may not call: the cell shares a processor, or has other tasks.
  never,     ///< The same, and the program makes none, by all that its files tell.
  may_come,  ///< They may, but the program has made none so far.
  run,       ///< The program has made some. The caller has entered its cell, and leaves it at the end of its call.
};
/// From now on, the threads that the calling task's program makes may call, too. Call from: task.
[[nodiscard]] APLIB_API Threads admit_threads(const char* call);

/// The calling task is an ordinary process, and no program that the machine has loaded. Call from: task.
[[nodiscard]] APLIB_API bool is_process(const char* call);

/// MPI begins on the calling task: threads that the program makes from now on call if it admits them. Returns the
/// index of the program's main task. Call from: task.
[[nodiscard]] APLIB_API std::uint32_t begin_calls(const char* call);

enum class Entry : std::uint8_t {
  inside,    ///< The calling thread runs a task anyway.
  entered,   ///< It does until leave_cell().
  refused,   ///< It may not: threads of its program are not admitted, or it is no thread of a program.
  too_late,  ///< The program has ended, but for threads.
};
/// The beginning of a call. Throws Error(exhausted). Call from: any thread.
[[nodiscard]] APLIB_API Entry enter_cell();
APLIB_API void leave_cell() noexcept;

/// Enters the calling thread's cell while it lives, if it can.
class InCell {
 public:
  InCell() : entry_(enter_cell()) {}
  ~InCell() {
    if (entry_ == Entry::entered) leave_cell();
  }
  InCell(const InCell&) = delete;
  InCell& operator=(const InCell&) = delete;
  [[nodiscard]] bool is_inside() const noexcept { return entry_ == Entry::inside || entry_ == Entry::entered; }

 private:
  const Entry entry_;
};

/// A call runs a function of the program while this lives. In an ordinary process, a thread other than the main one has
/// lent the baton meanwhile, but in calls that the function makes.
class APLIB_API InCallback {
 public:
  InCallback() noexcept;
  ~InCallback();
  InCallback(const InCallback&) = delete;
  InCallback& operator=(const InCallback&) = delete;

 private:
  Cell* const cell_;          // null: no task calls
  Baton* lends_ = nullptr;    // the thread's own call has lent it
  Baton* const lent_before_;  // the thread is in a function that such a call has called
};

struct Visit {
  Entry entry = Entry::refused;
  void* rank = nullptr;  ///< As mpi_rank_of_thread() says.
};
/// enter_cell(), with what MPI keeps of the cell. Call from: any thread.
[[nodiscard]] APLIB_API Visit visit_cell();

/// What MPI keeps of the cell of the running task; null: nothing yet, or no task runs here. Call from: any thread.
[[nodiscard]] APLIB_API void* mpi_rank_of_task() noexcept;
/// What MPI keeps of the cell whose program the calling thread runs; null: nothing yet, or the thread runs none. Not to
/// be changed by a thread that has not entered the cell. Call from: any thread.
[[nodiscard]] APLIB_API void* mpi_rank_of_thread() noexcept;
/// The calling thread runs the program of a cell. Call from: any thread.
[[nodiscard]] APLIB_API bool is_thread_of_program() noexcept;
/// The calling thread is no other than the program's main one. Call from: any thread.
[[nodiscard]] APLIB_API bool is_main_thread() noexcept;
/// Ends the machine for a call of a thread that may not call. Returns only on threads of no cell's program, and in a
/// process that has left the machine.
APLIB_API void fail_on_thread(const char* call, const std::string& text);
/// The machine stops, and a call was to end by an exception: on a thread other than the program's main one, ends what
/// the thread runs for the program. Else returns.
APLIB_API void end_stopped_thread() noexcept;

// ---------------------------------------------------------------- the process of a program

/// In an ordinary process that is a cell of a launcher's machine (aprun --processes): the cell ends, and the call
/// returns when all others have. From then on only the process's exit status counts. Elsewhere it does nothing.
APLIB_API void leave_machine(const char* call);

}  // namespace aplib::api
