// SPDX-License-Identifier: MIT
// Functions of programs that MPI calls. Those that have a state are called by a function here, whose state says which
// one is meant. Operations and error handlers have none: the library gives the function to one that calls it here.
#include "mpi/front/callbacks.hpp"

namespace aplib::mpi::front {
namespace {

// ---------------------------------------------------------------- attributes

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
  Keyval<Handle>* const key = keep(Keyval<Handle>{copy, remove, state});
  const int error = create(copy == nullptr ? nullptr : call_copy<Handle>,
                           remove == nullptr ? nullptr : call_delete<Handle>, keyval, key);
  if (error == MPI_SUCCESS) key->number = *keyval;
  return returned(error);
}

// ---------------------------------------------------------------- operations and error handlers

template <class Length>
void call_op(void (*function)(), void* in, void* inout, MPI_Count length, MPI_Datatype datatype) {
  auto count = static_cast<Length>(length);
  Foreign<MPI_Datatype> type = foreign(datatype);
  reinterpret_cast<OpFunction<Length>*>(function)(in, inout, &count, &type);
}

template <class Length>
int create_op(int (*create)(StandardOpFunction<Length>*, int, MPI_Op*), OpFunction<Length>* function, int commute,
              Foreign<MPI_Op>* op) {
  MPI_Op made = MPI_OP_NULL;
  const int error =
      create(reinterpret_cast<StandardOpFunction<Length>*>(function), commute, op == nullptr ? nullptr : &made);
  if (error != MPI_SUCCESS) return returned(error);
  aplib_mpi_call_op_by(made, call_op<Length>);
  {
    const std::lock_guard lock(kept_mutex);
    last_op_function = reinterpret_cast<void (*)()>(function);
  }
  *op = foreign(made);
  return MPI_SUCCESS;
}

template <class Handle, class Function>
int create_errhandler(int (*create)(Function*, MPI_Errhandler*), ErrorFunction<Handle>* function,
                      Foreign<MPI_Errhandler>* errhandler) {
  MPI_Errhandler made = MPI_ERRHANDLER_NULL;
  const int error = create(reinterpret_cast<Function*>(function), errhandler == nullptr ? nullptr : &made);
  if (error != MPI_SUCCESS) return returned(error);
  aplib_mpi_call_errhandler_by(made, call_errhandler<Handle>);
  {
    const std::lock_guard lock(kept_mutex);
    last_errhandler = {made, call_errhandler<Handle>};
  }
  *errhandler = foreign(made);
  return MPI_SUCCESS;
}

// ---------------------------------------------------------------- requests

using QueryFunction = int(void* state, ForeignStatus* status);

struct Request {
  QueryFunction* query;
  MPI_Grequest_free_function* free;
  MPI_Grequest_cancel_function* cancel;
  void* state;
  bool is_fortran = false;  ///< The functions are subroutines, with one parameter more.
};
Request* last_request = nullptr;  // of kept_mutex

/// A function of these parameters and the error code.
template <class... Parameters, class Function>
auto as_subroutine(Function* function) {
  return reinterpret_cast<void (*)(Parameters..., int*)>(reinterpret_cast<void (*)()>(function));
}

int call_query(void* state, MPI_Status* status) {
  const auto& request = *static_cast<Request*>(state);
  ForeignStatus given{};
  give_status(*status, given);
  int error = MPI_SUCCESS;
  if (request.is_fortran) {
    as_subroutine<void*, ForeignStatus*>(request.query)(request.state, &given, &error);
  } else {
    error = request.query(request.state, &given);
  }
  *status = standard_status(given);
  return standard_result(error);
}

int call_free(void* state) {
  const std::unique_ptr<Request> request(static_cast<Request*>(state));
  if (!request->is_fortran) return standard_result(request->free(request->state));
  int error = MPI_SUCCESS;
  as_subroutine<void*>(request->free)(request->state, &error);
  return standard_result(error);
}

int call_cancel(void* state, int complete) {
  const auto& request = *static_cast<Request*>(state);
  if (!request.is_fortran) return standard_result(request.cancel(request.state, complete));
  int error = MPI_SUCCESS;
  as_subroutine<void*, int*>(request.cancel)(request.state, &complete, &error);
  return standard_result(error);
}

// ---------------------------------------------------------------- data representations

template <class Length>
using ConversionFunction = int(void* userbuf, Foreign<MPI_Datatype> datatype, Length count, void* filebuf,
                               MPI_Offset position, void* state);
template <class Length>
using StandardConversionFunction = int(void* userbuf, MPI_Datatype datatype, Length count, void* filebuf,
                                       MPI_Offset position, void* state);
using ExtentFunction = int(Foreign<MPI_Datatype> datatype, MPI_Aint* extent, void* state);

template <class Length>
struct Representation {
  ConversionFunction<Length>* read;
  ConversionFunction<Length>* write;
  ExtentFunction* extent;
  void* state;
};

template <class Length, bool reads>
int call_convert(void* userbuf, MPI_Datatype datatype, Length count, void* filebuf, MPI_Offset position, void* state) {
  const auto& its = *static_cast<Representation<Length>*>(state);
  return standard_result(
      (reads ? its.read : its.write)(userbuf, foreign(datatype), count, filebuf, position, its.state));
}

template <class Length>
int call_extent(MPI_Datatype datatype, MPI_Aint* extent, void* state) {
  const auto& its = *static_cast<Representation<Length>*>(state);
  return standard_result(its.extent(foreign(datatype), extent, its.state));
}

template <class Length>
int register_datarep(int (*own_register)(const char*, StandardConversionFunction<Length>*,
                                         StandardConversionFunction<Length>*, MPI_Datarep_extent_function*, void*),
                     const char* name, ConversionFunction<Length>* read, ConversionFunction<Length>* write,
                     ExtentFunction* extent, void* state) {
  return returned(own_register(name, read == nullptr ? nullptr : call_convert<Length, true>,
                               write == nullptr ? nullptr : call_convert<Length, false>,
                               extent == nullptr ? nullptr : call_extent<Length>,
                               keep(Representation<Length>{read, write, extent, state})));
}

}  // namespace

