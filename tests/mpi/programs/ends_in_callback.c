/* SPDX-License-Identifier: MIT */
/* Main ends while a thread of the program is in a function of the program that a call of MPI has called, and that does
 * not return: an operation, what an attribute has for its end, an error handler, or what a generalised request has.
 * Words: operation|attribute|handler|request|waits|calls|returns, and main's status. "waits": the operation sleeps;
 * "calls": it calls MPI again and again; "returns": it computes for a moment. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile int is_there;
static const char* what;

static void stay(void) {
  int size = 0;
  is_there = 1;
  if (strcmp(what, "returns") == 0) usleep(100000), is_there = 0;
  while (is_there) {
    if (strcmp(what, "waits") == 0) usleep(10000000);
    if (strcmp(what, "calls") == 0) MPI_Comm_size(MPI_COMM_WORLD, &size);
  }
}

static void operate(void* in, void* inout, int* count, MPI_Datatype* type) {
  (void)in, (void)inout, (void)count, (void)type;
  stay();
}

static int drop(MPI_Comm comm, int key, void* value, void* extra) {
  (void)comm, (void)key, (void)value, (void)extra;
  stay();
  return MPI_SUCCESS;
}

static void handle(MPI_Comm* comm, int* code, ...) {
  (void)comm, (void)code;
  stay();
}

static int query(void* state, MPI_Status* status) {
  (void)state, (void)status;
  stay();
  return MPI_SUCCESS;
}
static int end(void* state) {
  (void)state;
  return MPI_SUCCESS;
}
static int cancel(void* state, int is_over) {
  (void)state, (void)is_over;
  return MPI_SUCCESS;
}

static void* call(void* unused) {
  (void)unused;
  if (strcmp(what, "handler") == 0) {
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    MPI_Comm_create_errhandler(handle, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    MPI_Send(NULL, -1, MPI_INT, 0, 0, MPI_COMM_WORLD);
  } else if (strcmp(what, "request") == 0) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Grequest_start(query, end, cancel, NULL, &request);
    MPI_Grequest_complete(request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else if (strcmp(what, "attribute") == 0) {
    int key = MPI_KEYVAL_INVALID;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, drop, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
    MPI_Comm_delete_attr(MPI_COMM_SELF, key);
  } else {
    int from = 1, to = 2;
    MPI_Op operation = MPI_OP_NULL;
    MPI_Op_create(operate, 1, &operation);
    MPI_Reduce_local(&from, &to, 1, MPI_INT, operation);
  }
  return NULL;
}

int main(int argc, char** argv) {
  int level = 0;
  pthread_t thread;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  what = argv[1];
  pthread_create(&thread, NULL, call, NULL);
  while (!is_there) usleep(1000);
  printf("main ends\n");
  if (atoi(argv[2]) != 0) exit(atoi(argv[2]));
  return 0;
}
