// SPDX-License-Identifier: MIT
// Functions of Fortran programs that MPI calls. Those that have a state are called by a function of C here, whose state
// says which one is meant. Operations and error handlers have none: the library gives the function to one that calls it
// here.
#include <forward_list>
#include <mutex>

#include "mpi/attribute_values.hpp"
#include "mpi/fortran/convert.hpp"

namespace aplib::mpi::fortran {
namespace {

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

AttributeValues values;

/// Value: what the program's attributes are, INTEGER in MPI-1.
template <class Value>
struct Keyval {
  using Copy = void (*)(const int* object, const int* keyval, Value* state, Value* value, Value* copied, int* flag,
                        int* ierror);
  using Delete = void (*)(const int* object, const int* keyval, Value* value, Value* state, int* ierror);

  Copy copy;
  Delete remove;
  Value state;
};

template <class Handle, class Value>
int call_copy(Handle object, int keyval, void* state, void* value, void* copied, int* flag) {
  auto& key = *static_cast<Keyval<Value>*>(state);
  const int number = number_of(object);
  const auto original = static_cast<Value>(values.at(value));
  Value given = original;
  Value result = 0;
  int error = MPI_SUCCESS;
  *flag = 0;
  key.copy(&number, &keyval, &key.state, &given, &result, flag, &error);
  // The same stays what it is, also an address of C's.
  if (*flag != 0) *static_cast<void**>(copied) = result == original ? value : values.address_of(result);
  return error;
}

template <class Handle, class Value>
int call_delete(Handle object, int keyval, void* value, void* state) {
  auto& key = *static_cast<Keyval<Value>*>(state);
  const int number = number_of(object);
  auto given = static_cast<Value>(values.at(value));
  int error = MPI_SUCCESS;
  key.remove(&number, &keyval, &given, &key.state, &error);
  return error;
}

template <class Handle, class Value, class Create>
int create_keyval(Create* create, typename Keyval<Value>::Copy copy, typename Keyval<Value>::Delete remove, int* keyval,
                  Value state) {
  return create(call_copy<Handle, Value>, call_delete<Handle, Value>, keyval, keep(Keyval<Value>{copy, remove, state}));
}

/// What C has at `value` for a key: C's predefined attributes are addresses of values, Fortran's are the values.
MPI_Aint attribute_of(int key, const void* value) noexcept {
  for (const int each : {MPI_TAG_UB, MPI_IO, MPI_HOST, MPI_WTIME_IS_GLOBAL, MPI_APPNUM, MPI_LASTUSEDCODE,
                         MPI_UNIVERSE_SIZE, MPI_WIN_DISP_UNIT, MPI_WIN_CREATE_FLAVOR, MPI_WIN_MODEL}) {
    if (key == keyval(each)) return *static_cast<const int*>(value);
  }
  return key == keyval(MPI_WIN_SIZE) ? *static_cast<const MPI_Aint*>(value) : values.at(value);
}

template <class Handle, class Value, class Get>
int get_attribute(Get* get, int object, int keyval, Value* place, int* flag) {
  void* value = nullptr;
  const int error = get(handle_of<Handle>(object), keyval, &value, flag);
  if (error == MPI_SUCCESS && *flag != 0) *place = static_cast<Value>(attribute_of(keyval, value));
  return error;
}

// ---------------------------------------------------------------- requests

struct Request {
  void (*query)(MPI_Aint* state, MPI_Status* status, int* ierror);
  void (*free)(MPI_Aint* state, int* ierror);
  void (*cancel)(MPI_Aint* state, const int* complete, int* ierror);
  MPI_Aint* state;  ///< The program's own variable, which its functions may change, as with MPICH and Open MPI.
};

int call_query(void* state, MPI_Status* status) {
  auto& request = *static_cast<Request*>(state);
  int error = MPI_SUCCESS;
  request.query(request.state, status, &error);
  return error;
}

int call_free(void* state) {
  const std::unique_ptr<Request> request(static_cast<Request*>(state));
  int error = MPI_SUCCESS;
  request->free(request->state, &error);
  return error;
}

int call_cancel(void* state, int complete) {
  auto& request = *static_cast<Request*>(state);
  int error = MPI_SUCCESS;
  request.cancel(request.state, &complete, &error);
  return error;
}

// ---------------------------------------------------------------- data representations

using Convert = void (*)(void* userbuf, const int* datatype, const int* count, void* filebuf,
                         const MPI_Offset* position, MPI_Aint* state, int* ierror);

struct Representation {
  Convert read;
  Convert write;
  void (*extent)(const int* datatype, MPI_Aint* extent, MPI_Aint* state, int* ierror);
  MPI_Aint state;
};

template <Convert Representation::*direction>
int call_convert(void* userbuf, MPI_Datatype datatype, int count, void* filebuf, MPI_Offset position, void* state) {
  auto& representation = *static_cast<Representation*>(state);
  const int number = number_of(datatype);
  int error = MPI_SUCCESS;
  (representation.*direction)(userbuf, &number, &count, filebuf, &position, &representation.state, &error);
  return error;
}

int call_extent(MPI_Datatype datatype, MPI_Aint* extent, void* state) {
  auto& representation = *static_cast<Representation*>(state);
  const int number = number_of(datatype);
  int error = MPI_SUCCESS;
  representation.extent(&number, extent, &representation.state, &error);
  return error;
}

// ---------------------------------------------------------------- operations and error handlers

void call_op(void (*function)(), void* in, void* inout, MPI_Count length, MPI_Datatype datatype) {
  int count = static_cast<int>(length);
  int number = number_of(datatype);
  reinterpret_cast<void (*)(void*, void*, int*, int*)>(function)(in, inout, &count, &number);
}

void call_errhandler(void (*function)(), void** object, int* code, const char*) {
  int number = number_of(*object);
  int given = code_of(*code);
  reinterpret_cast<void (*)(int*, int*)>(function)(&number, &given);
  *code = standard_code_of(given);
}

template <class Function, class Create>
int create_errhandler(Create* create, void (*function)(), int* errhandler) {
  MPI_Errhandler made = nullptr;
  const int error = create(reinterpret_cast<Function*>(function), &made);
  if (error != MPI_SUCCESS) return error;
  aplib_mpi_call_errhandler_by(made, call_errhandler);
  *errhandler = number_of(made);
  return error;
}

}  // namespace
}  // namespace aplib::mpi::fortran

