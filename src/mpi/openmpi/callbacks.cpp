// SPDX-License-Identifier: MIT
// Functions of programs that MPI calls. Those that have a state are called by a function here, whose state says which
// one is meant. Operations and error handlers have none: the library gives the function to one that calls it here.
#include <forward_list>
#include <mutex>

#include "mpi/openmpi/convert.hpp"

namespace aplib::mpi::openmpi {
namespace {

const AplibMpiFunctions& own = aplib_mpi_functions;

int standard_result(int code) noexcept { return static_cast<int>(standard_code(code)); }

/// What MPI calls may be called until the program ends.
std::mutex kept_mutex;
template <class State>
std::forward_list<State> kept;

template <class State>
State* keep(const State& state) {
  const std::lock_guard lock(kept_mutex);
  return &kept<State>.emplace_front(state);
}

// ---------------------------------------------------------------- attributes

template <class Handle>
struct Keyval {
  using Copy = int(Handle object, int keyval, void* state, void* value, void* copied, int* flag);
  using Delete = int(Handle object, int keyval, void* value, void* state);

  Copy* copy;
  Delete* remove;
  void* state;
};

template <class Handle>
int call_copy(Handle object, int keyval, void* state, void* value, void* copied, int* flag) {
  const auto& key = *static_cast<Keyval<Handle>*>(state);
  return standard_result(key.copy(foreign(object), keyval, key.state, value, copied, flag));
}

template <class Handle>
int call_delete(Handle object, int keyval, void* value, void* state) {
  const auto& key = *static_cast<Keyval<Handle>*>(state);
  return standard_result(key.remove(foreign(object), keyval, value, key.state));
}

template <class Handle, class Create>
int create_keyval(Create* create, typename Keyval<Handle>::Copy* copy, typename Keyval<Handle>::Delete* remove,
                  int* keyval, void* state) {
  const auto key = keep(Keyval<Handle>{copy, remove, state});
  return returned(create(copy == nullptr ? nullptr : call_copy<Handle>,
                         remove == nullptr ? nullptr : call_delete<Handle>, keyval, key));
}

// ---------------------------------------------------------------- operations and error handlers

void call_op(void (*function)(), void* in, void* inout, int* length, MPI_Datatype* datatype) {
  MPI_Datatype type = foreign(*datatype);
  reinterpret_cast<MPI_User_function*>(function)(in, inout, length, &type);
}

void call_errhandler(void (*function)(), void** object, int* code, const char* text) {
  void* handle = foreign(*object);
  int foreign_one = static_cast<int>(foreign_code(*code));
  reinterpret_cast<void (*)(void**, int*, ...)>(function)(&handle, &foreign_one, text);
  *code = standard_result(foreign_one);
}

template <class Function, class Create>
int create_errhandler(Create* create, Function* function, MPI_Errhandler* errhandler) {
  const int error = create(function, errhandler);
  if (error == MPI_SUCCESS) aplib_mpi_call_errhandler_by(*errhandler, call_errhandler);
  return returned(error);
}

// ---------------------------------------------------------------- requests

struct Request {
  MPI_Grequest_query_function* query;
  MPI_Grequest_free_function* free;
  MPI_Grequest_cancel_function* cancel;
  void* state;
};

int call_query(void* state, MPI_Status* status) {
  const auto& request = *static_cast<Request*>(state);
  ForeignStatus given{};
  give_status(*status, given);
  const int error = request.query(request.state, reinterpret_cast<MPI_Status*>(&given));
  *status = standard_status(given);
  return standard_result(error);
}

int call_free(void* state) {
  const std::unique_ptr<Request> request(static_cast<Request*>(state));
  return standard_result(request->free(request->state));
}

int call_cancel(void* state, int complete) {
  const auto& request = *static_cast<Request*>(state);
  return standard_result(request.cancel(request.state, complete));
}

// ---------------------------------------------------------------- data representations

struct Representation {
  MPI_Datarep_conversion_function* read;
  MPI_Datarep_conversion_function* write;
  MPI_Datarep_extent_function* extent;
  void* state;
};

template <MPI_Datarep_conversion_function* Representation::*direction>
int call_convert(void* userbuf, MPI_Datatype datatype, int count, void* filebuf, MPI_Offset position, void* state) {
  const auto& its = *static_cast<Representation*>(state);
  return standard_result((its.*direction)(userbuf, foreign(datatype), count, filebuf, position, its.state));
}

int call_extent(MPI_Datatype datatype, MPI_Aint* extent, void* state) {
  const auto& its = *static_cast<Representation*>(state);
  return standard_result(its.extent(foreign(datatype), extent, its.state));
}

}  // namespace
}  // namespace aplib::mpi::openmpi

