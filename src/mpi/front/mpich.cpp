// SPDX-License-Identifier: MIT
// What only MPICH's library has: objects and callbacks that programs name, and what its libraries for C++ and Fortran,
// which are the program's own, ask for: how to call functions of these languages, and their attributes.
#include "mpi/front/mpich.hpp"

#include "mpi/attribute_values.hpp"
#include "mpi/front/callbacks.hpp"

namespace aplib::mpi::front {
namespace {

// ---------------------------------------------------------------- attributes of Fortran

AttributeValues values;

void* at(const void* value) { return reinterpret_cast<void*>(values.at(value)); }

/// What a value is that C sets or gets: an address, or a number of Fortran's (an INTEGER, an address' worth).
constexpr int is_address = 0;

/// Fortran's numbers of predefined keys are those of C and 1; their values are no addresses.
template <class Get, class Handle>
int get_attribute(Get* get, Handle object, int keyval, void* place, int* flag, int kind) {
  void*& value = *static_cast<void**>(place);
  const bool is_predefined =
      kind != is_address && keyval % 2 == 0 && keyval > 0 && standard_keyval(keyval - 1) != keyval - 1;
  const int key = is_predefined ? keyval - 1 : keyval;
  const int error = get(object, key, &value, flag);
  if (error != MPI_SUCCESS || *flag == 0 || kind == is_address) return error;
  const long standard_key = standard_keyval(key);
  if (!is_predefined) {
    value = at(value);
  } else if (standard_key == MPI_WIN_SIZE) {
    value = reinterpret_cast<void*>(*static_cast<MPI_Aint*>(value));
  } else if (standard_key != MPI_WIN_BASE) {
    value = reinterpret_cast<void*>(static_cast<MPI_Aint>(*static_cast<int*>(value)));
  }
  return error;
}

void* attribute(void* value, int kind) {
  return kind == is_address ? value : values.address_of(reinterpret_cast<MPI_Aint>(value));
}

// ---------------------------------------------------------------- C++ and Fortran

/// Of an attribute's key, in place of the program's functions.
template <class Handle>
struct Proxy {
  /// `kind` of the value: 0, a pointer.
  using Copy = int(void (*function)(), int object, int keyval, void* state, int kind, void* value, void** copied,
                   int* flag);
  using Delete = int(void (*function)(), int object, int keyval, int kind, void* value, void* state);