using namespace aplib::mpi::fortran;

extern "C" {
#pragma GCC visibility push(default)

// Callbacks that are there already, in MPI-1 with plain integers.
#define APLIB_CALLBACKS(prefix, Value)                                                                              \
  void mpi_##prefix##null_copy_fn_(const int*, const int*, Value*, Value*, Value*, int* flag, int* ierror) {        \
    *flag = 0;                                                                                                      \
    *ierror = MPI_SUCCESS;                                                                                          \
  }                                                                                                                 \
  void mpi_##prefix##dup_fn_(const int*, const int*, Value*, Value* value, Value* copied, int* flag, int* ierror) { \
    *copied = *value;                                                                                               \
    *flag = 1;                                                                                                      \
    *ierror = MPI_SUCCESS;                                                                                          \
  }                                                                                                                 \
  void mpi_##prefix##null_delete_fn_(const int*, const int*, Value*, Value*, int* ierror) { *ierror = MPI_SUCCESS; }
APLIB_CALLBACKS(, int)
APLIB_CALLBACKS(comm_, MPI_Aint)
APLIB_CALLBACKS(type_, MPI_Aint)
APLIB_CALLBACKS(win_, MPI_Aint)

/// Stands for no conversion, and is never called.
void mpi_conversion_fn_null_(void*, const int*, const int*, void*, const MPI_Offset*, MPI_Aint*, int*) {}

