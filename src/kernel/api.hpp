// SPDX-License-Identifier: MIT
// The kernel's API: what front ends (the C++ API in api.cpp, CellOS in src/cellos/, an MPI one day) call. Each
// function takes the name of the call the user wrote, so that errors and deadlock reports speak the user's
// language. `call` must be a string literal.
//
// Call from: task, unless marked [any].
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "aplib/aplib.hpp"
#include "aplib/export.hpp"
#include "base/clock_reads.hpp"

namespace aplib {
struct MatchWish;
}

namespace aplib::api {

/// Separate matching spaces: a receive in one never sees a message of another.
enum class Space : std::uint8_t {
  plain = 0,           ///< send/receive, l_asend/l_arecv/crecv/h_recv/cbroad
  line = 1,            ///< xy_send/xy_recv and its row and column kin
  mpi = 2,             ///< MPI's messages from rank to rank, with keys of their own (kernel/mailbox.hpp),
  mpi_collective = 3,  ///< those of its collectives,
  mpi_receipt = 4,     ///< and the receipts of those that ask for one
  kernel = 7,          ///< the runtime's own
};

void send(const char* call, CellId cell, std::span<const std::byte> bytes, To to, Space space);

enum class Received : std::uint8_t { message, closed };

/// `closed_when_cells_end`: on the host, it returns closed and does not wait when no message is left and all cells have
/// ended (CellOS crecv).
Received receive(const char* call, Message& into, From from, Space space, bool closed_when_cells_end = false);

/// `truncate`: of a message that is longer than `buffer` it keeps what fits, and Envelope::bytes is the buffer's size.
/// Otherwise it throws.
Envelope receive_into(const char* call, std::span<std::byte> buffer, From from, Space space, bool truncate = false);

bool probe(const char* call, From from, Space space);

bool barrier(const char* call, bool stat, Scope scope);
/// As detail::reduce() of aplib/collective.hpp.
std::uint64_t reduce(const char* call, ReduceOp op, detail::NumberType type, std::uint64_t bits, std::int32_t* location,
                     Scope scope);
void reduce_array(const char* call, ReduceOp op, detail::NumberType type, void* values, std::size_t count, Scope scope);
template <Number T>
T reduce(const char* call, ReduceOp op, T value, Scope scope) {
  return detail::number_of<T>(reduce(call, op, detail::number_type<T>, detail::bits_of(value), nullptr, scope));
}
template <Number T>
Located<T> reduce(const char* call, ReduceOp op, Located<T> value, Scope scope) {
  value.value = detail::number_of<T>(
      reduce(call, op, detail::number_type<T>, detail::bits_of(value.value), &value.location, scope));
  return value;
}
void broadcast(const char* call, CellId root, std::span<std::byte> buffer, Scope scope);

/// State of the calling task that belongs to the front end (CellOS). It is made at first use and destroyed with the
/// task. The kernel gives it its place, and looks at `place` for its reports.
struct CellosState {
  Message message;  ///< last received by a pointer-returning call (CellOS: valid until the next receive)
  Envelope last{any_cell, any_task, any_type,
                0};                ///< of the message last received in any way; source any_cell: none yet
  bool readable = false;           ///< `last` speaks of `message`, so it can be read again
  std::uint8_t status_reads = 0;   ///< cstat and gstat calls, so that a loop of them lets others run
  ClockReads clock_reads;          ///< the same of dgettime
  const char* place_of = nullptr;  ///< a call that waits,
  const void* place = nullptr;     ///< and where it returns to in the program
  void* exit_frame = nullptr;      ///< where exit() ends the task's program
  const void* program = nullptr;   ///< host program's task: what CellOS's ccreat starts
};
CellosState& cellos_state(const char* call);

/// What MPI (src/mpi) keeps of the calling task's cell; null before keep_mpi_rank(). Throws outside of tasks and in the
/// host program.
APLIB_API void* mpi_rank(const char* call);
/// The cell owns `rank` from here on, and calls `free_rank` at its end, on a thread without a task. `describe_wish`: as
/// in MpiState, called on any thread while nobody else uses the rank.
APLIB_API void keep_mpi_rank(const char* call, void* rank, void (*free_rank)(void* rank),
                             std::string (*describe_wish)(const void* rank, const MatchWish& wish));

/// The program that the calling task's cell was started with.
struct StartedProgram {
  std::uint32_t number = 0;  ///< Among those of the machine, from 0.
  std::uint32_t cells = 0;   ///< That were started with it.
};
[[nodiscard]] APLIB_API StartedProgram started_program(const char* call);

/// Ends the machine with this exit status and "cell 3 task 0: <text>". The calling task ends: it leaves its program by
/// a jump, as by exit(), or unwinds if it runs no loaded program.
[[noreturn]] APLIB_API void end_machine(const char* call, int status, const std::string& text);

/// Host program only: gives the status word `value` to every cell that has not posted one. A word that is posted
/// meanwhile stays.
void preset_status(const char* call, std::int32_t value);

/// The host program's calls of this_machine, by the caller's name.
void configure(const char* call, Grid grid);
void configure(const char* call, const Options& options);
/// Throws unless the host program may start a program as this task.
void check_start(const char* call, TaskId task);
void start_cells(const char* call, std::function<void()> program, TaskId task);
void wait_cells(const char* call);

/// Symmetric memory (aplib/symmetric.hpp). Null: there is no room, and errno is ENOMEM. `zeroed`: its bytes are
/// zero, and the alignment the least.
void* symmetric_allocate(const char* call, std::size_t bytes, std::size_t alignment, bool zeroed = false);
/// Null: there is no room; the memory is as it was.
void* symmetric_resize(const char* call, void* memory, std::size_t bytes);
void symmetric_free(const char* call, void* memory);

/// True when the caller is a task of the host program.
bool on_host(const char* call);

/// True when the machine was started with a host program.
bool has_host(const char* call);

/// As those of this_cell, this_task and this_machine.
APLIB_API CellId cell_id(const char* call);
APLIB_API TaskId task_id(const char* call);
CellId host_cell(const char* call);
APLIB_API Grid grid(const char* call);
/// The number of the process that carries the cell. REQUIRES: the cell exists.
APLIB_API std::uint32_t process_of(const char* call, CellId cell);

/// Throws Error: "cell 3 task 0: <call>: <text>".
[[noreturn]] void fail(Errc code, const char* call, const std::string& text);

/// The same text as a warning on stderr, and as a line that only the log level debug shows.
void warn(const char* call, const std::string& text);
APLIB_API void debug(const char* call, const std::string& text);

}  // namespace aplib::api
