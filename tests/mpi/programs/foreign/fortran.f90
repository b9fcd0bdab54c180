! SPDX-License-Identifier: MIT
! What differs between MPIs' binary interfaces for Fortran: constants, statuses, handles, common blocks, callbacks.
program fortran
  use mpi
  implicit none
  integer :: rank, size, ierr, status(MPI_STATUS_SIZE), req(2), sts(MPI_STATUS_SIZE,2), newtype, op, comm2, n, color
  integer(kind=MPI_ADDRESS_KIND) :: ub, val
  logical :: flag
  integer :: a(4), b(4), keyval, fh, win, info
  double precision :: x, y
  character(len=MPI_MAX_PROCESSOR_NAME) :: name
  character(len=20) :: cname
  integer(kind=MPI_OFFSET_KIND) :: off
  external addup
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierr)
  call MPI_Get_processor_name(name, n, ierr)
  if (n < 1) print *, 'bad name'
  x = rank + 1
  call MPI_Allreduce(x, y, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  if (abs(y - size*(size+1)/2d0) > 1d-9) print *, 'bad sum', y
  y = x
  call MPI_Allreduce(MPI_IN_PLACE, y, 1, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, ierr)
  if (y /= size) print *, 'bad max', y
  a = rank
  call MPI_Irecv(b, 4, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, req(1), ierr)
  call MPI_Isend(a, 4, MPI_INTEGER, mod(rank+1,size), 7, MPI_COMM_WORLD, req(2), ierr)
  call MPI_Waitall(2, req, sts, ierr)
  if (sts(MPI_SOURCE,1) /= mod(rank-1+size,size) .or. sts(MPI_TAG,1) /= 7) print *, 'bad status', sts(:,1)
  call MPI_Get_count(sts(:,1), MPI_INTEGER, n, ierr)
  if (n /= 4) print *, 'bad count', n
  if (req(1) /= MPI_REQUEST_NULL) print *, 'bad request', req
  call MPI_Recv(b, 4, MPI_INTEGER, MPI_PROC_NULL, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
  call MPI_Type_vector(2, 1, 2, MPI_INTEGER, newtype, ierr)
  call MPI_Type_commit(newtype, ierr)
  call MPI_Type_size(newtype, n, ierr)
  if (n /= 8) print *, 'bad type', n
  call MPI_Type_free(newtype, ierr)
  if (newtype /= MPI_DATATYPE_NULL) print *, 'bad null type', newtype
  call MPI_Op_create(addup, .true., op, ierr)
  a = 1
  call MPI_Reduce(a, b, 4, MPI_INTEGER, op, 0, MPI_COMM_WORLD, ierr)
  if (rank == 0 .and. any(b /= size)) print *, 'bad op', b
  call MPI_Op_free(op, ierr)
  call MPI_Comm_split(MPI_COMM_WORLD, mod(rank,2), rank, comm2, ierr)
  call MPI_Comm_set_name(comm2, 'half', ierr)
  call MPI_Comm_get_name(comm2, cname, n, ierr)
  if (cname /= 'half' .or. n /= 4) print *, 'bad name ', cname, n
  call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, ub, flag, ierr)
  if (.not. flag .or. ub < 32767) print *, 'bad tag ub', ub
  call MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, keyval, 5_MPI_ADDRESS_KIND, ierr)
  val = 12345678901_MPI_ADDRESS_KIND
  call MPI_Comm_set_attr(comm2, keyval, val, ierr)
  call MPI_Comm_dup(comm2, color, ierr)
  val = 0
  call MPI_Comm_get_attr(color, keyval, val, flag, ierr)
  if (.not. flag .or. val /= 12345678901_MPI_ADDRESS_KIND) print *, 'bad attribute', flag, val
  call MPI_Comm_free(color, ierr)
  if (color /= MPI_COMM_NULL) print *, 'bad null comm', color
  call MPI_Comm_free(comm2, ierr)
  call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN, ierr)
  call MPI_Send(a, 1, MPI_INTEGER, size + 5, 0, MPI_COMM_WORLD, ierr)
  if (ierr == MPI_SUCCESS) print *, 'bad error'
  call MPI_Error_class(ierr, n, ierr)
  if (n /= MPI_ERR_RANK) print *, 'bad class', n
  call MPI_Info_create(info, ierr)
  call MPI_Info_set(info, 'a key', ' a value ', ierr)
  call MPI_Info_get(info, 'a key', 20, cname, flag, ierr)
  if (.not. flag .or. cname /= 'a value') print *, 'bad info', cname
  call MPI_Info_free(info, ierr)
  a = rank
  call MPI_Win_create(a, 16_MPI_ADDRESS_KIND, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win, ierr)
  call MPI_Win_fence(0, win, ierr)
  call MPI_Get(b, 1, MPI_INTEGER, mod(rank+1,size), 0_MPI_ADDRESS_KIND, 1, MPI_INTEGER, win, ierr)
  call MPI_Win_fence(MPI_MODE_NOSUCCEED, win, ierr)
  if (b(1) /= mod(rank+1,size)) print *, 'bad get', b(1)
  call MPI_Win_free(win, ierr)
  call MPI_File_open(MPI_COMM_WORLD, 'data.bin', MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, fh, ierr)
  off = rank * 4
  call MPI_File_write_at_all(fh, off, rank, 1, MPI_INTEGER, status, ierr)
  call MPI_File_close(fh, ierr)
  call MPI_File_open(MPI_COMM_WORLD, 'data.bin', MPI_MODE_RDONLY, MPI_INFO_NULL, fh, ierr)
  call MPI_File_read_at(fh, off, n, 1, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
  if (n /= rank) print *, 'bad file', n
  call MPI_File_close(fh, ierr)
  if (rank == 0) print '(A)', 'No Errors'
  call MPI_Finalize(ierr)
end program
subroutine addup(in, inout, len, type)
  use mpi
  integer :: len, type, in(len), inout(len)
  if (type /= MPI_INTEGER) print *, 'bad type in op', type
  inout = inout + in
end subroutine
