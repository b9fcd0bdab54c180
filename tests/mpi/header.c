/* SPDX-License-Identifier: MIT */
/* mpi.h in C: what must be constant is, and the functions of Fortran's handles are there. */
#include <mpi.h>

int HEADER_TEST(void);

/* Sizes and values that the ABI fixes. An array of negative size does not compile. */
typedef char status_has_32_bytes[sizeof(MPI_Status) == 32 ? 1 : -1];
typedef char handles_are_pointers[sizeof(MPI_Comm) == sizeof(void*) ? 1 : -1];
typedef char counts_have_64_bits[sizeof(MPI_Count) == 8 && sizeof(MPI_Offset) == 8 ? 1 : -1];
typedef char wildcards_differ[MPI_ANY_SOURCE != MPI_ANY_TAG && MPI_PROC_NULL != MPI_ROOT ? 1 : -1];

static MPI_Datatype type = MPI_DOUBLE;
static MPI_Comm comm = MPI_COMM_SELF;

int HEADER_TEST(void) {
  static const char name[MPI_MAX_OBJECT_NAME] = "a constant";
  MPI_Status status;
  MPI_Fint numbers[MPI_F_STATUS_SIZE];
  int i;
  switch (MPI_SUCCESS) {
    case MPI_SUCCESS:
    case MPI_ERR_TRUNCATE:
      break;
  }
  for (i = 0; i < MPI_F_STATUS_SIZE; ++i) numbers[i] = 100 + i;
  MPI_Status_f2c(numbers, &status);
  if (status.MPI_SOURCE != 100 + MPI_F_SOURCE || status.MPI_TAG != 100 + MPI_F_TAG) return 1;
  if (status.MPI_ERROR != 100 + MPI_F_ERROR || status.MPI_internal[4] != 107) return 2;
  for (i = 0; i < MPI_F_STATUS_SIZE; ++i) numbers[i] = 0;
  MPI_Status_c2f(&status, numbers);
  if (numbers[0] != 100 || numbers[MPI_F_STATUS_SIZE - 1] != 107) return 3;
  if (MPI_Comm_f2c(MPI_Comm_c2f(comm)) != comm || MPI_Type_f2c(MPI_Type_c2f(type)) != type) return 4;
  if (MPI_Comm_c2f(comm) != 0x102 || MPI_Type_c2f(type) != 0x214) return 5;
  if (PMPI_Comm_f2c(PMPI_Comm_c2f(comm)) != comm || PMPI_Message_c2f(MPI_MESSAGE_NULL) != 0x128) return 7;
  if (PMPI_Status_c2f(&status, numbers) != MPI_SUCCESS || numbers[0] != 100) return 8;
  return name[0] == 'a' ? 0 : 6;
}
