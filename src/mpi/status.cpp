// SPDX-License-Identifier: MIT
#include "mpi/status.hpp"

#include <fmt/format.h>

#include "mpi/rank.hpp"
#include "mpi/type.hpp"

namespace aplib::mpi {

namespace {

const MPI_Status& given(const MPI_Status* status) {
  if (status == MPI_STATUS_IGNORE) fail(MPI_ERR_ARG, "status is MPI_STATUS_IGNORE, which tells nothing; give a status");
  return *status;
}

MPI_Status& given(MPI_Status* status) { return const_cast<MPI_Status&>(given(static_cast<const MPI_Status*>(status))); }

}  // namespace

void get_count(const Call&, const MPI_Status* status, TypeHandle& type, MPI_Count* count) {
  const MPI_Count bytes = bytes_of(given(status));
  const MPI_Count size = type.datatype->size();
  *count = size == 0 ? (bytes == 0 ? 0 : MPI_UNDEFINED) : bytes % size == 0 ? bytes / size : MPI_UNDEFINED;
}

void get_elements(const Call&, const MPI_Status* status, TypeHandle& type, MPI_Count* count) {
  const MPI_Count bytes = bytes_of(given(status));
  if (type.datatype->size() == 0) {
    *count = bytes == 0 ? 0 : MPI_UNDEFINED;
    return;
  }
  *count = type.datatype->signature().elements_in(bytes).value_or(MPI_UNDEFINED);
}

void status_set_elements(const Call&, MPI_Status* status, TypeHandle& type, MPI_Count count) {
  if (count < 0) fail_count("count", count);
  const MPI_Count bytes = type.datatype->size() == 0 ? 0 : type.datatype->signature().bytes_of_first(count);
  std::memcpy(given(status).MPI_internal, &bytes, sizeof bytes);
}

void status_set_cancelled(const Call&, MPI_Status* status, int flag) { given(status).MPI_internal[2] = flag != 0; }
void test_cancelled(const Call&, const MPI_Status* status, int* flag) { *flag = given(status).MPI_internal[2]; }
void status_get_error(const Call&, const MPI_Status* status, int* error) { *error = given(status).MPI_ERROR; }
void status_get_source(const Call&, const MPI_Status* status, int* source) { *source = given(status).MPI_SOURCE; }
void status_get_tag(const Call&, const MPI_Status* status, int* tag) { *tag = given(status).MPI_TAG; }
void status_set_error(const Call&, MPI_Status* status, int error) { given(status).MPI_ERROR = error; }
void status_set_source(const Call&, MPI_Status* status, int source) { given(status).MPI_SOURCE = source; }
void status_set_tag(const Call&, MPI_Status* status, int tag) { given(status).MPI_TAG = tag; }

}  // namespace aplib::mpi
