! SPDX-License-Identifier: MIT
! The younger half: module variables that live as long as the program, memory of any size, the runtime's random numbers,
! environment and command line.
module record
  implicit none
  private
  integer, save :: written = 0
  real(8), allocatable, save :: sample(:)
  character(len=:), allocatable, save :: who
  type :: entry
    integer :: number = -1
    type(entry), pointer :: next => null()
  end type
  type(entry), pointer, save :: first => null()
  public :: fill, note, list, written, sample
contains
  subroutine fill(seed, n)
    integer, intent(in) :: seed, n
    integer :: width, i
    integer, allocatable :: state(:)
    character(len=64) :: word
    call random_seed(size=width)
    allocate (state(width))
    state = [(seed * 37 + i, i = 1, width)]
    call random_seed(put=state)
    if (allocated(sample)) deallocate (sample)
    allocate (sample(n))
    call random_number(sample)
    call get_command_argument(1, word)
    who = trim(word)
    call get_environment_variable('PROGRAM_TEST', word)
    who = who // '/' // trim(word)
  end subroutine

  subroutine note(number)
    integer, intent(in) :: number
    type(entry), pointer :: new
    allocate (new)
    new%number = number
    new%next => first
    first => new
    written = written + 1
  end subroutine

  subroutine list(unit)
    integer, intent(in) :: unit
    type(entry), pointer :: at
    at => first
    do while (associated(at))
      write (unit, '(i6)', advance='no') at%number
      at => at%next
    end do
    write (unit, '(/, a, i0, 2a)') 'entries ', written, ' of ', who
  end subroutine
end module

subroutine report
  use record
  use, intrinsic :: iso_fortran_env, only: error_unit, output_unit
  implicit none
  integer :: n, nstep, kase, unit, i
  common /sizes/ n, nstep, kase
  complex(8) :: z
  call fill(kase + 1, 500)
  do i = 1, 5 + mod(kase, 7)
    call note(i * kase)
  end do
  open (newunit=unit, file='report.txt', status='replace', action='write')
  call list(unit)
  z = cmplx(sum(sample) / size(sample), maxval(sample), 8)
  write (unit, *) z, sqrt(z), mod(kase, 2) == 0
  write (unit, '(es23.15, 1x, z16, 1x, b8.8, 1x, g12.4)') minval(sample), sample(1), kase, 1.0 / (kase + 3)
  close (unit)
  call list(output_unit)
  write (error_unit, '(a, i0)') 'report: case ', kase
end subroutine
