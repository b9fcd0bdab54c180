// SPDX-License-Identifier: MIT
// What only Open MPI's library has, and what its library for C++, which is the program's own, asks for.
#include "mpi/front/openmpi.hpp"

#include "mpi/front/callbacks.hpp"

namespace aplib::mpi::front {
namespace {

// ---------------------------------------------------------------- C++

/// The function that MPI_Op_create() gets for all operations of C++, which calls the program's own.
using OpIntercept = void(void* in, void* inout, int* length, MPI_Datatype* datatype, void (*function)());
OpIntercept* op_intercept = nullptr;

void call_cxx_op(void (*function)(), void* in, void* inout, MPI_Count length, MPI_Datatype datatype) {
  auto count = static_cast<int>(length);
  MPI_Datatype type = foreign(datatype);
  op_intercept(in, inout, &count, &type, function);
}

int refuse_cxx(const char* what) {
  return returned(aplib_mpi_raise(what, MPI_ERR_UNSUPPORTED_OPERATION,
                                  "APlib does not have it for programs of Open MPI's C++ library; use the function of "
                                  "C"));
}

}  // namespace
}  // namespace aplib::mpi::front

using namespace aplib::mpi::front;

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

int MPIX_Query_cuda_support() { return 0; }
int MPIX_Query_rocm_support() { return 0; }

// Of version 5.
APLIB_MISSING(Comm_ack_failed)
APLIB_MISSING(Comm_agree)
APLIB_MISSING(Comm_failure_ack)
APLIB_MISSING(Comm_failure_get_acked)
APLIB_MISSING(Comm_get_failed)
APLIB_MISSING(Comm_iagree)
APLIB_MISSING(Comm_is_revoked)
APLIB_MISSING(Comm_ishrink)
APLIB_MISSING(Comm_revoke)
APLIB_MISSING(Comm_shrink)
APLIB_REFUSED(OMPI_Affinity_str, "OMPI_Affinity_str")
APLIB_REFUSED(PMPI_Session_set_info, "MPI_Session_set_info")
[[gnu::alias("PMPI_Session_set_info")]] int MPI_Session_set_info();

// The common blocks of mpif.h, which are the program's own where it has them.
int mpi_fortran_bottom_, mpi_fortran_in_place_, mpi_fortran_errcodes_ignore_, mpi_fortran_unweighted_,
    mpi_fortran_weights_empty_, mpi_fortran_buffer_automatic_, mpi_fortran_status_ignore_[6],
    mpi_fortran_statuses_ignore_[6];
char mpi_fortran_argv_null_, mpi_fortran_argvs_null_;
MPI_Fint* MPI_F_STATUS_IGNORE = mpi_fortran_status_ignore_;
MPI_Fint* MPI_F_STATUSES_IGNORE = mpi_fortran_statuses_ignore_;
MPI_Fint* MPI_F08_STATUS_IGNORE = mpi_fortran_status_ignore_;
MPI_Fint* MPI_F08_STATUSES_IGNORE = mpi_fortran_statuses_ignore_;

// It has just been made.
void ompi_op_set_cxx_callback(MPI_Op op, void (*function)()) {
  {
    const std::lock_guard lock(kept_mutex);
    op_intercept = reinterpret_cast<OpIntercept*>(last_op_function);
  }
  aplib_mpi_call_op_by(op, call_cxx_op, function);
}

// What other classes of C++ have of the inside of Open MPI: keys of attributes and error handlers of the program.
int ompi_attr_create_keyval() { return refuse_cxx("MPI::Create_keyval"); }
void* ompi_errhandler_create() {
  refuse_cxx("MPI::Create_errhandler");
  return nullptr;
}
int ompi_errhandler_invoke() { return refuse_cxx("MPI::Create_keyval"); }
int ompi_errcode_intern_lastused = 0;
std::array<std::uintptr_t, 15> ompi_errcodes_intern{};
std::array<std::uintptr_t, 8> ompi_registered_datareps{};
extern const Predefined<1024> ompi_mpi_errors_throw_exceptions;
/// Errors end the program, and are no exceptions.
const Predefined<1024> ompi_mpi_errors_throw_exceptions{value_of(MPI_ERRORS_ARE_FATAL)};

#pragma GCC visibility pop
}
