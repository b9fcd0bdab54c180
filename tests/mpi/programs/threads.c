/* SPDX-License-Identifier: MIT */
/* Threads of a program call MPI: its argument says how. Prints "No Errors" on rank 0. */
#include <mpi.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { threads = 4, turns = 200, large = 50000 };

static int rank, size, wanted = MPI_THREAD_SERIALIZED, errors;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static void check(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "rank %d: %s is wrong\n", rank, what);
  ++errors;
}

/* Each sends a number around the ring and gets the one of its neighbour, in turns. */
static void* take_turns(void* argument) {
  const int thread = (int)(long)argument;
  for (int i = 0; i < turns; ++i) {
    int given = 1000 * rank + thread, got = -1, level = -1, is_main = -1;
    pthread_mutex_lock(&turn);
    MPI_Sendrecv(&given, 1, MPI_INT, (rank + 1) % size, 0, &got, 1, MPI_INT, (rank + size - 1) % size, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Query_thread(&level);
    MPI_Is_thread_main(&is_main);
    pthread_mutex_unlock(&turn);
    /* The neighbour's threads take turns in any order. */
    check(got / 1000 == (rank + size - 1) % size && got % 1000 < threads, "what came around");
    check(level == wanted, "the level");
    check(is_main == 0, "MPI_Is_thread_main");
  }
  return NULL;
}

static void in_turns(void) {
  pthread_t made[threads];
  for (long i = 0; i < threads; ++i) pthread_create(&made[i], NULL, take_turns, (void*)i);
  for (int i = 0; i < threads; ++i) pthread_join(made[i], NULL);
  int is_main = 0, sum = 0;
  MPI_Is_thread_main(&is_main);
  check(is_main == 1, "MPI_Is_thread_main of the main thread");
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  check(sum == size * (size - 1) / 2, "the sum");
}

/* A thread begins what the main one ends, and the other way round. */
static MPI_Request open[2];
static int given[large], got[large];

static void* begin(void* unused) {
  MPI_Irecv(got, large, MPI_INT, (rank + size - 1) % size, 1, MPI_COMM_WORLD, &open[0]);
  MPI_Isend(given, large, MPI_INT, (rank + 1) % size, 1, MPI_COMM_WORLD, &open[1]);
  return unused;
}

static void* end(void* unused) {
  MPI_Waitall(2, open, MPI_STATUSES_IGNORE);
  return unused;
}

static void requests(void) {
  for (int round = 0; round < 20; ++round) {
    pthread_t made;
    for (int i = 0; i < large; ++i) given[i] = rank + round + i;
    if (round % 2 == 0) {
      pthread_create(&made, NULL, begin, NULL);
      pthread_join(made, NULL);
      end(NULL);
    } else {
      begin(NULL);
      pthread_create(&made, NULL, end, NULL);
      pthread_join(made, NULL);
    }
    for (int i = 0; i < large; ++i) {
      if (got[i] == (rank + size - 1) % size + round + i) continue;
      check(0, "what was received");
      break;
    }
  }
}

/* The main thread waits for a thread, which receives; rank 0 sends when all are there. */
static void* receive(void* unused) {
  int value = 0;
  MPI_Recv(&value, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  check(value == 42, "the value");
  return unused;
}

static void blocked(void) {
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    const int value = 42;
    for (int to = 1; to < size; ++to) MPI_Send(&value, 1, MPI_INT, to, 2, MPI_COMM_WORLD);
    return;
  }
  pthread_t made;
  pthread_create(&made, NULL, receive, NULL);
  pthread_join(made, NULL);
}

/* All threads call at once, and make communicators of communicators of their own. */
static MPI_Comm comms[threads];

static void* duplicate(void* argument) {
  const int thread = (int)(long)argument;
  for (int i = 0; i < turns / 4; ++i) {
    MPI_Comm made;
    int sum = -1, code = rank + thread, own = 1000 * rank + thread, other = -1;
    MPI_Comm_dup(comms[thread], &made);
    MPI_Allreduce(&code, &sum, 1, MPI_INT, MPI_SUM, made);
    check(sum == size * (size - 1) / 2 + size * thread, "the sum");
    MPI_Sendrecv(&own, 1, MPI_INT, (rank + 1) % size, 4, &other, 1, MPI_INT, (rank + size - 1) % size, 4, made,
                 MPI_STATUS_IGNORE);
    check(other == 1000 * ((rank + size - 1) % size) + thread, "what came around");
    MPI_Comm_free(&made);
    MPI_Comm_dup(MPI_COMM_SELF, &made);
    MPI_Comm_free(&made);
  }
  return NULL;
}

static void at_once(void) {
  pthread_t made[threads];
  for (int i = 0; i < threads; ++i) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
  for (long i = 1; i < threads; ++i) pthread_create(&made[i], NULL, duplicate, (void*)i);
  duplicate((void*)0L);
  for (int i = 1; i < threads; ++i) pthread_join(made[i], NULL);
  for (int i = 0; i < threads; ++i) MPI_Comm_free(&comms[i]);
}

/* What one thread begins goes on while another waits, also if that waited before. Ranks in pairs. */
static void* receive_beside(void* unused) {
  int value = -1;
  MPI_Recv(&value, 1, MPI_INT, rank ^ 1, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  check(value == 7, "what came while another thread's call went on");
  return unused;
}

static void beside(void) {
  for (int i = 0; i < 20; ++i) {
    MPI_Comm pair;
    MPI_Request request;
    const int value = 7;
    MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &pair);
    if (rank % 2 == 0 && rank + 1 < size) {
      MPI_Ibarrier(pair, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      MPI_Send(&value, 1, MPI_INT, rank + 1, 6, MPI_COMM_WORLD);
    } else if (rank % 2 == 1) {
      pthread_t made;
      pthread_create(&made, NULL, receive_beside, NULL);
      usleep(i * 100);
      MPI_Ibarrier(pair, &request);
      pthread_join(made, NULL);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Comm_free(&pair);
  }
}

/* Threads that never stop calling let others have their turns. */
static atomic_int is_over;

static void* call_greedily(void* unused) {
  int flag = 0;
  while (!atomic_load(&is_over)) MPI_Iprobe(MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
  check(!flag, "a message that nobody has sent");
  return unused;
}

static void fair(void) {
  pthread_t made[threads];
  for (int i = 0; i < threads; ++i) pthread_create(&made[i], NULL, call_greedily, NULL);
  const int next = (rank + 1) % size;
  const int previous = (rank + size - 1) % size;
  for (int i = 0; i < 50; ++i) {
    int value = -1;
    MPI_Sendrecv(&i, 1, MPI_INT, next, 9, &value, 1, MPI_INT, previous, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check(value == i, "what comes beside greedy threads");
  }
  atomic_store(&is_over, 1);
  for (int i = 0; i < threads; ++i) pthread_join(made[i], NULL);
}

/* Two threads make communicators of this rank alone, again and again, while two make some that need the other ranks. */
static void* duplicate_alone(void* unused) {
  for (int i = 0; i < 20 * turns; ++i) {
    MPI_Comm made;
    MPI_Comm_dup(MPI_COMM_SELF, &made);
    MPI_Comm_free(&made);
  }
  return unused;
}

static void alone(void) {
  pthread_t made[threads];
  for (int i = 0; i < 2; ++i) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
  pthread_create(&made[1], NULL, duplicate, (void*)1L);
  for (int i = 2; i < threads; ++i) pthread_create(&made[i], NULL, duplicate_alone, NULL);
  duplicate((void*)0L);
  for (int i = 1; i < threads; ++i) pthread_join(made[i], NULL);
  for (int i = 0; i < 2; ++i) MPI_Comm_free(&comms[i]);
}

/* Error handlers leave by a jump, or make a thread that calls, while the main thread is in none of its calls. */
static jmp_buf back;

static void jump(MPI_Comm* comm, int* code, ...) {
  check(*comm == MPI_COMM_WORLD && *code == MPI_ERR_RANK, "what the handler gets");
  longjmp(back, 1);
}

static void* talk_to_self(void* unused) {
  int sent = rank, received = -1;
  MPI_Sendrecv(&sent, 1, MPI_INT, rank, 5, &received, 1, MPI_INT, rank, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  check(received == rank, "what came from oneself");
  return unused;
}

static void make_thread(MPI_Comm* comm, int* code, ...) {
  pthread_t made;
  check(*comm == MPI_COMM_WORLD && *code == MPI_ERR_RANK, "what the handler gets");
  pthread_create(&made, NULL, talk_to_self, NULL);
  pthread_join(made, NULL);
}

static void handlers(MPI_Comm_errhandler_function* function) {
  static int round;
  MPI_Errhandler handler;
  MPI_Comm_create_errhandler(function, &handler);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
  for (round = 0; round < 4; ++round) {
    if (setjmp(back) == 0) {
      const int code = round % 2 == 0 ? MPI_Send(&rank, 1, MPI_INT, size, 0, MPI_COMM_WORLD)
                                      : MPI_Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_RANK);
      check(code == (round % 2 == 0 ? MPI_ERR_RANK : MPI_SUCCESS), "what the call returns");
    }
    pthread_t made;
    pthread_create(&made, NULL, talk_to_self, NULL);
    pthread_join(made, NULL);
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  MPI_Errhandler_free(&handler);
}

static void* call(void* what) {
  int flag = -1, level = -1;
  MPI_Initialized(&flag);
  check(flag == 1, "MPI_Initialized");
  MPI_Finalized(&flag);
  check(flag == (strcmp(what, "late") == 0), "MPI_Finalized");
  if (flag == 0) {
    MPI_Query_thread(&level);
    check(level == wanted, "the level");
    MPI_Is_thread_main(&flag);
    check(flag == 0, "MPI_Is_thread_main");
  }
  if (strcmp(what, "abort") == 0) {
    if (rank == 0) MPI_Abort(MPI_COMM_WORLD, 7);
    MPI_Recv(&level, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  if (strcmp(what, "wrong") == 0) MPI_Send(&level, -1, MPI_INT, 0, 0, MPI_COMM_WORLD);
  if (strcmp(what, "handled") == 0) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    const int code = MPI_Send(&level, 1, MPI_INT, size, 0, MPI_COMM_WORLD);
    check(code == MPI_ERR_RANK, "the error");
  }
  if (strcmp(what, "late") == 0 || strcmp(what, "below") == 0) MPI_Comm_rank(MPI_COMM_WORLD, &level);
  return NULL;
}

/* Made before MPI is initialized, and calls afterwards. */
static void* call_later(void* unused) {
  int value = -1;
  pthread_mutex_lock(&turn);
  MPI_Allreduce(&rank, &value, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  pthread_mutex_unlock(&turn);
  check(value == size - 1, "the maximum");
  return unused;
}

int main(int argc, char** argv) {
  const char* const what = argc > 1 ? argv[1] : "turns";
  int provided = -1;
  pthread_t early;
  if (strcmp(what, "early") == 0) {
    pthread_mutex_lock(&turn);
    pthread_create(&early, NULL, call_later, NULL);
  }
  if (strcmp(what, "below") == 0) wanted = MPI_THREAD_FUNNELED;
  if (strcmp(what, "at_once") == 0 || strcmp(what, "alone") == 0 || strcmp(what, "beside") == 0 ||
      strcmp(what, "fair") == 0)
    wanted = MPI_THREAD_MULTIPLE;
  MPI_Init_thread(&argc, &argv, wanted, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc > 2) wanted = MPI_THREAD_FUNNELED;
  check(provided == wanted, "what is provided");
  if (strcmp(what, "early") == 0) {
    pthread_mutex_unlock(&turn);
    pthread_join(early, NULL);
  } else if (strcmp(what, "turns") == 0) {
    in_turns();
  } else if (strcmp(what, "requests") == 0) {
    requests();
  } else if (strcmp(what, "at_once") == 0) {
    at_once();
  } else if (strcmp(what, "fair") == 0) {
    fair();
  } else if (strcmp(what, "beside") == 0) {
    beside();
  } else if (strcmp(what, "alone") == 0) {
    alone();
  } else if (strcmp(what, "blocked") == 0) {
    blocked();
  } else if (strcmp(what, "jump") == 0) {
    handlers(jump);
  } else if (strcmp(what, "make") == 0) {
    handlers(make_thread);
  } else if (strcmp(what, "level") != 0) {
    pthread_t made;
    if (strcmp(what, "late") == 0) MPI_Finalize();
    pthread_create(&made, NULL, call, (void*)what);
    pthread_join(made, NULL);
    if (strcmp(what, "late") == 0) return errors;
  }
  int all = 0;
  MPI_Reduce(&errors, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0 && all == 0) puts("No Errors");
  MPI_Finalize();
  return errors != 0;
}
