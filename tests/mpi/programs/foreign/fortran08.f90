! SPDX-License-Identifier: MIT
! The module mpi_f08, of which programs have the library of their own MPI.
program fortran08
  use mpi_f08
  implicit none
  integer :: rank, size, a(4), b(4), n
  type(MPI_Request) :: req(2)
  type(MPI_Status) :: sts(2)
  type(MPI_Comm) :: comm
  character(len=MPI_MAX_OBJECT_NAME) :: name
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size)
  a = rank
  call MPI_Irecv(b, 4, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, req(1))
  call MPI_Isend(a, 4, MPI_INTEGER, mod(rank+1,size), 7, MPI_COMM_WORLD, req(2))
  call MPI_Waitall(2, req, sts)
  if (sts(1)%MPI_SOURCE /= mod(rank-1+size,size)) print *, 'bad status'
  call MPI_Get_count(sts(1), MPI_INTEGER, n)
  if (n /= 4) print *, 'bad count', n
  call MPI_Allreduce(MPI_IN_PLACE, a, 4, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  if (a(1) /= size*(size-1)/2) print *, 'bad sum', a
  call MPI_Comm_dup(MPI_COMM_WORLD, comm)
  if (comm == MPI_COMM_NULL) print *, 'bad comm'
  call MPI_Comm_get_name(MPI_COMM_WORLD, name, n)
  if (name /= 'MPI_COMM_WORLD') print *, 'bad name ', name, n
  call MPI_Recv(b, 1, MPI_INTEGER, MPI_PROC_NULL, 0, comm, MPI_STATUS_IGNORE)
  call MPI_Comm_free(comm)
  if (MPI_Wtime() < 0) print *, 'bad time'
  if (rank == 0) print '(A)', 'No Errors'
  call MPI_Finalize()
end program
