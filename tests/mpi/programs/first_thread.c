// SPDX-License-Identifier: MIT
// Every rank makes its first thread in another round, between a request and its end. It holds locks then, and finds
// them, its number and its CPU time as they were. The thread calls MPI.
#define _GNU_SOURCE
#include <errno.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { rounds = 40, large = 300000, tag_of_threads = 1000 };

static int rank, size;

static void fail(const char* what) {
  fprintf(stderr, "rank %d: %s\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 3);
}

static void* work(void* unused) {
  int got = -1;
  MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, tag_of_threads, &got, 1, MPI_INT, (rank + size - 1) % size,
               tag_of_threads, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (got != (rank + size - 1) % size) fail("a thread has got another's message");
  return unused;
}

int main(int argc, char** argv) {
  int level = -1;
  char* const out = malloc(large);
  char* const in = malloc(large);
  pthread_t thread;
  pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
  pthread_mutex_t checked = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
  pthread_rwlock_t written = PTHREAD_RWLOCK_INITIALIZER;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  if (level != MPI_THREAD_MULTIPLE) fail("threads may not call");
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int before = (rank + size - 1) % size;
  const pthread_t self = pthread_self();
  for (int round = 0; round < rounds; ++round) {
    const int bytes = round % 3 == 0 ? large : 64;
    MPI_Request requests[2];
    out[0] = (char)(rank + round);
    MPI_Irecv(in, bytes, MPI_CHAR, before, round, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out, bytes, MPI_CHAR, (rank + 1) % size, round, MPI_COMM_WORLD, &requests[1]);
    if (round == rank * 7 % rounds) {
      const clock_t used = clock();
      pthread_mutex_lock(&plain);
      pthread_mutex_lock(&recursive);
      pthread_mutex_lock(&recursive);
      pthread_mutex_lock(&checked);
      pthread_rwlock_wrlock(&written);
      if (pthread_create(&thread, NULL, work, NULL) != 0) fail("no thread");
      if (pthread_mutex_lock(&checked) != EDEADLK) fail("a mutex does not know its owner");
      if (pthread_mutex_trylock(&plain) != EBUSY) fail("a mutex is free");
      if (pthread_rwlock_tryrdlock(&written) == 0) fail("a lock is free");
      if (pthread_mutex_unlock(&checked) != 0 || pthread_mutex_unlock(&recursive) != 0 ||
          pthread_mutex_unlock(&recursive) != 0 || pthread_mutex_unlock(&plain) != 0 ||
          pthread_rwlock_unlock(&written) != 0)
        fail("a lock is another's");
      if (pthread_mutex_unlock(&recursive) != EPERM) fail("a recursive mutex was locked more often");
      if (!pthread_equal(self, pthread_self())) fail("it is another thread");
      if (clock() < used) fail("CPU time has gone back");
    }
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    if (in[0] != (char)(before + round)) fail("wrong message");
    const int one = 1;
    int sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (sum != size) fail("wrong sum");
  }
  pthread_join(thread, NULL);
  MPI_Finalize();
  if (rank == 0) puts("No Errors");
  free(out);
  free(in);
  return 0;
}
