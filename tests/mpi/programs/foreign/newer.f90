! SPDX-License-Identifier: MIT
! What mpif.h of Open MPI 5 and 6 has beyond version 4, declared here.
module variables_of_c
  use, intrinsic :: iso_c_binding
  type(c_ptr), bind(C, name='MPI_F_STATUS_IGNORE') :: status_ignore_of_c
end module

program newer
  use variables_of_c
  implicit none
  include 'mpif.h'
  integer, parameter :: errors_abort = 3, session_null = 0, complex4 = 73, logical16 = 77
  integer :: status(MPI_STATUS_SIZE), status08(MPI_STATUS_SIZE), rank, handler, session, bytes, ierr
  integer :: automatic
  common /mpi_fortran_buffer_automatic/ automatic
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  if (transfer(status_ignore_of_c, 0_c_intptr_t) /= loc(MPI_STATUS_IGNORE)) print *, 'C has another MPI_STATUS_IGNORE'
  call MPI_Sendrecv(rank, 1, MPI_INTEGER, rank, 5, bytes, 1, MPI_INTEGER, rank, 5, MPI_COMM_WORLD, status, ierr)
  call MPI_Status_f2f08(status, status08, ierr)
  if (any(status08 /= status)) print *, 'bad status of mpi_f08', status08
  status = 0
  call MPI_Status_f082f(status08, status, ierr)
  if (status(MPI_TAG) /= 5) print *, 'bad status', status
  call MPI_Comm_set_errhandler(MPI_COMM_WORLD, errors_abort, ierr)
  call MPI_Comm_get_errhandler(MPI_COMM_WORLD, handler, ierr)
  if (handler /= errors_abort) print *, 'bad error handler', handler
  call MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, session, ierr)
  if (ierr /= MPI_SUCCESS .or. session == session_null) print *, 'bad session', session
  call MPI_Session_finalize(session, ierr)
  if (session /= session_null) print *, 'bad end of a session', session
  call MPI_Type_size(complex4, bytes, ierr)
  if (bytes /= MPI_UNDEFINED) print *, 'bad COMPLEX4', bytes
  call MPI_Type_size(logical16, bytes, ierr)
  if (bytes /= 16) print *, 'bad LOGICAL16', bytes
  call MPI_Buffer_attach(automatic, 0, ierr)
  call MPI_Bsend(rank, 1, MPI_INTEGER, rank, 6, MPI_COMM_WORLD, ierr)
  call MPI_Recv(rank, 1, MPI_INTEGER, rank, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
  call MPI_Buffer_detach(automatic, bytes, ierr)
  call MPI_Sizeof(1d0, bytes, ierr)
  if (bytes /= 8) print *, 'bad size', bytes
  if (rank == 0) print '(A)', 'No Errors'
  call MPI_Finalize(ierr)
end program
