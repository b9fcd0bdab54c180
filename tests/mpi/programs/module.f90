! SPDX-License-Identifier: MIT
! MPI by the module mpi, on any number of ranks: what Fortran has otherwise than C. Prints "No Errors".

! Functions that MPI calls.
module called
  use mpi
  implicit none
  integer, save :: last_type = 0, copies = 0, deletes = 0, failed_comm = 0, failed_code = 0, queries = 0, frees = 0
contains
  subroutine larger(given, kept, count, datatype)
    integer :: count, datatype
    real(8) :: given(count), kept(count)
    last_type = datatype
    where (abs(given) > abs(kept)) kept = given
  end subroutine

  subroutine copy(comm, keyval, state, given, copied, flag, ierror)
    integer :: comm, keyval, ierror
    integer(MPI_ADDRESS_KIND) :: state, given, copied
    logical :: flag
    copies = copies + 1
    flag = comm == MPI_COMM_WORLD .and. keyval /= MPI_KEYVAL_INVALID
    copied = given + state
    ierror = MPI_SUCCESS
  end subroutine

  subroutine delete(comm, keyval, given, state, ierror)
    integer :: comm, keyval, ierror
    integer(MPI_ADDRESS_KIND) :: given, state
    if (comm /= MPI_COMM_NULL .and. keyval /= MPI_KEYVAL_INVALID .and. given > state) deletes = deletes + 1
    ierror = MPI_SUCCESS
  end subroutine

  subroutine handle(comm, code)
    integer :: comm, code
    failed_comm = comm
    failed_code = code
  end subroutine

  subroutine query(state, status, ierror)
    integer(MPI_ADDRESS_KIND) :: state
    integer :: status(MPI_STATUS_SIZE), ierror
    queries = queries + int(state)
    call MPI_Status_set_elements(status, MPI_INTEGER, 3, ierror)
    call MPI_Status_set_cancelled(status, .false., ierror)
    status(MPI_SOURCE) = 5
    ierror = MPI_SUCCESS
  end subroutine

  subroutine release(state, ierror)
    integer(MPI_ADDRESS_KIND) :: state
    integer :: ierror
    frees = frees + int(state)
    state = state + 1
    ierror = MPI_SUCCESS
  end subroutine

  subroutine cancel(state, complete, ierror)
    integer(MPI_ADDRESS_KIND) :: state
    logical :: complete
    integer :: ierror
    if (complete) state = -1
    ierror = MPI_SUCCESS
  end subroutine
end module

