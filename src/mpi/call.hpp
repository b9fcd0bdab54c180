// SPDX-License-Identifier: MIT
// Call: one call of a program, as the functions that generate.cpp makes see it, and what they check before an
// implementation runs. An implementation is aplib::mpi::NAME(const Call&, ...) of functions.txt; it throws Failure
// (error.hpp), and the generated function raises that on the right object.
//
// Call from: a task of a cell, except where functions.txt says "pure".
#pragma once

#include <mpi.h>

#include <climits>
#include <cstddef>
#include <cstdint>

namespace aplib::mpi {

class PendingCall;
class Rank;
class Object;

/// Numbers of a program, which are ints or, in _c doubles, of 64 bits.
class Numbers {
 public:
  explicit Numbers(const int* values) noexcept : values_(values), is_wide_(false) {}
  explicit Numbers(const MPI_Count* values) noexcept : values_(values), is_wide_(true) {}

  MPI_Count operator[](std::size_t i) const noexcept {
    return is_wide_ ? static_cast<const MPI_Count*>(values_)[i] : static_cast<const int*>(values_)[i];
  }
  [[nodiscard]] bool is_null() const noexcept { return values_ == nullptr; }

 private:
  const void* values_;
  bool is_wide_;
};

class Call {
 public:
  enum When : std::uint8_t {
    pure,         ///< Needs nothing of the cell.
    anywhere,     ///< Only looks at the rank, on any thread of its program, whatever the level of thread support.
    any_time,     ///< Before MPI_Init and after MPI_Finalize, too.
    initialized,  ///< Between the two.
  };
  /// Throws Failure when the call is not allowed now. `name` is a literal.
  Call(const char* name, When when, bool large = false) : name_(name), is_large_(large) {
    if (when == anywhere) {
      look();
    } else if (when != pure) {
      enter(when);
    }
  }
  /// The same call, as a pending one goes on with it.
  Call(const char* name, Rank& rank, bool large, PendingCall& pending) noexcept
      : name_(name), rank_(&rank), is_large_(large), pending_(&pending) {}
  ~Call() {
    if (visits_) [[unlikely]]
      leave();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  [[nodiscard]] const char* name() const noexcept { return name_; }
  /// What MPI knows of the calling cell. Not for calls that are pure;
  [[nodiscard]] Rank& rank() const noexcept { return *rank_; }
  /// of one that is anywhere, null when the cell has not called MPI yet.
  [[nodiscard]] const Rank* known_rank() const noexcept { return rank_; }
  /// The _c double was called.
  [[nodiscard]] bool is_large() const noexcept { return is_large_; }
  /// Null: the program waits for the call's end.
  [[nodiscard]] PendingCall* pending() const noexcept { return pending_; }
  /// The program may free it before the call is over.
  void keep(Object& object) const {
    if (pending_ != nullptr) [[unlikely]]
      keep_pending(object);
  }
  /// `count` numbers, which the program may free before the call is over: it should not, and some do (mpi4py 4.1).
  [[nodiscard]] Numbers kept(Numbers given, int count) const;
  /// The calling thread has the cell's processor for this call alone, from here on.
  void visit() const noexcept { visits_ = true; }

 private:
  void look();
  void enter(When when);
  /// Not between MPI_Init and MPI_Finalize, or not on the processor's own thread: so are all calls of a plain process.
  [[gnu::noinline]] void enter_otherwise(When when);
  void enter_phase(When when);
  [[gnu::noinline]] void leave() const noexcept;
  void keep_pending(Object& object) const;

  const char* name_;
  Rank* rank_ = nullptr;
  bool is_large_;
  PendingCall* pending_ = nullptr;
  mutable bool visits_ = false;
};

/// What an implementation has counted, for a program that asked for an int: MPI_UNDEFINED if it does not fit.
inline void narrow(int* place, MPI_Count value) noexcept {
  *place = value > INT_MAX || value < INT_MIN ? MPI_UNDEFINED : static_cast<int>(value);
}
inline void narrow(MPI_Aint* place, MPI_Count value) noexcept { *place = value; }

// ---------------------------------------------------------------- checks

// What fails is out of line, so that a check costs a compare.
[[noreturn]] void fail_before_init();
[[noreturn]] void fail_after_finalize();
[[noreturn]] void fail_null(const char* parameter);
[[noreturn]] void fail_buffer(const char* parameter, const void* buffer);
[[noreturn]] void fail_count(const char* parameter, MPI_Count value);
[[noreturn]] void fail_size(const char* parameter, MPI_Aint value);
[[noreturn]] void fail_length(const char* parameter, int value);

inline void check_place(const Call&, const char* parameter, const void* place) {
  if (place == nullptr) [[unlikely]]
    fail_null(parameter);
}
inline void check_string(const Call& call, const char* parameter, const char* text) {
  check_place(call, parameter, text);
}
inline void check_array(const Call&, const char* parameter, const void* array, MPI_Count length) {
  if (array == nullptr && length > 0) [[unlikely]]
    fail_null(parameter);
}
inline void check_count(const Call&, const char* parameter, MPI_Count value) {
  if (value < 0) [[unlikely]]
    fail_count(parameter, value);
}
/// Of an array that MPI counts in int.
inline void check_entries(const Call& call, const char* parameter, int value) { check_count(call, parameter, value); }
inline void check_size(const Call&, const char* parameter, MPI_Aint value) {
  if (value < 0) [[unlikely]]
    fail_size(parameter, value);
}
inline void check_length(const Call&, const char* parameter, int value) {
  if (value < 0) [[unlikely]]
    fail_length(parameter, value);
}

// ---------------------------------------------------------------- how calls fail

struct Failure;

/// In a handler of exceptions: what was thrown, which is the caller's from here on. What is no failure of the call (the
/// machine stops) passes through.
Failure* caught();

// Raises it on the object, by default on MPI_COMM_SELF. Returns the error code if the error handler lets the program go
// on.
int raise(const char* call, Failure* failure);
int raise(const char* call, Failure* failure, MPI_Comm comm);
int raise(const char* call, Failure* failure, MPI_Win win);
int raise(const char* call, Failure* failure, MPI_File file);
int raise(const char* call, Failure* failure, MPI_Session session);

// Of the tool interface, whose errors are raised nowhere: the code of a failure, which is the caller's,
int tool_code(Failure* failure);
// and `code`, or that the interface is not initialized.
int tool_answer(const char* call, int code);

// The function is not there yet: raises MPI_ERR_UNSUPPORTED_OPERATION.
int missing(const char* call);
int missing(const char* call, MPI_Comm comm);
int missing(const char* call, MPI_Win win);
int missing(const char* call, MPI_File file);
int missing(const char* call, MPI_Session session);

/// A name and a text of a value; the tables end with a name that is null.
struct Name {
  int value;
  const char* name;
  const char* text;  ///< Of an error class what it means, of a handle its type.
};
extern const Name error_classes[];
extern const Name predefined_handles[];

}  // namespace aplib::mpi