void make_last_request_fortran() {
  const std::lock_guard lock(kept_mutex);
  last_request->is_fortran = true;
}

}  // namespace aplib::mpi::front

using namespace aplib::mpi::front;

extern "C" {
#pragma GCC visibility push(default)

#define APLIB_KEYVAL(name, Handle)                                                                                 \
  APLIB_FUNCTION(name, (Keyval<Handle>::Copy * copy, Keyval<Handle>::Delete * remove, int* keyval, void* state)) { \
    return create_keyval<Handle>(own.name, copy, remove, keyval, state);                                           \
  }
APLIB_KEYVAL(Comm_create_keyval, MPI_Comm)
APLIB_KEYVAL(Keyval_create, MPI_Comm)
APLIB_KEYVAL(Type_create_keyval, MPI_Datatype)
APLIB_KEYVAL(Win_create_keyval, MPI_Win)

APLIB_FUNCTION(Op_create, (OpFunction<int> * user_fn, int commute, Foreign<MPI_Op>* op)) {
  return create_op<int>(own.Op_create, user_fn, commute, op);
}
APLIB_FUNCTION(Op_create_c, (OpFunction<MPI_Count> * user_fn, int commute, Foreign<MPI_Op>* op)) {
  return create_op<MPI_Count>(own.Op_create_c, user_fn, commute, op);
}

#define APLIB_ERRHANDLER(name, Handle)                                                             \
  APLIB_FUNCTION(name, (ErrorFunction<Handle> * function, Foreign<MPI_Errhandler> * errhandler)) { \
    return create_errhandler<Handle>(own.name, function, errhandler);                              \
  }
APLIB_ERRHANDLER(Comm_create_errhandler, MPI_Comm)
APLIB_ERRHANDLER(Errhandler_create, MPI_Comm)
APLIB_ERRHANDLER(File_create_errhandler, MPI_File)
APLIB_ERRHANDLER(Session_create_errhandler, MPI_Session)
APLIB_ERRHANDLER(Win_create_errhandler, MPI_Win)

#define APLIB_SET_ERRHANDLER(name, Handle)                                             \
  APLIB_FUNCTION(name, (Foreign<Handle> object, Foreign<MPI_Errhandler> errhandler)) { \
    return returned(own.name(standard(object), errhandler_for<Handle>(errhandler)));   \
  }
APLIB_SET_ERRHANDLER(Comm_set_errhandler, MPI_Comm)
APLIB_SET_ERRHANDLER(Errhandler_set, MPI_Comm)
APLIB_SET_ERRHANDLER(File_set_errhandler, MPI_File)
APLIB_SET_ERRHANDLER(Win_set_errhandler, MPI_Win)

APLIB_FUNCTION(Grequest_start,
               (QueryFunction * query_fn, MPI_Grequest_free_function* free_fn, MPI_Grequest_cancel_function* cancel_fn,
                void* extra_state, Foreign<MPI_Request>* request)) {
  auto state = std::make_unique<Request>(Request{query_fn, free_fn, cancel_fn, extra_state});
  Made<MPI_Request, false> made(request);
  const int error = own.Grequest_start(call_query, call_free, call_cancel, state.get(), made.data());
  if (error == MPI_SUCCESS) {
    const std::lock_guard lock(kept_mutex);
    last_request = state.release();  // call_free() has it
  }
  made.give();
  return returned(error);
}

#define APLIB_DATAREP(name, Length)                                                                                   \
  APLIB_FUNCTION(name, (const char* datarep, ConversionFunction<Length>* read_conversion_fn,                          \
                        ConversionFunction<Length>* write_conversion_fn, ExtentFunction* dtype_file_extent_fn,        \
                        void* extra_state)) {                                                                         \
    return register_datarep<Length>(own.name, datarep, read_conversion_fn, write_conversion_fn, dtype_file_extent_fn, \
                                    extra_state);                                                                     \
  }
APLIB_DATAREP(Register_datarep, int)
APLIB_DATAREP(Register_datarep_c, MPI_Count)

#pragma GCC visibility pop
}
