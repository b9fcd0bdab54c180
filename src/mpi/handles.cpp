// SPDX-License-Identifier: MIT
#include "mpi/handles.hpp"

#include "mpi/error.hpp"
#include "mpi/op.hpp"
#include "mpi/rank.hpp"

namespace aplib::mpi {
namespace {

/// What `act` gives for the caller's rank; `otherwise` where it may not call now, which the function of MPI says that
/// follows.
template <class Result, class Act>
Result of_rank(Result otherwise, const Act& act) {
  try {
    const Call call("MPI_Comm_toint", Call::any_time);
    return act(call.rank());
  } catch (...) {
    delete caught();
  }
  return otherwise;
}

}  // namespace
}  // namespace aplib::mpi

void* aplib_mpi_handle(int number) {
  return aplib::mpi::of_rank<void*>(nullptr,
                                    [number](aplib::mpi::Rank& rank) { return rank.handle_of_number(number); });
}

int aplib_mpi_number(const void* handle) {
  if (const int known = aplib::mpi::Rank::known_number_of(handle); known != 0) return known;
  return aplib::mpi::of_rank(0, [handle](aplib::mpi::Rank& rank) { return rank.number_of(handle); });
}

void aplib_mpi_call_op_by(MPI_Op op, AplibMpiOpCaller* caller, void (*function)()) {
  auto* const made = aplib::mpi::find_made<aplib::mpi::OpHandle>(op);
  if (made == nullptr) return;
  made->caller = caller;
  if (function != nullptr) made->function = reinterpret_cast<MPI_User_function*>(function);
}

void aplib_mpi_call_errhandler_by(MPI_Errhandler errhandler, AplibMpiErrorCaller* caller) {
  if (auto* const made = aplib::mpi::find_made<aplib::mpi::Errhandler>(errhandler)) made->caller = caller;
}

int aplib_mpi_raise(const char* call, int code, const char* text) {
  return aplib::mpi::raise(call, new aplib::mpi::Failure{code, text});
}