// For communicators, datatypes and windows.
#define APLIB_ATTRIBUTES(kind, Kind, Handle)                                                                           \
  APLIB_SUBROUTINE(kind##_create_keyval, (Keyval<MPI_Aint>::Copy copy, Keyval<MPI_Aint>::Delete remove, int* keyval,   \
                                          const MPI_Aint* extra_state, int* ierror)) {                                 \
    *ierror = create_keyval<Handle, MPI_Aint>(PMPI_##Kind##_create_keyval, copy, remove, keyval, *extra_state);        \
  }                                                                                                                    \
  APLIB_SUBROUTINE(kind##_set_attr, (const int* object, const int* keyval, const MPI_Aint* value, int* ierror)) {      \
    *ierror = PMPI_##Kind##_set_attr(handle_of<Handle>(*object), *keyval, values.address_of(*value));                  \
  }                                                                                                                    \
  APLIB_SUBROUTINE(kind##_get_attr, (const int* object, const int* keyval, MPI_Aint* value, int* flag, int* ierror)) { \
    *ierror = get_attribute<Handle>(PMPI_##Kind##_get_attr, *object, *keyval, value, flag);                            \
  }
APLIB_ATTRIBUTES(comm, Comm, MPI_Comm)
APLIB_ATTRIBUTES(type, Type, MPI_Datatype)
APLIB_ATTRIBUTES(win, Win, MPI_Win)

// MPI-1.
APLIB_SUBROUTINE(keyval_create, (Keyval<int>::Copy copy, Keyval<int>::Delete remove, int* keyval,
                                 const int* extra_state, int* ierror)) {
  *ierror = create_keyval<MPI_Comm, int>(PMPI_Comm_create_keyval, copy, remove, keyval, *extra_state);
}
APLIB_SUBROUTINE(attr_put, (const int* comm, const int* keyval, const int* value, int* ierror)) {
  *ierror = PMPI_Comm_set_attr(handle_of<MPI_Comm>(*comm), *keyval, values.address_of(*value));
}
APLIB_SUBROUTINE(attr_get, (const int* comm, const int* keyval, int* value, int* flag, int* ierror)) {
  *ierror = get_attribute<MPI_Comm>(PMPI_Comm_get_attr, *comm, *keyval, value, flag);
}

APLIB_SUBROUTINE(op_create, (void (*user_fn)(), const int* commute, int* op, int* ierror)) {
  MPI_Op made = nullptr;
  *ierror = PMPI_Op_create(reinterpret_cast<MPI_User_function*>(user_fn), *commute, &made);
  if (*ierror != MPI_SUCCESS) return;
  aplib_mpi_call_op_by(made, call_op);
  *op = number_of(made);
}

#define APLIB_ERRHANDLER(name, Kind)                                                                                \
  APLIB_SUBROUTINE(name, (void (*function)(), int* errhandler, int* ierror)) {                                      \
    *ierror =                                                                                                       \
        create_errhandler<MPI_##Kind##_errhandler_function>(PMPI_##Kind##_create_errhandler, function, errhandler); \
  }
APLIB_ERRHANDLER(comm_create_errhandler, Comm)
APLIB_ERRHANDLER(errhandler_create, Comm)
APLIB_ERRHANDLER(file_create_errhandler, File)
APLIB_ERRHANDLER(session_create_errhandler, Session)
APLIB_ERRHANDLER(win_create_errhandler, Win)

APLIB_SUBROUTINE(grequest_start,
                 (decltype(Request::query) query_fn, decltype(Request::free) free_fn,
                  decltype(Request::cancel) cancel_fn, MPI_Aint* extra_state, int* request, int* ierror)) {
  auto state = std::make_unique<Request>(Request{query_fn, free_fn, cancel_fn, extra_state});
  Handles<MPI_Request, false, true> request_(request, 1);
  *ierror = PMPI_Grequest_start(call_query, call_free, call_cancel, state.get(), request_.data());
  request_.give();
  if (*ierror == MPI_SUCCESS) static_cast<void>(state.release());  // call_free() has it
}

APLIB_SUBROUTINE(register_datarep, (const char* datarep, Convert read_conversion_fn, Convert write_conversion_fn,
                                    decltype(Representation::extent) dtype_file_extent_fn, const MPI_Aint* extra_state,
                                    int* ierror, Length datarep_length)) {
  const Text datarep_(datarep, datarep_length);
  const auto function = [](Convert given, MPI_Datarep_conversion_function* own) {
    return given == mpi_conversion_fn_null_ ? MPI_CONVERSION_FN_NULL : own;
  };
  *ierror = PMPI_Register_datarep(
      datarep_.data(), function(read_conversion_fn, call_convert<&Representation::read>),
      function(write_conversion_fn, call_convert<&Representation::write>), call_extent,
      keep(Representation{read_conversion_fn, write_conversion_fn, dtype_file_extent_fn, *extra_state}));
}

#pragma GCC visibility pop
}