using namespace aplib::mpi::openmpi;

extern "C" {
#pragma GCC visibility push(default)

// Callbacks that are there already.
#define APLIB_CALLBACKS(prefix, Handle)                                                       \
  int OMPI_C_MPI_##prefix##NULL_COPY_FN(Handle, int, void*, void*, void*, int* flag) {        \
    *flag = 0;                                                                                \
    return MPI_SUCCESS;                                                                       \
  }                                                                                           \
  int OMPI_C_MPI_##prefix##DUP_FN(Handle, int, void*, void* value, void* copied, int* flag) { \
    *static_cast<void**>(copied) = value;                                                     \
    *flag = 1;                                                                                \
    return MPI_SUCCESS;                                                                       \
  }                                                                                           \
  int OMPI_C_MPI_##prefix##NULL_DELETE_FN(Handle, int, void*, void*) { return MPI_SUCCESS; }
APLIB_CALLBACKS(, MPI_Comm)
APLIB_CALLBACKS(COMM_, MPI_Comm)
APLIB_CALLBACKS(TYPE_, MPI_Datatype)
APLIB_CALLBACKS(WIN_, MPI_Win)

#define APLIB_KEYVAL(name, Handle)                                                                                 \
  APLIB_FUNCTION(name, (Keyval<Handle>::Copy * copy, Keyval<Handle>::Delete * remove, int* keyval, void* state)) { \
    return create_keyval<Handle>(own.name, copy, remove, keyval, state);                                           \
  }
APLIB_KEYVAL(Comm_create_keyval, MPI_Comm)
APLIB_KEYVAL(Keyval_create, MPI_Comm)
APLIB_KEYVAL(Type_create_keyval, MPI_Datatype)
APLIB_KEYVAL(Win_create_keyval, MPI_Win)

APLIB_FUNCTION(Op_create, (MPI_User_function * user_fn, int commute, MPI_Op* op)) {
  const int error = own.Op_create(user_fn, commute, op);
  if (error == MPI_SUCCESS) aplib_mpi_call_op_by(*op, call_op);
  return returned(error);
}

#define APLIB_ERRHANDLER(name, Kind)                                                                 \
  APLIB_FUNCTION(name, (MPI_##Kind##_errhandler_function * function, MPI_Errhandler * errhandler)) { \
    return create_errhandler(own.name, function, errhandler);                                        \
  }
APLIB_ERRHANDLER(Comm_create_errhandler, Comm)
APLIB_ERRHANDLER(Errhandler_create, Comm)
APLIB_ERRHANDLER(File_create_errhandler, File)
APLIB_ERRHANDLER(Session_create_errhandler, Session)
APLIB_ERRHANDLER(Win_create_errhandler, Win)

APLIB_FUNCTION(Grequest_start, (MPI_Grequest_query_function * query_fn, MPI_Grequest_free_function* free_fn,
                                MPI_Grequest_cancel_function* cancel_fn, void* extra_state, MPI_Request* request)) {
  auto state = std::make_unique<Request>(Request{query_fn, free_fn, cancel_fn, extra_state});
  const int error = own.Grequest_start(call_query, call_free, call_cancel, state.get(), request);
  if (error == MPI_SUCCESS) static_cast<void>(state.release());  // call_free() has it
  return returned(error);
}

APLIB_FUNCTION(Register_datarep, (const char* datarep, MPI_Datarep_conversion_function* read_conversion_fn,
                                  MPI_Datarep_conversion_function* write_conversion_fn,
                                  MPI_Datarep_extent_function* dtype_file_extent_fn, void* extra_state)) {
  return returned(own.Register_datarep(
      datarep, read_conversion_fn == nullptr ? nullptr : call_convert<&Representation::read>,
      write_conversion_fn == nullptr ? nullptr : call_convert<&Representation::write>,
      dtype_file_extent_fn == nullptr ? nullptr : call_extent,
      keep(Representation{read_conversion_fn, write_conversion_fn, dtype_file_extent_fn, extra_state})));
}

#pragma GCC visibility pop
}
