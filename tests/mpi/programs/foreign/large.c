/* SPDX-License-Identifier: MIT */
/* What MPI-4 has beyond: functions with MPI_Count, and persistent collective calls. */
#include "check.h"

static void add(void* in, void* inout, MPI_Count* count, MPI_Datatype* type) {
  MPI_Count i;
  if (*type != MPI_INT) ++errors;
  for (i = 0; i < *count; ++i) ((int*)inout)[i] += ((int*)in)[i];
}

static void operations(void) {
  int value = rank, sum = -1;
  MPI_Op op;
  MPI_Request request;
  MPI_Op_create_c(add, 1, &op);
  MPI_Allreduce_c(&value, &sum, 1, MPI_INT, op, MPI_COMM_WORLD);
  CHECK(sum == size * (size - 1) / 2);
  MPI_Allreduce_init(&value, &sum, 1, MPI_INT, op, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  for (value = 1; value < 4; ++value) {
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(sum == value * size);
  }
  CHECK(request != MPI_REQUEST_NULL);
  MPI_Request_free(&request);
  CHECK(request == MPI_REQUEST_NULL);
  MPI_Op_free(&op);
}

static void buffers(void) {
  static char buffer[1000 + MPI_BSEND_OVERHEAD], sent[1000], got[1000];
  void* detached = NULL;
  MPI_Count bytes = 0, received = 0;
  MPI_Status status;
  MPI_Buffer_attach_c(buffer, sizeof buffer);
  memset(sent, 'x', sizeof sent);
  MPI_Bsend_c(sent, sizeof sent, MPI_CHAR, rank, 3, MPI_COMM_WORLD);
  MPI_Recv_c(got, sizeof got, MPI_CHAR, rank, 3, MPI_COMM_WORLD, &status);
  MPI_Get_count_c(&status, MPI_CHAR, &received);
  CHECK(received == sizeof got && memcmp(sent, got, sizeof got) == 0);
  MPI_Buffer_detach_c(&detached, &bytes);
  CHECK(detached == buffer && bytes == sizeof buffer);
}

/* Of a message that nobody sends: only its status is made. */
static void statuses(void) {
  const MPI_Count many = ((MPI_Count)1 << 40) + 12345;
  MPI_Count got = 0;
  int few = 0, flag = 0;
  MPI_Status status;
  memset(&status, 0, sizeof status);
  MPI_Status_set_elements_x(&status, MPI_BYTE, many);
  MPI_Get_elements_x(&status, MPI_BYTE, &got);
  CHECK(got == many);
  MPI_Get_count(&status, MPI_BYTE, &few);
  CHECK(few == MPI_UNDEFINED);
  MPI_Status_set_cancelled(&status, 1);
  MPI_Test_cancelled(&status, &flag);
  MPI_Get_count_c(&status, MPI_BYTE, &got);
  CHECK(flag && got == many);
}

static void datatypes(void) {
  const MPI_Count sizes[2] = {4, 6}, part[2] = {2, 3}, begin[2] = {1, 1};
  const int kinds[2] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_NONE};
  const int blocks[2] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG}, grid[2] = {2, 1};
  MPI_Count integers = 0, addresses = 0, counts = 0, types = 0, all[6];
  MPI_Aint places[1];
  MPI_Datatype type, parts[1];
  int combiner = -1, numbers[16];
  MPI_Type_create_darray_c(2, 0, 2, sizes, kinds, blocks, grid, MPI_ORDER_FORTRAN, MPI_DOUBLE, &type);
  MPI_Type_get_envelope_c(type, &integers, &addresses, &counts, &types, &combiner);
  CHECK(combiner == MPI_COMBINER_DARRAY && integers == 10 && counts == 2 && types == 1);
  MPI_Type_get_contents_c(type, integers, addresses, counts, types, numbers, places, all, parts);
  CHECK(numbers[3] == MPI_DISTRIBUTE_BLOCK && numbers[4] == MPI_DISTRIBUTE_NONE);
  CHECK(numbers[5] == MPI_DISTRIBUTE_DFLT_DARG && numbers[9] == MPI_ORDER_FORTRAN);
  CHECK(all[0] == 4 && all[1] == 6 && parts[0] == MPI_DOUBLE);
  MPI_Type_free(&type);
  MPI_Type_create_subarray_c(2, sizes, part, begin, MPI_ORDER_C, MPI_INT, &type);
  MPI_Type_get_envelope_c(type, &integers, &addresses, &counts, &types, &combiner);
  CHECK(combiner == MPI_COMBINER_SUBARRAY && integers == 2 && counts == 6);
  MPI_Type_get_contents_c(type, integers, addresses, counts, types, numbers, places, all, parts);
  CHECK(numbers[1] == MPI_ORDER_C && all[2] == 2 && all[4] == 1 && parts[0] == MPI_INT);
  MPI_Type_free(&type);
}

/* More handles than any that a library makes beforehand. */
static void handles(void) {
  enum { MANY = 2000 };
  static MPI_Request requests[MANY];
  static MPI_Comm comms[8];
  static int values[MANY];
  int i, k, done = 0, result = -1;
  for (i = 0; i < 8; ++i) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
  for (i = 0; i < 8; ++i) {
    for (k = 0; k < i; ++k) CHECK(comms[i] != comms[k]);
    MPI_Comm_compare(comms[i], MPI_COMM_WORLD, &result);
    CHECK(result == MPI_CONGRUENT);
  }
  for (i = 0; i < MANY; ++i) MPI_Irecv(&values[i], 1, MPI_INT, rank, i, comms[i % 8], &requests[i]);
  for (i = MANY; i-- > 0;) MPI_Send(&i, 1, MPI_INT, rank, i, comms[i % 8]);
  while (done < MANY) {
    static int which[MANY];
    int count = 0;
    MPI_Waitsome(MANY, requests, &count, which, MPI_STATUSES_IGNORE);
    if (count == MPI_UNDEFINED) break;
    for (k = 0; k < count; ++k) CHECK(requests[which[k]] == MPI_REQUEST_NULL);
    done += count;
  }
  CHECK(done == MANY);
  for (i = 0; i < MANY; ++i) CHECK(values[i] == i);
  for (i = 0; i < 8; ++i) MPI_Comm_free(&comms[i]);
}

int main(int argc, char** argv) {
  start(&argc, &argv);
  operations();
  buffers();
  statuses();
  datatypes();
  handles();
  return finish();
}
