! SPDX-License-Identifier: MIT
! Units, internal and scratch files, namelists and random numbers of gfortran's library, which keeps them for a process.
program units
  use iso_fortran_env, only: iostat_end
  implicit none
  include 'mpif.h'
  integer :: rank, ranks, ierror, errors = 0, all, round
  call mpi_init(ierror)
  call mpi_comm_rank(mpi_comm_world, rank, ierror)
  call mpi_comm_size(mpi_comm_world, ranks, ierror)
  do round = 1, 20
    call files(round)
    call names(round)
    call numbers()
  end do
  call mpi_allreduce(errors, all, 1, mpi_integer, mpi_sum, mpi_comm_world, ierror)
  if (rank == 0 .and. all == 0) print '(a)', 'No Errors'
  call mpi_finalize(ierror)
  if (all /= 0) error stop
contains
  subroutine check(right, what)
    logical, intent(in) :: right
    character(*), intent(in) :: what
    if (right) return
    errors = errors + 1
    print *, 'rank', rank, ': ', what
  end subroutine

  subroutine files(round)
    integer, intent(in) :: round
    character(20) :: name
    integer :: unit, i, number, status
    write (name, '(a,i0,a)') 'rank', rank, '.txt'
    open (newunit=unit, file=name, status='replace')
    open (17, status='scratch', access='direct', recl=8, form='unformatted')
    do i = 1, 20
      write (unit, *) i * (rank + 1)
      write (17, rec=i) i + rank, round
      if (mod(i, 7) == 0) call mpi_barrier(mpi_comm_world, ierror)
    end do
    write (unit, '(a)', advance='no') 'x'
    call mpi_barrier(mpi_comm_world, ierror)
    rewind (unit)
    do i = 1, 20
      read (unit, *) number
      call check(number == i * (rank + 1), 'a line')
      read (17, rec=21 - i) number, status
      call check(number == 21 - i + rank .and. status == round, 'a record')
    end do
    read (unit, '(a)') name
    read (unit, *, iostat=status) number
    call check(name == 'x' .and. status == iostat_end, 'the end of a file')
    close (unit, status='delete')
    close (17)
  end subroutine

  subroutine names(round)
    integer, intent(in) :: round
    integer :: step
    real(8) :: field(3)
    character(300) :: text
    namelist /state/ step, field
    step = round
    field = [1d0, 2d0, 3d0] * (rank + 1)
    write (text, nml=state)
    step = 0
    field = 0
    call mpi_barrier(mpi_comm_world, ierror)
    read (text, nml=state)
    call check(step == round .and. all_of(field == [1d0, 2d0, 3d0] * (rank + 1)), 'a namelist')
  end subroutine

  logical function all_of(right)
    logical, intent(in) :: right(:)
    all_of = count(right) == size(right)
  end function

  subroutine numbers()
    integer :: seed(33), size
    real(8) :: first(4), second(4)
    call random_seed(size=size)
    seed = rank + 1
    call random_seed(put=seed(1:size))
    call random_number(first)
    call mpi_barrier(mpi_comm_world, ierror)
    call random_seed(put=seed(1:size))
    call random_number(second)
    call check(all_of(first == second), 'random numbers')
  end subroutine
end program