  Copy* copy;
  Delete* remove;
  Keyval<Handle> key;
};

template <class Handle>
int copy_by_proxy(Foreign<Handle> object, int keyval, void* state, void* value, void* copied, int* flag) {
  const auto& proxy = *static_cast<Proxy<Handle>*>(state);
  void*& result = *static_cast<void**>(copied);
  const int error = proxy.copy(reinterpret_cast<void (*)()>(proxy.key.copy), static_cast<int>(object.value), keyval,
                               proxy.key.state, is_address, at(value), &result, flag);
  if (error == MPI_SUCCESS && *flag != 0 && values.has(value)) result = attribute(result, !is_address);
  return error;
}

template <class Handle>
int delete_by_proxy(Foreign<Handle> object, int keyval, void* value, void* state) {
  const auto& proxy = *static_cast<Proxy<Handle>*>(state);
  return proxy.remove(reinterpret_cast<void (*)()>(proxy.key.remove), static_cast<int>(object.value), keyval,
                      is_address, at(value), proxy.key.state);
}

template <class Handle>
bool set_proxy(int keyval, void (*copy)(), void (*remove)()) {
  std::unique_lock lock(kept_mutex);
  const auto key = std::find_if(kept<Keyval<Handle>>.begin(), kept<Keyval<Handle>>.end(),
                                [keyval](const Keyval<Handle>& each) { return each.number == keyval; });
  if (key == kept<Keyval<Handle>>.end()) return false;
  lock.unlock();
  using Its = Proxy<Handle>;
  auto* const proxy =
      keep(Its{reinterpret_cast<typename Its::Copy*>(copy), reinterpret_cast<typename Its::Delete*>(remove), *key});
  *key = {copy_by_proxy<Handle>, delete_by_proxy<Handle>, proxy, keyval};
  return true;
}

using OpProxy = void(void* in, void* inout, int length, Foreign<MPI_Datatype> datatype, void (*function)());
OpProxy* op_proxy = nullptr;

void call_op(void (*function)(), void* in, void* inout, MPI_Count length, MPI_Datatype datatype) {
  op_proxy(in, inout, static_cast<int>(length), foreign(datatype), function);
}

/// `kind`: 0 a communicator, 1 a file, 2 a window.
using ErrorProxy = void(int kind, void* object, int* code, void (*function)());
ErrorProxy* error_proxy = nullptr;

template <int kind, class Handle>
void call_errhandler_by_proxy(void (*function)(), void** object, int* code, const char*) {
  Foreign<Handle> handle = foreign(static_cast<Handle>(*object));
  int foreign_one = static_cast<int>(foreign_code(*code));
  error_proxy(kind, &handle, &foreign_one, function);
  *code = standard_result(foreign_one);
}

// ---------------------------------------------------------------- functions with a state, of MPICH 5

/// MPI has this object's address in place of the function's.
template <class Function>
struct Stateful {
  Function* function;
  void* state;
};
template <class Function>
const Stateful<Function>& stateful(void (*place)()) {
  return *reinterpret_cast<const Stateful<Function>*>(place);
}

using OpFunctionX = void(void* in, void* inout, MPI_Count length, Foreign<MPI_Datatype> datatype, void* state);

void call_op_x(void (*place)(), void* in, void* inout, MPI_Count length, MPI_Datatype datatype) {
  const auto& its = stateful<OpFunctionX>(place);
  its.function(in, inout, length, foreign(datatype), its.state);
}

int create_op_x(OpFunctionX* function, int commute, void* state, Foreign<MPI_Op>* op) {
  auto* const place = function == nullptr ? nullptr : keep(Stateful<OpFunctionX>{function, state});
  Made<MPI_Op, false> made(op);
  const int error = own.Op_create_c(reinterpret_cast<MPI_User_function_c*>(place), commute, made.data());
  if (error == MPI_SUCCESS) aplib_mpi_call_op_by(*made.data(), call_op_x);
  made.give();
  return returned(error);
}

template <class Handle>
using ErrorFunctionX = void(Foreign<Handle> object, int code, void* state);

template <class Handle>
void call_errhandler_x(void (*place)(), void** object, int* code, const char*) {
  const auto& its = stateful<ErrorFunctionX<Handle>>(place);
  its.function(foreign(static_cast<Handle>(*object)), static_cast<int>(foreign_code(*code)), its.state);
}

template <class Handle, class Function>
int create_errhandler_x(int (*create)(Function*, MPI_Errhandler*), ErrorFunctionX<Handle>* function, void* state,
                        Foreign<MPI_Errhandler>* errhandler) {
  auto* const place = function == nullptr ? nullptr : keep(Stateful<ErrorFunctionX<Handle>>{function, state});
  Made<MPI_Errhandler, false> made(errhandler);
  const int error = create(reinterpret_cast<Function*>(place), made.data());
  if (error == MPI_SUCCESS) aplib_mpi_call_errhandler_by(*made.data(), call_errhandler_x<Handle>);
  made.give();
  return returned(error);
}

// ---------------------------------------------------------------- what names of objects stand for

int* const no_weights = MPI_UNWEIGHTED;
int* const empty_weights = MPI_WEIGHTS_EMPTY;
const MPI_T_pvar_handle all_handles = MPI_T_PVAR_ALL_HANDLES;
int status_integers = 0;

}  // namespace
}  // namespace aplib::mpi::front

using namespace aplib::mpi::front;

#undef MPI_UNWEIGHTED
#undef MPI_WEIGHTS_EMPTY
#undef MPI_T_PVAR_ALL_HANDLES

