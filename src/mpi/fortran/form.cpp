// SPDX-License-Identifier: MIT
#include "mpi/fortran/form.hpp"

Absent aplib_mpi_;
AbsentText aplib_mpi_text_;
