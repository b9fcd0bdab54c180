// SPDX-License-Identifier: MIT
// CellServices: what a running program needs of its host (the kernel, or a test). Each instance has one, which
// lives as long as the instance.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "loader/libc/heap.hpp"
#include "memory/mapping.hpp"

namespace aplib {
class SlotHeap;
struct Cell;
}  // namespace aplib

namespace aplib::loader {

/// The three standard streams, by descriptor number.
enum class Stream : int { in = 0, out = 1, err = 2 };

class CellServices {
 public:
  virtual ~CellServices() = default;

  /// The heap in the cell's slot, or in low memory (LowPlan), which the first call makes. Null: it cannot be made, and
  /// the user has been told. Call from: flows of the cell.
  virtual SlotHeap* heap(bool /*low*/) { return nullptr; }

  /// `block` is the body of the message that the running task received last.
  virtual bool is_received(const void* /*block*/) noexcept { return false; }

  /// Takes the count of what the program allocated and never freed. Called once, at its end, if it was to be counted.
  virtual void heap_used(const libc::HeapUse&) {}

  /// An instance of this host is being made, or is gone for good, which is the last call for it. The host must live in
  /// between.
  virtual void instance_begins() {}
  virtual void instance_gone() noexcept {}

  /// Keeps memory of an ended instance until the machine's end: other cells may reach it until then. Call from: any
  /// flow or thread.
  virtual void keep(ReservedRange /*memory*/) {}

  /// Null: there is none. Call from: any flow or thread, while the machine lives.
  virtual Cell* cell() noexcept { return nullptr; }
  /// The program is about to run on several threads. `ask`: one of them may be the first to call MPI, and wants to be
  /// admitted. Call from: a flow of the program.
  virtual void begin_threads(bool /*ask*/) {}

  /// The stack of the calling flow, which grows from `top` down to `low`; empty: it is its thread's. Call from: a flow
  /// of the program.
  struct FlowStack {
    char* low = nullptr;
    char* top = nullptr;
  };
  virtual FlowStack stack() noexcept { return {}; }
  /// CPU time that the cell has used, in ns, roughly where it shares its thread. Call from: a flow of the program.
  virtual std::int64_t computed() noexcept { return 0; }
  /// A thread that the program has made begins: what it keeps until its end. Call from: that thread.
  virtual std::shared_ptr<void> thread_begins() noexcept { return nullptr; }
  /// That thread is in the program's code, and shall not go on. True: a call of the machine has called that code (an
  /// operation, an attribute's function), and others may call from here on; the thread must stay, for the call may have
  /// lent what is on its stack. Async-signal-safe there.
  virtual bool leave_call() noexcept { return false; }

  /// Who the calling task is, for messages: "cell 3 task 0".
  virtual std::string name() = 0;

  /// Takes output of the program: any piece of it, from any of the program's threads. The host never mixes lines of
  /// different cells. It shows a piece of a line at the latest when `flush` asks and no other cell can be in between.
  virtual void write(Stream stream, std::span<const char> bytes) = 0;
  virtual void flush(Stream stream) = 0;
  /// Descriptor that the program's standard input is read from, or -1: it sees an empty one.
  virtual int input() = 0;

  /// Lets other tasks run meanwhile. On a thread that is no task it just sleeps. Switches tasks: yes.
  virtual void sleep(std::chrono::nanoseconds duration) = 0;
  virtual void yield() = 0;

  /// Other cells or tasks run on the calling task's thread, so it must not block. False on a thread that is no task.
  virtual bool shares_thread() noexcept { return false; }
  /// The calling task holds what belongs to its thread, so its cell does not move to another one, until it says false.
  virtual void keep_thread(bool /*keeps*/) noexcept {}

  /// The system's number of the thread that carries the calling program's cell; 0: it sleeps. Call from: any thread.
  virtual pid_t thread() noexcept { return 0; }

  /// A task that the program spawned itself (or a thread it made) has ended by exit(status); the program's main
  /// task goes on.
  virtual void task_exited(int status) = 0;

  /// Ends the machine with this exit status and text, which gets name() in front. Does not return: it unwinds or jumps.
  [[noreturn]] virtual void fail(int status, const std::string& text) = 0;
  /// Tells the user a text, with name() in front, once per machine.
  virtual void warn(const std::string& text) = 0;
};

}  // namespace aplib::loader