program checks
  use, intrinsic :: iso_c_binding
  use mpi
  use called
  implicit none
  integer :: errors = 0, rank, size, next, previous, ierror

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierror)
  next = mod(rank + 1, size)
  previous = mod(rank + size - 1, size)
  call messages
  call indices
  call addresses
  call reductions
  call datatypes_of_ranks
  call attributes
  call error_handlers
  call strings
  call topologies
  call generalised
  call sizes
  call MPI_Allreduce(MPI_IN_PLACE, errors, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
  if (rank == 0 .and. errors == 0) print '(a)', 'No Errors'
  call MPI_Finalize(ierror)
  if (errors /= 0) stop 1

contains

  subroutine check(holds, what)
    logical, intent(in) :: holds
    character(len=*), intent(in) :: what
    if (holds) return
    errors = errors + 1
    print '(a,i0,2a)', 'rank ', rank, ': ', what
  end subroutine

  subroutine messages
    integer :: requests(2), statuses(MPI_STATUS_SIZE, 2), status(MPI_STATUS_SIZE), count, message
    real(8) :: sent(3), received(5)
    logical :: flag
    sent = rank + [0.25d0, 0.5d0, 0.75d0]
    call MPI_Irecv(received, 5, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, requests(1), ierror)
    call MPI_Isend(sent, 3, MPI_REAL8, next, 7, MPI_COMM_WORLD, requests(2), ierror)
    call MPI_Waitall(2, requests, statuses, ierror)
    call check(all(requests == MPI_REQUEST_NULL), 'MPI_Waitall leaves requests')
    call check(statuses(MPI_SOURCE, 1) == previous .and. statuses(MPI_TAG, 1) == 7, 'the status of MPI_Waitall')
    call MPI_Get_count(statuses(:, 1), MPI_DOUBLE_PRECISION, count, ierror)
    call check(count == 3 .and. all(received(1:3) == previous + [0.25d0, 0.5d0, 0.75d0]), 'the message')
    call MPI_Test_cancelled(statuses(1, 1), flag, ierror)
    call check(.not. flag, 'MPI_Test_cancelled')
    call MPI_Sendrecv(rank, 1, MPI_INTEGER, next, 1, message, 1, MPI_INTEGER, previous, 1, MPI_COMM_WORLD, &
                      MPI_STATUS_IGNORE, ierror)
    call check(message == previous, 'MPI_Sendrecv')
    call MPI_Isend(rank, 1, MPI_INTEGER, next, 2, MPI_COMM_WORLD, requests(1), ierror)
    call MPI_Mprobe(previous, 2, MPI_COMM_WORLD, message, status, ierror)
    call MPI_Mrecv(count, 1, MPI_INTEGER, message, status, ierror)
    call check(count == previous .and. message == MPI_MESSAGE_NULL, 'MPI_Mrecv')
    call MPI_Waitall(1, requests, MPI_STATUSES_IGNORE, ierror)
    call MPI_Send_init(rank, 1, MPI_INTEGER, MPI_PROC_NULL, 0, MPI_COMM_WORLD, requests(1), ierror)
    message = requests(1)
    call MPI_Startall(1, requests, ierror)
    call MPI_Wait(requests(1), MPI_STATUS_IGNORE, ierror)
    call check(requests(1) == message, 'a persistent request keeps its handle')
    call MPI_Request_free(requests(1), ierror)
    call check(requests(1) == MPI_REQUEST_NULL, 'MPI_Request_free')
  end subroutine

  subroutine indices
    integer :: requests(3), values(3), which, i, count, places(3), statuses(MPI_STATUS_SIZE, 3)
    logical :: flag
    do i = 1, 3
      call MPI_Irecv(values(i), 1, MPI_INTEGER, MPI_PROC_NULL, i, MPI_COMM_SELF, requests(i), ierror)
    end do
    call MPI_Waitany(3, requests, which, MPI_STATUS_IGNORE, ierror)
    call check(which == 1, 'the first index of MPI_Waitany is 1')
    call MPI_Testany(3, requests, which, flag, MPI_STATUS_IGNORE, ierror)
    call check(flag .and. which == 2, 'the second index of MPI_Testany is 2')
    call MPI_Waitsome(3, requests, count, places, statuses, ierror)
    call check(count == 1 .and. places(1) == 3, 'the third index of MPI_Waitsome is 3')
    call MPI_Waitany(3, requests, which, MPI_STATUS_IGNORE, ierror)
    call check(which == MPI_UNDEFINED, 'MPI_Waitany without requests')
    call MPI_Testsome(3, requests, count, places, MPI_STATUSES_IGNORE, ierror)
    call check(count == MPI_UNDEFINED, 'MPI_Testsome without requests')
  end subroutine

  subroutine addresses
    integer, parameter :: count = 2
    integer :: lengths(count), types(count), newtype, number, statuses(MPI_STATUS_SIZE)
    integer(MPI_ADDRESS_KIND) :: places(count), lb, extent
    real(8) :: real_number
    type(c_ptr) :: memory
    integer, pointer :: numbers(:)
    number = rank
    real_number = rank + 0.5d0
    lengths = 1
    types = [MPI_INTEGER, MPI_DOUBLE_PRECISION]
    call MPI_Get_address(number, places(1), ierror)
    call MPI_Get_address(real_number, places(2), ierror)
    call check(MPI_Aint_add(places(1), MPI_Aint_diff(places(2), places(1))) == places(2), 'MPI_Aint_add')
    call MPI_Type_create_struct(count, lengths, places, types, newtype, ierror)
    call MPI_Type_commit(newtype, ierror)
    call MPI_Bcast(MPI_BOTTOM, 1, newtype, size - 1, MPI_COMM_WORLD, ierror)
    call check(number == size - 1 .and. real_number == size - 0.5d0, 'MPI_BOTTOM')
    call MPI_Type_get_extent(MPI_DOUBLE_PRECISION, lb, extent, ierror)
    call check(lb == 0 .and. extent == 8, 'MPI_Type_get_extent')
    call MPI_Type_get_envelope(newtype, lengths(1), lengths(2), types(1), types(2), ierror)
    call check(types(2) == MPI_COMBINER_STRUCT .and. types(1) == 2, 'MPI_Type_get_envelope')
    call MPI_Type_get_contents(newtype, 3, 2, 2, statuses, places, types, ierror)
    call check(all(types == [MPI_INTEGER, MPI_DOUBLE_PRECISION]), 'MPI_Type_get_contents')
    call MPI_Type_free(newtype, ierror)
    call check(newtype == MPI_DATATYPE_NULL, 'MPI_Type_free')
    call MPI_Alloc_mem(40_MPI_ADDRESS_KIND, MPI_INFO_NULL, memory, ierror)
    call c_f_pointer(memory, numbers, [10])
    numbers = rank
    call check(sum(numbers) == 10 * rank, 'MPI_Alloc_mem')
    call MPI_Free_mem(numbers, ierror)
  end subroutine

  subroutine reductions
    integer :: op, pair, i
    real(8) :: values(4), all_values(4)
    logical :: is_common, one
    call MPI_Op_create(larger, .true., op, ierror)
    values = [rank, -2 * rank, 1, -size]
    call MPI_Allreduce(values, all_values, 4, MPI_DOUBLE_PRECISION, op, MPI_COMM_WORLD, ierror)
    call check(all(all_values == [size - 1, -2 * (size - 1), 1, -size]), 'an operation')
    call check(last_type == MPI_DOUBLE_PRECISION .or. size == 1, 'the datatype that an operation gets')
    call MPI_Op_commutative(op, is_common, ierror)
    call check(is_common, 'MPI_Op_commutative')
    call MPI_Type_contiguous(1, MPI_DOUBLE_PRECISION, pair, ierror)
    call MPI_Type_commit(pair, ierror)
    call MPI_Reduce_local(values, all_values, 4, pair, op, ierror)
    call check(last_type == pair, 'a derived datatype that an operation gets')
    call MPI_Type_free(pair, ierror)
    call MPI_Op_free(op, ierror)
    call check(op == MPI_OP_NULL, 'MPI_Op_free')
    values = rank
    call MPI_Allreduce(MPI_IN_PLACE, values, 4, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierror)
    call check(all(values == size * (size - 1) / 2), 'MPI_IN_PLACE')
    one = rank == 0
    call MPI_Allreduce(one, is_common, 1, MPI_LOGICAL, MPI_LOR, MPI_COMM_WORLD, ierror)
    call check(is_common, 'MPI_LOR')
    call MPI_Allreduce([rank * 1d0, rank * 1d0], values, 1, MPI_2DOUBLE_PRECISION, MPI_MAXLOC, MPI_COMM_WORLD, ierror)
    i = nint(values(2))
    call check(i == size - 1, 'MPI_MAXLOC')
  end subroutine

  subroutine datatypes_of_ranks
    integer :: types(size), counts(size), places(size), sent(size), received(size), i
    types = MPI_INTEGER
    call MPI_Type_contiguous(1, MPI_INTEGER, types(1), ierror)
    call MPI_Type_commit(types(1), ierror)
    counts = 1
    places = [(4 * i, i = 0, size - 1)]
    sent = [(100 * rank + i, i = 0, size - 1)]
    call MPI_Alltoallw(sent, counts, places, types, received, counts, places, types, MPI_COMM_WORLD, ierror)
    call check(all(received == [(100 * i + rank, i = 0, size - 1)]), 'MPI_Alltoallw')
    call MPI_Alltoallw(MPI_IN_PLACE, counts, places, types, received, counts, places, types, MPI_COMM_WORLD, ierror)
    call check(all(received == sent), 'MPI_Alltoallw in place')
    call MPI_Type_free(types(1), ierror)
  end subroutine

  subroutine attributes
    integer :: keyval, newcomm
    integer(MPI_ADDRESS_KIND) :: value
    logical :: flag
    call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, value, flag, ierror)
    call check(flag .and. value >= 32767 .and. value < 2_8**31, 'MPI_TAG_UB')
    call MPI_Comm_create_keyval(copy, delete, keyval, 1000_MPI_ADDRESS_KIND, ierror)
    call MPI_Comm_get_attr(MPI_COMM_WORLD, keyval, value, flag, ierror)
    call check(.not. flag, 'no attribute yet')
    call MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, 2_8**40 + rank, ierror)
    call check(read_by_c(keyval) == 2_8**40 + rank, 'C gets the address of an attribute of Fortran')
    call MPI_Comm_dup(MPI_COMM_WORLD, newcomm, ierror)
    call MPI_Comm_get_attr(newcomm, keyval, value, flag, ierror)
    call check(flag .and. value == 2_8**40 + rank + 1000 .and. copies == 1, 'the copied attribute')
    call MPI_Comm_free(newcomm, ierror)
    call check(newcomm == MPI_COMM_NULL .and. deletes == 1, 'MPI_Comm_free deletes the attribute')
    call MPI_Comm_delete_attr(MPI_COMM_WORLD, keyval, ierror)
    call check(deletes == 2, 'MPI_Comm_delete_attr')
    call MPI_Comm_free_keyval(keyval, ierror)
    call MPI_Type_create_keyval(MPI_TYPE_DUP_FN, MPI_TYPE_NULL_DELETE_FN, keyval, 0_MPI_ADDRESS_KIND, ierror)
    call MPI_Type_set_attr(MPI_INTEGER, keyval, 17_MPI_ADDRESS_KIND, ierror)
    call MPI_Type_dup(MPI_INTEGER, newcomm, ierror)
    call MPI_Type_get_attr(newcomm, keyval, value, flag, ierror)
    call check(flag .and. value == 17, 'MPI_TYPE_DUP_FN')
    call MPI_Type_free(newcomm, ierror)
    call MPI_Type_free_keyval(keyval, ierror)
  end subroutine

  ! C's function, which gets MPI_COMM_WORLD of C.
  function read_by_c(keyval) result(value)
    integer, intent(in) :: keyval
    integer(MPI_ADDRESS_KIND), pointer :: value
    interface
      function get_attribute(comm, keyval, place, flag) bind(C, name='MPI_Comm_get_attr')
        import :: c_ptr, c_int
        type(c_ptr), value :: comm
        integer(c_int), value :: keyval
        type(c_ptr) :: place
        integer(c_int) :: flag, get_attribute
      end function
    end interface
    type(c_ptr) :: place
    integer(c_int) :: flag, error
    error = get_attribute(transfer(int(MPI_COMM_WORLD, c_intptr_t), c_null_ptr), int(keyval, c_int), place, flag)
    call check(error == MPI_SUCCESS .and. flag == 1, "C's MPI_Comm_get_attr")
    call c_f_pointer(place, value)
  end function

  subroutine error_handlers
    integer :: errhandler, newcomm, error_class, set
    call MPI_Comm_dup(MPI_COMM_WORLD, newcomm, ierror)
    call MPI_Comm_create_errhandler(handle, errhandler, ierror)
    call MPI_Comm_set_errhandler(newcomm, errhandler, ierror)
    call MPI_Comm_get_errhandler(newcomm, set, ierror)
    call check(set == errhandler, 'MPI_Comm_get_errhandler')
    call MPI_Send(rank, 1, MPI_INTEGER, size, 0, newcomm, ierror)
    call MPI_Error_class(ierror, error_class, ierror)
    call check(error_class == MPI_ERR_RANK .and. failed_code == MPI_ERR_RANK, 'the error that a handler gets')
    call check(failed_comm == newcomm, 'the communicator that an error handler gets')
    call MPI_Comm_set_errhandler(newcomm, MPI_ERRORS_RETURN, ierror)
    call MPI_Send(rank, 1, newcomm, 0, 0, newcomm, ierror)
    call check(ierror == MPI_ERR_TYPE, 'a communicator is no datatype')
    call MPI_Send(rank, 1, 123456789, 0, 0, newcomm, ierror)
    call check(ierror == MPI_ERR_TYPE, 'a number is no datatype')
    call MPI_Errhandler_free(errhandler, ierror)
    call MPI_Errhandler_free(set, ierror)
    call MPI_Comm_free(newcomm, ierror)
  end subroutine

  subroutine strings
    character(len=MPI_MAX_OBJECT_NAME) :: name
    character(len=MPI_MAX_LIBRARY_VERSION_STRING) :: version
    character(len=5) :: short
    integer :: length, info, newcomm
    logical :: flag
    call MPI_Comm_get_name(MPI_COMM_WORLD, name, length, ierror)
    call check(name == 'MPI_COMM_WORLD' .and. length == 14, 'MPI_Comm_get_name')
    call MPI_Comm_dup(MPI_COMM_SELF, newcomm, ierror)
    call MPI_Comm_set_name(newcomm, ' a name  ', ierror)
    call MPI_Comm_get_name(newcomm, name, length, ierror)
    call check(name == ' a name' .and. length == 7, 'MPI_Comm_set_name')
    call MPI_Comm_get_name(newcomm, short, length, ierror)
    call check(short == ' a na', 'a short string')
    call MPI_Comm_free(newcomm, ierror)
    call MPI_Info_create(info, ierror)
    call MPI_Info_set(info, '  a key ', '  its value ', ierror)
    name = 'x'
    call MPI_Info_get(info, 'a key', 20, name, flag, ierror)
    call check(flag .and. name == 'its value', 'MPI_Info_get')
    length = 3
    call MPI_Info_get_string(info, 'a key', length, name, flag, ierror)
    call check(flag .and. name == 'its' .and. length == 9, 'MPI_Info_get_string')
    call MPI_Info_get_nthkey(info, 0, name, ierror)
    call check(name == 'a key', 'MPI_Info_get_nthkey')
    name = 'kept'
    call MPI_Info_get(info, 'none', 20, name, flag, ierror)
    call check(.not. flag .and. name == 'kept', 'MPI_Info_get without the key')
    call MPI_Info_free(info, ierror)
    call MPI_Get_library_version(version, length, ierror)
    call check(version(1:6) == 'APlib ' .and. len_trim(version) == length, 'MPI_Get_library_version')
  end subroutine

  subroutine topologies
    integer :: grid, graph, dims(1), coords(1), counts(2), types(2), sources(1), destinations(1), sent(2), received(2)
    integer(MPI_ADDRESS_KIND) :: places(2)
    logical :: periods(1), is_weighted
    call MPI_Cart_create(MPI_COMM_WORLD, 1, [size], [.true.], .false., grid, ierror)
    call MPI_Cart_get(grid, 1, dims, periods, coords, ierror)
    call check(dims(1) == size .and. periods(1) .and. coords(1) == rank, 'MPI_Cart_get')
    counts = 1
    types = MPI_INTEGER
    places = [0, 4]
    sent = [10 * rank, 10 * rank + 1]
    call MPI_Neighbor_alltoallw(sent, counts, places, types, received, counts, places, types, grid, ierror)
    call check(all(received == [10 * previous + 1, 10 * next]) .or. size < 3, 'MPI_Neighbor_alltoallw')
    call MPI_Comm_free(grid, ierror)
    call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, [previous], MPI_UNWEIGHTED, 1, [next], MPI_UNWEIGHTED, &
                                        MPI_INFO_NULL, .false., graph, ierror)
    call MPI_Dist_graph_neighbors_count(graph, sources(1), destinations(1), is_weighted, ierror)
    call check(.not. is_weighted .and. sources(1) == 1, 'MPI_UNWEIGHTED')
    call MPI_Dist_graph_neighbors(graph, 1, sources, MPI_UNWEIGHTED, 1, destinations, MPI_UNWEIGHTED, ierror)
    call check(sources(1) == previous .and. destinations(1) == next, 'MPI_Dist_graph_neighbors')
    call MPI_Comm_free(graph, ierror)
  end subroutine

  subroutine generalised
    integer :: request, status(MPI_STATUS_SIZE), count
    integer(MPI_ADDRESS_KIND) :: state
    state = 3
    call MPI_Grequest_start(query, release, cancel, state, request, ierror)
    call MPI_Grequest_complete(request, ierror)
    call MPI_Wait(request, status, ierror)
    call MPI_Get_count(status, MPI_INTEGER, count, ierror)
    call check(count == 3 .and. status(MPI_SOURCE) == 5 .and. queries == 3 .and. frees == 3, 'a generalised request')
    call check(state == 4, "the caller's own state of a generalised request")
  end subroutine

  subroutine sizes
    integer :: bytes, newtype, request
    integer(MPI_COUNT_KIND) :: elements = 3
    complex(8) :: numbers(3)
    real(8) :: seconds
    call MPI_Psend_init(numbers, 1, elements, MPI_DOUBLE_COMPLEX, MPI_PROC_NULL, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &
                        request, ierror)
    call MPI_Request_free(request, ierror)
    call check(ierror == MPI_SUCCESS, 'MPI_Psend_init')
    call MPI_Sizeof(numbers, bytes, ierror)
    call check(bytes == 16, 'MPI_Sizeof of an array')
    call MPI_Sizeof(errors, bytes, ierror)
    call check(bytes == 4, 'MPI_Sizeof of a number')
    call MPI_Sizeof(.true._1, bytes, ierror)
    call check(bytes == 1, 'MPI_Sizeof of a logical')
    call MPI_Sizeof(['ab', 'cd'], bytes, ierror)
    call check(bytes == 1, 'MPI_Sizeof of characters')
    call MPI_Type_create_f90_real(15, MPI_UNDEFINED, newtype, ierror)
    call MPI_Type_size(newtype, bytes, ierror)
    call check(bytes == 8, 'MPI_Type_create_f90_real')
    seconds = MPI_Wtime()
    call check(MPI_Wtime() >= seconds .and. MPI_Wtick() > 0, 'MPI_Wtime')
    call check(.not. MPI_SUBARRAYS_SUPPORTED, 'MPI_SUBARRAYS_SUPPORTED')
  end subroutine
end program
