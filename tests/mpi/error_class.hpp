// SPDX-License-Identifier: MIT
// The class of the error that a call has returned.
#pragma once

#include <mpi.h>

namespace aplib::testing_support {

/// MPI_SUCCESS of a call that went well.
inline int class_of(int code) {
  int error_class = -1;
  MPI_Error_class(code, &error_class);
  return error_class;
}

}  // namespace aplib::testing_support
