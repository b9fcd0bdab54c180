// SPDX-License-Identifier: MIT
// What a status tells: source, tag, and in the ABI's internal words the bytes and whether it was cancelled.
#pragma once

#include <mpi.h>

#include <cstring>

namespace aplib::mpi {

/// `place` may be MPI_STATUS_IGNORE. The error field stays as it is: the standard wants so.
inline void set_status(MPI_Status* place, int source, int tag, MPI_Count bytes, bool is_cancelled = false) noexcept {
  if (place == MPI_STATUS_IGNORE) return;
  place->MPI_SOURCE = source;
  place->MPI_TAG = tag;
  std::memcpy(place->MPI_internal, &bytes, sizeof bytes);
  place->MPI_internal[2] = is_cancelled ? 1 : 0;
}

/// Of a send, or of a request that does nothing. The standard says what its error is.
inline void set_empty_status(MPI_Status* place, bool is_cancelled = false) noexcept {
  if (place == MPI_STATUS_IGNORE) return;
  set_status(place, MPI_ANY_SOURCE, MPI_ANY_TAG, 0, is_cancelled);
  place->MPI_ERROR = MPI_SUCCESS;
}

/// Of a receive from nobody.
inline void set_null_status(MPI_Status* place) noexcept { set_status(place, MPI_PROC_NULL, MPI_ANY_TAG, 0); }

inline MPI_Count bytes_of(const MPI_Status& status) noexcept {
  MPI_Count bytes = 0;
  std::memcpy(&bytes, status.MPI_internal, sizeof bytes);
  return bytes;
}

}  // namespace aplib::mpi