extern "C" {
#pragma GCC visibility push(default)

// It has just made them, so they are the last ones.
void MPII_Keyval_set_proxy(int keyval, void (*copy)(), void (*remove)()) {
  if (!set_proxy<MPI_Comm>(keyval, copy, remove) && !set_proxy<MPI_Datatype>(keyval, copy, remove))
    set_proxy<MPI_Win>(keyval, copy, remove);
}
void MPII_Op_set_cxx(Foreign<MPI_Op> op, OpProxy* proxy) {
  op_proxy = proxy;
  aplib_mpi_call_op_by(standard(op), call_op);
}
void MPII_Errhandler_set_cxx(Foreign<MPI_Errhandler> errhandler, ErrorProxy* proxy) {
  const std::lock_guard lock(kept_mutex);
  error_proxy = proxy;
  aplib_mpi_call_errhandler_by(standard(errhandler), last_errhandler.caller == call_errhandler<MPI_File>
                                                         ? call_errhandler_by_proxy<1, MPI_File>
                                                     : last_errhandler.caller == call_errhandler<MPI_Win>
                                                         ? call_errhandler_by_proxy<2, MPI_Win>
                                                         : call_errhandler_by_proxy<0, MPI_Comm>);
}

// Nobody asks for the state back, so it stays: MPI may call the function as long as the program runs.
int PMPIX_Op_create_x(OpFunctionX* function, void (*)(void*), int commute, void* state, Foreign<MPI_Op>* op) {
  return create_op_x(function, commute, state, op);
}
[[gnu::alias("PMPIX_Op_create_x")]] int MPIX_Op_create_x(OpFunctionX*, void (*)(void*), int, void*, Foreign<MPI_Op>*);
#define APLIB_ERRHANDLER_X(Kind, Handle)                                                                 \
  int PMPIX_##Kind##_create_errhandler_x(ErrorFunctionX<Handle>* function, void (*)(void*), void* state, \
                                         Foreign<MPI_Errhandler>* errhandler) {                          \
    return create_errhandler_x<Handle>(own.Kind##_create_errhandler, function, state, errhandler);       \
  }                                                                                                      \
  [[gnu::alias("PMPIX_" #Kind "_create_errhandler_x")]] int MPIX_##Kind##_create_errhandler_x(           \
      ErrorFunctionX<Handle>*, void (*)(void*), void*, Foreign<MPI_Errhandler>*);
APLIB_ERRHANDLER_X(Comm, MPI_Comm)
APLIB_ERRHANDLER_X(File, MPI_File)
APLIB_ERRHANDLER_X(Session, MPI_Session)
APLIB_ERRHANDLER_X(Win, MPI_Win)

#define APLIB_ATTRIBUTES(Kind, Handle)                                                               \
  int MPII_##Kind##_get_attr(Foreign<Handle> object, int keyval, void* place, int* flag, int kind) { \
    return get_attribute(MPI_##Kind##_get_attr, object, keyval, place, flag, kind);                  \
  }                                                                                                  \
  int MPII_##Kind##_set_attr(Foreign<Handle> object, int keyval, void* value, int kind) {            \
    return MPI_##Kind##_set_attr(object, keyval, attribute(value, kind));                            \
  }
int MPI_Comm_get_attr(Foreign<MPI_Comm> comm, int keyval, void* value, int* flag);
int MPI_Comm_set_attr(Foreign<MPI_Comm> comm, int keyval, void* value);
int MPI_Type_get_attr(Foreign<MPI_Datatype> type, int keyval, void* value, int* flag);
int MPI_Type_set_attr(Foreign<MPI_Datatype> type, int keyval, void* value);
int MPI_Win_get_attr(Foreign<MPI_Win> win, int keyval, void* value, int* flag);
int MPI_Win_set_attr(Foreign<MPI_Win> win, int keyval, void* value);
APLIB_ATTRIBUTES(Comm, MPI_Comm)
APLIB_ATTRIBUTES(Type, MPI_Datatype)
APLIB_ATTRIBUTES(Win, MPI_Win)

void MPII_Grequest_set_lang_f77(Foreign<MPI_Request>) { make_last_request_fortran(); }

// Of versions 4 and 5. Its library for Fortran has undefined references to them, too.
APLIB_MISSING(Allreduce_enqueue)
APLIB_MISSING(Allreduce_enqueue_c)
APLIB_MISSING(Async_get_state)
APLIB_MISSING(Async_spawn)
APLIB_MISSING(Async_start)
APLIB_MISSING(Comm_agree)
APLIB_MISSING(Comm_failure_ack)
APLIB_MISSING(Comm_failure_get_acked)
APLIB_MISSING(Comm_get_failed)
APLIB_MISSING(Comm_get_stream)
APLIB_MISSING(Comm_revoke)
APLIB_MISSING(Comm_shrink)
APLIB_MISSING(Comm_test_threadcomm)
APLIB_MISSING(Delete_error_class)
APLIB_MISSING(Delete_error_code)
APLIB_MISSING(Delete_error_string)
APLIB_MISSING(Grequest_class_allocate)
APLIB_MISSING(Grequest_class_create)
APLIB_MISSING(Grequest_start)
APLIB_MISSING(Info_set_hex)
APLIB_MISSING(Irecv_enqueue)
APLIB_MISSING(Irecv_enqueue_c)
APLIB_MISSING(Isend_enqueue)
APLIB_MISSING(Isend_enqueue_c)
APLIB_MISSING(Recv_enqueue)
APLIB_MISSING(Recv_enqueue_c)
APLIB_MISSING(Send_enqueue)
APLIB_MISSING(Send_enqueue_c)
APLIB_MISSING(Start_progress_thread)
APLIB_MISSING(Stop_progress_thread)
APLIB_MISSING(Stream_comm_create)
APLIB_MISSING(Stream_comm_create_multiplex)
APLIB_MISSING(Stream_create)
APLIB_MISSING(Stream_free)
APLIB_MISSING(Stream_irecv)
APLIB_MISSING(Stream_irecv_c)
APLIB_MISSING(Stream_isend)
APLIB_MISSING(Stream_isend_c)
APLIB_MISSING(Stream_progress)
APLIB_MISSING(Stream_recv)
APLIB_MISSING(Stream_recv_c)
APLIB_MISSING(Stream_send)
APLIB_MISSING(Stream_send_c)
APLIB_MISSING(Threadcomm_finish)
APLIB_MISSING(Threadcomm_free)
APLIB_MISSING(Threadcomm_init)
APLIB_MISSING(Threadcomm_start)
APLIB_MISSING(Type_iov)
APLIB_MISSING(Type_iov_len)
APLIB_MISSING(Wait_enqueue)
APLIB_MISSING(Waitall_enqueue)

// Of any handle.
int MPIR_Dup_fn(int, int, void*, void* value, void* copied, int* flag) {
  *static_cast<void**>(copied) = value;
  *flag = 1;
  return MPI_SUCCESS;
}

int PMPIX_Request_is_complete(Foreign<MPI_Request> request) {
  int is_complete = 0;
  own.Request_get_status(standard(request), &is_complete, MPI_STATUS_IGNORE);
  return is_complete;
}
[[gnu::alias("PMPIX_Request_is_complete")]] int MPIX_Request_is_complete(Foreign<MPI_Request>);

int PMPIX_Query_cuda_support() { return 0; }
int PMPIX_GPU_query_support(int, int* is_supported) {
  *is_supported = 0;
  return MPI_SUCCESS;
}
#define APLIB_NONE(name, function, parameters) [[gnu::alias(#function)]] int name parameters;
APLIB_NONE(MPIX_Query_cuda_support, PMPIX_Query_cuda_support, ())
APLIB_NONE(MPIX_Query_hip_support, PMPIX_Query_cuda_support, ())
APLIB_NONE(PMPIX_Query_hip_support, PMPIX_Query_cuda_support, ())
APLIB_NONE(MPIX_Query_ze_support, PMPIX_Query_cuda_support, ())
APLIB_NONE(PMPIX_Query_ze_support, PMPIX_Query_cuda_support, ())
APLIB_NONE(MPIX_GPU_query_support, PMPIX_GPU_query_support, (int, int*))

extern int* const MPI_UNWEIGHTED;
int* const MPI_UNWEIGHTED = no_weights;
extern int* const MPI_WEIGHTS_EMPTY;
int* const MPI_WEIGHTS_EMPTY = empty_weights;
extern const MPI_T_pvar_handle MPI_T_PVAR_ALL_HANDLES;
const MPI_T_pvar_handle MPI_T_PVAR_ALL_HANDLES = all_handles;

// Its library for Fortran changes them when MPI begins.
MPI_Fint* MPI_F_STATUS_IGNORE = &status_integers;
MPI_Fint* MPI_F_STATUSES_IGNORE = &status_integers;

// What gfortran's logicals are.
int MPIR_fortran_true = 1;
int MPIR_fortran_false = 0;

ForeignStatus MPIR_F08_MPI_STATUS_IGNORE_OBJ;
ForeignStatus MPIR_F08_MPI_STATUSES_IGNORE_OBJ[1];
int MPIR_F08_MPI_IN_PLACE;
int MPIR_F08_MPI_BOTTOM;
ForeignStatus* MPI_F08_STATUS_IGNORE = &MPIR_F08_MPI_STATUS_IGNORE_OBJ;
ForeignStatus* MPI_F08_STATUSES_IGNORE = MPIR_F08_MPI_STATUSES_IGNORE_OBJ;

#pragma GCC visibility pop
}
