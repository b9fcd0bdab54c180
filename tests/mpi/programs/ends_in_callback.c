/* SPDX-License-Identifier: MIT */
/* Main ends while a thread of the program is in a function of the program that a call of MPI has called, and that does
 * not return: an operation, or what an attribute has for its end. Words: operation|attribute|waits, and main's status.
 * "waits": the operation sleeps. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile int is_there;
static int sleeps;

static void stay(void) {
  is_there = 1;
  while (is_there) {
    if (sleeps) usleep(10000000);
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

static void* call(void* what) {
  if (strcmp(what, "attribute") == 0) {
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
  sleeps = strcmp(argv[1], "waits") == 0;
  pthread_create(&thread, NULL, call, argv[1]);
  while (!is_there) usleep(1000);
  printf("main ends\n");
  if (atoi(argv[2]) != 0) exit(atoi(argv[2]));
  return 0;
}
