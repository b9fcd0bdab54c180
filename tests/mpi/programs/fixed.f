C SPDX-License-Identifier: MIT
C MPI by mpif.h in fixed form, as programs of the 1990s call it:
C attributes are plain integers, and a call may have a buffer of any
C type. With an argument, it ends in another way.
      program fixed
      implicit none
      include 'mpif.h'
      integer rank, size, ierr, key, value, comm, i
      integer status(MPI_STATUS_SIZE)
      real*8 x, total
      real y
      logical flag
      character*8 how
      external copies
      call MPI_INIT(ierr)
      call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
      call MPI_COMM_SIZE(MPI_COMM_WORLD, size, ierr)
      call getarg(1, how)
      if (how .eq. 'abort') call MPI_ABORT(MPI_COMM_WORLD, 5, ierr)
      if (how .eq. 'rank') then
        comm = MPI_COMM_WORLD
        call MPI_SEND(rank, 1, MPI_INTEGER, size, 0, comm, ierr)
      end if
      if (how .eq. 'address') call MPI_ADDRESS(rank, value, ierr)
      if (how .eq. 'stop') stop 3
      if (how .eq. 'error') error stop

      call MPI_KEYVAL_CREATE(copies, MPI_NULL_DELETE_FN, key, 5, ierr)
      call MPI_ATTR_PUT(MPI_COMM_WORLD, key, -7, ierr)
      call MPI_COMM_DUP(MPI_COMM_WORLD, comm, ierr)
      call MPI_ATTR_GET(comm, key, value, flag, ierr)
      if (.not. flag .or. value .ne. -2) print *, 'wrong value', value
      call MPI_ATTR_GET(comm, MPI_TAG_UB, value, flag, ierr)
      if (.not. flag .or. value .lt. 32767) print *, 'wrong MPI_TAG_UB'
      call MPI_KEYVAL_FREE(key, ierr)
      call MPI_TYPE_EXTENT(MPI_DOUBLE_PRECISION, value, ierr)
      if (value .ne. 8) print *, 'wrong extent', value

      x = rank
      y = rank
      call MPI_REDUCE(x, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, 0,
     &                comm, ierr)
      if (rank .eq. 0) then
        do 10 i = 1, size - 1
          call MPI_RECV(y, 1, MPI_REAL, MPI_ANY_SOURCE, 3, comm,
     &                  status, ierr)
          if (nint(y) .ne. status(MPI_SOURCE)) print *, 'wrong', y
   10   continue
        if (nint(total) .ne. size * (size - 1) / 2) print *, 'wrong sum'
      else
        call MPI_SEND(y, 1, MPI_REAL, 0, 3, comm, ierr)
      end if
      call MPI_COMM_FREE(comm, ierr)
      print '(a,i3,a,i3)', 'rank', rank, ' of', size
      call MPI_FINALIZE(ierr)
      end

      subroutine copies(comm, key, extra, given, copied, flag, ierr)
      integer comm, key, extra, given, copied, ierr
      logical flag
      copied = given + extra
      flag = .true.
      ierr = 0
      end
