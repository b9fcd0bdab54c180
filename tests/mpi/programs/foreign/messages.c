/* SPDX-License-Identifier: MIT */
/* Messages, statuses and requests, alone and in arrays of many. */
#include "check.h"

enum { MANY = 20 };

static void statuses(void) {
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  int data[4] = {rank, 1, 2, 3}, got[8] = {0}, count = -1, elements = -1;
  MPI_Status status;
  status.MPI_ERROR = 4711;
  MPI_Sendrecv(data, 4, MPI_INT, right, 7, got, 8, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
  CHECK(got[0] == left && got[3] == 3);
  CHECK(status.MPI_SOURCE == left && status.MPI_TAG == 7 && status.MPI_ERROR == 4711);
  MPI_Get_count(&status, MPI_INT, &count);
  CHECK(count == 4);
  MPI_Get_count(&status, MPI_LONG_DOUBLE, &count);
  CHECK(count == 1);
  MPI_Get_elements(&status, MPI_DOUBLE_INT, &elements);
  CHECK(elements == MPI_UNDEFINED || elements >= 0);
  MPI_Get_count(&status, MPI_BYTE, &count);
  CHECK(count == 16);

  MPI_Recv(got, 8, MPI_INT, MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
  MPI_Get_count(&status, MPI_INT, &count);
  CHECK(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG && count == 0);
  CHECK(MPI_Send(data, 4, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD) == MPI_SUCCESS);
  MPI_Recv(got, 0, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);

  MPI_Status_set_elements(&status, MPI_INT, 3);
  MPI_Status_set_cancelled(&status, 1);
  MPI_Get_count(&status, MPI_INT, &count);
  int is_cancelled = 0;
  MPI_Test_cancelled(&status, &is_cancelled);
  CHECK(count == 3 && is_cancelled);
}

static void probes(void) {
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  double data[3] = {1, 2, rank}, got[3];
  int flag = 0, count = 0;
  MPI_Request request;
  MPI_Status status;
  MPI_Message message;
  MPI_Iprobe(left, 999, MPI_COMM_WORLD, &flag, &status);
  CHECK(!flag);
  MPI_Isend(data, 3, MPI_DOUBLE, right, 5, MPI_COMM_WORLD, &request);
  MPI_Probe(MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &status);
  MPI_Get_count(&status, MPI_DOUBLE, &count);
  CHECK(count == 3 && status.MPI_SOURCE == left);
  MPI_Mprobe(left, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status);
  CHECK(message != MPI_MESSAGE_NULL && status.MPI_TAG == 5);
  MPI_Mrecv(got, 3, MPI_DOUBLE, &message, &status);
  CHECK(message == MPI_MESSAGE_NULL && got[2] == left);
  MPI_Wait(&request, &status);
  CHECK(request == MPI_REQUEST_NULL);
  MPI_Improbe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &flag, &message, &status);
  CHECK(flag && message == MPI_MESSAGE_NO_PROC && status.MPI_SOURCE == MPI_PROC_NULL);
  MPI_Mrecv(got, 0, MPI_DOUBLE, &message, &status);
  CHECK(message == MPI_MESSAGE_NULL);
}

static void post(MPI_Request* requests, int* in, int* out) {
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  int i;
  for (i = 0; i < MANY; ++i) MPI_Irecv(in + i, 1, MPI_INT, left, i, MPI_COMM_WORLD, requests + i);
  for (i = 0; i < MANY; ++i) {
    out[i] = 100 * rank + i;
    MPI_Isend(out + i, 1, MPI_INT, right, i, MPI_COMM_WORLD, requests + MANY + i);
  }
}

static void arrays(void) {
  const int left = (rank + size - 1) % size;
  MPI_Request requests[2 * MANY];
  MPI_Status status, statuses[2 * MANY];
  int in[MANY], out[MANY], indices[2 * MANY], seen[2 * MANY] = {0};
  int i, index = -1, flag = 0, done = 0, count = 0;
  post(requests, in, out);
  MPI_Waitall(2 * MANY, requests, statuses);
  for (i = 0; i < MANY; ++i) {
    CHECK(in[i] == 100 * left + i && requests[i] == MPI_REQUEST_NULL && requests[MANY + i] == MPI_REQUEST_NULL);
    CHECK(statuses[i].MPI_SOURCE == left && statuses[i].MPI_TAG == i);
  }
  MPI_Waitall(2 * MANY, requests, MPI_STATUSES_IGNORE);
  MPI_Waitany(2 * MANY, requests, &index, &status);
  CHECK(index == MPI_UNDEFINED && status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG);

  post(requests, in, out);
  for (i = 0; i < 2 * MANY; ++i) {
    MPI_Waitany(2 * MANY, requests, &index, &status);
    CHECK(index >= 0 && index < 2 * MANY && !seen[index]++ && requests[index] == MPI_REQUEST_NULL);
    if (index < MANY) CHECK(status.MPI_TAG == index && status.MPI_SOURCE == left);
  }
  post(requests, in, out);
  while (done < 2 * MANY) {
    MPI_Waitsome(2 * MANY, requests, &count, indices, statuses);
    for (i = 0; i < count; ++i) {
      if (indices[i] < MANY) CHECK(statuses[i].MPI_TAG == indices[i] && statuses[i].MPI_SOURCE == left);
    }
    done += count;
  }
  MPI_Waitsome(2 * MANY, requests, &count, indices, statuses);
  CHECK(count == MPI_UNDEFINED);
  MPI_Testsome(2 * MANY, requests, &count, indices, MPI_STATUSES_IGNORE);
  CHECK(count == MPI_UNDEFINED);
  post(requests, in, out);
  while (!flag) MPI_Testall(2 * MANY, requests, &flag, statuses);
  CHECK(statuses[MANY - 1].MPI_TAG == MANY - 1 && requests[0] == MPI_REQUEST_NULL);
  MPI_Testany(2 * MANY, requests, &index, &flag, MPI_STATUS_IGNORE);
  CHECK(flag && index == MPI_UNDEFINED);
}

static void persistent(void) {
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  MPI_Request requests[2], before[2];
  int in = -1, out = rank, flag = 0, round;
  MPI_Recv_init(&in, 1, MPI_INT, left, 3, MPI_COMM_WORLD, requests);
  MPI_Send_init(&out, 1, MPI_INT, right, 3, MPI_COMM_WORLD, requests + 1);
  memcpy(before, requests, sizeof before);
  for (round = 0; round < 3; ++round) {
    out = 10 * rank + round;
    MPI_Startall(2, requests);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    CHECK(in == 10 * left + round && memcmp(before, requests, sizeof before) == 0);
  }
  MPI_Request_get_status(requests[0], &flag, MPI_STATUS_IGNORE);
  CHECK(flag);
  MPI_Request_free(requests);
  MPI_Request_free(requests + 1);
  CHECK(requests[0] == MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL);
}

static void buffered(void) {
  int out = rank, in = -1, bytes = 0;
  char room[sizeof out + MPI_BSEND_OVERHEAD], *given = NULL;
  MPI_Buffer_attach(room, sizeof room);
  MPI_Bsend(&out, 1, MPI_INT, (rank + 1) % size, 30, MPI_COMM_WORLD);
  MPI_Recv(&in, 1, MPI_INT, (rank + size - 1) % size, 30, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Buffer_detach(&given, &bytes);
  CHECK(in == (rank + size - 1) % size && given == room && bytes == sizeof room);
}

static void cancelled(void) {
  MPI_Request request;
  MPI_Status status;
  int in, flag = 0;
  MPI_Irecv(&in, 1, MPI_INT, rank, 777, MPI_COMM_WORLD, &request);
  MPI_Cancel(&request);
  MPI_Wait(&request, &status);
  MPI_Test_cancelled(&status, &flag);
  CHECK(flag);
}

static int freed, queried;
static int query(void* state, MPI_Status* status) {
  ++queried;
  MPI_Status_set_elements(status, MPI_INT, *(int*)state);
  MPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_PROC_NULL;
  status->MPI_TAG = 12;
  return MPI_SUCCESS;
}
static int release(void* state) {
  ++freed;
  return *(int*)state == 6 ? MPI_SUCCESS : MPI_ERR_OTHER;
}
static int cancel(void* state, int complete) {
  (void)state;
  return complete ? MPI_SUCCESS : MPI_ERR_OTHER;
}

static void general(void) {
  MPI_Request request;
  MPI_Status status;
  int six = 6, count = 0;
  MPI_Grequest_start(query, release, cancel, &six, &request);
  MPI_Grequest_complete(request);
  MPI_Wait(&request, &status);
  MPI_Get_count(&status, MPI_INT, &count);
  CHECK(queried == 1 && freed == 1 && count == 6 && status.MPI_TAG == 12 && status.MPI_SOURCE == MPI_PROC_NULL);
}

int main(int argc, char** argv) {
  start(&argc, &argv);
  statuses();
  probes();
  arrays();
  persistent();
  buffered();
  cancelled();
  general();
  return finish();
}
