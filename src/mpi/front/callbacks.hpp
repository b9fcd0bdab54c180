// SPDX-License-Identifier: MIT
// Functions of programs that MPI calls, in the other MPI's form. What is kept of them stays until the program ends, for
// MPI may call them until then.
#pragma once

#include <forward_list>
#include <mutex>

#include "mpi/front/convert.hpp"

namespace aplib::mpi::front {

inline std::mutex kept_mutex;
template <class State>
inline std::forward_list<State> kept;

template <class State>
State* keep(const State& state) {
  const std::lock_guard lock(kept_mutex);
  return &kept<State>.emplace_front(state);
}

/// The functions of an attribute's key.
template <class Handle>
struct Keyval {
  using Copy = int(Foreign<Handle> object, int keyval, void* state, void* value, void* copied, int* flag);
  using Delete = int(Foreign<Handle> object, int keyval, void* value, void* state);

  Copy* copy;
  Delete* remove;
  void* state;
  int number = MPI_KEYVAL_INVALID;
};

template <class Length>
using OpFunction = void(void* in, void* inout, Length* length, Foreign<MPI_Datatype>* datatype);
template <class Length>
using StandardOpFunction = void(void* in, void* inout, Length* length, MPI_Datatype* datatype);

inline int standard_result(int code) noexcept { return static_cast<int>(standard_code(code)); }

/// Of the operation that the program has made last.
inline void (*last_op_function)() = nullptr;  // of kept_mutex

template <class Handle>
using ErrorFunction = void(Foreign<Handle>* object, int* code, ...);

template <class Handle>
void call_errhandler(void (*function)(), void** object, int* code, const char* text) {
  Foreign<Handle> handle = foreign(static_cast<Handle>(*object));
  int foreign_one = static_cast<int>(foreign_code(*code));
  reinterpret_cast<ErrorFunction<Handle>*>(function)(&handle, &foreign_one, text);
  *code = standard_result(foreign_one);
}

/// The last error handler that the program has made: what for is known from who calls it.
struct MadeErrhandler {
  MPI_Errhandler handle;
  AplibMpiErrorCaller* caller;
};
inline MadeErrhandler last_errhandler{};  // of kept_mutex

/// The functions of the generalized request that was made last are Fortran's.
void make_last_request_fortran();

}  // namespace aplib::mpi::front
