/* SPDX-License-Identifier: MIT */
/* Ranks that move between threads while they hold what the C library knows by its thread. Prints "No Errors" on rank
   0. */
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <threads.h>

static int rank, ranks, errors;

static void check(int right, const char* what) {
  if (right) return;
  if (errors++ == 0) printf("rank %d: %s\n", rank, what);
}

/* Ranks compute for different times, so that those of a busy thread move to one that waits. */
static void compute_and_meet(int round) {
  int got = -1;
  for (volatile int i = 0; i < (rank * 7 + round) % 5 * 20000; ++i) continue;
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Sendrecv(&round, 1, MPI_INT, (rank + 1) % ranks, 0, &got, 1, MPI_INT, (rank + ranks - 1) % ranks, 0,
               MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static pthread_mutex_t mutex_of_type(int type) {
  pthread_mutexattr_t attributes;
  pthread_mutex_t mutex;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_settype(&attributes, type);
  pthread_mutex_init(&mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  return mutex;
}

int main(int argc, char** argv) {
  pthread_t (*volatile self)(void) = pthread_self; /* the compiler takes its result for constant */
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const pthread_t first = self();
  pthread_mutex_t recursive = mutex_of_type(PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_t checking = mutex_of_type(PTHREAD_MUTEX_ERRORCHECK);
  pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
  mtx_t c11;
  mtx_init(&c11, mtx_plain | mtx_recursive);
  FILE* file = tmpfile();
  for (int round = 0; round < 200; ++round) {
    compute_and_meet(round);
    switch (round % 5) {
      case 0:
        check(pthread_mutex_lock(&recursive) == 0, "locking a recursive mutex");
        compute_and_meet(round);
        check(pthread_mutex_lock(&recursive) == 0 && pthread_mutex_unlock(&recursive) == 0, "locking it once more");
        check(pthread_mutex_unlock(&recursive) == 0, "unlocking a recursive mutex");
        break;
      case 1:
        check(pthread_mutex_lock(&checking) == 0, "locking an error-checking mutex");
        compute_and_meet(round);
        check(pthread_mutex_unlock(&checking) == 0, "unlocking an error-checking mutex");
        break;
      case 2:
        check(pthread_rwlock_wrlock(&lock) == 0, "locking for writing");
        compute_and_meet(round);
        check(pthread_rwlock_unlock(&lock) == 0, "unlocking after writing");
        check(pthread_rwlock_tryrdlock(&lock) == 0 && pthread_rwlock_unlock(&lock) == 0, "the lock is free again");
        break;
      case 3:
        check(mtx_lock(&c11) == thrd_success, "locking a mutex of C11");
        compute_and_meet(round);
        check(mtx_trylock(&c11) == thrd_success && mtx_unlock(&c11) == thrd_success, "locking that once more");
        check(mtx_unlock(&c11) == thrd_success, "unlocking a mutex of C11");
        break;
      default:
        flockfile(file);
        compute_and_meet(round);
        check(ftrylockfile(file) == 0, "locking a file once more");
        funlockfile(file);
        funlockfile(file);
    }
    check(pthread_equal(self(), first) != 0, "pthread_self() is another");
  }
  int all = 0;
  MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0 && all == 0) puts("No Errors");
  MPI_Finalize();
  return all != 0;
}
